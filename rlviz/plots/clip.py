"""The clipped objective of one token against its ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from rlviz.curves import ClipCurve
from rlviz.plots.style import BLUE, FAINT, GREY, LINE, TEXT, VERMILION, dress, new_figure


@dataclass(frozen=True)
class ClipArtists:
    """The artists of one clip picture that move when its curve does."""

    objective: Line2D
    slope: Line2D
    limits: tuple[Line2D, Line2D]
    dead: PolyCollection
    certain: Line2D
    impossible: Rectangle
    heights: tuple[float, float]

    def show(self, curve: ClipCurve) -> None:
        """Move the artists to another curve on the same grid."""
        self.objective.set_data(curve.ratio, curve.objective)
        self.slope.set_data(curve.ratio, curve.slope)
        for line, limit in zip(self.limits, (curve.lower, curve.upper), strict=True):
            line.set_xdata([limit, limit])
        low, high = self.heights
        self.dead.set_verts([[(a, low), (a, high), (b, high), (b, low)] for a, b in dead_stretches(curve)])
        highest = 1 / curve.old_prob  # at this ratio the new probability is 1
        self.certain.set_xdata([highest, highest])
        self.impossible.set_x(highest)
        self.impossible.set_width(max(0.0, curve.ratio[-1] - highest))

    def back_to_front(self) -> list[Artist]:
        """Return the moving artists in drawing order."""
        return [self.dead, *self.limits, self.slope, self.objective, self.impossible, self.certain]


def dead_stretches(curve: ClipCurve) -> list[tuple[float, float]]:
    """Return the stretches of ratios without gradient, from left to right."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], curve.clipped, [False]]).astype(int)))
    step = curve.ratio[1] - curve.ratio[0]
    return [(curve.ratio[a] - step, curve.ratio[b - 1]) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _signed(advantage: float) -> str:
    return f"A = {advantage:+g}".replace("-", "−")


def draw_clip(curve: ClipCurve, ax: Axes) -> ClipArtists:
    """Draw the curve on `ax` and return the artists that move."""
    positive = curve.advantage > 0
    low, high = (-0.3, 2.4) if positive else (-2.2, 1.4)
    for values in (curve.objective, curve.slope):  # another surrogate may go further than the usual one
        low, high = min(low, 1.1 * values.min()), max(high, 1.1 * values.max())
    ax.set(xlim=(0, curve.ratio[-1]), ylim=(low, high))
    dress(
        ax,
        title=f"{_signed(curve.advantage)}: {'better' if positive else 'worse'} than its group",
        x="ratio: new probability / old probability",
        y="objective, slope",
    )
    ax.axhline(0, color=GREY, linewidth=1)
    ax.axvline(1, color=GREY, linewidth=1)
    dead = PolyCollection([], facecolor=FAINT, edgecolor=GREY, hatch="//", linewidth=0, label="no gradient")
    ax.add_collection(dead, autolim=False)
    limits = (
        ax.axvline(curve.lower, color=GREY, linestyle=(0, (1, 1)), linewidth=2, label="limits"),
        ax.axvline(curve.upper, color=GREY, linestyle=(0, (1, 1)), linewidth=2),
    )
    certain = ax.axvline(1, color="black", linestyle="-.", linewidth=1.5, zorder=4, label="new probability = 1")
    (objective,) = ax.plot([], [], color=BLUE, linewidth=LINE + 0.5, label="objective")
    (slope,) = ax.plot([], [], color=VERMILION, linewidth=LINE, linestyle="--", label="slope")
    impossible = Rectangle((0, low), 0, high - low, facecolor="white", alpha=0.8, linewidth=0, zorder=3)
    ax.add_patch(impossible)
    artists = ClipArtists(objective, slope, limits, dead, certain, impossible, (low, high))
    artists.show(curve)
    return artists


def plot_clip(curve: ClipCurve, *, ax: Axes | None = None) -> Axes:
    """Draw one token's objective, slope, limits and the ratios without gradient; return the axes."""
    if ax is None:
        ax = new_figure(6, 4).add_subplot()
    draw_clip(curve, ax)
    ax.legend(fontsize=TEXT - 2, loc="upper left" if curve.advantage > 0 else "upper right", framealpha=1)
    return ax


def plot_clip_small_multiples(curves: Sequence[tuple[ClipCurve, ClipCurve]], names: Sequence[str]) -> Figure:
    """Draw a column a setting: A > 0 above, A < 0 below; the same story as the sliders', without a kernel."""
    figure = new_figure(3.6 * len(names) + 0.4, 6.6)
    axes = figure.subplots(2, len(names), sharex=True, sharey="row", squeeze=False)
    for column, (pair, name) in enumerate(zip(curves, names, strict=True)):
        for row, curve in enumerate(pair):
            ax = axes[row, column]
            draw_clip(curve, ax)
            signed = _signed(curve.advantage)
            ax.set_title(f"{name}\n{signed}" if row == 0 else signed, fontsize=TEXT)
            ax.set_xlabel("ratio" if row else "", fontsize=TEXT)
            if column:
                ax.set_ylabel("")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=TEXT - 1)
    return figure
