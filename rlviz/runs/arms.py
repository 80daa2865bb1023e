"""Pictures of claims: what each arm came to, a dot a seed, and how it went, a line an arm with a band over the seeds.

Bars and lines are medians over the seeds, which one seed far off does not move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation

from rlviz.pictures.base import COLOURS, FAINT, GREY, LINE, TEXT, dress, new_figure, plain
from rlviz.runs.learning import MARKERS, draw_seeds
from rlviz.study.claim import Claim, Panel
from rlviz.study.frames import minus
from rlviz.study.verdict import Title, titles

LETTER = 0.62 / 72  # inches that a bold letter takes at 1 point, on average
ROW = 17  # letters of an arm's name in a line
WIDTH, WIDEST, HEIGHT, ARM = (
    15.0,
    7.2,
    4.4,
    0.75,
)  # inches: of a row of axes; of one at most, at least; of an arm's dots


def panels(*rows: Sequence[str], width: float = 5.0, height: float = 4.4) -> tuple[Figure, list[Axes]]:
    """Return a figure with a row of axes for each row of names, and the axes, each of which has its name as label.

    width, height: inches of an axes of the first row.
    """
    figure = new_figure(width * len(rows[0]), height * len(rows))
    columns = lcm(*map(len, rows))
    mosaic: list[Any] = [[name for name in row for _ in range(columns // len(row))] for row in rows]
    return figure, list(figure.subplot_mosaic(mosaic).values())


def state(figure: Figure, titles: Mapping[str, Title]) -> None:
    """Write above each axes the title under its name, as wide as it is; the figure grows by what titles take.

    Raises KeyError for a title whose axes are not there, ValueError for a row that they have not.
    """
    axes = {str(ax.get_label()): ax for ax in figure.axes}
    for panel, title in titles.items():
        names = [label.get_text().replace("\n", " ") for label in axes[panel].get_yticklabels()]
        for row, word in title.rows.items():
            at_row = (1.02, names.index(row))
            axes[panel].annotate(
                fill(word, ROW + 6), at_row, xycoords=("axes fraction", "data"), fontsize=TEXT - 1, va="center"
            )
    figure.draw_without_rendering()  # which gives the axes their widths
    for ax in axes.values():
        ax.set_title(ax.get_title(), loc="left", fontsize=TEXT)
        ax.set_title("")
    higher: dict[int, int] = {}
    for panel, title in titles.items():
        ax, place = axes[panel], axes[panel].get_subplotspec()
        letters = int(ax.get_position().width * figure.get_figwidth() / (LETTER * TEXT))
        text = "\n".join(fill(plain(f"{_begun(line)}."), letters, break_on_hyphens=False) for line in title.lines)
        ax.set_title(text, loc="left", fontsize=TEXT, fontweight="bold")
        first = 0 if place is None else place.rowspan.start
        higher[first] = max(higher.get(first, 0), text.count("\n"))
    figure.set_figheight(figure.get_figheight() + 1.2 * TEXT / 72 * sum(higher.values()))


def _begun(sentence: str) -> str:
    """Return a sentence with a capital, but for one that begins with a name such as k3."""
    return sentence[0].upper() + sentence[1:] if sentence.split(maxsplit=1)[0].rstrip(",").isalpha() else sentence


def plot_arms(
    ax: Axes, frame: pd.DataFrame, y: str, *, by: str = "arm", sets: str | None = None, title: str = "", unit: str = ""
) -> Axes:
    """Draw a line for each arm, from top to bottom as they come: a dot a seed (the mean of its rows), and a bar for the median.

    sets: a column of up to four values, whose dots are drawn one below the other in colours and markers of their own.
    """
    arms = list(frame[by].unique())
    parts = [("", frame)] if sets is None else list(frame.groupby(sets, sort=False))
    for index, (name, part) in enumerate(parts):
        shift, reach = (0.0, 0.22) if sets is None else (0.4 * index - 0.2, 0.09)
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
                markeredgecolor="white",
                markeredgewidth=0.6,
                markersize=8,
                zorder=3,
                label=str(name) if place == 0 else None,
            )
            ends = [place + shift - 1.6 * reach, place + shift + 1.6 * reach]
            ax.plot([np.median(values)] * 2, ends, color="black", linewidth=LINE, zorder=4)
    dress(ax, title=title, x=unit or y, y="")
    ax.set_yticks(range(len(arms)), [fill(str(arm), ROW) for arm in arms])
    ax.set_ylim(len(arms) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0, labelsize=TEXT)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.grid(visible=True, axis="x", color=FAINT)
    if sets is not None:
        legend_below(ax)
    return ax


def legend_below(ax: Axes) -> None:
    """Name the lines below the axes, where nothing is drawn."""
    figure, names = ax.figure, ax.get_legend_handles_labels()[1]
    if not names:
        return
    below = ax.transAxes + ScaledTranslation(0, -3.4 * TEXT / 72, figure.dpi_scale_trans)
    columns = len(names) if sum(len(name) + 5 for name in names) <= 44 else 1 + (len(names) > 2)
    ax.legend(
        fontsize=TEXT - 1, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0), bbox_transform=below,
        ncols=columns, handlelength=2.2, columnspacing=1.2, borderpad=0,
    )  # fmt: skip


def _not_reached(ax: Axes, place: int) -> None:
    middle = (0.5, place)
    coordinates = ("axes fraction", "data")
    ax.annotate("not reached", middle, xycoords=coordinates, fontsize=TEXT - 1, ha="center", va="center")


def from_zero(ax: Axes) -> None:
    """Let the horizontal axis begin at 0; where nothing was measured, it ends at 1."""
    end = ax.dataLim.x1
    ax.set_xlim(0, 1.08 * end if 0 < end < float("inf") else 1)


def plot_course(
    ax: Axes, frame: pd.DataFrame, y: str, *, x: str = "step", title: str = "", unit: str = "", smooth: int = 1
) -> Axes:
    """Draw a column against another, a line for each of up to four arms: the median over seeds, in a band of lowest to highest.

    smooth: over how many rows of a seed the mean moves. Lines are the narrower the later, so that none lies hidden under another;
    an arm without any value has no line, and keeps its place in the order of colours.
    """
    arms = list(frame["arm"].unique())[:4]
    for index, arm in enumerate(arms):
        table = frame[frame["arm"] == arm].pivot_table(index=x, columns="seed", values=y).sort_index()
        if table.empty:
            continue
        table = table.rolling(smooth, min_periods=1, center=True).mean() if smooth > 1 else table
        draw_seeds(ax, table, index, linewidth=LINE + 0.9 * (len(arms) - 1 - index), label=arm)
    dress(ax, title=title, x=x, y=unit or y)
    if len(arms) > 1:
        legend_below(ax)
    return ax


def plot_against(ax: Axes, frame: pd.DataFrame, y: str, base: str, *, title: str = "", unit: str = "") -> Axes:
    """Draw a column of each arm minus that of the arm `base`, seed by seed, over the steps: lines that lie together part so."""
    less = minus(frame, y, base, ("step", "seed"))
    plot_course(ax, less, y, title=title, unit=f"{unit or y}, minus {base}")
    ax.axhline(0, color=GREY, linewidth=1.2, zorder=1)
    return ax


def plain_ticks(axis: Axis) -> None:
    """Write the numbers of a logarithmic axis as one reads them, at 1, 2 and 5."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def draw_claim(claim: Claim, frame: pd.DataFrame) -> Figure:
    """Draw the panels of a claim's trials, and write above each what the verdict on them says of the parts that it shows."""
    names = [[panel.name for panel in row] for row in claim.panels]
    every = [(panel, panel.rows(frame)) for row in claim.panels for panel in row]
    arms = max((rows[panel.by].nunique() for panel, rows in every if not panel.x), default=0)
    figure, axes = panels(*names, width=min(WIDEST, WIDTH / len(names[0])), height=max(HEIGHT, ARM * arms))
    for ax, (panel, rows) in zip(axes, every, strict=True):
        draw_panel(ax, panel, rows)
    state(figure, titles(claim.judge(frame)))
    return figure


def draw_panel(ax: Axes, panel: Panel, rows: pd.DataFrame) -> None:
    """Draw the rows of one panel: over its x a line an arm, else a dot a seed; guides are dotted, and bear their names."""
    guides, of_seeds = rows[rows["seed"].isna()], rows[rows["seed"].notna()]
    how: dict[str, Any] = {"title": panel.title, "unit": panel.unit}
    if panel.against:
        plot_against(ax, of_seeds, panel.y, panel.against, **how)
    elif panel.x:
        plot_course(ax, of_seeds, panel.y, x=panel.x, smooth=panel.smooth, **how)
    else:
        plot_arms(ax, of_seeds, panel.y, by=panel.by, sets=panel.sets, **how)
    for name, line in guides.groupby(panel.by, sort=False):
        ax.plot(line[panel.x], line[panel.y], color="black", linestyle=":", linewidth=1.5)
        end, behind = line.iloc[-1], {"facecolor": "white", "edgecolor": "none", "pad": 1}
        ax.annotate(
            str(name),
            (end[panel.x], end[panel.y]),
            (4, -14),
            textcoords="offset points",
            fontsize=TEXT - 2,
            bbox=behind,
        )
    for value in panel.marked:
        (ax.axhline if panel.x else ax.axvline)(value, color=GREY, linestyle=":", linewidth=LINE, zorder=1)
    if panel.from_zero:
        from_zero(ax)
    for name, axis in (("xscale", ax.xaxis), ("yscale", ax.yaxis)):
        if panel.axes.get(name) == "log":
            ax.set(**{name: "log"})
            plain_ticks(axis)
    ax.set(**{name: value for name, value in panel.axes.items() if not name.endswith("scale")})
