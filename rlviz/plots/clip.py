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
from rlviz.plots.picture import Picture
from rlviz.plots.style import BLUE, FAINT, GREEN, GREY, LINE, TEXT, VERMILION, dress, new_figure

# what became of the token, on either side of ratio 1
QUADRANTS = {True: ("wrongly fallen", "grown"), False: ("fallen", "wrongly grown")}
PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 2}
BESIDE = ((GREEN, (0, (5, 2, 1, 2))), ("black", (0, (1, 1.2))), ("#AA4499", (0, (7, 2))))  # of up to three algorithms


def dead_stretches(curve: ClipCurve) -> list[tuple[float, float]]:
    """Return the stretches of ratios without gradient, from left to right."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], curve.clipped, [False]]).astype(int)))
    step = curve.ratio[1] - curve.ratio[0]
    return [(curve.ratio[a] - step, curve.ratio[b - 1]) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _signed(advantage: float) -> str:
    return f"A = {advantage:+g}".replace("-", "−")


class ClipSide:
    """One sign of the advantage in one axes: objective, slope, limits, the dead stretches, and other objectives over it."""

    def __init__(self, curves: Sequence[ClipCurve], ax: Axes) -> None:
        self.ax = ax
        self.better = curves[0].advantage > 0
        dress(
            ax,
            title=f"{_signed(curves[0].advantage)}: {'better' if self.better else 'worse'} than its group",
            x="ratio: new probability / old probability",
            y="objective, slope",
        )
        ax.axhline(0, color=GREY, linewidth=1)
        ax.axvline(1, color=GREY, linewidth=1)
        self.dead = PolyCollection([], facecolor=FAINT, edgecolor=GREY, hatch="//", linewidth=0, label="no gradient")
        ax.add_collection(self.dead, autolim=False)
        self.limits = tuple(
            ax.axvline(1, color=GREY, linestyle=(0, (1, 1)), linewidth=2, label=label) for label in ("limits", None)
        )
        self.certain = ax.axvline(
            1, color="black", linestyle="-.", linewidth=1.5, zorder=4, label="new probability = 1"
        )
        (self.objective,) = ax.plot([], [], color=BLUE, linewidth=LINE + 0.5, label="objective")
        (self.slope,) = ax.plot([], [], color=VERMILION, linewidth=LINE, linestyle="--", label="slope")
        self.beside: list[Line2D] = [
            ax.plot([], [], color=colour, linestyle=style, linewidth=LINE - 0.3)[0] for colour, style in BESIDE
        ]
        self.impossible = Rectangle((0, 0), 0, 1, facecolor="white", alpha=0.8, linewidth=0, zorder=3)
        ax.add_patch(self.impossible)
        self.names = [
            ax.text(
                x,
                0.98,
                text,
                fontsize=TEXT - 1,
                ha=side,
                va="top",
                style="italic",
                transform=ax.transAxes,
                bbox=PAPER,
                zorder=5,
            )
            for text, x, side in zip(QUADRANTS[self.better], (0.01, 0.99), ("left", "right"), strict=True)
        ]
        self.show(curves)

    def span(self, curves: Sequence[ClipCurve]) -> tuple[float, float, float]:
        """Return the axes' limits for these curves: the widest ratio, the lowest and the highest value."""
        low, high = (-0.3, 2.4) if self.better else (-2.2, 1.4)
        shown = [
            curves[0].slope,
            *(curve.objective for curve in curves),
        ]  # other surrogates may go further than the usual
        low, high = min([low, *(1.1 * v.min() for v in shown)]), max([high, *(1.1 * v.max() for v in shown)])
        return float(curves[0].ratio[-1]), float(f"{low:.2g}"), float(f"{high:.2g}")

    def show(self, curves: Sequence[ClipCurve]) -> None:
        """Move the artists to other curves, the explored one first."""
        curve, others = curves[0], curves[1:]
        widest, low, high = self.span(curves)
        if (self.ax.get_xlim(), self.ax.get_ylim()) != ((0, widest), (low, high)):
            self.ax.set(xlim=(0, widest), ylim=(low, high))
        self.objective.set_data(curve.ratio, curve.objective)
        self.slope.set_data(curve.ratio, curve.slope)
        for line, limit in zip(self.limits, (curve.lower, curve.upper), strict=True):
            line.set_xdata([limit, limit])
        self.dead.set_verts([[(a, low), (a, high), (b, high), (b, low)] for a, b in dead_stretches(curve)])
        highest = 1 / curve.old_prob  # at this ratio the new probability is 1
        self.certain.set_xdata([highest, highest])
        self.impossible.set_bounds(highest, low, max(0.0, curve.ratio[-1] - highest), high - low)
        for place, line in enumerate(self.beside):
            line.set_data([], [])
            if place < len(others):
                line.set_data(others[place].ratio, others[place].objective)

    @property
    def moving(self) -> list[Artist]:
        front = (self.slope, self.objective, *self.beside, self.impossible, self.certain, *self.names)
        return [self.dead, *self.limits, *front]


class ClipPicture(Picture[ClipComparison]):
    """Objective and slope against the ratio, left for A = +1, right for A = −1."""

    size = (10, 4.6)
    alt = "Two graphs of one token's objective and slope against its ratio, left A = +1, right A = −1."

    def draw(self, curve: ClipComparison) -> list[Artist]:
        axes = self.figure.subplots(1, 2)
        self.sides = [ClipSide(c, ax) for c, ax in zip((curve.better, curve.worse), axes, strict=True)]
        handles, labels = self.sides[0].ax.get_legend_handles_labels()
        legend = self.figure.legend(
            [*handles, *self.sides[0].beside],
            [*labels, *[" "] * len(BESIDE)],
            loc="outside lower center",
            ncols=4,
            fontsize=TEXT - 1,
            frameon=False,
        )
        beside = list(zip(legend.get_lines(), legend.get_texts()[1:], strict=False))[-len(BESIDE) :]
        self._named_beside = [(line, legend.get_texts()[len(labels) + i]) for i, (line, _) in enumerate(beside)]
        return [artist for side in self.sides for artist in side.moving]

    def show(self, curve: ClipComparison) -> None:
        for side, curves in zip(self.sides, (curve.better, curve.worse), strict=True):
            side.show(curves)
        for index, (line, text) in enumerate(self._named_beside, start=1):
            named = index < len(curve.names)
            line.set_visible(named)
            text.set_text(f"objective, {curve.names[index]}" if named else " ")

    def still(self, curve: ClipComparison) -> Hashable:
        spans = [side.span(c) for side, c in zip(self.sides, (curve.better, curve.worse), strict=True)]
        return (*spans, curve.names[1:])

    def words(self, curve: ClipComparison) -> str:
        q = curve.better[0].old_prob
        sides = [_say_side(curve.better[0]), _say_side(curve.worse[0])]
        others = [
            f"{name}'s limits are {_limit(better.lower)} and {_limit(better.upper)}."
            for name, better in zip(curve.names[1:], curve.better[1:], strict=True)
        ]
        return " ".join([f"{curve.names[0]}, a token of old probability {q:.2f}.", *sides, *others])


def _limit(value: float) -> str:
    if not math.isfinite(value):
        return "∞"
    return f"{value:.2f}" if abs(value - 1) >= 0.01 else f"{value:.4f}"


def _say_side(curve: ClipCurve) -> str:
    q, better = curve.old_prob, curve.advantage > 0
    sign = "A > 0" if better else "A < 0"
    stretches, step = dead_stretches(curve), curve.ratio[1] - curve.ratio[0]
    limit = curve.upper if better else curve.lower
    shown = _limit(limit)
    never = better and limit * q >= 1 and math.isfinite(limit)
    if not stretches and not never:
        beyond = f"; the upper limit is {shown}" if better and curve.ratio[-1] <= limit < math.inf else ""
        return f"{sign}: no gradient is cut at the ratios shown{beyond}."
    if never and all(abs(a - limit) <= 2 * step for a, _ in stretches):
        return (
            f"A > 0: the upper limit {shown} lies beyond probability 1 (ratio {1 / q:.2f}), "
            "so this token is never clipped."
        )
    start, end = stretches[0]
    usual = start > 0 and end == curve.ratio[-1] if better else start <= 0
    if len(stretches) > 1 or not usual or abs((start if better else end) - limit) > 2 * step:
        where = " and ".join(f"from {max(a, 0):.2f} to {b:.2f}" for a, b in stretches)
        return f"{sign}: no gradient at ratios {where}."
    if better:
        return (
            f"A > 0: no gradient above ratio {shown}, once its probability has grown to {limit * q:.5g}; "
            "below 1 the gradient stays, to repair a step the wrong way."
        )
    return (
        f"A < 0: no gradient below ratio {shown}, once its probability has fallen to {limit * q:.5g}; "
        "above 1 the gradient stays."
    )


def plot_clip(curve: ClipCurve, *, ax: Axes | None = None) -> Axes:
    """Draw one token's objective, slope, limits and the ratios without gradient; return the axes."""
    if ax is None:
        ax = new_figure(6, 4).add_subplot()
    ClipSide([curve], ax)
    legend = ax.legend(fontsize=TEXT - 2, loc="upper left" if curve.advantage > 0 else "upper right", framealpha=1)
    legend.set_bbox_to_anchor((0, 0, 1, 0.93), transform=ax.transAxes)  # below the quadrants' names
    return ax


def plot_clip_comparison(curve: ClipComparison) -> Figure:
    """Draw both signs of one algorithm, and the objectives of those beside it; return the figure."""
    return ClipPicture.alone(curve)


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
            ax.set_xlabel("ratio" if row else "", fontsize=TEXT)
            if column:
                ax.set_ylabel("")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=TEXT - 1)
    return figure
