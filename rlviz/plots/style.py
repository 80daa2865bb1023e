"""Colours and sizes for pictures that are projected on a wall: each colour has 3:1 contrast on white, none speaks alone."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7f7f7f"
FAINT = "#e3e3e3"
COLOURS = (BLUE, VERMILION, GREEN, GREY)  # of several lines in one picture, in this order
LINE_STYLES = ("-", "--", ":", "-.")
TEXT, LINE = 13, 2.5


def plain(text: str) -> str:
    """Return a text, such as a name from a file, so that matplotlib draws its dollar signs and typesets nothing between them."""
    return text.replace("$", r"\$")


def new_figure(width: float, height: float, *, dpi: int = 100) -> Figure:
    """Return a Figure of this size in inches that pyplot does not know of, so nothing keeps it alive or shows it twice."""
    return Figure(figsize=(width, height), dpi=dpi, layout="constrained")


def dress(ax: Axes, *, title: str, x: str, y: str) -> Axes:
    """Give the axes their words, in sizes that the last row can read."""
    ax.set_title(title, fontsize=TEXT + 1)
    ax.set_xlabel(x, fontsize=TEXT)
    ax.set_ylabel(y, fontsize=TEXT)
    ax.tick_params(labelsize=TEXT - 1)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
