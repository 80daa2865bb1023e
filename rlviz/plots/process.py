"""Credit for the tokens of worked answers, from the outcome and from the steps."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from rlviz.curves.process import ProcessCurve
from rlviz.plots.marks import Marks
from rlviz.plots.picture import Picture
from rlviz.plots.style import BLUE, GREEN, GREY, LINE, TEXT, VERMILION, dress
from small_models.checks import checked

UNITS = (2, 5, 10)  # of credit from tick to tick
BOTTOM, TOP = -3.1, 2.1  # of the credit drawn, in units: ticks stand where they stand, only their numbers change
WRONG = "#d4d4d4"
TICKS = range(-3, 3)
ROWS = {"adds": -0.06, "writes": -0.14, "right?": -0.22}  # below the axes


def _unit(curve: ProcessCurve) -> int:
    every = np.concatenate([curve.process, curve.beside, curve.outcome])
    return next((unit for unit in UNITS if BOTTOM * unit < every.min() and every.max() < TOP * unit), UNITS[-1])


class CreditSide:
    """One answer's credit, a bar and two marks a token, and below what each token adds, says, and whether its step is right."""

    def __init__(self, ax: Axes, curve: ProcessCurve) -> None:
        self.ax = ax
        dress(ax, title="Credit of each token of one answer", x="each step: the sum so far, modulo 10", y="advantage A")
        ax.set(xlim=(-0.6, len(curve.ends) - 0.4), xticks=[])
        ax.xaxis.labelpad, ax.yaxis.labelpad = 64, 40  # room for what is written below and beside
        ax.tick_params(axis="y", labelleft=False)
        ax.axhline(0, color=GREY, linewidth=1)
        self.wrong = PolyCollection([], facecolor=WRONG, linewidth=0, label="wrong step")
        self.bars = PolyCollection([], facecolor="#a6cfe8", edgecolor=BLUE, linewidth=1.5)
        for collection in (self.wrong, self.bars):
            ax.add_collection(collection, autolim=False)
        (self.beside,) = ax.plot([], [], color=GREEN, linestyle=":", linewidth=LINE, marker="D", markersize=7)
        (self.outcome,) = ax.plot([], [], color=VERMILION, linestyle="--", linewidth=LINE, marker="^", markersize=8)
        below = ax.get_xaxis_transform()
        for row, y in ROWS.items():
            ax.text(-0.8, y, row, fontsize=TEXT - 1, ha="right", va="center", transform=below, in_layout=False)
        Marks(ax, where=below).write((f"+{digit}", x, ROWS["adds"]) for x, digit in enumerate(curve.prompt[:-1]))
        self.written = Marks(ax, where=below)

    @property
    def moving(self) -> list[Artist]:
        return [self.wrong, self.bars, self.outcome, self.beside, self.written]

    def show(self, curve: ProcessCurve) -> None:
        unit, places = _unit(curve), np.arange(len(curve.process))
        bottom, top = BOTTOM * unit, TOP * unit
        if self.ax.get_ylim() != (bottom, top):
            self.ax.set(ylim=(bottom, top), yticks=[unit * tick for tick in TICKS])
        right = curve.right[curve.shown]
        wrong = int((~right).sum())
        self.wrong.set_verts([_box(len(right) - wrong - 0.5, bottom, wrong, top - bottom)])
        self.bars.set_verts([_box(x - 0.36, 0, 0.72, a) for x, a in zip(places, curve.process, strict=True)])
        self.beside.set_data(places, curve.beside)
        self.outcome.set_data(places, curve.outcome)
        tokens: list[tuple[str, float, float]] = [
            (token, x, ROWS["writes"]) for x, token in enumerate(curve.answers[curve.shown])
        ]
        ticks = [("✓" if right[x] else "✗", float(x), ROWS["right?"]) for x in np.flatnonzero(curve.ends)]
        numbers = [(f"{unit * tick}".replace("-", "−"), -1.4, (tick - BOTTOM) / (TOP - BOTTOM)) for tick in TICKS]
        self.written.write([*tokens, *ticks, *numbers])


class GroupSide:
    """The group as a table: the prompt, the right answer, and a row an answer: tokens, reward and outcome advantage."""

    def __init__(self, ax: Axes, curve: ProcessCurve) -> None:
        answers, tokens = curve.right.shape
        dress(ax, title="The group, wrong steps grey", x="R: outcome reward, A: its advantage", y="")
        rows = ["prompt", "right answer", *map(str, range(1, answers + 1))]
        ax.set(xlim=(-0.6, tokens + 4.3), ylim=(answers - 0.4, -2.6), xticks=[])
        ax.set_yticks(range(-2, answers), rows)
        ax.tick_params(length=0)
        ax.spines[["left", "bottom"]].set_visible(False)
        ax.axhline(-0.52, color=GREY, linewidth=1)
        self.reward_at, self.credit_at = tokens + 0.6, tokens + 2.9
        above = [(digit, x, -2) for x, digit in enumerate(curve.prompt)]
        right = [(token, x, -1) for x, token in enumerate(curve.gold + "$")]
        Marks(ax).write([*above, *right, ("R", self.reward_at, -1), ("A", self.credit_at, -1)])
        self.wrong = PolyCollection([], facecolor=WRONG, linewidth=0)
        ax.add_collection(self.wrong, autolim=False)
        self.chosen = Rectangle((-0.5, 0), tokens + 4.7, 0.92, fill=False, edgecolor="black", linewidth=2)
        ax.add_patch(self.chosen)
        self.written = Marks(ax)

    @property
    def moving(self) -> list[Artist]:
        return [self.wrong, self.written, self.chosen]

    def show(self, curve: ProcessCurve) -> None:
        tokens = curve.right.shape[1]
        wrong = (~curve.right).sum(1)  # an answer stays wrong from its first wrong step on
        self.wrong.set_verts([_box(tokens - count - 0.5, y - 0.46, count, 0.92) for y, count in enumerate(wrong)])
        self.chosen.set_y(curve.shown - 0.46)
        written = [(token, x, y) for y, answer in enumerate(curve.answers) for x, token in enumerate(answer)]
        rewards = [(f"{reward:.0f}", self.reward_at, y) for y, reward in enumerate(curve.outcomes)]
        credits = [(_signed(credit), self.credit_at, y) for y, credit in enumerate(curve.outcome_credit)]
        self.written.write([*written, *rewards, *credits])


class ProcessPicture(Picture[ProcessCurve]):
    """Left credit token by token, from the outcome and from the steps; right the group that it is compared with."""

    size = (10, 4.8)
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

    def words(self, curve: ProcessCurve) -> str:
        steps, number = int(curve.ends.sum()), curve.shown + 1
        wrong = np.flatnonzero(~curve.right[curve.shown])
        verdict = f"wrong from step {wrong[0] + 1} of {steps} on" if len(wrong) else "right throughout"
        process = (
            f"Process credit, {curve.rule}, is put in its place, not added to it: it {_say_process(curve.process)}"
        )
        below = np.flatnonzero(curve.process < 0)
        if len(below) and len(wrong) and 0 < below[0] < wrong[0]:
            process += f", below 0 from token {below[0] + 1}, before the first wrong step: a token answers for all steps to come"
        said = [
            f"Each step adds a digit of {'+'.join(curve.prompt[:-1])} and writes the last digit of the sum so far; "
            "#, the answer and the end are the last step.",
            f"{curve.name}: {_how_many(curve)}, so the outcome alone gives {_say_outcome(curve)}; answer {number}, "
            f"{curve.answers[curve.shown][:-1]}, is {verdict}.",
            f"{process}.",
        ]
        if curve.process.any():
            said.append(f"On the first token the {curve.beside_rule} is {_signed(curve.beside[0])}.")
        return " ".join(said)


def _how_many(curve: ProcessCurve) -> str:
    count, answers = int(curve.outcomes.sum()), len(curve.answers)
    if count in (0, answers):
        return f"{'none' if not count else 'each'} of the {answers} answers is right"
    return f"{count} of {answers} answers {'is' if count == 1 else 'are'} right"


def _say_outcome(curve: ProcessCurve) -> str:
    if not curve.outcome_credit.any():
        return "no token of any answer any credit"
    return f"every token of answer {curve.shown + 1} the same {_signed(curve.outcome[0])}"


def _say_process(credit: NDArray[np.float64]) -> str:
    if not credit.any():
        return "is 0 on every token"
    if credit.max() - credit.min() < 0.005:
        return f"is {_signed(credit[0])} on every token"
    lowest = credit.min() < min(credit[0], credit[-1]) - 0.005
    between = f", {_signed(credit.min())} at its lowest" if lowest else ""
    return f"runs from {_signed(credit[0])} on the first token to {_signed(credit[-1])} on the last{between}"


def _signed(value: float) -> str:
    return f"{value + 0.0:+.2f}".replace("-", "−") if abs(value) >= 0.005 else "0"


def _box(x: float, y: float, width: float, height: float) -> list[tuple[float, float]]:
    return [(x, y), (x, y + height), (x + width, y + height), (x + width, y)]


@checked
def plot_process(curve: ProcessCurve) -> Figure:
    """Draw one answer's outcome and process credit, and its group; return the figure."""
    return ProcessPicture.alone(curve)
