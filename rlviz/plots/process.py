"""Credit for the tokens of worked answers, from the outcome and from the steps."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from rlviz.curves.process import ProcessCurve
from rlviz.plots.picture import Picture
from rlviz.plots.style import BLUE, GREEN, GREY, LINE, TEXT, VERMILION, dress

TOPS = (10.5, 26.0)  # of the credit
WRONG = "#d4d4d4"
TOKENS = "0123456789#$"


def _top(curve: ProcessCurve) -> float:
    highest = max(abs(values).max() for values in (curve.process, curve.beside, curve.outcome))
    return next((top for top in TOPS if 1.05 * highest < top), TOPS[-1])


class Marks:
    """Characters at places. Each is the marker of one line: a text for every place would take ten times as long to draw."""

    def __init__(self, ax: Axes, characters: str, size: float, **where: Any) -> None:
        self.lines = {
            character: ax.plot(
                [],
                [],
                linestyle="none",
                marker=_marker(character),
                markersize=size,
                color="black",
                clip_on=False,
                **where,
            )[0]
            for character in characters
        }
        for line in self.lines.values():
            line.set(markeredgewidth=0.3, in_layout=False)

    def show(self, places: Iterable[tuple[str, float, float]]) -> None:
        """Put each character at its (x, y)."""
        found: dict[str, list[tuple[float, float]]] = {character: [] for character in self.lines}
        for character, x, y in places:
            found[character].append((x, y))
        for character, line in self.lines.items():
            line.set_data(*(zip(*found[character], strict=True) if found[character] else ([], [])))


class CreditSide:
    """One answer's tokens below the axes, a bar and two marks for each."""

    def __init__(self, ax: Axes, tokens: int) -> None:
        self.ax = ax
        dress(ax, title="Credit of each token of one answer", x="token, and ✓ or ✗ where a step ends", y="advantage A")
        ax.set(xlim=(-0.6, tokens - 0.4), xticks=[])
        ax.xaxis.labelpad = 48
        ax.axhline(0, color=GREY, linewidth=1)
        self.wrong = PolyCollection([], facecolor=WRONG, linewidth=0, label="wrong step")
        self.bars = PolyCollection([], facecolor="#a6cfe8", edgecolor=BLUE, linewidth=1.5)
        for collection in (self.wrong, self.bars):
            ax.add_collection(collection, autolim=False)
        (self.beside,) = ax.plot([], [], color=GREEN, linestyle=":", linewidth=LINE, marker="D", markersize=7)
        (self.outcome,) = ax.plot([], [], color=VERMILION, linestyle="--", linewidth=LINE, marker="^", markersize=8)
        below = ax.get_xaxis_transform()
        self.tokens = Marks(ax, TOKENS, 10, transform=below)
        self.marks = Marks(ax, "✓✗", 10, transform=below)

    @property
    def moving(self) -> list[Artist]:
        marks = [*self.tokens.lines.values(), *self.marks.lines.values()]
        return [self.wrong, self.bars, self.outcome, self.beside, *marks]

    def show(self, curve: ProcessCurve) -> None:
        top, places = _top(curve), np.arange(len(curve.process))
        if self.ax.get_ylim() != (-top, top):
            self.ax.set(ylim=(-top, top), yticks=np.arange(-2, 3) * 5 * (1 if top < 20 else 2))
        right, written = curve.right[curve.shown], curve.answers[curve.shown]
        self.wrong.set_verts([_box(x - 0.5, -top, 1, 2 * top) for x in np.flatnonzero(~right)])
        self.bars.set_verts([_box(x - 0.36, 0, 0.72, a) for x, a in zip(places, curve.process, strict=True)])
        self.beside.set_data(places, curve.beside)
        self.outcome.set_data(places, curve.outcome)
        self.tokens.show((token, x, -0.06) for x, token in enumerate(written))
        self.marks.show(("✓" if right[x] else "✗", float(x), -0.14) for x in np.flatnonzero(curve.ends))


class GroupSide:
    """The group as a table: a row an answer, its tokens, its reward and its outcome advantage."""

    def __init__(self, ax: Axes, answers: int, tokens: int) -> None:
        dress(ax, title="The group, wrong steps grey", x="R, A: outcome reward and its advantage", y="answer")
        ax.set(xlim=(-0.6, tokens + 4.3), ylim=(answers - 0.4, -1.5), xticks=[], yticks=range(answers))
        ax.set_yticklabels([str(place + 1) for place in range(answers)])
        ax.tick_params(length=0)
        ax.spines[["left", "bottom"]].set_visible(False)
        for x, head in ((tokens + 0.6, "R"), (tokens + 2.9, "A")):
            ax.text(x, -1, head, fontsize=TEXT, ha="center", va="center")
        self.wrong = PolyCollection([], facecolor=WRONG, linewidth=0)
        ax.add_collection(self.wrong, autolim=False)
        self.chosen = Rectangle((-0.5, 0), tokens + 4.7, 0.92, fill=False, edgecolor="black", linewidth=2)
        ax.add_patch(self.chosen)

        self.tokens = Marks(ax, TOKENS, 9)
        self.credits = [
            ax.text(tokens + 2.9, row, "0", fontsize=TEXT, ha="center", va="center_baseline") for row in range(answers)
        ]

    @property
    def moving(self) -> list[Artist]:
        return [self.wrong, *self.tokens.lines.values(), *self.credits, self.chosen]

    def show(self, curve: ProcessCurve) -> None:
        tokens = curve.right.shape[1]
        self.wrong.set_verts([_box(x - 0.5, y - 0.46, 1, 0.92) for y, x in np.argwhere(~curve.right)])
        self.chosen.set_y(curve.shown - 0.46)
        written = [
            (token, float(x), float(y)) for y, answer in enumerate(curve.answers) for x, token in enumerate(answer)
        ]
        rewards = [(f"{reward:.0f}", tokens + 0.6, float(y)) for y, reward in enumerate(curve.outcomes)]
        self.tokens.show([*written, *rewards])
        for text, credit in zip(self.credits, curve.outcome_credit, strict=True):
            text.set_text(_signed(credit))


class ProcessPicture(Picture[ProcessCurve]):
    """Left credit token by token, from the outcome and from the steps; right the group that it is compared with."""

    size = (10, 4.8)
    alt = (
        "Left the advantage of each token of one worked answer, bars from rewards of steps, a dashed line from the outcome; "
        "right a table of the group's 8 answers with their rewards."
    )

    def draw(self, curve: ProcessCurve) -> Sequence[Artist]:
        left, right = self.figure.subplots(1, 2, width_ratios=(6, 5))
        answers, tokens = curve.right.shape
        self.credit, self.group = CreditSide(left, tokens), GroupSide(right, answers, tokens)
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
        return _top(curve), curve.rule, curve.beside_rule

    def words(self, curve: ProcessCurve) -> str:
        count, steps = int(curve.outcomes.sum()), int(curve.ends.sum())
        wrong = np.flatnonzero(~curve.right[curve.shown])
        verdict = f"wrong from step {wrong[0] + 1} of {steps} on" if len(wrong) else "right throughout"
        said = [
            f"{curve.name}: {_how_many(count, len(curve.answers))}. {_say_outcome(curve)}",
            f"Answer {curve.shown + 1}, {curve.answers[curve.shown][:-1]}, is {verdict}. Process credit, "
            f"{curve.rule}, {_say_process(curve.process)}.",
        ]
        below = np.flatnonzero(curve.process < 0)
        if len(below) and len(wrong) and 0 < below[0] < wrong[0]:
            said.append(
                f"It is below 0 from token {below[0] + 1}, before the first wrong step: a token answers for all steps to come."
            )
        if curve.process.any():
            said.append(
                f"On the first token, with {steps} steps to come, the {curve.beside_rule} is {_signed(curve.beside[0])}."
            )
        return " ".join(said)


def _how_many(count: int, answers: int) -> str:
    if count in (0, answers):
        return f"{'none' if not count else 'each'} of the {answers} answers is right"
    return f"{count} of {answers} answers {'is' if count == 1 else 'are'} right"


def _say_outcome(curve: ProcessCurve) -> str:
    if not curve.outcome_credit.any():
        return "So the outcome gives no token of any answer any credit."
    return f"The outcome gives every token of the answer the same {_signed(curve.outcome[0])}."


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


def _marker(character: str) -> str:
    return f"$\\{character}$" if character in "#$" else f"${character}$"


def _box(x: float, y: float, width: float, height: float) -> list[tuple[float, float]]:
    return [(x, y), (x, y + height), (x + width, y + height), (x + width, y)]


def plot_process(curve: ProcessCurve) -> Figure:
    """Draw one answer's outcome and process credit, and its group; return the figure."""
    return ProcessPicture.alone(curve)
