"""explore_dpo: where losses let go of a preference pair, and why the chosen response may fall with the rejected one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlviz.algorithms import ALGORITHMS, DPO, DPO_LINEAR, GroupPolicyGradient, PreferenceOptimization
from rlviz.curves import DpoCurve, dpo_curve
from rlviz.curves.dpo import learns_from_a_pair
from rlviz.plots.dpo import DpoPicture
from rlviz.widgets.explorer import RANGES, AlgorithmControl, Explorer, call_name
from rlviz.widgets.live import float_control


class PairControl(AlgorithmControl):
    """A dropdown of what can learn from a pair, DPO's linear loss among it, and a slider for an implicit reward's beta.

    Raises ValueError for a beta out of range, or one given to an algorithm without an implicit reward.
    """

    def __init__(self, algorithm: PreferenceOptimization | GroupPolicyGradient, beta: float | None) -> None:
        super().__init__(algorithm, ("beta",), fits=learns_from_a_pair)
        family = [DPO, DPO_LINEAR, *(m for m in ALGORITHMS if learns_from_a_pair(m) and m != DPO)]
        every = family if algorithm in family else [algorithm, *family]
        self.pick.box.options = [(member.name, member) for member in every]
        self.pick.box.value = algorithm
        if beta is not None:
            if self._beta is None:
                raise ValueError(f"beta: {algorithm.name} has no implicit reward that it could belong to; got {beta}")
            replace(self.pick.value.reward, beta=beta)  # refuses what the slider would only move
            self._move_to(beta)

    @property
    def _beta(self) -> float | None:
        """The beta of the algorithm as it is in the dropdown."""
        return getattr(getattr(self.pick.value, "reward", None), "beta", None)

    def _move_to(self, beta: float) -> None:
        low, high, step = RANGES["beta"]
        self._sliders["beta"].move_to(beta, min(low, beta), max(high, beta), step)

    def _follow_the_pick(self) -> None:
        self._set_anew = True
        self._sliders["beta"].hide(self._beta is None)
        if self._beta is not None:
            self._move_to(self._beta)
        self._set_anew = False

    @property
    def algorithm(self) -> Any:
        chosen, beta = self.pick.value, self._sliders["beta"].value
        return chosen if self._beta in (None, beta) else replace(chosen, reward=replace(chosen.reward, beta=beta))

    def arguments(self, default: Any) -> list[str]:
        chosen, beta = self.pick.value, self._sliders["beta"].value
        name = "DPO_LINEAR" if chosen == DPO_LINEAR else call_name(chosen)
        shown = [] if chosen == default else [name]
        return shown if self._beta in (None, beta) else [*shown, f"beta={beta!r}"]


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
    starts. shared: how much of the rejected response the policy sees in the chosen one, 0 to 1. pace: margin that the run's first
    step would gain with nothing shared, nats. Raises ValueError for a value out of range, or an algorithm without a loss on
    pairs.
    """
    return Explorer(
        explore_dpo,
        DpoPicture,
        dpo_curve,
        [
            float_control("chosen_prob", chosen_prob, 0.02, 0.48, 0.02, "chosen, probability"),
            float_control("rejected_prob", rejected_prob, 0.02, 0.48, 0.02, "rejected, probability"),
            float_control("shared", shared, 0.0, 1.0, 0.05, "shared"),
            float_control("pace", pace, 0.1, 3.0, 0.1, "pace, nats a step"),
        ],
        PairControl(algorithm, beta),
    )
