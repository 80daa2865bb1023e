"""explore_process: credit from the outcome against credit from every step, over the tokens of worked answers."""

from __future__ import annotations

from typing import Literal

from rlviz.algorithms import ALGORITHMS, GRPO, GRPO_PROCESS, Algorithm, GroupPolicyGradient
from rlviz.curves.process import ANSWERS, STEPS, ProcessCurve, process_curve
from rlviz.plots.process import ProcessPicture
from rlviz.widgets.explorer import AlgorithmControl, Explorer
from rlviz.widgets.live import Pick, int_control
from small_models.checks import checked

FAMILY = (GRPO, GRPO_PROCESS, *(member for member in ALGORITHMS if member is not GRPO))


def compares_a_group(algorithm: Algorithm) -> bool:
    """Return whether the algorithm makes advantages by comparing a group's rewards."""
    return isinstance(algorithm, GroupPolicyGradient)


@checked
def explore_process(
    algorithm: GroupPolicyGradient = GRPO,
    *,
    answer: int = 1,
    supervision: Literal["sum", "mean"] = "sum",
    right_steps: int = 6,
    right_others: int = 3,
) -> Explorer[ProcessCurve]:
    """Return a picture of the credit of each token of a worked answer: from the outcome alone, and from a reward for each step.

    Outcome credit is the algorithm's own. Process credit takes its place: that of the algorithm with process supervision in its
    advantage slot, or its own rule if it has one, as GRPO (process) has.

    right_steps: right steps of answer 1 before its first wrong one, 8: none is wrong. right_others: how many of the other 7
    answers are right. answer: 1 to 8, whose tokens are shown. supervision: "sum" (the paper's) or "mean" of the steps to
    come, as bars, the other one as a line; beside an algorithm's own rule as a line.
    Raises ValueError for a value out of range, or an algorithm without groups.
    """
    return Explorer(
        explore_process,
        ProcessPicture,
        process_curve,
        [
            int_control("right_steps", right_steps, 0, STEPS, "right steps of 1"),
            int_control("right_others", right_others, 0, ANSWERS - 1, "others right"),
            int_control("answer", answer, 1, ANSWERS, "answer shown"),
            Pick(
                "supervision",
                supervision,
                [("sum of steps to come", "sum"), ("mean of them", "mean")],
                "process credit",
            ),
        ],
        AlgorithmControl(algorithm, fits=compares_a_group, among=FAMILY),
    )
