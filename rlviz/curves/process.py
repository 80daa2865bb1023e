"""Credit for the tokens of worked answers: from the outcome alone, or from a reward for every step."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.curves.arrays import Array
from rlviz.pieces.advantages import ProcessAdvantage
from small_models.checks import checked

DIGITS = "61651778"
STEPS = len(DIGITS)
# the other answers: right running sums before the first wrong one, and by how much all are wrong from there on
OTHERS = ((2, 4), (5, 1), (0, 9), (6, 3), (3, 8), (7, 5), (1, 2))
SHIFT = 7  # of the first answer's wrong running sums
ANSWERS = 1 + len(OTHERS)
SUPERVISIONS: tuple[Literal["sum"], Literal["mean"]] = ("sum", "mean")


@dataclass(frozen=True)
class ProcessCurve:
    """A group of 8 answers to one prompt, and the credit of each of the T tokens of one of them.

    prompt, gold: the digits to add, and the right answer. answers: the group as written, $ the end of sequence. right: [8, T],
    whether the step that a token belongs to is right. ends: [T], where a step ends, and so earns 1 or 0. shown: the place of
    the answer whose credit follows. outcome: [T], the algorithm's advantage from the answer alone. process, beside: [T], from
    rewards of steps, by the rule picked and by the other. rule, beside_rule: their names. outcomes: [8], rewards of the
    answers. outcome_credit: [8], the algorithm's advantages of them. name: of the algorithm.
    """

    name: str
    prompt: str
    gold: str
    answers: tuple[str, ...]
    right: NDArray[np.bool_]
    ends: NDArray[np.bool_]
    shown: int
    outcome: Array
    process: Array
    beside: Array
    rule: str
    beside_rule: str
    outcomes: Array
    outcome_credit: Array


@checked
def process_curve(
    algorithm: GroupPolicyGradient,
    *,
    answer: int = 1,
    supervision: str = "sum",
    right_steps: int = 6,
    right_others: int = 3,
) -> ProcessCurve:
    """Return the credit of an answer's tokens in a group of 8: the algorithm's from the outcome, and by process supervision.

    The task is to write the running sums of 8 digits modulo 10, then # and the last of them. Every running sum is a step, which
    earns 1 if it is right, and so are the last three tokens, which earn the outcome. answer: 1 to 8, whose credit is
    shown. supervision: "sum" or "mean" of the steps to come; an algorithm with a process rule of its own shows that one.
    right_steps: 0 to 8, right running sums of answer 1 before the first wrong one. right_others: 0 to 7, how many of the
    other answers are right throughout. Raises ValueError for a value out of range.
    """
    for name, value, low, high in (
        ("answer", answer, 1, ANSWERS),
        ("right_steps", right_steps, 0, STEPS),
        ("right_others", right_others, 0, len(OTHERS)),
    ):
        if not low <= value <= high:
            raise ValueError(f"{name} must be from {low} to {high}; got {value}")
    if supervision not in SUPERVISIONS:
        raise ValueError(f'supervision must be "sum" or "mean"; got {supervision!r}')
    gold = _written(STEPS, 0)
    wrong_from = [right_steps, *(steps for steps, _ in OTHERS[: len(OTHERS) - right_others]), *[STEPS] * right_others]
    answers = [_written(steps, by) for steps, by in zip(wrong_from, [SHIFT, *(by for _, by in OTHERS)], strict=True)]
    answers_right = [written == gold for written in answers]
    right = torch.tensor(
        [
            [*map(str.__eq__, written[:STEPS], gold), *[is_right] * 3]
            for written, is_right in zip(answers, answers_right, strict=True)
        ]
    )
    ends = torch.tensor([*[True] * STEPS, False, False, True])
    outcomes = torch.tensor([answers_right], dtype=torch.double)

    bare, mask = algorithm.without_kl(), torch.ones_like(right).unsqueeze(0)
    rewards, step_ends = right.double().unsqueeze(0), ends.expand(mask.shape)
    of_steps = {rule: ProcessAdvantage(combine=rule)(rewards, step_ends)[0] for rule in SUPERVISIONS}
    other = next(rule for rule in SUPERVISIONS if rule != supervision)
    has_a_rule = algorithm.asks_for("advantage", "step_ends")
    process = bare.advantages(rewards, mask, step_ends=step_ends)[0][0] if has_a_rule else of_steps[supervision]
    beside_rule = supervision if has_a_rule else other
    outcome = _outcome_credit(bare, outcomes, mask)
    return ProcessCurve(
        name=algorithm.name,
        prompt=f"{DIGITS}=",
        gold=gold[:-1],
        answers=tuple(answers),
        right=right.numpy(),
        ends=ends.numpy(),
        shown=answer - 1,
        outcome=outcome[answer - 1].numpy(),
        process=process[answer - 1].numpy(),
        beside=of_steps[beside_rule][answer - 1].numpy(),
        rule="its own rule" if has_a_rule else f"{supervision} of the steps to come",
        beside_rule=f"{beside_rule} of the steps to come",
        outcomes=outcomes[0].numpy(),
        outcome_credit=outcome[:, 0].numpy(),
    )


def _written(right_steps: int, shift: int) -> str:
    sums = [total % 10 for total in accumulate(int(digit) for digit in DIGITS)]
    written = [total if place < right_steps else (total + shift) % 10 for place, total in enumerate(sums)]
    return "".join(map(str, written)) + f"#{written[-1]}$"


def _outcome_credit(algorithm: GroupPolicyGradient, outcomes: Tensor, mask: Tensor) -> Tensor:
    if not algorithm.asks_for("advantage", "step_ends"):
        return algorithm.advantages(outcomes, mask)[0][0]
    only_the_last = torch.zeros_like(mask).index_fill(2, torch.tensor([mask.shape[-1] - 1]), True)
    return algorithm.advantages(outcomes.unsqueeze(-1) * only_the_last, mask, step_ends=only_the_last)[0][0]
