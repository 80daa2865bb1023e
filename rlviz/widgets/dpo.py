"""explore_dpo: where losses let go of a preference pair, and why the chosen response may fall with the rejected one."""

from __future__ import annotations

from rlviz.algorithms import (
    ALGORITHMS,
    DPO,
    DPO_LINEAR,
    Algorithm,
    GroupPolicyGradient,
    PreferenceOptimization,
    numbers,
)
from rlviz.curves import DpoCurve, dpo_curve
from rlviz.curves.dpo import learns_from_a_pair
from rlviz.plots.dpo import DpoPicture
from rlviz.widgets.explorer import AlgorithmControl, Explorer
from rlviz.widgets.live import float_control
from small_models.checks import checked

FAMILY = (DPO, DPO_LINEAR, *(member for member in ALGORITHMS if member is not DPO))


def of_the_implicit_reward(algorithm: Algorithm) -> dict[str, int | float]:
    """Return the numbers that shape a loss on pairs; a KL term's β has no part in it."""
    return numbers(algorithm) if isinstance(algorithm, PreferenceOptimization) else {}


@checked
def explore_dpo(
    algorithm: PreferenceOptimization | GroupPolicyGradient = DPO,
    *,
    beta: float | None = None,
    chosen_prob: float = 0.2,
    rejected_prob: float = 0.3,
    shared: float = 0.7,
    pace: float = 1.5,
) -> Explorer[DpoCurve]:
    """Return a picture of a pair's loss and pull against its margin, and of a small policy that is trained on the pair.

    DPO's sigmoid fades once the pair is ordered, the linear loss never lets go, and a clip stops dead at its limits: an
    algorithm of groups sees the pair as two sampled responses with rewards 1 and 0. All losses are drawn from 0 with a slope of
    −1 at margin 0. In the run the margin grows, and yet the chosen response may become less likely, as what pushes the
    rejected one down takes the chosen one along: its probability goes to others that nobody asked for.

    beta: of the implicit reward; None: the algorithm's own. chosen_prob, rejected_prob: under the reference, where the run
    starts. shared: how alike the two are, as how much of the rejected response the policy sees in the chosen one, 0 to 1.
    pace: margin that the run's first step would gain with nothing shared, nats. Raises ValueError for a value out of range,
    or an algorithm without a loss on pairs.
    """
    chosen = AlgorithmControl(
        algorithm,
        ("beta",),
        fits=learns_from_a_pair,
        among=FAMILY,
        numbers=of_the_implicit_reward,
        starting={"beta": beta},
    )
    return Explorer(
        explore_dpo,
        DpoPicture,
        dpo_curve,
        [
            float_control("chosen_prob", chosen_prob, 0.02, 0.48, 0.02, "P(chosen)"),
            float_control("rejected_prob", rejected_prob, 0.02, 0.48, 0.02, "P(rejected)"),
            float_control("shared", shared, 0.0, 1.0, 0.05, "how alike, 0 to 1"),
            float_control("pace", pace, 0.1, 3.0, 0.1, "first step, nats"),
        ],
        chosen,
    )
