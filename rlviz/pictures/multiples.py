"""Small multiples: several settings of explorers side by side as one figure, for print and for a page that nobody moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from textwrap import fill
from typing import Any

from matplotlib.figure import Figure

from rlviz.page.names import Names
from rlviz.page.paper import draw_panel
from rlviz.page.picture import Panel
from rlviz.page.style import TEXT, new_figure
from rlviz.pictures.explore import Explorer
from small_models.checks import short_repr

WIDTH, HEIGHT = 3.8, 3.3  # inches, of a panel of the usual size


def small_multiples(explorers: Sequence[Explorer], titles: Sequence[str] | None = None) -> Figure:
    """Return a figure with a column for each explorer: its panels below each other, under its title, with one key for all.

    titles: of the columns; without them, the settings of each explorer. Axes of one row that have the same words and the same
    scale have the same limits, the widest of theirs.

    Raises ValueError for no explorers, for what is none, and for another number of titles.
    """
    is_list = isinstance(explorers, Sequence) and len(explorers) > 0
    if not is_list or not all(isinstance(e, Explorer) for e in explorers):
        raise ValueError(
            f"explorers must be a list such as [explore_clip(GRPO), explore_clip(DCPO)]; got {short_repr(explorers)}"
        )
    titles = [explorer.setting for explorer in explorers] if titles is None else titles
    if len(titles) != len(explorers):
        raise ValueError(f"titles must be {len(explorers)}, one for each explorer; got {len(titles)}")
    rows = with_same_limits(panel_rows(explorers))
    heights = [max(panel.tall for panel, _ in row if panel) for row in rows]
    widths = [max(panel.wide for panel, _ in column if panel) for column in zip(*rows, strict=True)]
    figure = new_figure(WIDTH * sum(widths) + 0.4, HEIGHT * sum(heights) + 0.9)
    grid = figure.add_gridspec(len(rows), len(titles), height_ratios=heights, width_ratios=widths)
    key: dict[str, Any] = {}
    for down, row in enumerate(rows):
        before = ""
        for across, (panel, names) in enumerate(row):
            if panel is None:
                continue
            ax = draw_panel(figure.add_subplot(grid[down, across]), panel, names)
            for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
                key.setdefault(label, handle)
            ax.legend_ = None
            if down == 0:  # the column's title, in bold, above that of its first panel
                lines = ax.get_title().count("\n") + 1
                ax.annotate(
                    fill(titles[across].replace("$", r"\$"), round(30 * widths[across])),
                    (0.5, 1),
                    xytext=(0, 12 + 18 * lines),
                    xycoords="axes fraction",
                    textcoords="offset points",
                    ha="center",
                    fontsize=TEXT + 1,
                    fontweight="bold",
                )
            ax.yaxis.label.set_visible(ax.get_ylabel() != before)
            before = ax.get_ylabel()
    if key:
        columns = max(1, min(len(key), int(2 * sum(widths))))
        figure.legend(
            list(key.values()), list(key), loc="outside lower center", ncols=columns, frameon=False, fontsize=TEXT - 1
        )
    return figure


def panel_rows(explorers: Sequence[Explorer]) -> list[list[tuple[Panel | None, Names]]]:
    """Return rows of the panels in sight, a column for each explorer; None below the last of its own."""
    columns = [[panel for panel in e.spec.picture.panels if e.names().holds(panel.when)] for e in explorers]
    return [[(panel, e.names()) for panel, e in zip(row, explorers, strict=True)] for row in zip_longest(*columns)]


def with_same_limits(rows: list[list[tuple[Panel | None, Names]]]) -> list[list[tuple[Panel | None, Names]]]:
    """Return the rows with numbers for the limits of axes: of those in a row that have the same words, the widest."""

    def axis_key(panel: Panel | None, along: str, names: Names) -> tuple[str, str, str, bool]:
        axis = getattr(panel, along)
        return along, names.fill(axis.label), axis.names, names.one(axis.log) != 0

    for row in rows:
        limits: dict[Any, tuple[float, float]] = {}
        for panel, names in [pair for pair in row if pair[0]]:
            for along in ("x", "y"):
                axis, key = getattr(panel, along), axis_key(panel, along, names)
                low, high = names.one(axis.low), names.one(axis.high)
                widest = limits.get(key, (low, high))
                limits[key] = min(low, widest[0]), max(high, widest[1])
        for i, (panel, names) in enumerate(row):
            if panel:
                (left, right), (low, high) = (limits[axis_key(panel, along, names)] for along in ("x", "y"))
                same = replace(panel, x=replace(panel.x, low=left, high=right), y=replace(panel.y, low=low, high=high))
                row[i] = same, names
    return rows
