"""How far the gradient pushes a token, against its old probability."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rlviz.curves.bounds import BoundsCurve, Limits, TokenCloud
from rlviz.plots.clip import BESIDE
from rlviz.plots.picture import Picture
from rlviz.plots.style import BLUE, GREY, LINE, TEXT, VERMILION, dress
from small_models.checks import checked

HIGHEST = {False: (1.12, 3.0), True: (2.0, 13.0)}  # logarithmic? → top of the probabilities, top of the ratios
OUTSIDE = "^v<"  # markers on the edge for what lies above, below and left of it
LOWEST = {False: (0.0, 0.0), True: (5e-5, 0.3)}


class BoundsSide:
    """One axes: the band between lower and upper of the explored algorithm, others' as lines, tokens, the picked-out q."""

    def __init__(self, ax: Axes, *, ratios: bool) -> None:
        self.ax, self.ratios = ax, ratios
        self.band = PolyCollection([], facecolor=BLUE, alpha=0.18, linewidth=0)
        ax.add_collection(self.band, autolim=False)
        self.edges = [ax.plot([], [], color=BLUE, linewidth=LINE + 0.5)[0] for _ in range(2)]
        self.beside: list[tuple[Line2D, Line2D]] = [
            tuple(ax.plot([], [], color=colour, linestyle=style, linewidth=LINE - 0.3)[0] for _ in range(2))  # type: ignore[misc]
            for colour, style in BESIDE
        ]
        (self.at,) = ax.plot([], [], color="black", linestyle="-.", linewidth=1.5)
        whole: dict[str, Any] = {
            "linestyle": "none",
            "clip_on": False,
            "in_layout": False,
        }  # a marker on the edge is drawn whole
        (self.ends,) = ax.plot([], [], color="black", marker="o", markersize=8, **whole)
        (self.free,) = ax.plot([], [], color=GREY, marker="o", markersize=4, alpha=0.6, **whole)
        (self.cut,) = ax.plot([], [], color=VERMILION, marker="x", markersize=8, markeredgewidth=2, **whole)
        self.outside = [ax.plot([], [], color="black", marker=side, markersize=9, **whole)[0] for side in OUTSIDE]
        (self.still_line,) = ax.plot([], [], color=GREY, linewidth=1)
        if not ratios:
            ax.axhline(1, color="black", linewidth=1)

    def show(self, curve: BoundsCurve) -> None:
        index = int(self.ratios)
        logarithmic, top, bottom = (
            curve.logarithmic,
            HIGHEST[curve.logarithmic][index],
            LOWEST[curve.logarithmic][index],
        )
        scale = "log" if logarithmic else "linear"
        if self.ax.get_xscale() != scale:
            self.ax.set(xscale=scale, yscale=scale)
        self.ax.set(xlim=(curve.old_prob[0] if logarithmic else 0, 1.0), ylim=(bottom, top))
        factor = np.ones_like(curve.old_prob) if self.ratios else curve.old_prob
        lower, upper = self._heights(curve.limits[0], factor, top)
        self.band.set_verts([np.column_stack([np.r_[curve.old_prob, curve.old_prob[::-1]], np.r_[lower, upper[::-1]]])])
        for line, values in zip(self.edges, (lower, upper), strict=True):
            line.set_data(curve.old_prob, values)
        for place, lines in enumerate(self.beside, start=1):
            for side, line in enumerate(lines):
                line.set_data([], [])
                if place < len(curve.limits):
                    line.set_data(curve.old_prob, self._heights(curve.limits[place], factor, top)[side])
        self.still_line.set_data(curve.old_prob, factor)
        ends = np.array([curve.limits[0].lower_at, curve.limits[0].upper_at]) * (1.0 if self.ratios else curve.at)
        self.at.set_data([curve.at, curve.at], ends.clip(bottom, top))
        self._mark(curve, ends)

    @staticmethod
    def _heights(limits: Limits, factor: np.ndarray, top: float) -> tuple[np.ndarray, np.ndarray]:
        far = 10 * top  # stands for ∞, out of sight
        return np.minimum(limits.lower * factor, far), np.minimum(limits.upper * factor, far)

    def _mark(self, curve: BoundsCurve, ends: np.ndarray) -> None:
        """Place the markers of both ends and of the tokens; what lies outside the axes is marked on their edge."""
        left, (bottom, top) = self.ax.get_xlim()[0], self.ax.get_ylim()
        groups = [(self.ends, np.full(2, curve.at), ends)]
        tokens = curve.tokens
        if tokens is not None:
            heights = tokens.ratio if self.ratios else tokens.new_prob
            for line, those in ((self.free, ~tokens.clipped), (self.cut, tokens.clipped)):
                groups.append((line, tokens.old_prob[those], heights[those]))
        for line, x, y in groups:
            inside = (x >= left) & (bottom <= y) & (y <= top)
            line.set_data(x[inside], y[inside])
        x, y = (np.concatenate([group[place] for group in groups]) for place in (1, 2))
        level = (bottom <= y) & (y <= top)
        for line, there in zip(self.outside, (y > top, y < bottom, level & (x < left)), strict=True):
            line.set_data(x[there].clip(left), y[there].clip(bottom, top))

    @property
    def moving(self) -> list[Artist]:
        beside = [line for pair in self.beside for line in pair]
        return [
            self.band,
            self.still_line,
            *self.edges,
            *beside,
            self.free,
            self.cut,
            self.at,
            self.ends,
            *self.outside,
        ]


class BoundsPicture(Picture[BoundsCurve]):
    """New probabilities that are allowed, and limits on the ratio, against old probability."""

    size = (10, 4.8)
    alt = (
        "Two graphs against a token's old probability: left the band of new probabilities inside which the gradient pushes "
        "it either way, right the limits on its ratio."
    )

    def draw(self, curve: BoundsCurve) -> list[Artist]:
        left, right = self.figure.subplots(1, 2)
        dress(left, title="How far the gradient pushes a token", x="old probability", y="new probability")
        dress(right, title="The same as limits on the ratio", x="old probability", y="ratio")
        self.sides = [BoundsSide(left, ratios=False), BoundsSide(right, ratios=True)]
        side = self.sides[0]
        self._outside = False
        at = Line2D([], [], color="black", linestyle="-.", linewidth=1.5, marker="o", markersize=8)
        beside = [pair[0] for pair in side.beside]
        handles = [side.edges[0], at, *beside, side.outside[0], side.free, side.cut]
        labels = ["limits", "at the old probability picked out", *" " * (len(BESIDE) + 3)]
        legend = self.figure.legend(
            handles, labels, loc="outside lower center", ncols=4, fontsize=TEXT - 1, frameon=False
        )
        self._legend = list(zip(legend.legend_handles, legend.get_texts(), strict=True))
        return [artist for side in self.sides for artist in side.moving]

    def show(self, curve: BoundsCurve) -> None:
        for side in self.sides:
            side.show(curve)
        self._outside = any(np.size(line.get_xdata()) for side in self.sides for line in side.outside)
        names = [f"limits, {limits.name}" for limits in curve.limits]
        texts = [names[0], "at the old probability picked out", *names[1:], *" " * (len(BESIDE) + 1 - len(names))]
        texts += ["further out" if self._outside else " "]
        texts += ["token of the run", "clipped token"] if curve.tokens is not None else [" ", " "]
        for (handle, words), text in zip(self._legend, texts, strict=True):
            words.set_text(text)
            if handle is not None:
                handle.set_visible(bool(text.strip()))

    def still(self, curve: BoundsCurve) -> Hashable:
        return curve.logarithmic, tuple(limits.name for limits in curve.limits), curve.tokens is None, self._outside

    def words(self, curve: BoundsCurve) -> str:
        first, *others = curve.limits
        said = [f"{first.name}: a token of old probability {curve.at:g} is pushed {_pushed(first, curve.at)}."]
        if first.lower_at > 0 or first.upper_at * curve.at < 1:
            said.append(
                "Beyond that its gradient is cut; a large step, or other tokens' gradients, may still carry it there."
                if first.cuts
                else "But its surrogate cuts no gradient there: these limits hold nothing back."
            )
        said += [f"Under {limits.name} it is pushed {_pushed(limits, curve.at)}." for limits in others]
        if curve.tokens is not None:
            said.append(_say_tokens(curve.tokens, first.name))
        return " ".join(said)


def _pushed(limits: Limits, q: float) -> str:
    low, high = limits.lower_at * q, limits.upper_at * q
    ratios = f"ratio {_short(limits.lower_at)} to {_short(limits.upper_at)}"
    if high >= 1:
        beyond = "there is no upper limit" if math.isinf(high) else f"the upper limit {_short(high)} lies beyond 1"
        return f"down to {_short(low)} and up as far as it goes: {beyond} ({ratios})"
    return f"down to {_short(low)} and up to {_short(high)} ({ratios})"


def _short(value: float) -> str:
    if math.isinf(value):
        return "∞"
    return f"{value:.4f}" if 0 < abs(value - 1) < 0.01 else f"{value:.3g}"


def _say_tokens(tokens: TokenCloud, name: str) -> str:
    rare = tokens.old_prob < 0.1
    said = f"Of the run's {len(rare):,} recorded tokens {name} clips {tokens.low.sum():,} below and {tokens.high.sum():,} above"
    if rare.any():
        said += f"; of the {rare.sum():,} with old probability under 0.1 it clips {tokens.clipped[rare].sum():,}"
    return f"{said}."


@checked
def plot_bounds(curve: BoundsCurve) -> Figure:
    """Draw the allowed new probabilities and the limits on the ratio against old probability; return the figure."""
    return BoundsPicture.alone(curve)
