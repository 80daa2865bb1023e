"""explore_ratio: token against sequence ratio as responses grow, and the scale that limits need."""

from __future__ import annotations

from rlviz.algorithms import GRPO, Algorithm, PolicyGradient
from rlviz.curves import RatioCurve, ratio_curve
from rlviz.curves.ratio import limits_follow_probability
from rlviz.plots.ratio import RatioPicture
from rlviz.widgets.explorer import AlgorithmControl, Explorer
from rlviz.widgets.live import float_control, int_control
from small_models.checks import checked


def _has_a_ratio(algorithm: Algorithm) -> bool:
    return isinstance(algorithm, PolicyGradient)


@checked
def explore_ratio(
    algorithm: PolicyGradient = GRPO,
    *,
    eps_low: float | None = None,
    eps_high: float | None = None,
    max_ratio: float | None = None,
    length: int = 100,
    noise: float = 0.06,
    drift: float = 0.0,
    old_prob: float = 0.1,
) -> Explorer[RatioCurve]:
    """Return a picture of how far four kinds of ratio lie from 1 against length, and of the algorithm's own in its limits.

    A token's ratio does not care for length; the geometric mean (GSPO's sequence ratio) and the arithmetic mean draw nearer to 1
    like 1/√length, the plain product runs away. So limits made for one kind of ratio are no limits for another. Hatched is
    what `is_clipped`, which the clip fractions of training count with, says to be cut.

    eps_low, eps_high, max_ratio: of the bounds; None: the algorithm's own. length: tokens of a response. noise: standard
    deviation of a token's log-ratio, nats. drift: log of the mean token ratio, nats; 0 under the policy that sampled.
    old_prob: the tokens' probability when sampled; in sight only where limits depend on it. Raises ValueError for a value
    out of range, or an algorithm without a ratio.
    """
    chosen = AlgorithmControl(
        algorithm,
        ("eps_low", "eps_high", "max_ratio"),
        fits=_has_a_ratio,
        starting={"eps_low": eps_low, "eps_high": eps_high, "max_ratio": max_ratio},
    )
    probability = float_control("old_prob", old_prob, 0.01, 0.5, 0.01, "old probability")

    def follow() -> None:
        probability.hide(not limits_follow_probability(chosen.pick.value))

    follow()
    chosen.pick.observe(follow)
    return Explorer(
        explore_ratio,
        RatioPicture,
        ratio_curve,
        [
            int_control("length", length, 1, 200, "length, tokens"),
            float_control("noise", noise, 0.005, 0.5, 0.005, "noise, nats"),
            float_control("drift", drift, -0.05, 0.05, 0.001, "drift, nats"),
            probability,
        ],
        chosen,
    )
