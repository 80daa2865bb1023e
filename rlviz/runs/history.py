"""One run, or two on each other, against the step, with a line at the step that is looked into."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from rlviz.pictures.base import BLUE, GREEN, GREY, LINE, TEXT, VERMILION, dress, new_figure, plain

# title, unit, least top of the axis, column → words, colour, marker
PANELS: tuple[tuple[str, str, float, dict[str, tuple[str, str, str]]], ...] = (
    (
        "Reward and accuracy",
        "reward, share right",
        1.02,
        {"reward": ("reward", BLUE, ""), "held_out_accuracy": ("accuracy, held out", VERMILION, "o")},
    ),
    ("Entropy", "nats per token", 0.8, {"entropy": ("entropy", BLUE, "")}),
    (
        "Clipped tokens",
        "share",
        0.05,
        {
            "clip_fraction_high": ("above limit", BLUE, "^"),
            "clip_fraction_low": ("below", VERMILION, "v"),
            "clip_fraction_dual": ("dual", GREEN, "s"),
        },
    ),
)
RUN_STYLES = ("-", "--")
MARKERS = 8  # on a line, at most about


@dataclass(frozen=True)
class RunHistory:
    """A run as the picture needs it: its name, a row a step as `rlviz.history` gives it, the steps recorded with tokens."""

    name: str
    metrics: pd.DataFrame
    token_steps: tuple[int, ...]


@dataclass(frozen=True)
class RunsAtStep:
    """One run or two, the step that is looked into (None before the first), and the number of steps that the axes hold."""

    runs: tuple[RunHistory, ...]
    step: int | None
    steps: int


class RunPicture:
    """Reward and accuracy, entropy, clipped tokens; the second run dashed in the same colours; ticks where tokens are.

    figure: what it is drawn in. moving: the artists that `show` moves, back to front. alt: what there is to see.
    """

    size = (11, 3.5)
    alt = "Three graphs against the training step: reward and held-out accuracy, entropy, share of clipped tokens."

    def __init__(self, curve: RunsAtStep) -> None:
        self.figure = new_figure(*self.size)
        self.moving = self._draw(curve)
        self.show(curve)

    def _draw(self, curve: RunsAtStep) -> list[Artist]:
        self._axes = list(self.figure.subplots(1, 3))
        self._lines: dict[tuple[int, str], Line2D] = {}
        self._ticks: list[Line2D] = []
        self.cursors: list[Line2D] = []
        for ax, (title, unit, _, columns) in zip(self._axes, PANELS, strict=True):
            dress(ax, title=title, x="step", y=unit)
            ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            for column, (words, colour, marker) in columns.items():
                for run, style in enumerate(RUN_STYLES[: len(curve.runs)]):
                    look = {"color": colour, "linestyle": style, "linewidth": LINE, "marker": marker, "markersize": 7}
                    look |= {"markerfacecolor": colour if run == 0 else "white"}
                    (self._lines[run, column],) = ax.plot([], [], label=words if run == 0 else "_", **look)
            place = {"transform": ax.get_xaxis_transform(), "color": GREY, "clip_on": False, "in_layout": False}
            tick = {"linestyle": "none", "marker": "|", "markersize": 9, "markeredgewidth": 2}
            self._ticks += ax.plot([], [], label="with tokens" if len(columns) == 1 else "_", **tick, **place)
            self.cursors.append(ax.axvline(0, color="black", linewidth=1.5, linestyle=":"))
            below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.24), "ncols": 3, "frameon": False}
            ax.legend(fontsize=TEXT - 2, columnspacing=1, handlelength=1.6, handletextpad=0.5, **below)
        self._names: list[Text] = []
        if len(curve.runs) > 1:
            black = {"color": "black", "linewidth": LINE}
            handles = [self._axes[0].plot([], [], linestyle=style, **black)[0] for style in RUN_STYLES]
            above: dict[str, Any] = {"loc": "outside upper center", "ncols": 2, "frameon": False, "fontsize": TEXT - 1}
            self._names = self.figure.legend(handles, [plain(run.name) for run in curve.runs], **above).get_texts()
        return [*self._ticks, *reversed(self._lines.values()), *self.cursors]

    def show(self, curve: RunsAtStep) -> None:
        """Move the artists to the runs as they are."""
        for (run, column), line in self._lines.items():
            measured = curve.runs[run].metrics[["step", column]].astype(float).dropna()
            line.set_data(measured["step"], measured[column])
            line.set_markevery(1 if column == "held_out_accuracy" else max(1, len(measured) // MARKERS))
        ticks = sorted({step for run in curve.runs for step in run.token_steps})
        for part in self._ticks:
            part.set_data(ticks, [0.0] * len(ticks))
        for cursor in self.cursors:
            cursor.set_xdata([curve.step or 0])
            cursor.set_visible(curve.step is not None)
        for ax, (_, _, top, columns) in zip(self._axes, PANELS, strict=True):
            values = np.concatenate([run.metrics[list(columns)].to_numpy(float).ravel() for run in curve.runs])
            ax.set(xlim=(0, 1.03 * curve.steps), ylim=_limits(values[np.isfinite(values)], top))
        for text, history in zip(self._names, curve.runs, strict=False):
            text.set_text(plain(history.name))

    def still(self, curve: RunsAtStep) -> Hashable:
        """Return what the standing parts (limits, legends) depend on; when it changes, all is drawn anew, which is slower."""
        return *((ax.get_xlim(), ax.get_ylim()) for ax in self._axes), *(run.name for run in curve.runs)

    def words(self, curve: RunsAtStep) -> str:
        """Say where the runs are at the step, with their numbers."""
        if curve.step is None:
            return "No step yet."
        return f"Step {curve.step} of {curve.steps}. " + " ".join(_numbers(run, curve.step) for run in curve.runs)


def _limits(values: NDArray[np.float64], top: float) -> tuple[float, float]:
    """Return limits from 0 to `top`, each widened in steps of a half until the values fit, so that they seldom change."""
    low, high = 0.0, top
    while values.max(initial=0.0) > high:
        high *= 1.5
    while values.min(initial=0.0) < low:
        low = 1.5 * low or -0.1 * top
    return low, high


def _numbers(run: RunHistory, step: int) -> str:
    rows = run.metrics[run.metrics["step"] == step]
    if rows.empty:
        return f"{run.name} has no such step."
    row = rows.iloc[0]
    measured = run.metrics[run.metrics["step"] <= step].dropna(subset="held_out_accuracy").tail(1)
    accuracy = "".join(
        f", held-out accuracy {value:.2f}" + (f" (at step {at})" if at != step else "")
        for at, value in zip(measured["step"], measured["held_out_accuracy"], strict=True)
    )
    told = {
        "reward {:.2f}" + accuracy: row["reward"],
        "entropy {:.2f} nats": row["entropy"],
        "clipped {:.1%} below": row["clip_fraction_low"],
        "and {:.1%} above": row["clip_fraction_high"],
        "{:.1%} by the dual clip": row["clip_fraction_dual"] or np.nan,
    }
    words = ", ".join(said.format(value) for said, value in told.items() if np.isfinite(value))
    return f"{run.name}: {words.replace(', and', ' and')}."
