"""A picture on paper: the same value that a page shows, drawn by matplotlib as PNG, SVG or PDF."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from textwrap import fill, wrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import NullLocator
from matplotlib.transforms import ScaledTranslation

from rlviz.page.names import Names, formatted
from rlviz.page.picture import Area, Bars, Cells, Line, Mark, Panel, Picture, Points, Rule, Runs, Span, Text, Tokens
from rlviz.page.style import COLOURS, TEXT, new_figure, plain

SHADES = LinearSegmentedColormap.from_list("less and more", ["#E69F00", "#f4f4f4", "#56B4E9"])
CORNERS = {"nw": (0.015, 0.96, "left", "top"), "ne": (0.985, 0.96, "right", "top")}
CORNERS |= {"sw": (0.015, 0.04, "left", "bottom"), "se": (0.985, 0.04, "right", "bottom")}
LOW = 0.6  # a panel below this height has fewer numbers beside it
GAP, KEY = 0.21, 0.48  # inches: between the names of two lines; from a panel down to its key
SHAPES = {"_": "_", "x": "x", "o": "o", "D": "D", "s": "s", "^": "^", "v": "v", "+": "+"}


def draw(
    picture: Picture, names: Names, figure: Figure | SubFigure | None = None, *, setting: str = ""
) -> Figure | SubFigure:
    """Return the picture at one setting: as a new figure with its title, or drawn into `figure` without one.

    setting: what is on show, in one small line under the title.
    """
    panels = [panel for panel in picture.panels if names.holds(panel.when)]
    rows = arranged(panels, min(picture.columns, len(panels)))
    heights = [max(map(column_height, row)) for row in rows]
    if figure is None:
        figure = titled_figure(names.fill(picture.title), setting, 10 if len(rows[0]) < 3 else 14, 4.4 * sum(heights))
    grid = figure.add_gridspec(len(rows), 1, height_ratios=heights)
    for place, row in enumerate(rows):
        columns = grid[place].subgridspec(1, len(row), width_ratios=[column[0].wide for column in row])
        for across, column in enumerate(row):
            parts = columns[across].subgridspec(len(column), 1, height_ratios=[panel.tall for panel in column])
            for down, panel in enumerate(column):
                draw_panel(figure.add_subplot(parts[down]), panel, names)
    return figure


def titled_figure(title: str, setting: str, width: float, height: float) -> Figure:
    """Return a figure with this room for graphs, below a title and a small line of what is on show."""
    words = [(line, TEXT + 3, "bold", "black") for line in wrap(title, round(9 * width))]
    words += [(line, TEXT - 1, "normal", "#444444") for line in wrap(setting, round(12 * width))]
    head = sum(1.4 * size / 72 for _, size, *_ in words) + 0.1
    figure = new_figure(width, height + head)
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.set(rect=(0, 0, 1, 1 - head / (height + head)))  # type: ignore[call-arg]
    y = 0.05
    for line, size, weight, colour in words:
        style: dict[str, Any] = {"fontsize": size, "fontweight": weight, "color": colour, "va": "top"}
        figure.text(0.012, 1 - y / (height + head), plain(line), **style)
        y += 1.4 * size / 72
    return figure


def arranged(panels: Sequence[Panel], most: int) -> list[list[list[Panel]]]:
    """Return rows of columns of panels, as a page has them: a low column takes the next panel too."""
    rows: list[list[list[Panel]]] = []
    for panel in panels:
        row = rows[-1] if rows else []
        lowest = min(row, key=column_height, default=[])
        is_low = (
            len(row) > 1 and column_height(lowest) < max(map(column_height, row)) - 0.2 and panel.wide <= lowest[0].wide
        )
        if row and sum(column[0].wide for column in row) + panel.wide <= most + 0.01:
            row.append([panel])
        elif is_low:
            lowest.append(panel)
        else:
            rows.append([[panel]])
    return rows


def column_height(column: Sequence[Panel]) -> float:
    return sum(panel.tall for panel in column)


def draw_panel(ax: Axes, panel: Panel, names: Names) -> Axes:
    """Draw one panel into axes, with its key below it."""
    letters = max(20, round(12 * axes_inches(ax)[0]))  # of a line: 12 an inch
    ax.set_title(fill(plain(names.fill(panel.title)), letters), fontsize=TEXT + 1)
    bare = [side for side, axis in (("bottom", panel.x), ("left", panel.y)) if axis.ticks is None]
    ax.spines[["top", "right", *bare]].set_visible(False)
    ax.tick_params(labelsize=TEXT - 1)
    for along in ("x", "y"):
        draw_axis(ax, along, panel, names)
    marks = [mark for mark in panel.marks if is_visible(mark, names)]
    for mark in marks:
        DRAW[type(mark)](ax, mark, names, mark_style(mark, names))
    label_directly(ax, [mark for mark in marks if mark.direct], names)
    # The key below has each label once, also where several marks share it.
    handles: dict[str, Any] = {}
    for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
        handles.setdefault(label, handle)
    if handles:
        position: dict[str, Any] = {
            "loc": "upper center",
            "bbox_to_anchor": (0.5, 0),
            "bbox_transform": ax.transAxes + ScaledTranslation(0, -KEY, ax.figure.dpi_scale_trans),
            "ncols": key_columns(list(handles), axes_inches(ax)[0]),
        }
        ax.legend(list(handles.values()), list(handles), frameon=False, fontsize=TEXT - 2, **position)
    return ax


def key_columns(labels: Sequence[str], width: float) -> int:
    """Return how many columns of a key, three at most, are no wider than so many inches; it is filled column by column."""

    def inches(columns: int) -> float:
        rows = -(-len(labels) // columns)
        return sum(0.6 + max(map(len, labels[i : i + rows])) / 12 for i in range(0, len(labels), rows))

    return next((columns for columns in (3, 2) if columns <= len(labels) and inches(columns) <= width + 0.5), 1)


def label_directly(ax: Axes, marks: Sequence[Mark], names: Names) -> None:
    """Write labels into the graph: of lines at their right ends, apart from each other; of rules and stretches beside them."""
    ends: list[Any] = []  # [height, look]
    bold = {"fontsize": TEXT - 1, "fontweight": "bold", "va": "center"}
    upright = [names.one(mark.at) for mark in marks if isinstance(mark, Rule) and mark.axis == "x"]
    for mark in marks:
        look = mark_style(mark, names)
        if isinstance(mark, Span | Rule) and mark.axis == "x":
            label_beside(ax, mark, names, look, upright)
            continue
        if isinstance(mark, Rule):
            x, y = np.array([ax.get_xlim()[1]]), names.array(mark.at)
        else:
            x, y = names.array(mark.x), names.array(mark.y)  # type: ignore[attr-defined]
        visible = np.flatnonzero(np.isfinite(y) & (x <= ax.get_xlim()[1]))
        if len(visible):
            end = ax.transAxes.inverted().transform(ax.transData.transform((x[visible[-1]], y[visible[-1]])))
            ends.append([float(np.clip(end[1], 0, 1)), look])
    # Two labels are a line of text apart: first those above give way, then, from the top, those below.
    gap = GAP / axes_inches(ax)[1]
    ends.sort(key=lambda end: end[0])
    for before, end in pairwise(ends):
        end[0] = max(end[0], before[0] + gap)
    for after, end in pairwise(ends[::-1]):
        end[0] = min(end[0], after[0] - gap)
    longest = max((len(look["label"]) for _, look in ends), default=0) / 9  # inches, nearly
    is_roomy = longest <= 0.75 * axes_inches(ax)[0]  # of the axes as they are before the layout, which gives way
    for height, look in ends:
        style: dict[str, Any] = {"color": look["colour"], "path_effects": [withStroke(linewidth=3, foreground="white")]}
        style |= bold
        if is_roomy:
            ax.text(1.02, height, look["label"], transform=ax.transAxes, **style)
        else:  # in the graph, next to the line's end
            aside = height + (gap if height < 0.5 else -gap)
            ax.text(0.98, aside, look["label"], ha="right", transform=ax.transAxes, **style)


def label_beside(ax: Axes, mark: Span | Rule, names: Names, look: Mapping[str, Any], upright: Sequence[float]) -> None:
    """Write the label of a vertical rule at its top, on the side that has room, and of a stretch at its foot.

    upright: the places of vertical rules with labels; of two that are near, each has its label on the far side.
    """
    low, high = ax.get_xlim()
    style: dict[str, Any] = {"color": look["colour"], "fontsize": TEXT - 1, "fontweight": "bold", "va": "center"}
    style["transform"] = ax.get_xaxis_transform()
    if isinstance(mark, Span):
        start, end = np.clip([names.one(mark.low), names.one(mark.high)], low, high)
        if end > start:
            ax.text((start + end) / 2, 0.06, look["label"], ha="center", **style)
        return
    at, shift = names.one(mark.at), (high - low) / 60
    if low <= at <= high:
        reach = (high - low) * len(look["label"]) / 9 / axes_inches(ax)[0]  # of a label, nearly
        near = [other - at for other in upright if 0 < abs(other - at) < reach]
        on_the_right = max(near) < 0 if near else at < (low + high) / 2
        side: dict[str, Any] = {"x": at + shift, "ha": "left"} if on_the_right else {"x": at - shift, "ha": "right"}
        ax.text(y=0.96, s=look["label"], **side, **style)


def axes_inches(ax: Axes) -> tuple[float, float]:
    """Return width and height of axes in inches, before the figure is laid out."""
    return float(ax.bbox.width / ax.figure.dpi), float(ax.bbox.height / ax.figure.dpi)


def is_visible(mark: Mark, names: Names) -> bool:
    """Return True if a mark is drawn: its condition holds and all its channels are known."""
    if not names.holds(mark.when):
        return False
    channels = [getattr(mark, name, 0.0) for name in ("x", "y", "low", "high", "on", "at", "value")]
    return all(channel in names for channel in channels if isinstance(channel, str))


def draw_axis(ax: Axes, along: str, panel: Panel, names: Names) -> None:
    axis = getattr(panel, along)
    low, high = names.one(axis.low), names.one(axis.high)
    log = names.one(axis.log) != 0
    getattr(ax, f"set_{along}label")(plain(names.fill(axis.label)), fontsize=TEXT)
    if log:
        getattr(ax, f"set_{along}scale")("log")
        getattr(ax, f"{along}axis").set_minor_locator(NullLocator())
    words = names.words(axis.names) if axis.names else []
    many = 3 if along == "y" and panel.tall < LOW else 5
    ticks = axis.ticks or range(1, len(words) + 1) or ticks_of(low, high, log=log, many=many, is_whole=axis.whole)
    slack = 1e-9 * (abs(low) + abs(high))
    ticks = [tick for tick in ticks if low - slack <= tick <= high + slack] if axis.ticks is not None else []
    labels = [words[round(tick) - 1] if words else formatted(tick, "g") for tick in ticks]
    getattr(ax, f"set_{along}ticks")(ticks, labels)
    getattr(ax, f"set_{along}lim")(low, high)


def ticks_of(low: float, high: float, *, log: bool = False, many: int = 5, is_whole: bool = False) -> list[float]:
    """Return round numbers on an axis, about so many, as a page has them; on a log axis powers of ten, or 1, 2, 5 of few."""
    if log:
        start, end = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
        every = max(1, math.ceil((end - start + 1) / (many + 2)))
        few = end - start < 2
        powers = range(start - 1 if few else start, end + 1, every)
        ticks = [float(f"{k}e{power}") for power in powers for k in ((1, 2, 5) if few else (1,))]
        return [tick for tick in ticks if low * 0.999999 <= tick <= high * 1.000001]
    raw = (high - low) / many
    power = 10.0 ** max(math.floor(math.log10(raw)), 0 if is_whole else -math.inf)
    steps = (k * power for k in (1, 2, 2.5, 5, 10))
    step = next(size for size in steps if size >= raw * 0.999 and not (is_whole and size % 1))
    multiples = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [float(f"{multiple * step:.12g}") for multiple in multiples]


def mark_style(mark: Mark, names: Names) -> dict[str, Any]:
    usual = "grey" if isinstance(mark, Runs | Span | Rule) else "ink" if isinstance(mark, Text) else "blue"
    label = plain(names.fill(mark.label)) if mark.label else None
    return {"colour": COLOURS[mark.colour or usual], "label": label, "key": None if mark.direct else label}


def dash_pattern(dash: str) -> Any:
    return (0, tuple(float(length) / 2 for length in dash.split())) if dash else "-"


def selected_elements(mark: Mark, names: Names, *channels: Any) -> list[Any]:
    """Return channels as arrays of one length, of the elements at which the mark's `where` is not 0."""
    arrays = np.broadcast_arrays(*(names.array(channel) for channel in channels))
    if not mark.where:
        return list(arrays)
    keep = np.broadcast_to(names.array(mark.where), arrays[0].shape) != 0
    return [array[keep] for array in arrays]


def draw_line(ax: Axes, mark: Line, names: Names, look: Mapping[str, Any]) -> None:
    x, y = np.broadcast_arrays(names.array(mark.x), names.array(mark.y))
    if mark.where:  # a gap, not a short cut
        y = np.where(names.array(mark.where) != 0, y, np.nan)
    style = {
        "color": look["colour"],
        "linewidth": mark.width,
        "linestyle": dash_pattern(mark.dash),
        "label": look["key"],
    }
    ax.plot(x, y, marker=SHAPES.get(mark.marker), markersize=5, **style)


def draw_area(ax: Axes, mark: Area, names: Names, look: Mapping[str, Any]) -> None:
    x, low, high = selected_elements(mark, names, mark.x, mark.low, mark.high)
    ax.fill_between(x, low, high, color=look["colour"], alpha=0.25, linewidth=0, label=look["key"])


def draw_runs(ax: Axes, mark: Runs, names: Names, look: Mapping[str, Any]) -> None:
    x, on = names.array(mark.x), names.array(mark.on)
    hatch: dict[str, Any] = {"facecolor": "none", "edgecolor": look["colour"], "hatch": "//", "linewidth": 0}
    ax.fill_between(x, 0, 1, where=on != 0, transform=ax.get_xaxis_transform(), label=look["key"], **hatch)


def draw_span(ax: Axes, mark: Span, names: Names, look: Mapping[str, Any]) -> None:
    span = ax.axvspan if mark.axis == "x" else ax.axhspan
    low, high = names.one(mark.low), names.one(mark.high)
    if mark.fill == "veil":
        span(low, high, facecolor="white", alpha=0.8, linewidth=0, zorder=3)
    else:
        span(low, high, facecolor="none", edgecolor=look["colour"], hatch="//", linewidth=0, label=look["key"])


def draw_rule(ax: Axes, mark: Rule, names: Names, look: Mapping[str, Any]) -> None:
    at = names.one(mark.at)
    if np.isfinite(at):
        line = ax.axvline if mark.axis == "x" else ax.axhline
        line(at, color=look["colour"], linestyle=dash_pattern(mark.dash), linewidth=mark.width, label=look["key"])


def draw_bars(ax: Axes, mark: Bars, names: Names, look: Mapping[str, Any]) -> None:
    x, y, base, width = selected_elements(mark, names, mark.x, mark.y, mark.base, mark.width)
    style: dict[str, Any] = {"facecolor": "none", "edgecolor": look["colour"], "alpha": 1, "label": look["key"]}
    if mark.fill == "solid":
        style |= {"facecolor": look["colour"], "alpha": 0.8}
    ax.bar(x, y - base, width, bottom=base, hatch="///" if mark.fill == "hatch" else None, **style)


def draw_points(ax: Axes, mark: Points, names: Names, look: Mapping[str, Any]) -> None:
    x, y = selected_elements(mark, names, mark.x, mark.y)
    style = {"marker": SHAPES[mark.shape], "markersize": mark.size, "markeredgewidth": 2, "color": look["colour"]}
    face = "white" if mark.fill == "none" else look["colour"]
    ax.plot(x, y, linestyle="none", markerfacecolor=face, label=look["key"], **style)


def draw_text(ax: Axes, mark: Text, names: Names, look: Mapping[str, Any]) -> None:
    style: dict[str, Any] = {"color": look["colour"], "fontsize": TEXT - 1, "zorder": 5}
    if mark.corner:
        x, y, ha, va = CORNERS[mark.corner]
        ax.text(x, y, plain(names.fill(mark.text)), ha=ha, va=va, transform=ax.transAxes, style="italic", **style)
        return
    sides = {"left": "right", "right": "left", "middle": "center"}
    words = names.words(mark.text) if mark.text in names else [names.fill(mark.text)]
    xs, ys, wheres = np.broadcast_arrays(*map(names.array, (mark.x, mark.y, mark.where or 1.0)))
    words = words * len(xs) if len(words) == 1 else words
    for x, y, word, where in zip(xs, ys, words, wheres, strict=True):
        if where and np.isfinite(x) and np.isfinite(y):
            ax.text(x, y, plain(word), ha=sides[mark.side], va="center", **style)


def draw_cells(ax: Axes, mark: Cells, names: Names, look: Mapping[str, Any]) -> None:
    reach = names.one(mark.reach)
    text = names.words(mark.text) if mark.text else None
    hatch = names.array(mark.hatch) if mark.hatch else None
    channels = np.broadcast_arrays(*(names.array(c) for c in (mark.x, mark.y, mark.value, mark.where or 1.0)))
    for i, (x, y, value, where) in enumerate(zip(*channels, strict=True)):
        if not where:
            continue
        box: dict[str, Any] = {"xy": (x - 0.5, y - 0.5), "width": 1, "height": 1}
        ax.add_patch(Rectangle(**box, facecolor=SHADES(0.5 + 0.5 * np.nan_to_num(value) / reach), edgecolor="white"))
        if hatch is not None and hatch[i]:
            ax.add_patch(Rectangle(**box, facecolor="none", edgecolor=COLOURS["grey"], hatch="//", linewidth=0))
        if text is not None:
            ax.text(x, y, text[i], ha="center", va="center", fontsize=TEXT - 2, color="#222")
    if mark.chosen:
        x, y = (names.one(name) for name in mark.chosen)
        frame: dict[str, Any] = {"fill": False, "edgecolor": "black", "linewidth": 3.5, "clip_on": False, "zorder": 5}
        ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **frame))


def draw_tokens(ax: Axes, mark: Tokens, names: Names, look: Mapping[str, Any]) -> None:
    ax.set_axis_off()
    values = names.array(mark.value) / names.one(mark.reach)
    chosen = round(names.one(mark.chosen)) if mark.chosen else -1
    at = 0.0
    for i, (word, value) in enumerate(zip(names.words(mark.text), values, strict=True)):
        edge = "black" if i == chosen else "none"
        box: dict[str, Any] = {"facecolor": SHADES(0.5 + 0.5 * value), "edgecolor": edge, "pad": 4}
        ax.text(at, 0.5, word, transform=ax.transAxes, fontsize=TEXT, bbox=box)
        at += 0.02 + 0.018 * len(word)


DRAW: dict[type[Mark], Callable[[Axes, Any, Names, Mapping[str, Any]], None]] = {
    Line: draw_line,
    Area: draw_area,
    Runs: draw_runs,
    Span: draw_span,
    Rule: draw_rule,
    Bars: draw_bars,
    Points: draw_points,
    Text: draw_text,
    Cells: draw_cells,
    Tokens: draw_tokens,
}
