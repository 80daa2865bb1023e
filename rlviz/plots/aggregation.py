"""What one token weighs under each aggregation, and what becomes of it when a batch is cut into two parts."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from rlviz.curves import AggregationCurve
from rlviz.plots.marks import Marks
from rlviz.plots.picture import Picture
from rlviz.plots.style import BLUE, GREY, LINE, TEXT, VERMILION, dress
from small_models.checks import checked

FOUR = ("sequence\nmean", "token\nmean", "constant", "sequence\nsum")
OWN = "own"
LEAST, MOST = 0.003, 2.0  # of the weights drawn
HALF = 0.34  # of the width of a column


def _bars(middles: Iterable[float], heights: Iterable[float], half: float) -> list[list[tuple[float, float]]]:
    return [[(x - half, 0), (x - half, y), (x + half, y), (x + half, 0)] for x, y in zip(middles, heights, strict=True)]


class AggregationPicture(Picture[AggregationCurve]):
    """Left a token's weight in each response under each aggregation, right what cutting the batch makes of it."""

    size = (10, 4.7)
    alt = (
        "Left, the weight of one token of each response under each aggregation, on a log scale. "
        "Right, bars of the weight of each whole response, its tokens together: in the batch, and in the mean of two parts."
    )

    def draw(self, curve: AggregationCurve) -> list[Artist]:
        self.left, self.right = self.figure.subplots(1, 2)
        moving = [*self._draw_weights(curve), *self._draw_parts(curve)]
        handles, labels = self.right.get_legend_handles_labels()
        self.figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=TEXT - 1, frameon=False)
        return moving

    def _draw_weights(self, curve: AggregationCurve) -> list[Artist]:
        ax, columns = self.left, len(curve.names)
        dress(ax, title="Weight of one token of response 1, 2, …", x="aggregation", y="weight of a token (log scale)")
        holes = {"marker": "o", "markersize": 13, "markerfacecolor": "white", "markeredgecolor": "white"}  # for digits
        self.lines = [ax.plot([], [], color=BLUE, linewidth=1.5, **holes)[0] for _ in range(columns)]
        (self.own_line,) = ax.plot([], [], color=VERMILION, linewidth=LINE, **holes)
        self.digits = Marks(ax, weight="bold", colour=BLUE)
        self.own_digits = Marks(ax, weight="bold", size=TEXT + 3, colour=VERMILION)
        self.own_name = Marks(ax, weight="bold", colour="#b24e00", where=ax.get_xaxis_transform())
        ax.set(yscale="log", xlim=(-0.6, columns - 0.4), ylim=(LEAST, MOST))
        ax.set_yticks([0.01, 0.1, 1], ["0.01", "0.1", "1"])
        ax.yaxis.set_minor_locator(NullLocator())
        ax.set_xticks(range(columns), [*FOUR, OWN][:columns], fontsize=TEXT - 1 if columns == len(FOUR) else TEXT - 2)
        self.across = np.linspace(-HALF, HALF, len(curve.lengths))
        return [*self.lines, self.digits, self.own_line, self.own_digits, self.own_name]

    def _draw_parts(self, curve: AggregationCurve) -> list[Artist]:
        ax, responses = self.right, len(curve.lengths)
        dress(ax, title="Cut into two parts: does it stay the same?", x="", y="weight of all its tokens together")
        ax.set_xlabel("response, and its tokens", fontsize=TEXT, labelpad=27)
        self.whole = PolyCollection([], facecolor=BLUE, edgecolor=BLUE, linewidth=1, label="whole batch")
        self.parts = PolyCollection(
            [], facecolor="#fbe3d3", edgecolor=VERMILION, hatch="///", linewidth=1.5, label="mean of the parts' means"
        )
        for bars in (self.whole, self.parts):
            ax.add_collection(bars, autolim=False)
        self.knife = ax.axvline(0, color="black", linestyle=(0, (5, 3)), linewidth=2, label="where the batch is cut")
        self.tokens = Marks(ax, size=TEXT - 1, colour="#333333", where=ax.get_xaxis_transform())
        ax.axhline(0, color=GREY, linewidth=1)
        ax.set(xlim=(-0.6, responses - 0.4))
        ax.set_xticks(range(responses), [str(response + 1) for response in range(responses)])
        return [self.whole, self.parts, self.knife, self.tokens]

    def show(self, curve: AggregationCurve) -> None:
        at = np.arange(len(curve.lengths))
        for place, (line, weights) in enumerate(zip(self.lines, curve.weight, strict=True)):
            line.set_data(place + self.across, weights)
        own = curve.weight[curve.own]
        self.own_line.set_data(curve.own + self.across, own)
        every = [
            [(str(response + 1), place + self.across[response], weights[response]) for response in at]
            for place, weights in enumerate(curve.weight)
        ]
        self.own_digits.write(every.pop(curve.own))
        self.digits.write(digit for digits in every for digit in digits)
        self.own_name.write([("its own", curve.own, 0.96)])
        if self.right.get_ylim() != self._heights(curve):
            self.right.set_ylim(self._heights(curve))
        self.whole.set_verts(_bars(at - HALF / 2, curve.whole, 0.46 * HALF))
        self.parts.set_verts(_bars(at + HALF / 2, curve.parts, 0.46 * HALF))
        self.knife.set_xdata([curve.cut - 0.5, curve.cut - 0.5])
        self.tokens.write((_tokens(length), x, -0.13) for x, length in enumerate(curve.lengths))

    @staticmethod
    def _heights(curve: AggregationCurve) -> tuple[float, float]:
        """Return the limits of the right axes: up to 1.05, or as far as the aggregation goes, in steps that seldom change."""
        values = np.concatenate([curve.whole, curve.parts])
        top = 1.05 * 2.0 ** max(0, int(np.ceil(np.log2(max(values.max(), 1.0)))))
        return (0.0 if values.min() >= 0 else -top), top

    def still(self, curve: AggregationCurve) -> Hashable:
        return len(curve.names), self._heights(curve)

    def words(self, curve: AggregationCurve) -> str:
        own = curve.weight[curve.own]
        least, most = int(own.argmin()), int(own.argmax())
        if np.isclose(own[least], own[most], rtol=1e-9):
            weigh = f"a token weighs {own[0]:.3g} in every response"
        else:
            weigh = (
                f"a token of response {most + 1} ({_tokens(curve.lengths[most])}) weighs {own[most]:.3g}, "
                f"of response {least + 1} ({_tokens(curve.lengths[least])}) {own[least]:.3g}"
            )
        first, second = curve.cut, len(curve.lengths) - curve.cut
        cut = f"Cut into parts of {first} and {second} responses, "
        return f"{curve.name}, {curve.names[curve.own]}: {weigh}. {cut}{_say_parts(curve)}."


def _tokens(length: int) -> str:
    return f"{length} token{'' if length == 1 else 's'}"


def _say_parts(curve: AggregationCurve) -> str:
    """Return what the mean of the parts' means does to each response's weight."""
    if np.allclose(curve.parts, curve.whole, rtol=1e-9, atol=0):
        return "the mean of the parts' means is the whole batch's: no trap"
    if not (curve.whole > 0).all():
        return "the mean of the parts' means is another objective"
    times = curve.parts / curve.whole
    if np.allclose(times, times[0], rtol=1e-9, atol=0):
        return f"the mean of the parts' means gives every token {times[0]:.3g} times its weight: another learning rate"
    *most, last = (f"{factor:.3g}" for factor in times)
    return (
        f"in the mean of the parts' means tokens of responses 1 to {len(times)} count {', '.join(most)} and {last} times "
        "what they should: the trap. Weights computed on the whole batch and then cut stay right"
    )


@checked
def plot_aggregation(curve: AggregationCurve) -> Figure:
    """Draw what a token weighs under each aggregation, and what cutting the batch makes of it; return the figure."""
    return AggregationPicture.alone(curve)
