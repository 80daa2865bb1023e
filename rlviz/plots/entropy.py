"""Runs of a table: entropy and accuracy against the step and against each other, and the probabilities at one step."""

from __future__ import annotations

import math
from collections.abc import Hashable

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from rlviz.curves.arrays import Array
from rlviz.curves.entropy import EntropyCurve, TableHistory
from rlviz.plots.picture import Picture
from rlviz.plots.style import BLUE, GREY, LINE, TEXT, VERMILION, dress
from small_models.checks import checked

NOTHING = "no accuracy above the first\nis reached by half of the replicas"
STYLES = ((BLUE, "-", LINE + 0.5), (VERMILION, "--", LINE))  # of the explored algorithm, of the one beside it


class _Bands:
    """Means over replicas as lines, with a band from the 10th to the 90th percentile, of up to two algorithms."""

    def __init__(self, ax: Axes) -> None:
        self.ax = ax
        self.lines = [ax.plot([], [], color=c, linestyle=s, linewidth=w)[0] for c, s, w in STYLES]
        self.bands = [PolyCollection([], facecolor=c, alpha=0.18, linewidth=0) for c, _, _ in STYLES]
        for band in self.bands:
            ax.add_collection(band, autolim=False)

    def show(self, values: list[Array]) -> None:
        for place, (line, band) in enumerate(zip(self.lines, self.bands, strict=True)):
            if place >= len(values):
                line.set_data([], [])
                band.set_verts([])
                continue
            steps = np.arange(values[place].shape[1])
            low, high = np.percentile(values[place], [10, 90], axis=0)
            line.set_data(steps, values[place].mean(0))
            band.set_verts([np.column_stack([np.r_[steps, steps[::-1]], np.r_[low, high[::-1]]])])


class EntropyPicture(Picture[EntropyCurve]):
    """Four panels of a table in training: entropy, accuracy, one against the other, and the probabilities at a step."""

    size = (10, 6.2)
    alt = (
        "Four graphs of a table of logits in training: entropy against the step, accuracy against the step, entropy "
        "against accuracy, and bars of the actions' probabilities at one step."
    )

    def draw(self, curve: EntropyCurve) -> list[Artist]:
        grid = self.figure.add_gridspec(3, 2, height_ratios=(1, 1, 0.22))
        up_left, up_right, down_left, down_right = (
            self.figure.add_subplot(grid[row, side]) for row in (0, 1) for side in (0, 1)
        )
        below = self.figure.add_subplot(grid[2, :])  # the legend's place: names come and go without a new layout
        below.set(xticks=[], yticks=[])
        below.axis("off")
        dress(up_left, title="Entropy", x="step", y="nats")
        dress(up_right, title="Accuracy", x="step", y="probability right")
        dress(down_left, title="Entropy when an accuracy is first reached", x="accuracy", y="nats")
        dress(down_right, title="Probabilities in one replica, at the step", x="action", y="probability")
        for ax in (up_left, up_right):
            ax.set_xlim(-1, curve.histories[0].entropy.shape[1])  # so that the step is seen at both ends
        for ax in (up_right, down_right):
            ax.set_ylim(0, 1.02)
        down_left.set_xlim(0, 1)
        self.entropy, self.accuracy = _Bands(up_left), _Bands(up_right)
        self.at = [
            ax.axvline(0, color="black", linestyle=":", linewidth=2.5, label="the step") for ax in (up_left, up_right)
        ]
        self.against = [
            down_left.plot([], [], color=c, linestyle=s, linewidth=w, marker=m, markersize=6)[0]
            for (c, s, w), m in zip(STYLES, "os", strict=True)
        ]
        self.others = PolyCollection([], facecolor=GREY, edgecolor="white", linewidth=0.5)
        self.good = PolyCollection([], facecolor=BLUE, edgecolor="white", linewidth=0.5, hatch="//")
        for bars in (self.others, self.good):
            down_right.add_collection(bars, autolim=False)
        self.bars, self.heights = down_right, (up_left, down_left)
        self.nothing = down_left.text(0.5, 0.45, NOTHING, transform=down_left.transAxes, fontsize=TEXT, ha="center")
        self.legend = below.legend(
            [self.entropy.lines[0], self.entropy.lines[1], self.entropy.bands[0], self.at[0], self.good, self.others],
            ["", "", _middle(curve.histories[0]), "the step", "good action", "other action"],
            loc="center",
            ncols=3,
            fontsize=TEXT - 1,
            frameon=False,
        )
        self.legend.set_in_layout(False)
        moving = [*self.entropy.bands, *self.accuracy.bands, *self.at, *self.entropy.lines, *self.accuracy.lines]
        return [*moving, *self.against, self.nothing, self.others, self.good, self.legend]

    def show(self, curve: EntropyCurve) -> None:
        histories = curve.histories
        actions = histories[0].probs.shape[1]
        for ax in self.heights:
            ax.set_ylim(0, 1.05 * math.log(actions))
        self.bars.set_xlim(0.3, actions + 0.7)
        self.bars.set_xticks(range(1, actions + 1, 1 if actions < 12 else 3))
        self.entropy.show([history.entropy for history in histories])
        self.accuracy.show([history.accuracy for history in histories])
        for line in self.at:
            line.set_xdata([curve.step, curve.step])
        for line in self.against[len(histories) :]:
            line.set_data([], [])
        for line, history in zip(self.against, histories, strict=False):
            line.set_data(history.levels, history.entropy_at_level)
        self.nothing.set_visible(not any(np.isfinite(history.entropy_at_level).any() for history in histories))
        probs = histories[0].probs[curve.step]
        for bars, good in ((self.good, True), (self.others, False)):
            chosen = [a for a in range(actions) if (a in curve.good) == good]
            bars.set_verts([[(a + 0.6, 0), (a + 0.6, probs[a]), (a + 1.4, probs[a]), (a + 1.4, 0)] for a in chosen])
        names = [history.name for history in histories]
        for handle, text, name in zip(
            self.legend.legend_handles, self.legend.get_texts(), [*names, " "][:2], strict=False
        ):
            text.set_text(name)
            if handle is not None:
                handle.set_visible(bool(name.strip()))

    def still(self, curve: EntropyCurve) -> Hashable:
        return curve.histories[0].probs.shape[1]

    def words(self, curve: EntropyCurve) -> str:
        said = [_say_run(history) for history in curve.histories]
        if not curve.good:
            said.append(
                "The reward is pure chance: nothing can be learned, so no accuracy is reached below left, and the entropy "
                "falls all the same."
            )
        else:
            said.append(_say_matched(curve.histories))
        first = curve.histories[0].probs[curve.step]
        likely = int(first.argmax())
        said.append(
            f"At step {curve.step} of the replica shown the likeliest action is {likely + 1}, with {first[likely]:.2f}."
        )
        return " ".join(said)


def _say_run(history: TableHistory) -> str:
    end = history.entropy[:, -1]
    low, high = np.percentile(end, [10, 90])
    return (
        f"{history.name}: from {history.entropy[:, 0].mean():.2f} to {end.mean():.2f} nats after {history.entropy.shape[1] - 1} "
        f"steps ({_middle(history)}: {low:.2f} to {high:.2f}), accuracy {history.accuracy[:, -1].mean():.2f}."
    )


def _middle(history: TableHistory) -> str:
    return f"middle 80 % of {len(history.entropy)} replicas"


def _say_matched(histories: tuple[TableHistory, ...]) -> str:
    reached = np.all([np.isfinite(history.entropy_at_level) for history in histories], axis=0)
    if not reached.any():
        return "No accuracy above the start is reached by half of the replicas."
    place = int(np.flatnonzero(reached)[-1])
    level = histories[0].levels[place]
    each = " and ".join(f"{history.entropy_at_level[place]:.2f} ({history.name})" for history in histories)
    return f"When accuracy {level:.2f} is first reached, the entropy is {each}."


@checked
def plot_entropy(curve: EntropyCurve) -> Figure:
    """Draw entropy, accuracy, one against the other, and the probabilities at a step; return the figure."""
    return EntropyPicture.alone(curve)
