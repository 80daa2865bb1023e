"""What it costs to fill a batch with groups that teach something, and what then is in the batch."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from rlviz.curves.sampling import BatchShares, SamplingCurve
from rlviz.plots.marks import Marks
from rlviz.plots.picture import Picture
from rlviz.plots.style import BLUE, GREEN, GREY, LINE, TEXT, VERMILION, dress
from small_models.checks import checked

# what a place of the batch holds → its looks
KINDS: dict[str, dict[str, Any]] = {
    "fresh": {"facecolor": BLUE, "edgecolor": BLUE, "label": "right and wrong responses"},
    "repeated": {"facecolor": "white", "edgecolor": GREEN, "hatch": "//", "label": "such a group repeated"},
    "remembered": {
        "facecolor": "white",
        "edgecolor": VERMILION,
        "hatch": "..",
        "label": "all equal, learns from memory",
    },
    "dead": {"facecolor": "#d0d0d0", "edgecolor": GREY, "label": "all equal, no gradient"},
}
HALF = 0.3  # of a bar's height, in rows
ROWS = 5  # at most


class SamplingPicture(Picture[SamplingCurve]):
    """Left the price of replacing dead groups against the success rate, right what the batches hold at one rate."""

    size = (10, 4.8)
    alt = (
        "Left a graph of responses sampled for each one wanted against the success rate; right a bar for each algorithm, "
        "cut into what the places of its batch hold."
    )

    def draw(self, curve: SamplingCurve) -> list[Artist]:
        left, right = self.figure.subplots(1, 2, width_ratios=(1, 1.25))
        moving = [*self._draw_price(left), *self._draw_batches(right, curve.steps)]
        handles, labels = (
            a + b for a, b in zip(*(ax.get_legend_handles_labels() for ax in (left, right)), strict=True)
        )
        self.figure.legend(
            handles, labels, loc="outside lower center", ncols=3, fontsize=TEXT - 1, frameon=False, columnspacing=1.5
        )
        return moving

    def _draw_price(self, ax: Axes) -> list[Artist]:
        dress(ax, title="Price", x="success rate p of the prompts", y="responses sampled / wanted")
        ax.set(xlim=(0, 1), yscale="log", ylim=(0.85, 12))
        ax.set_yticks((1, 2, 5, 10), ("1", "2", "5", "10"))
        ax.set_yticks((), minor=True)
        (self.at,) = ax.plot([], [], color="black", linestyle="-.", linewidth=1.5, label="at the slider")
        (self.price,) = ax.plot([], [], color=GREY, linewidth=LINE, label="every dead group replaced, expected")
        (self.simulated,) = ax.plot(
            [], [], color=BLUE, linestyle="none", marker="o", markersize=8, label="the first algorithm, simulated"
        )
        return [self.price, self.at, self.simulated]

    def _draw_batches(self, ax: Axes, steps: int) -> list[Artist]:
        dress(ax, title=f"The batch's places, {steps} simulated steps", x="share of the batch's places", y="")
        ax.set(xlim=(-0.85, 1.22), ylim=(1, -0.1), xticks=(0, 0.25, 0.5, 0.75, 1), yticks=())
        ax.xaxis.set_label_coords((0.85 + 0.5) / (0.85 + 1.22), -0.12)
        ax.spines["left"].set_visible(False)
        ax.spines["bottom"].set_bounds(0, 1)
        self.bars: dict[str, PolyCollection] = {}
        for kind, looks in KINDS.items():
            self.bars[kind] = PolyCollection([], linewidth=1.5, **looks)
            ax.add_collection(self.bars[kind], autolim=False)
        (self.expected,) = ax.plot([], [], color="black", linestyle=":", linewidth=2.5, label="informative, expected")
        ax.text(1.03, -0.04, "sampled", fontsize=TEXT - 1, va="center", style="italic")
        self.names = [
            ax.text(-0.03, 0, "", fontsize=TEXT - 1, va="center", ha="right", in_layout=False) for _ in range(ROWS)
        ]
        self.names[0].set_fontweight("bold")
        self.prices = Marks(ax, size=TEXT - 1)
        return [*self.bars.values(), self.expected, self.prices]

    def show(self, curve: SamplingCurve) -> None:
        self.price.set_data(curve.rates, curve.price)
        self.at.set_data([curve.success_rate] * 2, [0.85, 12])
        self.simulated.set_data(curve.points, curve.simulated)
        self.expected.set_data([curve.informative] * 2, [0, 1])
        rows = len(curve.batches)
        heights = (np.arange(rows) + 0.5) / rows
        starts = np.zeros(rows)
        for kind, bars in self.bars.items():
            ends = starts + [getattr(batch, kind) for batch in curve.batches]
            bars.set_verts(
                [
                    [(a, y - HALF / rows), (b, y - HALF / rows), (b, y + HALF / rows), (a, y + HALF / rows)]
                    for a, b, y in zip(starts, ends, heights, strict=True)
                    if b > a
                ]
            )
            starts = ends
        wanted = curve.num_prompts * curve.group_size
        for name in self.names[rows:]:
            name.set_text("")
        for name, batch, y in zip(self.names, curve.batches, heights, strict=False):
            name.set_text(f"{batch.name}\n{batch.rules}")
            name.set_y(y)
        prices = [f"{batch.sampled * wanted:,.0f}" for batch in curve.batches]
        self.prices.write([(price, 1.03, y) for price, y in zip(prices, heights, strict=True)], sides=["left"] * rows)

    def still(self, curve: SamplingCurve) -> Hashable:
        return tuple((batch.name, batch.rules) for batch in curve.batches)

    def words(self, curve: SamplingCurve) -> str:
        first, *others = curve.batches
        wanted = curve.num_prompts * curve.group_size
        prompts = f"prompts of success rate {curve.hard:.2f}"
        if curve.easy != curve.hard:
            prompts = f"prompts half of success rate {curve.hard:.2f}, half of {curve.easy:.2f}"
        said = [
            f"{first.name} at G = {curve.group_size}, {prompts}: in {curve.steps} simulated steps, each for {curve.num_prompts} "
            f"groups, {wanted:,} responses, it samples {first.sampled * wanted:,.0f} on average; of the batch's places "
            f"{_say_batch(first)}.",
            f"Expected are {curve.informative:.1%} informative groups, with right and wrong responses; replacing the others, "
            f"up to {curve.max_rounds * curve.num_prompts} groups in all, takes {curve.replaced * wanted:,.0f} responses, "
            f"{curve.replaced:.2f} times as many, and fills {curve.filled:.0%} of the places.",
            "In the same steps " + "; ".join(f"{other.name}: {_say_batch(other)}" for other in others) + ".",
        ]
        return " ".join(said)


def _say_batch(batch: BatchShares) -> str:
    memory = "all equal with a gradient from memory"
    if batch.remembered_size is not None and batch.fresh_size is not None:
        memory += f" (mean |A| {batch.remembered_size:.2f} against {batch.fresh_size:.2f})"
    parts = (
        (batch.fresh, "informative"),
        (batch.repeated, "repeats"),
        (batch.remembered, memory),
        (batch.dead, "without gradient"),
        (1 - batch.fresh - batch.repeated - batch.remembered - batch.dead, "empty"),
    )
    return ", ".join(f"{share:.0%} {what}" for share, what in parts if share >= 0.005)


@checked
def plot_sampling(curve: SamplingCurve) -> Figure:
    """Draw the price of informative groups against success rate and what batches hold; return the figure."""
    return SamplingPicture.alone(curve)
