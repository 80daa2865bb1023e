"""Contenders over the same budget: curves with the spread of their seeds, and where each ends with its interval."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from rlviz.pictures.base import FAINT, LINE, TEXT, dress, new_figure, plain
from rlviz.runs.learning import draw_band, looks

BUDGET_WORDS = {"responses": "responses sampled", "updates": "optimizer updates", "seconds": "seconds of training"}
FEW = 4  # contenders whose lines can be told apart in one graph
ENDS = "Right: for each contender the seeds where the budget ends, their interquartile mean and its 95 % interval."


def alt(contenders: int) -> str:
    """Return what there is to see in the picture of so many contenders."""
    if contenders > FEW:
        return (
            "Left: over the budget, a graph for each contender but the first, its held-out accuracy (interquartile mean over "
            f"seeds, in a band from the lowest to the highest seed) minus the first's. {ENDS}"
        )
    return (
        "Two graphs. Left: held-out accuracy over the budget, for each contender a line (interquartile mean over seeds) in a "
        f"band from the lowest to the highest seed. {ENDS}"
    )


def plot_comparison(curves: pd.DataFrame, table: pd.DataFrame, scores: pd.DataFrame, *, title: str = "") -> Figure:
    """Draw `Comparison.curves()` on the left, and `Comparison.table()` with the scores of `at_budget()` on the right.

    More contenders than `FEW` have a graph each, of the difference from the first.
    """
    names = list(table["contender"])
    height = max(4.6, 2.2 + 0.55 * len(names))
    if len(names) > FEW:
        figure = new_figure(14, height)
        left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1.25, 1))[0]
        _draw_differences(left, curves, names)
        _draw_ends(right.subplots(), table, scores)
    else:
        figure = new_figure(11.5, height)
        one, other = figure.subplots(1, 2, width_ratios=(1.15, 1))
        _draw_curves(one, curves, names)
        _draw_ends(other, table, scores)
    if title:
        figure.suptitle(plain(title), fontsize=TEXT + 2)
    return figure


def _draw_differences(part: SubFigure, curves: pd.DataFrame, names: list[str]) -> None:
    """Draw each contender but the first in a graph of its own: its line and band minus the line of the first."""
    budget = next(column for column in curves if column in BUDGET_WORDS)
    first, others = curves[curves["contender"] == names[0]], names[1:]
    columns = 3
    grid = part.subplots(-(-len(others) // columns), columns, sharex=True, sharey=True, squeeze=False).flat
    for place, ax in enumerate(grid):
        if place >= len(others):
            ax.remove()
            continue
        of_it = curves[curves["contender"] == others[place]]
        level = np.interp(of_it[budget], first[budget], first["iqm"])
        low, line, high = (of_it[column] - level for column in ("lowest", "iqm", "highest"))
        ax.axhline(0, color=looks(0)["color"], linewidth=1.2)
        draw_band(ax, of_it[budget], low, line, high, place + 1, linestyle="-")
        dress(ax, title=plain(others[place]), x="", y="")
        ax.xaxis.set_major_locator(MaxNLocator(2, steps=[1, 2, 5, 10]))
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        ax.tick_params(labelbottom=place + columns >= len(others))
        ax.grid(axis="y", color=FAINT, linewidth=0.8)
    part.supxlabel(BUDGET_WORDS[str(budget)], fontsize=TEXT)
    part.supylabel(f"accuracy, held out, minus that of {plain(names[0])}", fontsize=TEXT)


def _draw_curves(ax: Axes, curves: pd.DataFrame, names: list[str]) -> None:
    budget = next(column for column in curves if column in BUDGET_WORDS)
    for index, name in enumerate(names):
        of_it = curves[curves["contender"] == name]
        every = max(1, len(of_it) // 8)
        shifted = (index * every // max(1, len(names)), every)  # markers of lines that lie on each other stay apart
        marks = {"marker": looks(index)["marker"], "markersize": 7, "markevery": shifted, "label": plain(name)}
        draw_band(ax, of_it[budget], of_it["lowest"], of_it["iqm"], of_it["highest"], index, **marks)
    ax.set_xlim(0, curves[budget].max())
    ax.set_ylim(0, 1.02)
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    ax.legend(fontsize=TEXT - 1, framealpha=1, loc="lower right", handlelength=3.2)
    dress(ax, title="Line: interquartile mean; band: all seeds", x=BUDGET_WORDS[str(budget)], y="accuracy, held out")


def _draw_ends(ax: Axes, table: pd.DataFrame, scores: pd.DataFrame) -> None:
    for index, row in enumerate(table.to_dict("records")):
        look = looks(index)
        seeds = scores.loc[scores["contender"] == row["contender"], "held_out_accuracy"]
        ax.plot([row["low"], row["high"]], [index, index], color=look["color"], linewidth=LINE + 1.5, zorder=2)
        ax.plot(
            seeds, np.full(len(seeds), index - 0.24), "|", color="black", markersize=9, markeredgewidth=1.5, zorder=3
        )
        ax.plot(
            row["iqm"],
            index,
            color=look["color"],
            marker=look["marker"],
            markersize=11,
            markeredgecolor="black",
            zorder=4,
        )
        ax.annotate(
            f"{row['iqm']:.3f}",
            (row["iqm"], index),
            xytext=(0, -20),
            textcoords="offset points",
            ha="center",
            fontsize=TEXT - 1,
        )
    ax.set_yticks(range(len(table)), list(map(plain, table["contender"])))
    ax.set_ylim(len(table) - 0.4, -0.6)
    low, high = scores["held_out_accuracy"].min(), scores["held_out_accuracy"].max()
    room = max(0.01, 0.12 * (high - low))
    ax.set_xlim(low - room, high + room)
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.grid(axis="x", color=FAINT, linewidth=0.8)
    ax.set_axisbelow(True)
    dress(ax, title="At the end: 95 % interval; ticks: seeds", x="accuracy, held out", y="")
    ax.tick_params(axis="y", length=0, labelsize=TEXT)
