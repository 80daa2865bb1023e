"""plot_comparison: contenders over the same budget, as curves with the spread of their seeds, and where each ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from rlviz.pictures.base import FAINT, LINE, TEXT, dress, new_figure, plain
from rlviz.runs.learning import draw_band, line_style

if TYPE_CHECKING:
    import pandas as pd

    from rlviz.study import Comparison

BUDGET_WORDS = {"responses": "responses sampled", "seconds": "seconds of training"}
COLUMNS = 3  # of graphs
ALT = (
    "Left: over the budget, a graph for each contender but the first, which stands in all of them: held-out accuracy, a line "
    "(interquartile mean over seeds) in a band from the lowest to the highest seed. Right: for each contender the seeds where "
    "the budget ends, their interquartile mean and its 95 % interval."
)


def plot_comparison(comparison: Comparison) -> Figure:
    """Draw the first contender against each of the others over the budget, and on the right where each of them ends."""
    names = comparison.contenders
    graphs = max(1, len(names) - 1)
    columns = min(graphs, COLUMNS)
    rows = -(-graphs // columns)
    figure = new_figure(6.5 + 2 * columns + 3 * (columns == 1), max(4.6, 2.6 * rows, 2.2 + 0.55 * len(names)))
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1.25, 1))[0]
    _draw_curves(left, comparison, rows, columns)
    _draw_ends(right.subplots(), comparison.table(), comparison.at_budget())
    budget = f"{comparison.amount:,.6g} {BUDGET_WORDS[comparison.budget]}"
    figure.suptitle(plain(f"{comparison.task}: held-out accuracy at {budget}"), fontsize=TEXT + 2)
    return figure


def _draw_curves(part: SubFigure, comparison: Comparison, rows: int, columns: int) -> None:
    names = comparison.contenders
    curves = dict(list(comparison.curves().groupby("contender")))
    grid = part.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat
    for number, ax in enumerate(grid, start=1):
        if number >= max(2, len(names)):
            ax.remove()
            continue
        pair = [(0, names[0]), *enumerate(names[number : number + 1], start=number)]
        for index, name in pair:
            curve, marks = curves[name], {"marker": line_style(index)["marker"], "markersize": 6, "label": plain(name)}
            every = max(1, len(curve) // 8)
            marks["markevery"] = (every // 2 * (index > 0), every)  # markers of lines that lie on each other stay apart
            band = curve["lowest"], curve["iqm"], curve["highest"]
            draw_band(ax, curve[comparison.budget], *band, index, **marks)
        ax.xaxis.set_major_locator(MaxNLocator(2 if columns > 1 else 6, steps=[1, 2, 5, 10]))
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        ax.tick_params(labelbottom=number + columns >= max(2, len(names)))
        dress(ax, title=plain(" and ".join(name for _, name in pair)), x="", y="")  # their looks are named on the right
    part.suptitle("Line: interquartile mean; band: all seeds", fontsize=TEXT + 1)
    part.supxlabel(BUDGET_WORDS[comparison.budget], fontsize=TEXT)
    part.supylabel("accuracy, held out", fontsize=TEXT)


def _draw_ends(ax: Axes, table: pd.DataFrame, scores: pd.DataFrame) -> None:
    for index, row in enumerate(table.to_dict("records")):
        look = line_style(index)
        dot: dict[str, Any] = {"color": look["color"], "marker": look["marker"], "markersize": 11}
        seeds = scores.loc[scores["contender"] == row["contender"], "held_out_accuracy"]
        ax.plot([row["low"], row["high"]], [index, index], color=look["color"], linewidth=LINE + 1.5, zorder=2)
        ax.plot(seeds, np.full(len(seeds), index - 0.24), "|", color="black", markersize=9, markeredgewidth=1.5)
        ax.plot(row["iqm"], index, markeredgecolor="black", zorder=4, **dot)
        words: dict[str, Any] = {"xytext": (0, -20), "textcoords": "offset points", "ha": "center"}
        ax.annotate(f"{row['iqm']:.3f}", (row["iqm"], index), fontsize=TEXT - 1, **words)
    ax.set_yticks(range(len(table)), list(map(plain, table["contender"])))
    ax.set_ylim(len(table) - 0.4, -0.6)
    ax.margins(x=0.12)
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.grid(axis="x", color=FAINT, linewidth=0.8)
    ax.set_axisbelow(True)
    dress(ax, title="At the end: 95 % interval; ticks: seeds", x="accuracy, held out", y="")
    ax.tick_params(axis="y", length=0, labelsize=TEXT)
