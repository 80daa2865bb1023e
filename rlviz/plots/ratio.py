"""How far importance ratios stray from 1 as responses grow, and what of them an algorithm's limits cut."""

from __future__ import annotations

import math
from collections.abc import Hashable

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from rlviz.curves import RatioCurve
from rlviz.plots.picture import Picture
from rlviz.plots.style import BLUE, GREEN, GREY, LINE, TEXT, VERMILION, dress
from small_models.checks import checked

DOTS = (0, (1, 1))
NEAREST, FURTHEST = 1e-4, 100.0  # of the distances drawn
NOWHERE = 1e9  # of a limit that does not exist: outside of every picture


class RatioPicture(Picture[RatioCurve]):
    """Left how far ratios of each kind lie from 1 against length, right a histogram of the algorithm's own ratio."""

    size = (10, 4.7)
    alt = (
        "Left, how far four kinds of ratio lie from 1 against the length of a response, on log scales. "
        "Right, a histogram of the algorithm's own ratio with its limits."
    )

    def draw(self, curve: RatioCurve) -> list[Artist]:
        self.left, self.right = self.figure.subplots(1, 2)
        self._draw_spread()
        self._draw_histogram()
        (handles, labels), (more, their_labels) = (ax.get_legend_handles_labels() for ax in (self.left, self.right))
        self.figure.legend(
            [*handles, *more],
            [*labels, *their_labels],
            loc="outside lower center",
            ncols=3,
            fontsize=TEXT - 1,
            frameon=False,
        )
        return [self.here, *self.distances, *self.lines, self.own, self.all, self.cut, *self.limits]

    def _draw_spread(self) -> None:
        ax = self.left
        dress(
            ax,
            title="How far ratios stray from 1",
            x="length of the response, tokens",
            y="|log ratio|, nats: 9 in 10 below",
        )
        self.here = ax.axvline(1, color=GREY, linewidth=1)
        self.distances = tuple(ax.axhline(1, color="black", linestyle=DOTS, linewidth=2) for _ in range(2))
        self.product, self.token, self.arithmetic, self.sequence = self.lines = [
            ax.plot([], [], color=colour, linestyle=style, marker=marker, linewidth=LINE, markersize=8, label=name)[0]
            for name, colour, style, marker in (
                ("product of the token ratios", "black", "-.", ""),
                ("one token's ratio", BLUE, "-", ""),
                ("their arithmetic mean, simulated", GREEN, "none", "s"),
                ("their geometric mean (sequence)", VERMILION, "--", ""),
            )
        ]
        (self.own,) = ax.plot(
            [], [], "o", markersize=12, markerfacecolor="white", markeredgecolor="black", markeredgewidth=2.5
        )
        self.own.set_label("the algorithm's own ratio")
        ax.set(xscale="log", yscale="log", xlim=(1, 260), ylim=(NEAREST, FURTHEST))
        ax.set_xticks([1, 10, 100], ["1", "10", "100"])
        ax.set_yticks([1e-4, 1e-2, 1, 100], ["0.0001", "0.01", "1", "100"])
        ax.yaxis.set_minor_locator(NullLocator())

    def _draw_histogram(self) -> None:
        ax = self.right
        dress(ax, title="The algorithm's own ratio", x="ratio", y="how often")
        ax.axvline(1, color=GREY, linewidth=1)
        edges = np.array([0.0, 1.0])
        self.all = ax.stairs(
            [0.0], edges, fill=True, facecolor="#cfe3f1", edgecolor=BLUE, linewidth=1.5, label="all ratios"
        )
        self.cut = ax.stairs(
            [0.0],
            edges,
            fill=True,
            facecolor="#f0b58c",
            edgecolor=VERMILION,
            hatch="///",
            linewidth=1.5,
            label="gradient cut",
        )
        self.limits = tuple(
            ax.axvline(1, color="black", linestyle=DOTS, linewidth=2, label=label) for label in ("limits", None)
        )
        ax.set(ylim=(0, 1.08), yticks=[])
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))

    def show(self, curve: RatioCurve) -> None:
        spread = curve.spread
        self.product.set_data(spread.lengths, spread.product)
        self.token.set_data(spread.lengths, spread.token)
        self.arithmetic.set_data(spread.lengths, spread.arithmetic)
        self.sequence.set_data(spread.lengths, spread.sequence)
        self.here.set_xdata([curve.length, curve.length])
        self.own.set_data([curve.length], [curve.own])
        for across, upright, limit in zip(self.distances, self.limits, (curve.lower, curve.upper), strict=True):
            real = 0 < limit < math.inf
            across.set_ydata([abs(math.log(limit)) if real else NOWHERE] * 2)
            upright.set_xdata([limit if real else -NOWHERE] * 2)
        low, high = curve.edges[0], curve.edges[-1]
        if self.right.get_xlim() != (low, high):
            self.right.set_xlim(low, high)
        width = np.diff(curve.edges)  # not all alike: areas are shares
        tallest = (curve.share / width).max() or 1.0
        self.all.set_data(curve.share / width / tallest, curve.edges)
        self.cut.set_data(curve.share_cut / width / tallest, curve.edges)

    def still(self, curve: RatioCurve) -> Hashable:
        return float(curve.edges[0]), float(curve.edges[-1])

    def words(self, curve: RatioCurve) -> str:
        token, sequence, product = map(_within, (curve.token, curve.sequence, curve.product))
        tokens = "1 token" if curve.length == 1 else f"{curve.length} tokens"
        first = (
            f"{curve.name}, responses of {tokens}: nine in ten token ratios lie within {token} of 1, "
            f"sequence ratios within {sequence}, plain products within {product}."
        )
        limits = [_limit(limit) for limit in (curve.lower, curve.upper) if 0 < limit < math.inf]
        cut = (
            curve.clipped if curve.simulated or not limits else max(curve.clipped, 1e-300)
        )  # a normal tail is never empty
        outside = 1 - curve.share.sum()
        words = [
            first,
            f"Its own ratio stays within {_within(curve.own)}; "
            + (f"limits {' and '.join(limits)} cut" if limits else "without limits, the gradient is cut for")
            + f" {_percent(cut)} of the {f'{curve.simulated:,} simulated ' if curve.simulated else ''}tokens.",
        ]
        if curve.clipped >= 0.35:
            words.append("The limits are narrow beside the spread: most of what moved as its advantage asks is cut.")
        if outside > 0.005:
            words.append(f"{_percent(outside)} of the ratios lie outside the right picture.")
        return " ".join(words)


def _within(distance: float) -> str:
    """Return a distance in nats as a percentage or, from a factor of 1.5 on, as a factor."""
    if distance >= math.log(1.5):
        return f"a factor {float(f'{math.exp(distance):.2g}'):g}" if distance < 7 else f"a factor e^{distance:.0f}"
    return f"{100 * math.expm1(distance):.2g} %"


def _limit(value: float) -> str:
    """Return a limit to two digits of its distance from 1: 0.8, 1.28, 1.0004."""
    return f"{1 + float(f'{value - 1:.2g}'):.10g}"


def _percent(share: float) -> str:
    if 0 < share < 1e-4:
        return "below 0.01 %"
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


@checked
def plot_ratio(curve: RatioCurve) -> Figure:
    """Draw how far ratios stray from 1 with length, and the algorithm's own; return the figure."""
    return RatioPicture.alone(curve)
