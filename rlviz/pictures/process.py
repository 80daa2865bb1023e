"""Credit for the tokens of worked answers: from the outcome alone, or from a reward for every step."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from torch import Tensor

from rlviz.algorithms import DR_GRPO, GRPO, GRPO_PROCESS, Algorithm, GroupPolicyGradient
from rlviz.pictures.arguments import OFFERED, Menu, WholeSlider
from rlviz.pictures.arrays import Array
from rlviz.pictures.base import BLUE, FAINT, GREEN, GREY, LINE, TEXT, VERMILION, Handle, Picture, dress, signed
from rlviz.pictures.explore import Algorithms, explorer
from rlviz.pictures.groups import learns_from_a_group, without_kl
from rlviz.pictures.marks import Marks
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
    algorithm: GroupPolicyGradient = GRPO,
    *,
    answer: int = 1,
    supervision: Literal["sum", "mean"] = "sum",
    right_steps: int = 6,
    right_others: int = 3,
) -> ProcessCurve:
    """Return the credit of each token of a worked answer: from the outcome alone, and from a reward for each step.

    The task is to write the running sums of 8 digits modulo 10, then # and the last of them; 8 answers make a group. Every
    running sum is a step, which earns 1 if it is right, and so are the last three tokens, which earn the outcome. Outcome credit
    is the algorithm's own. Process credit takes its place: that of the algorithm with process supervision in its advantage slot,
    or its own rule if it has one, as GRPO (process) has.

    answer: 1 to 8, whose credit is shown. supervision: "sum" (the paper's) or "mean" of the steps to come, as bars, the other
    one as a line; beside an algorithm's own rule as a line. right_steps: 0 to 8, right running sums of answer 1 before the first
    wrong one. right_others: 0 to 7, how many of the other answers are right throughout.
    Raises ValueError for a value out of range, or an algorithm without groups.
    """
    for name, value, low, high in (
        ("answer", answer, 1, ANSWERS),
        ("right_steps", right_steps, 0, STEPS),
        ("right_others", right_others, 0, len(OTHERS)),
    ):
        if not low <= value <= high:
            raise ValueError(f"{name} must be from {low} to {high}; got {value}")
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

    bare, mask = without_kl(algorithm, "step_ends"), torch.ones_like(right).unsqueeze(0)
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


UNITS = (2, 5, 10)  # of credit from tick to tick
BOTTOM, TOP = -3.1, 2.1  # of the credit drawn, in units: ticks stand where they stand, only their numbers change
TICKS = range(-3, 3)
ROWS = {"adds": -0.06, "writes": -0.14, "right?": -0.22}  # below the axes


def _unit(curve: ProcessCurve) -> int:
    every = np.concatenate([curve.process, curve.beside, curve.outcome])
    return next((unit for unit in UNITS if BOTTOM * unit < every.min() and every.max() < TOP * unit), UNITS[-1])


def _right_until(curve: ProcessCurve, answer: int) -> float:
    """Return where the first wrong running sum of an answer begins, or the last right one ends."""
    return float(curve.right[answer, :STEPS].sum()) - 0.5  # an answer stays wrong from its first wrong step on


class CreditSide:
    """One answer's credit, a bar and two marks a token, and below what each token adds, says, and whether its step is right."""

    def __init__(self, ax: Axes, curve: ProcessCurve) -> None:
        self.ax = ax
        dress(
            ax,
            title="What each token of the answer is credited",
            x="each step: the sum so far, modulo 10",
            y="advantage A",
        )
        ax.set(xlim=(-0.6, len(curve.ends) - 0.4), xticks=[])
        ax.xaxis.labelpad, ax.yaxis.labelpad = 64, 40  # room for what is written below and beside
        ax.tick_params(axis="y", labelleft=False)
        ax.axhline(0, color=GREY, linewidth=1)
        self.wrong = PolyCollection([], facecolor=FAINT, linewidth=0, label="wrong step")
        self.bars = PolyCollection([], facecolor="#a6cfe8", edgecolor=BLUE, linewidth=1.5)
        for collection in (self.wrong, self.bars):
            ax.add_collection(collection, autolim=False)
        self.first_wrong = ax.axvline(0, color="black", linewidth=1.5)
        (self.beside,) = ax.plot([], [], color=GREEN, linestyle=":", linewidth=LINE, marker="D", markersize=7)
        (self.outcome,) = ax.plot([], [], color=VERMILION, linestyle="--", linewidth=LINE, marker="^", markersize=8)
        below = ax.get_xaxis_transform()
        for row, y in ROWS.items():
            ax.text(-0.8, y, row, fontsize=TEXT - 1, ha="right", va="center", transform=below, in_layout=False)
        Marks(ax, where=below).write((f"+{digit}", x, ROWS["adds"]) for x, digit in enumerate(curve.prompt[:-1]))
        self.written = Marks(ax, where=below)

    @property
    def moving(self) -> list[Artist]:
        return [self.wrong, self.first_wrong, self.bars, self.outcome, self.beside, self.written]

    def show(self, curve: ProcessCurve) -> None:
        unit, places = _unit(curve), np.arange(len(curve.process))
        bottom, top = BOTTOM * unit, TOP * unit
        if self.ax.get_ylim() != (bottom, top):
            self.ax.set(ylim=(bottom, top), yticks=[unit * tick for tick in TICKS])
        right = curve.right[curve.shown]
        wrong = int((~right).sum())
        self.wrong.set_verts([_box(len(right) - wrong - 0.5, bottom, wrong, top - bottom)])
        self.first_wrong.set_xdata([_right_until(curve, curve.shown)] * 2)
        self.bars.set_verts([_box(x - 0.36, 0, 0.72, a) for x, a in zip(places, curve.process, strict=True)])
        self.beside.set_data(places, curve.beside)
        self.outcome.set_data(places, curve.outcome)
        tokens: list[tuple[str, float, float]] = [
            (token, x, ROWS["writes"]) for x, token in enumerate(curve.answers[curve.shown])
        ]
        ticks = [("✓" if right[x] else "✗", float(x), ROWS["right?"]) for x in np.flatnonzero(curve.ends)]
        numbers = [(f"{unit * tick}".replace("-", "−"), -1.4, (tick - BOTTOM) / (TOP - BOTTOM)) for tick in TICKS]
        self.written.write([*tokens, *ticks, *numbers])


def _first_right(curve: ProcessCurve) -> int:
    """Return the row of the first of the other answers that are right; they come last."""
    return len(curve.outcomes) - int(curve.outcomes[1:].sum())


class GroupSide:
    """The group as a table: the prompt, the right answer, and a row an answer: tokens, reward and outcome advantage."""

    def __init__(self, ax: Axes, curve: ProcessCurve) -> None:
        self.ax = ax
        answers, tokens = curve.right.shape
        dress(ax, title="The group, wrong steps grey", x="R: outcome reward, A: its advantage", y="")
        rows = ["prompt", "right answer", *map(str, range(1, answers + 1))]
        ax.set(xlim=(-0.6, tokens + 7.0), ylim=(answers - 0.4, -2.6), xticks=[])
        ax.set_yticks(range(-2, answers), rows)
        ax.tick_params(length=0)
        ax.spines[["left", "bottom"]].set_visible(False)
        ax.axhline(-0.52, color=GREY, linewidth=1)
        self.reward_at, self.credit_at = tokens + 0.6, tokens + 2.9
        above = [(digit, x, -2) for x, digit in enumerate(curve.prompt)]
        right = [(token, x, -1) for x, token in enumerate(curve.gold + "$")]
        Marks(ax).write([*above, *right, ("R", self.reward_at, -1), ("A", self.credit_at, -1)])
        self.wrong = PolyCollection([], facecolor=FAINT, linewidth=0)
        ax.add_collection(self.wrong, autolim=False)
        self.chosen = Rectangle((-0.5, 0), tokens + 4.9, 0.92, fill=False, edgecolor="black", linewidth=2)
        ax.add_patch(self.chosen)
        (self.first_right,) = ax.plot([], [], color=GREY, linestyle=(0, (1, 1)), linewidth=2)
        self.written = Marks(ax)

    @property
    def moving(self) -> list[Artist]:
        return [self.wrong, self.first_right, self.written, self.chosen]

    def show(self, curve: ProcessCurve) -> None:
        tokens = curve.right.shape[1]
        wrong = (~curve.right).sum(1)  # an answer stays wrong from its first wrong step on
        self.wrong.set_verts([_box(tokens - count - 0.5, y - 0.46, count, 0.92) for y, count in enumerate(wrong)])
        self.chosen.set_y(curve.shown - 0.46)
        self.first_right.set_data(self.ax.get_xlim(), [_first_right(curve) - 0.5] * 2)
        written = [(token, x, y) for y, answer in enumerate(curve.answers) for x, token in enumerate(answer)]
        rewards = [(f"{reward:.0f}", self.reward_at, y) for y, reward in enumerate(curve.outcomes)]
        credits = [(signed(credit), self.credit_at, y) for y, credit in enumerate(curve.outcome_credit)]
        self.written.write([*written, *rewards, *credits])


class ProcessPicture(Picture[ProcessCurve]):
    """Left credit token by token, from the outcome and from the steps; right the group that it is compared with."""

    size = (10, 4.6)
    alt = (
        "Left the advantage of each token of one worked answer, bars from rewards of steps, a dashed line from the outcome; "
        "right a table of the prompt, the right answer and the group's 8 answers with their rewards."
    )

    def draw(self, curve: ProcessCurve) -> Sequence[Artist]:
        left, right = self.figure.subplots(1, 2, width_ratios=(6, 5))
        self.credit, self.group = CreditSide(left, curve), GroupSide(right, curve)
        side = self.credit
        legend = self.figure.legend(
            [side.bars, side.beside, side.outcome],
            ["process", "process", "outcome"],
            loc="outside lower center",
            ncols=3,
            fontsize=TEXT - 1,
            frameon=False,
        )
        self._named = legend.get_texts()
        return [*self.credit.moving, *self.group.moving]

    def show(self, curve: ProcessCurve) -> None:
        self.credit.show(curve)
        self.group.show(curve)
        for text, rule in zip(self._named, (curve.rule, curve.beside_rule), strict=False):
            text.set_text(f"process: {rule}")

    def still(self, curve: ProcessCurve) -> Hashable:
        return curve.rule, curve.beside_rule

    def handles(self, curve: ProcessCurve) -> list[Handle]:
        left, right, answers = self.credit.ax, self.group.ax, len(curve.outcomes)
        return [
            Handle(
                left,
                "x",
                math.inf if curve.shown else _right_until(curve, 0),
                "right_steps",
                lambda place: place + 0.5,
            ),
            Handle(right, "y", _first_right(curve) - 0.5, "right_others", lambda place: answers - 0.5 - place),
            Handle(right, "y", curve.shown, "answer", lambda place: place + 1),
        ]

    def conclusion(self, curve: ProcessCurve) -> str:
        return f"{curve.name} gives {_say_outcome(curve)}; process credit {_say_process(curve.process)}."

    def words(self, curve: ProcessCurve) -> str:
        steps, number = int(curve.ends.sum()), curve.shown + 1
        wrong = np.flatnonzero(~curve.right[curve.shown])
        verdict = f"wrong from step {wrong[0] + 1} of {steps} on" if len(wrong) else "right throughout"
        process = f"Process credit, {curve.rule}, is put in the outcome's place, not added to it"
        below = np.flatnonzero(curve.process < 0)
        if len(below) and len(wrong) and 0 < below[0] < wrong[0]:
            process += (
                f"; it is below 0 from token {below[0] + 1}, before the first wrong step: "
                "a token answers for all steps to come"
            )
        said = [
            f"Each step adds a digit of {'+'.join(curve.prompt[:-1])} and writes the last digit of the sum so far; "
            "#, the answer and the end are the last step.",
            f"{_how_many(curve)}; answer {number}, {curve.answers[curve.shown][:-1]}, is {verdict}.",
            f"{process}.",
        ]
        if curve.process.any():
            said.append(f"On the first token the {curve.beside_rule} is {signed(curve.beside[0])}.")
        return " ".join(said)


def _how_many(curve: ProcessCurve) -> str:
    count, answers = int(curve.outcomes.sum()), len(curve.answers)
    if count in (0, answers):
        return f"{'None' if not count else 'Each'} of the {answers} answers is right"
    return f"{count} of {answers} answers {'is' if count == 1 else 'are'} right"


def _say_outcome(curve: ProcessCurve) -> str:
    if not curve.outcome_credit.any():
        return "no token of any answer any credit"
    return f"every token of answer {curve.shown + 1} the same {signed(curve.outcome[0])}"


def _say_process(credit: NDArray[np.float64]) -> str:
    if not credit.any():
        return "is 0 on every token"
    if credit.max() - credit.min() < 0.005:
        return f"is {signed(credit[0])} on every token"
    lowest = credit.min() < min(credit[0], credit[-1]) - 0.005
    between = f", {signed(credit.min())} at its lowest" if lowest else ""
    return f"runs from {signed(credit[0])} on the first token to {signed(credit[-1])} on the last{between}"


def _box(x: float, y: float, width: float, height: float) -> list[tuple[float, float]]:
    return [(x, y), (x, y + height), (x + width, y + height), (x + width, y)]


def compares_a_group(algorithm: Algorithm) -> bool:
    """Return whether the algorithm makes advantages by comparing a group's rewards."""
    return learns_from_a_group(algorithm, "step_ends")


explore_process = explorer(
    "process",
    process_curve,
    ProcessPicture,
    algorithms=Algorithms(
        fits=compares_a_group, among=(GRPO, GRPO_PROCESS, *(member for member in OFFERED if member is not GRPO))
    ),
    controls={
        "right_steps": WholeSlider(0, STEPS, "right steps of 1"),
        "right_others": WholeSlider(0, ANSWERS - 1, "others right"),
        "answer": WholeSlider(1, ANSWERS, "answer shown"),
        "supervision": Menu({"sum of steps to come": "sum", "mean of them": "mean"}, "process credit"),
    },
    grid={
        "supervision": ("sum", "mean"),
        "algorithm": (GRPO, DR_GRPO),
        "right_steps": tuple(range(STEPS + 1)),
        "right_others": (0, 1, 3, 5, 7),
    },
    twin={
        "no answer is right": {"right_others": 0},
        "one other answer is right": {"right_others": 1},
        "answer 1 is right, and no other": {"right_steps": 8, "right_others": 0},
    },
)
