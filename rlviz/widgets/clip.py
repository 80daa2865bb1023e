"""explore_clip: what clipping does to the objective and the gradient of one token."""

from __future__ import annotations

from collections.abc import Sequence

from rlviz.algorithms import GRPO, Algorithm, PolicyGradient
from rlviz.curves import ClipComparison, clip_comparison
from rlviz.plots.clip import BESIDE, ClipPicture
from rlviz.widgets.explorer import AlgorithmControl, Explorer, algorithms_beside
from rlviz.widgets.live import Pick, check_number, choice_control, float_control
from small_models.checks import checked

DUAL_CLIPS = (1.5, 2.0, 3.0, 5.0, 10.0)
UP_TO = (2.0, 4.0, 12.0)


def has_a_ratio(algorithm: Algorithm) -> bool:
    """Return whether the algorithm has a ratio that could be clipped."""
    return isinstance(algorithm, PolicyGradient)


@checked
def explore_clip(
    algorithm: PolicyGradient = GRPO,
    *,
    eps_low: float | None = None,
    eps_high: float | None = None,
    max_ratio: float | None = None,
    old_prob: float = 0.6,
    dual_clip: float = 0.0,
    up_to: float = 2.0,
    beside: Sequence[PolicyGradient] = (),
) -> Explorer[ClipComparison]:
    """Return a picture of one token's clipped objective, and how hard it pushes log π, against its ratio, for both signs of A.

    The curves come from the algorithm's own pieces, the push, ∂J/∂log π = ratio · ∂J/∂ratio, from autograd; hatched is what
    `is_clipped`, which the clip fractions of training count with, says to be cut. A width that the algorithm's bounds do not
    have has no slider. Where the ratio is a whole response's, as GSPO's, no probability goes with it, and old_prob matters to
    bounds that ask for it only.

    eps_low, eps_high, max_ratio: of the bounds; None: the algorithm's own. old_prob: the token's probability when sampled.
    dual_clip: c of a dual clip in place of the algorithm's surrogate; 0: the surrogate as it is. up_to: the largest ratio
    shown. beside: up to three algorithms whose objectives lie over it. Raises ValueError for a value out of range, an
    algorithm without a ratio, or bounds that are no limits.
    """
    chosen = AlgorithmControl(
        algorithm,
        ("eps_low", "eps_high", "max_ratio"),
        fits=has_a_ratio,
        starting={"eps_low": eps_low, "eps_high": eps_high, "max_ratio": max_ratio},
    )
    check_number("up_to", up_to, "a number")
    return Explorer(
        explore_clip,
        ClipPicture,
        clip_comparison,
        [
            float_control("old_prob", old_prob, 0.01, 1.0, 0.01, "old probability"),
            choice_control("dual_clip", dual_clip, (0.0, *DUAL_CLIPS), "dual clip c (0: none)"),
            Pick("up_to", up_to, [(f"{ratio:g}", ratio) for ratio in sorted({*UP_TO, up_to})], "ratios up to"),
            algorithms_beside(beside, has_a_ratio, most=len(BESIDE)),
        ],
        chosen,
    )
