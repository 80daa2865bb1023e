"""The clipped objective of one token against its ratio."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from rlviz.curves import ClipComparison, ClipCurve
from rlviz.plots.marks import Marks
from rlviz.plots.picture import Picture
from rlviz.plots.style import BLUE, FAINT, GREEN, GREY, LINE, TEXT, VERMILION, dress, new_figure
from small_models.checks import checked

# what became of the token, on either side of ratio 1
QUADRANTS = {True: ("wrongly fallen", "grown"), False: ("fallen", "wrongly grown")}
CERTAIN = "new probability = 1"
PUSH = "push on log π"
SAID = "Dashed is the push on log π, ∂J/∂log π = ratio · ∂J/∂ratio; where J = ratio · A it is J itself."
KIND = {True: "ratio", False: "sequence ratio"}  # is it one token's alone? → what it is
AXIS = {True: "ratio: new probability / old probability", False: "sequence ratio: of the whole response"}
BESIDE = ((GREEN, (0, (5, 2, 1, 2))), ("black", (0, (1, 1.2))), ("#AA4499", (0, (7, 2))))  # of up to three algorithms


def _signed(advantage: float) -> str:
    return f"A = {advantage:+g}".replace("-", "−")


def _doubled(limit: float, needed: float) -> float:
    """Return the limit, doubled until it reaches what is needed: seldom another, for another one costs a new layout."""
    return limit * 2.0 ** max(0, math.ceil(math.log2(max(1.0, needed / limit))))


class ClipSide:
    """One sign of the advantage in one axes: objective, push on log π, limits, the dead stretches, and other objectives."""

    def __init__(self, curves: Sequence[ClipCurve], ax: Axes) -> None:
        self.ax = ax
        self.better = curves[0].advantage > 0
        dress(
            ax,
            title=f"{_signed(curves[0].advantage)}: {'better' if self.better else 'worse'} than expected",
            x="",
            y="objective J,  push ∂J/∂log π",
        )
        ax.axhline(0, color=GREY, linewidth=1)
        ax.axvline(1, color=GREY, linewidth=1)
        self.dead = PolyCollection([], facecolor=FAINT, edgecolor=GREY, hatch="//", linewidth=0, label="no gradient")
        ax.add_collection(self.dead, autolim=False)
        self.limits = tuple(
            ax.axvline(1, color=GREY, linestyle=(0, (1, 1)), linewidth=2, label=label) for label in ("limits", None)
        )
        self.certain = ax.axvline(1, color="black", linestyle="-.", linewidth=1.5, zorder=4)
        (self.objective,) = ax.plot([], [], color=BLUE, linewidth=LINE + 1.5, label="objective")
        (self.push,) = ax.plot([], [], color=VERMILION, linewidth=LINE, linestyle="--", label=PUSH)
        self.beside: list[Line2D] = [
            ax.plot([], [], color=colour, linestyle=style, linewidth=LINE - 0.3)[0] for colour, style in BESIDE
        ]
        self.impossible = Rectangle((0, 0), 0, 1, facecolor="white", alpha=0.8, linewidth=0, zorder=3)
        ax.add_patch(self.impossible)
        self.names = Marks(ax, size=TEXT - 1, style="italic", where=ax.transAxes, paper=True)
        self.names.set_zorder(5)
        left, right = QUADRANTS[self.better]
        self.names.write([(left, 0.015, 0.95), (right, 0.985, 0.95)], sides=["left", "right"])
        self.show(curves)

    def span(self, curves: Sequence[ClipCurve]) -> tuple[float, float, float]:
        """Return the axes' limits for these curves: the widest ratio, the lowest and the highest value.

        What the first eighth holds may leave the frame: the objective of a surrogate with log r has no end there.
        """
        usual = (-0.3, 2.4) if self.better else (-2.2, 1.4)
        fields = [(curves[0], curves[0].push), *((curve, curve.objective) for curve in curves)]
        shown = np.concatenate([values[curve.ratio >= curve.ratio[-1] / 8] for curve, values in fields])
        shown = shown[np.isfinite(shown)]
        return round(float(curves[0].ratio[-1]), 9), _doubled(usual[0], shown.min()), _doubled(usual[1], shown.max())

    def show(self, curves: Sequence[ClipCurve]) -> None:
        """Move the artists to other curves, the explored one first."""
        curve, others = curves[0], curves[1:]
        widest, low, high = self.span(curves)
        if (self.ax.get_xlim(), self.ax.get_ylim()) != ((0, widest), (low, high)):
            self.ax.set(xlim=(0, widest), ylim=(low, high))
        self.objective.set_data(curve.ratio, curve.objective)
        self.push.set_data(curve.ratio, curve.push)
        for line, limit in zip(self.limits, (curve.lower, curve.upper), strict=True):
            line.set_xdata([limit, limit])
        self.dead.set_verts([[(a, low), (a, high), (b, high), (b, low)] for a, b in curve.dead])
        self.ax.set_xlabel(AXIS[curve.per_token])
        highest = 1 / curve.old_prob  # at this ratio the new probability is 1
        self.certain.set_xdata([highest, highest])
        self.certain.set_label(CERTAIN if curve.per_token else "_")
        for artist in (self.certain, self.impossible):
            artist.set_visible(curve.per_token)
        self.impossible.set_bounds(highest, low, max(0.0, curve.ratio[-1] - highest), high - low)
        for place, line in enumerate(self.beside):
            line.set_data([], [])
            if place < len(others):
                line.set_data(others[place].ratio, others[place].objective)

    @property
    def moving(self) -> list[Artist]:
        front = (self.objective, self.push, *self.beside, self.impossible, self.certain, self.names)
        return [self.dead, *self.limits, *front]


class ClipPicture(Picture[ClipComparison]):
    """Objective and push on log π against the ratio, left for A = +1, right for A = −1."""

    size = (10, 4.6)
    alt = "Two graphs of the objective and its push on log π against the ratio, left A = +1, right A = −1."

    def draw(self, curve: ClipComparison) -> list[Artist]:
        axes = self.figure.subplots(1, 2)
        self.sides = [ClipSide(c, ax) for c, ax in zip((curve.better, curve.worse), axes, strict=True)]
        side = self.sides[0]
        legend = self.figure.legend(
            [side.dead, side.limits[0], side.objective, side.push, side.certain, *side.beside],
            ["no gradient", "limits", "objective", PUSH, *" " * (1 + len(BESIDE))],
            loc="outside lower center",
            ncols=4,
            fontsize=TEXT - 1,
            frameon=False,
        )
        self._changing = list(zip(legend.legend_handles, legend.get_texts(), strict=True))[-1 - len(BESIDE) :]
        return [artist for side in self.sides for artist in side.moving]

    def show(self, curve: ClipComparison) -> None:
        for side, curves in zip(self.sides, (curve.better, curve.worse), strict=True):
            side.show(curves)
        names = [f"objective, {name}" for name in curve.names[1:]]
        texts = [CERTAIN if curve.better[0].per_token else " ", *names, *" " * (len(BESIDE) - len(names))]
        for (handle, words), text in zip(self._changing, texts, strict=True):
            words.set_text(text)
            if handle is not None:
                handle.set_visible(bool(text.strip()))

    def still(self, curve: ClipComparison) -> Hashable:
        spans = [side.span(c) for side, c in zip(self.sides, (curve.better, curve.worse), strict=True)]
        return (*spans, curve.names[1:], curve.better[0].per_token)

    def words(self, curve: ClipComparison) -> str:
        first = curve.better[0]
        if first.per_token:
            about = f"{curve.names[0]}, a token of old probability {first.old_prob:.2f}."
        else:
            about = f"{curve.names[0]}: the ratio is the whole response's, not one token's."
        others = [
            f"Limits of {name}{_on(better, first)}: {_limit(better.lower)} and {_limit(better.upper)}."
            for name, better in zip(curve.names[1:], curve.better[1:], strict=True)
        ]
        return " ".join([about, _say_side(first), _say_side(curve.worse[0]), *others, SAID])


def _on(curve: ClipCurve, first: ClipCurve) -> str:
    """Return which ratio another algorithm's limits are on, if it is another kind."""
    if curve.per_token == first.per_token:
        return ""
    return " on a token's ratio" if curve.per_token else f" on the {KIND[False]}"


def _limit(value: float) -> str:
    if not math.isfinite(value):
        return "∞"
    return f"{value:.2f}" if abs(value - 1) >= 0.01 else f"{value:.4f}"


def _say_stretch(start: float, end: float, curve: ClipCurve) -> str:
    kind = KIND[curve.per_token]
    if start == 0:
        return f"below {kind} {_limit(end)}" if end < curve.ratio[-1] else f"at any {kind} shown"
    return (
        f"above {kind} {_limit(start)}" if end == curve.ratio[-1] else f"from {kind} {_limit(start)} to {_limit(end)}"
    )


def _say_side(curve: ClipCurve) -> str:
    q, better = curve.old_prob, curve.advantage > 0
    sign, highest = "A > 0" if better else "A < 0", 1 / q if curve.per_token else math.inf
    dead = [stretch for stretch in curve.dead if stretch[0] < highest]
    beyond = [_say_stretch(*stretch, curve) for stretch in curve.dead if stretch[0] >= highest]
    if better and not dead and highest <= curve.upper < math.inf:
        return (
            f"A > 0: the upper limit {_limit(curve.upper)} lies beyond probability 1 (ratio {highest:.2f}), "
            "so this token is never clipped."
        )
    said = f"{sign}: no gradient {' and '.join(_say_stretch(*stretch, curve) for stretch in dead)}"
    if not dead:
        said = f"{sign}: no gradient is cut at the ratios shown"
        if better and curve.ratio[-1] <= curve.upper < math.inf:
            said += f"; the upper limit is {_limit(curve.upper)}"
    elif dead == ([(curve.upper, curve.ratio[-1])] if better else [(0.0, curve.lower)]):  # as the limits of most do
        if curve.per_token:
            moved, limit = ("grown", curve.upper) if better else ("fallen", curve.lower)
            said += f", once its probability has {moved} to {limit * q:.5g}"
        said += (
            "; below 1 the gradient stays, to repair a step the wrong way" if better else "; above 1 the gradient stays"
        )
    if beyond:
        said += f" (what is cut {' and '.join(beyond)} lies beyond probability 1, ratio {highest:.2f})"
    return f"{said}."


@checked
def plot_clip(curve: ClipCurve, *, ax: Axes | None = None) -> Axes:
    """Draw one token's objective, push on log π, limits and the ratios without gradient; return the axes."""
    if ax is None:
        ax = new_figure(6, 4).add_subplot()
    ClipSide([curve], ax)
    legend = ax.legend(fontsize=TEXT - 2, loc="upper left" if curve.advantage > 0 else "upper right", framealpha=1)
    legend.set_bbox_to_anchor((0, 0, 1, 0.93), transform=ax.transAxes)  # below the quadrants' names
    return ax


@checked
def plot_clip_comparison(curve: ClipComparison) -> Figure:
    """Draw both signs of one algorithm, and the objectives of those beside it; return the figure."""
    return ClipPicture.alone(curve)


@checked
def plot_clip_small_multiples(curves: Sequence[tuple[ClipCurve, ClipCurve]], names: Sequence[str]) -> Figure:
    """Draw a column a setting: A > 0 above, A < 0 below; the same story as the sliders', without a kernel."""
    figure = new_figure(3.6 * len(names) + 0.4, 6.6)
    axes = figure.subplots(2, len(names), sharex=True, sharey="row", squeeze=False)
    for column, (pair, name) in enumerate(zip(curves, names, strict=True)):
        for row, curve in enumerate(pair):
            ax = axes[row, column]
            ClipSide([curve], ax)
            signed = _signed(curve.advantage)
            ax.set_title(f"{name}\n{signed}" if row == 0 else signed, fontsize=TEXT)
            ax.set_xlabel(KIND[curve.per_token] if row else "")
            if column:
                ax.set_ylabel("")
    named = {label: handle for ax in axes[0] for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(
        named.values(), named.keys(), loc="outside lower center", ncols=min(5, 2 * len(names) - 1), fontsize=TEXT - 1
    )
    return figure
