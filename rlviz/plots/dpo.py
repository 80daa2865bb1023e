"""One preference pair: how hard a loss pulls at its margin, and where a small policy goes that is trained on it."""

from __future__ import annotations

import math
from collections.abc import Hashable

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from rlviz.curves import DpoCurve
from rlviz.curves.dpo import PairCurve
from rlviz.plots.picture import Picture
from rlviz.plots.style import BLUE, GREEN, GREY, LINE, TEXT, VERMILION, dress

LOWEST = -12.0  # of the log-probabilities drawn, nats
LOSSES = (
    ("the algorithm's", "black", "-", LINE + 1),
    ("sigmoid", GREEN, (0, (4, 2)), LINE),
    ("linear", "#AA4499", "-.", LINE),
)
RESPONSES = (("chosen", BLUE, "-"), ("rejected", VERMILION, "--"), ("all others together", "#555555", "-."))


class DpoPicture(Picture[DpoCurve]):
    """Left loss and pull of a pair against its margin, right the log-probabilities of a run on it."""

    size = (10, 5.2)
    alt = (
        "Left, the loss of a pair of responses and below it how hard it pulls, against the pair's margin. "
        "Right, log-probabilities of the chosen, the rejected and all other responses against training steps."
    )

    def draw(self, curve: DpoCurve) -> list[Artist]:
        grid = self.figure.add_gridspec(2, 2)
        self.loss_axes = self.figure.add_subplot(grid[0, 0])
        self.pull_axes = self.figure.add_subplot(grid[1, 0])
        self.run_axes = self.figure.add_subplot(grid[:, 1])
        dress(self.loss_axes, title="Loss and pull of one pair", x="", y="loss, scaled")
        dress(self.pull_axes, title="", x="margin, nats: log π/π_ref, chosen − rejected", y="pull, 1 at 0")
        dress(self.run_axes, title="A run on this pair", x="step of gradient descent", y="log-probability, nats")
        for ax in (self.loss_axes, self.pull_axes):
            ax.axhline(0, color=GREY, linewidth=1)
            ax.axvline(0, color=GREY, linewidth=1)
        self.pull_axes.set_ylim(-0.15, 2.2)
        self.losses, self.pulls = (
            [ax.plot([], [], color=c, linestyle=s, linewidth=w, label=name)[0] for name, c, s, w in LOSSES]
            for ax in (self.loss_axes, self.pull_axes)
        )
        (self.end,) = self.pull_axes.plot([], [], "o", markersize=11, markeredgecolor="black", markeredgewidth=2)
        self.end.set(markerfacecolor="white", label="where the run ends")
        self.run = [
            self.run_axes.plot([], [], color=colour, linestyle=style, linewidth=LINE, label=name)[0]
            for name, colour, style in RESPONSES
        ]
        self.run_axes.set(xlim=(0, curve.log_probs.shape[1] - 1), ylim=(LOWEST, 0.3))
        in_two_rows = [line for pair in zip(self.pulls, self.run, strict=True) for line in pair]
        self.figure.legend(
            handles=[*in_two_rows, self.end],
            loc="outside lower center",
            ncols=4,
            fontsize=TEXT - 1,
            frameon=False,
        )
        return [*self.losses, *self.pulls, self.end, *self.run]

    def show(self, curve: DpoCurve) -> None:
        reach = curve.own.margin[-1]
        if self.pull_axes.get_xlim() != (-reach, reach):
            for ax in (self.loss_axes, self.pull_axes):
                ax.set_xlim(-reach, reach)
                ax.set_xticks(np.linspace(-reach, reach, 5))
            self.loss_axes.set_ylim(-1.15 * reach, 1.8 * reach)
            self.loss_axes.set_yticks([-reach, 0, reach])
            self.loss_axes.set_xticklabels([])
        for loss, pull, pair in zip(self.losses, self.pulls, (curve.own, curve.sigmoid, curve.linear), strict=True):
            loss.set_data(pair.margin, pair.loss)
            pull.set_data(pair.margin, pair.pull)
        margin = curve.run_margin[-1]
        self.end.set_data([margin], [np.interp(margin, curve.own.margin, curve.own.pull)])
        for line, values in zip(self.run, curve.log_probs, strict=True):
            line.set_data(np.arange(len(values)), values)

    def still(self, curve: DpoCurve) -> Hashable:
        return float(curve.own.margin[-1])

    def words(self, curve: DpoCurve) -> str:
        start, end = curve.log_probs[:, 0], curve.log_probs[:, -1]
        steps = curve.log_probs.shape[1] - 1
        if curve.shared == 1:
            run = f"To this policy the two responses are one and the same, so {steps} steps leave the margin at 0."
        else:
            run = (
                f"After {steps} steps the margin is {curve.run_margin[-1]:.3g} nats: the chosen log-probability went "
                f"{_went(start[0], end[0])}, the rejected one's {_went(start[1], end[1])}, "
                f"all others together went from probability {math.exp(start[2]):.2f} to {math.exp(end[2]):.2f}."
            )
            if curve.run_margin[-1] > 0 and end[0] < start[0]:
                run += " The right order was learnt, and yet the chosen response is less likely than before."
        seen = f", β = {curve.beta:g}" if math.isfinite(curve.beta) else ", rewards 1 and 0 for two sampled responses"
        return f"{curve.name}{seen}: {_say_pull(curve)}. {run}"


def _went(start: float, end: float) -> str:
    if abs(end - start) < 0.005:
        return f"nowhere from {_nats(start)}"
    return f"{'up' if end > start else 'down'} from {_nats(start)} to {_nats(end)}"


def _nats(value: float) -> str:
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def _first_below(pair: PairCurve, level: float) -> float | None:
    """Return the first margin of the grid from 0 on with a pull of at most `level`."""
    below = np.flatnonzero((pair.margin >= 0) & (pair.pull <= level))
    return float(pair.margin[below[0]]) if len(below) else None


def _say_pull(curve: DpoCurve) -> str:
    pair = curve.own
    if not pair.slope:
        return "it does not pull at margin 0"
    if not pair.pull[-1]:
        last = np.flatnonzero(pair.pull)[-1]
        return f"its pull stops dead at a margin of {pair.margin[last + 1]:.2g} nats"
    half = _first_below(pair, 0.5)
    if half is None:
        return f"its pull never lets go of a pair, here up to a margin of {pair.margin[-1]:g} nats"
    return f"its pull fades, to half of that at margin 0 at a margin of {float(f'{half:.2g}'):g} nats"


def plot_dpo(curve: DpoCurve) -> Figure:
    """Draw a pair's loss and pull against its margin, and a run on it; return the figure."""
    return DpoPicture.alone(curve)
