"""Pictures of experiments: what each arm came to, a dot a seed, and how it went, a line an arm with a band over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from rlviz.pictures.base import COLOURS, FAINT, GREY, LINE, LINE_STYLES, TEXT, dress, new_figure

MARKERS = ("o", "s", "^", "D")
Corner = Literal["best", "lower left", "lower right"]


def panels(count: int, width: float = 5.6, height: float = 4.2) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure with so many axes side by side."""
    figure = new_figure(width * count, height)
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def plot_arms(
    ax: Axes,
    frame: pd.DataFrame,
    y: str,
    *,
    by: str = "arm",
    sets: str | None = None,
    title: str = "",
    unit: str = "",
    legend: Corner = "best",
) -> Axes:
    """Draw a line for each arm, from top to bottom as they come: a dot a seed (the mean of its rows), and a bar for the mean.

    sets: a column of up to four values, whose dots are drawn one below the other in colours and markers of their own.
    """
    arms = list(frame[by].unique())
    parts = [("", frame)] if sets is None else list(frame.groupby(sets, sort=False))
    for index, (name, part) in enumerate(parts):
        shift, reach = (0.0, 0.18) if sets is None else (0.4 * index - 0.2, 0.09)
        for place, arm in enumerate(arms):
            values = part[part[by] == arm].groupby("seed")[y].mean().dropna().to_numpy()
            if not len(values):
                _not_reached(ax, place)
                continue
            ax.plot(
                values,
                place + shift + np.linspace(-reach, reach, len(values)),
                MARKERS[index],
                color=COLOURS[index],
                markersize=8,
                alpha=0.75,
                zorder=3,
                label=str(name) if place == 0 else None,
            )
            ends = [place + shift - 1.8 * reach, place + shift + 1.8 * reach]
            ax.plot([values.mean()] * 2, ends, color="black", linewidth=LINE, zorder=4)
    dress(ax, title=title, x=unit or y, y="")
    ax.set_yticks(range(len(arms)), [str(arm) for arm in arms])
    ax.set_ylim(len(arms) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0, labelsize=TEXT)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.grid(visible=True, axis="x", color=FAINT)
    if sets is not None:
        ax.legend(fontsize=TEXT - 2, framealpha=1, loc=legend)
    return ax


def _not_reached(ax: Axes, place: int) -> None:
    middle = (0.5, place)
    coordinates = ("axes fraction", "data")
    ax.annotate("not reached", middle, xycoords=coordinates, fontsize=TEXT - 1, ha="center", va="center")


def from_zero(ax: Axes) -> None:
    """Let the horizontal axis begin at 0; where nothing was measured, it ends at 1."""
    end = ax.dataLim.x1
    ax.set_xlim(0, 1.08 * end if 0 < end < float("inf") else 1)


def plot_course(
    ax: Axes,
    frame: pd.DataFrame,
    y: str,
    *,
    x: str = "step",
    title: str = "",
    unit: str = "",
    smooth: int = 1,
    legend: Corner = "best",
) -> Axes:
    """Draw a column against another, a line for each of up to four arms: the mean over seeds, in a band of lowest to highest.

    smooth: over how many rows of a seed the mean moves.
    """
    for index, arm in enumerate(list(frame["arm"].unique())[:4]):
        table = frame[frame["arm"] == arm].pivot_table(index=x, columns="seed", values=y).sort_index()
        table = table.rolling(smooth, min_periods=1, center=True).mean() if smooth > 1 else table
        colour = COLOURS[index]
        ax.fill_between(table.index, table.min(axis=1), table.max(axis=1), color=colour, alpha=0.15, linewidth=0)
        ax.plot(table.index, table.mean(axis=1), color=colour, linestyle=LINE_STYLES[index], linewidth=LINE, label=arm)
    dress(ax, title=title, x=x, y=unit or y)
    ax.legend(fontsize=TEXT - 2, framealpha=1, loc=legend)
    return ax


def at(ax: Axes, value: float) -> None:
    """Mark a value on the horizontal axis, as where nothing differs."""
    ax.axvline(value, color=GREY, linestyle=":", linewidth=LINE, zorder=1)


def plain_ticks(axis: Axis) -> None:
    """Write the numbers of a logarithmic axis as one reads them, at 1, 2 and 5."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
