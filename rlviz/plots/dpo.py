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
from small_models.checks import checked

LOWEST = -12.0  # of the log-probabilities drawn, nats; twice as low, or four times, … where a line goes further down
HIGHEST_PULL = 8.8  # a loss that pulls harder yet, as one without limits may, leaves the frame
LOSSES = (  # the further up one lies, the narrower it is, so that all can be seen where they agree
    ("the algorithm's", "black", "-", LINE - 0.5),
    ("sigmoid", GREEN, "-", LINE + 3.5),
    ("linear", "#AA4499", "-.", LINE + 1.5),
)
RESPONSES = (("chosen", BLUE, "-"), ("rejected", VERMILION, "--"), ("all others together", "#555555", "-."))


Limits = tuple[float, tuple[float, float], tuple[float, float], float]


def _doubled(usual: float, furthest: float) -> float:
    """Return the usual limit, or the least of 2, 4, 8, … times it that lies as far out."""
    return float(usual * 2.0 ** max(0, math.ceil(math.log2(max(furthest / usual, 1.0)))))


def _limits(curve: DpoCurve) -> Limits:
    """Return the largest margin drawn, and the limits of loss, pull and log-probabilities between which all lines lie."""
    pairs = (curve.own, curve.sigmoid, curve.linear)
    reach = float(curve.own.margin[-1])
    losses, pulls = (np.concatenate([getattr(pair, name) for pair in pairs]) for name in ("loss", "pull"))
    pull_low, pull_high = (min(_doubled(u, v), HIGHEST_PULL) for u, v in ((0.15, -pulls.min()), (2.2, pulls.max())))
    most = HIGHEST_PULL * reach
    loss_low, loss_high = (min(_doubled(u * reach, v), most) for u, v in ((1.15, -losses.min()), (2.05, losses.max())))
    return reach, (-loss_low, loss_high), (-pull_low, pull_high), -_doubled(-LOWEST, -float(curve.log_probs.min()))


class DpoPicture(Picture[DpoCurve]):
    """Left loss and pull of a pair against its margin, right the log-probabilities of a run on it."""

    size = (10, 5.2)
    alt = (
        "Left, the loss of a pair of responses and below it how hard it pulls, against the pair's margin. "
        "Right, log-probabilities of the chosen, the rejected and all other responses against training steps."
    )

    limits: Limits | None = None

    def draw(self, curve: DpoCurve) -> list[Artist]:
        grid = self.figure.add_gridspec(2, 2)
        self.loss_axes = self.figure.add_subplot(grid[0, 0])
        self.pull_axes = self.figure.add_subplot(grid[1, 0])
        self.run_axes = self.figure.add_subplot(grid[:, 1])
        dress(self.loss_axes, title="Loss and pull of one pair", x="", y="loss, slope −1 at 0")
        dress(self.pull_axes, title="", x="margin, nats: log π/π_ref, chosen − rejected", y="pull, 1 at 0")
        dress(self.run_axes, title="A run on this pair", x="step of gradient descent", y="log-probability, nats")
        for ax in (self.loss_axes, self.pull_axes):
            ax.axhline(0, color=GREY, linewidth=1)
            ax.axvline(0, color=GREY, linewidth=1)
        self.losses, self.pulls = (
            [
                ax.plot([], [], color=c, linestyle=s, linewidth=w, label=name, zorder=3 - w / 10)[0]
                for name, c, s, w in LOSSES
            ]
            for ax in (self.loss_axes, self.pull_axes)
        )
        (self.end,) = self.pull_axes.plot(
            [], [], "o", markersize=11, markeredgecolor="black", markeredgewidth=2, zorder=4
        )
        self.end.set(markerfacecolor="white", label="where the run ends")
        self.run = [
            self.run_axes.plot([], [], color=colour, linestyle=style, linewidth=LINE, label=name)[0]
            for name, colour, style in RESPONSES
        ]
        self.run_axes.set_xlim(0, curve.log_probs.shape[1] - 1)
        in_two_rows = [line for pair in zip(self.pulls, self.run, strict=True) for line in pair]
        self.figure.legend(
            handles=[*in_two_rows, self.end],
            loc="outside lower center",
            ncols=4,
            fontsize=TEXT - 1,
            frameon=False,
        )
        return [*sorted([*self.losses, *self.pulls], key=Artist.get_zorder), self.end, *self.run]

    def show(self, curve: DpoCurve) -> None:
        reach, losses, pulls, lowest = limits = _limits(curve)
        if self.limits != limits:
            self.limits = limits
            for ax in (self.loss_axes, self.pull_axes):
                ax.set(xlim=(-reach, reach), xticks=np.linspace(-reach, reach, 5))
            self.loss_axes.set(yticks=(-reach, 0, reach), ylim=losses, xticklabels=[])
            self.pull_axes.set_ylim(pulls)
            self.run_axes.set_ylim(lowest, -0.025 * lowest)
        for loss, pull, pair in zip(self.losses, self.pulls, (curve.own, curve.sigmoid, curve.linear), strict=True):
            loss.set_data(pair.margin, pair.loss)
            pull.set_data(pair.margin, pair.pull)
        margin = curve.run_margin[-1]
        self.end.set_data([margin], [np.interp(margin, curve.own.margin, curve.own.pull)])
        for line, values in zip(self.run, curve.log_probs, strict=True):
            line.set_data(np.arange(len(values)), values)

    def still(self, curve: DpoCurve) -> Hashable:
        return _limits(curve)

    def words(self, curve: DpoCurve) -> str:
        start, end, margin = curve.log_probs[:, 0], curve.log_probs[:, -1], curve.run_margin[-1]
        steps = curve.log_probs.shape[1] - 1
        if curve.shared == 1:
            run = f"To this policy the two responses are one and the same, so {steps} steps leave the margin at 0."
        else:
            run = (
                f"After {steps} steps the margin is {margin:.3g} nats"
                f"{', more than is drawn on the left' if margin > curve.own.margin[-1] else ''}: the chosen log-probability went "
                f"{_went(start[0], end[0])}, the rejected one's {_went(start[1], end[1])}, "
                f"all others together went from probability {math.exp(start[2]):.2f} to {math.exp(end[2]):.2f}."
            )
            if margin > 0 and end[0] < start[0]:
                run += (
                    " The right order was learnt, and yet the chosen response is less likely than before: the two are "
                    "alike, and it went down with the other."
                )
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
    return f"its pull fades, half of it is left at a margin of {float(f'{half:.2g}'):g} nats"


@checked
def plot_dpo(curve: DpoCurve) -> Figure:
    """Draw a pair's loss and pull against its margin, and a run on it; return the figure."""
    return DpoPicture.alone(curve)
