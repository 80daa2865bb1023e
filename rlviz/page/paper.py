"""A picture on paper: the same value that a page shows, drawn by matplotlib as PNG, SVG or PDF."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from rlviz.page.names import Names, formatted
from rlviz.page.picture import (
    Area,
    Axis,
    Bars,
    Cells,
    Line,
    Mark,
    Panel,
    Picture,
    Points,
    Rule,
    Runs,
    Span,
    Text,
    Tokens,
)
from rlviz.page.style import COLOURS, TEXT, new_figure

SHADES = LinearSegmentedColormap.from_list("less and more", ["#E69F00", "#f4f4f4", "#56B4E9"])
CORNERS = {"nw": (0.015, 0.96, "left", "top"), "ne": (0.985, 0.96, "right", "top")}
CORNERS |= {"sw": (0.015, 0.04, "left", "bottom"), "se": (0.985, 0.04, "right", "bottom")}
GAP = 0.065  # between the names of two lines, in heights of a panel
SHAPES = {"_": "_", "x": "x", "o": "o", "D": "D", "s": "s", "^": "^", "v": "v", "+": "+"}


def draw(picture: Picture, names: Names, figure: Figure | SubFigure | None = None) -> Figure | SubFigure:
    """Return the picture at one setting, as a figure of its own or in the one given."""
    panels = [panel for panel in picture.panels if names.holds(panel.when)]
    columns = min(picture.columns, len(panels))
    rows = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    if figure is None:
        figure = new_figure(10 if columns < 3 else 14, 4.4 * sum(max(p.tall for p in row) for row in rows))
    for parts, row in zip(_rows(figure, rows), rows, strict=True):
        for ax, panel in zip(parts, row, strict=False):
            draw_panel(ax, panel, names)
    return figure


def draw_each(picture: Picture, settings: Mapping[str, Names]) -> Figure:
    """Return the picture at several settings below each other, each under its heading: what sliders tell, on paper."""
    alone = draw(picture, next(iter(settings.values())))
    width, height = alone.get_size_inches()  # type: ignore[union-attr]
    figure = new_figure(width, (height + 0.4) * len(settings))
    for part, (heading, names) in zip(
        np.atleast_1d(figure.subfigures(len(settings), 1)), settings.items(), strict=True
    ):
        draw(picture, names, part)
        part.suptitle(heading, fontsize=TEXT + 2, fontweight="bold", x=0.02, ha="left")
    return figure


def _rows(figure: Figure | SubFigure, rows: Sequence[Sequence[Panel]]) -> list[list[Axes]]:
    heights = [max(panel.tall for panel in row) for row in rows]
    widths = [panel.wide for panel in rows[0]]
    grid = figure.add_gridspec(len(rows), len(widths), height_ratios=heights, width_ratios=widths)
    return [[figure.add_subplot(grid[y, x]) for x in range(len(row))] for y, row in enumerate(rows)]


def draw_panel(ax: Axes, panel: Panel, names: Names) -> Axes:
    """Draw one panel into axes, with its key below it."""
    ax.set_title(names.fill(panel.title).replace("$", r"\$"), fontsize=TEXT + 1)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=TEXT - 1)
    for along, axis in (("x", panel.x), ("y", panel.y)):
        _axis(ax, along, axis, names)
    for mark in panel.marks:
        if shown(mark, names):
            DRAW[type(mark)](ax, mark, names, _look(mark, names))
    _name_ends(ax, [mark for mark in panel.marks if mark.direct and shown(mark, names)], names)
    named: dict[str, Any] = {}
    for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
        named.setdefault(label, handle)
    if named:
        where = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": min(3, len(named))}
        ax.legend(named.values(), named.keys(), frameon=False, fontsize=TEXT - 2, **where)  # type: ignore[arg-type]
    return ax


def _name_ends(ax: Axes, marks: Sequence[Mark], names: Names) -> None:
    """Write the labels of lines that are named directly at their right ends, apart from each other."""
    ends = []
    for mark in marks:
        x, y = names.array(mark.x), names.array(mark.y)  # type: ignore[attr-defined]
        there = np.flatnonzero(np.isfinite(y) & (x <= ax.get_xlim()[1]))
        if len(there):
            at = ax.transAxes.inverted().transform(ax.transData.transform((x[there[-1]], y[there[-1]])))
            ends.append([float(np.clip(at[1], 0, 1)), _look(mark, names)])
    ends.sort(key=lambda end: end[0])
    for before, end in pairwise(ends):
        end[0] = max(end[0], before[0] + GAP)
    for after, end in pairwise(ends[::-1]):
        end[0] = min(end[0], after[0] - GAP)
    for height, look in ends:
        style = {"color": look["colour"], "fontsize": TEXT - 1, "fontweight": "bold", "va": "center"}
        ax.text(1.02, height, look["label"], transform=ax.transAxes, **style)


def shown(mark: Mark, names: Names) -> bool:
    """Return whether a mark is in sight: its condition holds and all its channels are known."""
    if not names.holds(mark.when):
        return False
    channels = [getattr(mark, name, 0.0) for name in ("x", "y", "low", "high", "on", "at", "value")]
    return all(channel in names for channel in channels if isinstance(channel, str))


def _axis(ax: Axes, along: str, axis: Axis, names: Names) -> None:
    scale = getattr(ax, f"{along}axis")
    getattr(ax, f"set_{along}label")(names.fill(axis.label).replace("$", r"\$"), fontsize=TEXT)
    log = names.one(axis.log) if isinstance(axis.log, str) else axis.log
    if log:
        getattr(ax, f"set_{along}scale")("log")
        scale.set_minor_locator(NullLocator())
    getattr(ax, f"set_{along}lim")(names.one(axis.low), names.one(axis.high))
    if axis.ticks is None:
        scale.set_major_locator(NullLocator())
    elif axis.names:
        words = names.words(axis.names)
        getattr(ax, f"set_{along}ticks")(range(1, len(words) + 1), words)
    elif axis.ticks:
        scale.set_major_locator(FixedLocator(axis.ticks))
        scale.set_major_formatter(FuncFormatter(lambda value, _: formatted(value, "g")))
    elif log:
        scale.set_major_formatter(FuncFormatter(lambda value, _: formatted(value, "g")))


def _look(mark: Mark, names: Names) -> dict[str, Any]:
    usual = "grey" if isinstance(mark, Runs | Span | Rule) else "ink" if isinstance(mark, Text) else "blue"
    label = names.fill(mark.label).replace("$", r"\$") if mark.label else None
    return {"colour": COLOURS[mark.colour or usual], "label": label, "key": None if mark.direct else label}


def _dashes(dash: str) -> Any:
    return (0, tuple(float(length) / 2 for length in dash.split())) if dash else "-"


def _kept(mark: Mark, names: Names, *channels: Any) -> list[Any]:
    """Return channels as arrays of one length, those of their elements that `where` lets in."""
    arrays = np.broadcast_arrays(*(names.array(channel) for channel in channels))
    if not mark.where:
        return list(arrays)
    keep = np.broadcast_to(names.array(mark.where), arrays[0].shape) != 0
    return [array[keep] for array in arrays]


def _line(ax: Axes, mark: Line, names: Names, look: Mapping[str, Any]) -> None:
    x, y = _kept(mark, names, mark.x, mark.y)
    style = {"color": look["colour"], "linewidth": mark.width, "linestyle": _dashes(mark.dash), "label": look["key"]}
    ax.plot(x, y, marker=SHAPES.get(mark.marker), markersize=5, **style)


def _area(ax: Axes, mark: Area, names: Names, look: Mapping[str, Any]) -> None:
    x, low, high = _kept(mark, names, mark.x, mark.low, mark.high)
    ax.fill_between(x, low, high, color=look["colour"], alpha=0.25, linewidth=0, label=look["key"])


def _runs(ax: Axes, mark: Runs, names: Names, look: Mapping[str, Any]) -> None:
    x, on = names.array(mark.x), names.array(mark.on)
    hatch = {"facecolor": "none", "edgecolor": look["colour"], "hatch": "//", "linewidth": 0, "label": look["key"]}
    ax.fill_between(x, 0, 1, where=on != 0, transform=ax.get_xaxis_transform(), **hatch)  # type: ignore[arg-type]


def _span(ax: Axes, mark: Span, names: Names, look: Mapping[str, Any]) -> None:
    span = ax.axvspan if mark.axis == "x" else ax.axhspan
    low, high = names.one(mark.low), names.one(mark.high)
    if mark.fill == "veil":
        span(low, high, facecolor="white", alpha=0.8, linewidth=0, zorder=3)
    else:
        span(low, high, facecolor="none", edgecolor=look["colour"], hatch="//", linewidth=0, label=look["key"])


def _rule(ax: Axes, mark: Rule, names: Names, look: Mapping[str, Any]) -> None:
    at = names.one(mark.at)
    if np.isfinite(at):
        line = ax.axvline if mark.axis == "x" else ax.axhline
        line(at, color=look["colour"], linestyle=_dashes(mark.dash), linewidth=mark.width, label=look["key"])


def _bars(ax: Axes, mark: Bars, names: Names, look: Mapping[str, Any]) -> None:
    x, y, base, width = _kept(mark, names, mark.x, mark.y, mark.base, mark.width)
    solid = mark.fill == "solid"
    style = {
        "facecolor": look["colour"] if solid else "none",
        "edgecolor": look["colour"],
        "alpha": 0.8 if solid else 1,
    }
    hatch = "///" if mark.fill == "hatch" else None
    ax.bar(x, y - base, width, bottom=base, hatch=hatch, label=look["key"], **style)


def _points(ax: Axes, mark: Points, names: Names, look: Mapping[str, Any]) -> None:
    x, y = _kept(mark, names, mark.x, mark.y)
    style = {"marker": SHAPES[mark.shape], "markersize": mark.size, "markeredgewidth": 2, "color": look["colour"]}
    face = "white" if mark.fill == "none" else look["colour"]
    ax.plot(x, y, linestyle="none", markerfacecolor=face, label=look["key"], **style)


def _text(ax: Axes, mark: Text, names: Names, look: Mapping[str, Any]) -> None:
    style = {"color": look["colour"], "fontsize": TEXT - 1, "zorder": 5}
    if mark.corner:
        x, y, ha, va = CORNERS[mark.corner]
        words = names.fill(mark.text).replace("$", r"\$")
        ax.text(x, y, words, ha=ha, va=va, transform=ax.transAxes, style="italic", **style)  # type: ignore[arg-type]
        return
    sides = {"left": "right", "right": "left", "middle": "center"}
    every = names.words(mark.text) if mark.text in names else [names.fill(mark.text)]
    xs, ys = np.broadcast_arrays(names.array(mark.x), names.array(mark.y))
    keep = np.broadcast_to(names.array(mark.where) if mark.where else 1.0, xs.shape)
    for x, y, word, kept in zip(xs, ys, every, keep, strict=True):
        if kept and np.isfinite(x) and np.isfinite(y):
            ax.text(x, y, word.replace("$", r"\$"), ha=sides[mark.side], va="center", **style)  # type: ignore[arg-type]


def _cells(ax: Axes, mark: Cells, names: Names, look: Mapping[str, Any]) -> None:
    reach = names.one(mark.reach)
    text = names.words(mark.text) if mark.text else None
    hatch = names.array(mark.hatch) if mark.hatch else None
    for i, (x, y, value) in enumerate(zip(*(names.array(c) for c in (mark.x, mark.y, mark.value)), strict=True)):
        box = {"xy": (x - 0.5, y - 0.5), "width": 1, "height": 1}
        ax.add_patch(Rectangle(**box, facecolor=SHADES(0.5 + 0.5 * np.nan_to_num(value) / reach), edgecolor="white"))
        if hatch is not None and hatch[i]:
            ax.add_patch(Rectangle(**box, facecolor="none", edgecolor=COLOURS["grey"], hatch="//", linewidth=0))
        if text is not None:
            ax.text(x, y, text[i], ha="center", va="center", fontsize=TEXT - 2, color="#222")
    if mark.chosen:
        x, y = (names.one(name) for name in mark.chosen)
        frame = {"fill": False, "edgecolor": "black", "linewidth": 3.5, "clip_on": False, "zorder": 5}
        ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **frame))  # type: ignore[arg-type]


def _tokens(ax: Axes, mark: Tokens, names: Names, look: Mapping[str, Any]) -> None:
    ax.set_axis_off()
    values = names.array(mark.value) / names.one(mark.reach)
    chosen = round(names.one(mark.chosen)) if mark.chosen else -1
    at = 0.0
    for i, (word, value) in enumerate(zip(names.words(mark.text), values, strict=True)):
        box = {"facecolor": SHADES(0.5 + 0.5 * value), "edgecolor": "black" if i == chosen else "none", "pad": 4}
        ax.text(at, 0.5, word, transform=ax.transAxes, family="monospace", fontsize=TEXT, bbox=box)  # type: ignore[arg-type]
        at += 0.02 + 0.018 * len(word)


DRAW: dict[type[Mark], Callable[[Axes, Any, Names, Mapping[str, Any]], None]] = {
    Line: _line,
    Area: _area,
    Runs: _runs,
    Span: _span,
    Rule: _rule,
    Bars: _bars,
    Points: _points,
    Text: _text,
    Cells: _cells,
    Tokens: _tokens,
}
