"""Colours and sizes that the last row can see, the same in a page's CSS and on paper, and figures that carry their alt text.

Each colour has 3:1 contrast on white, and none speaks alone.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlviz.markup import MARK
from rlviz.page.image import png
from small_models.checks import checked

BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7f7f7f"
FAINT = "#e3e3e3"
CYCLE = (BLUE, VERMILION, GREEN, GREY)  # of several lines in one picture, in this order
COLOURS = {"blue": BLUE, "vermilion": VERMILION, "green": GREEN, "purple": "#AA4499", "grey": GREY, "ink": "black"}
LINE_STYLES = ("-", "--", ":", "-.")
TEXT, LINE = 13, 2.5
DESCRIPTION = {".png": "Description", ".svg": "Description", ".pdf": "Subject"}  # format → its field for a description


def plain(text: str) -> str:
    """Return a text, such as a name from a file, so that matplotlib draws its dollar signs and typesets nothing between them."""
    return text.replace("$", r"\$")


def signed(value: float) -> str:
    """Return a number with its sign and two digits: +1.00, −0.25, and 0.00 for what rounds to it."""
    return f"{value:+.2f}".replace("-", "−") if abs(value) >= 0.005 else "0.00"


class DescribedFigure(Figure):
    """A Figure that a notebook keeps with an alt text, made of its own words: titles, labels and the names of its lines."""

    def alt(self) -> str:
        """Return each graph's title, what is drawn against what, and the names in its legend; of a drawing, the words in it."""
        graphs = [ax for ax in self.axes if ax.get_visible() and (ax.get_title() or ax.get_xlabel() or ax.get_ylabel())]
        if not graphs:
            words = "; ".join(text.get_text() for ax in self.axes for text in ax.texts)
            return f"A drawing: {' '.join(words.split())}."
        sentences = [f"{len(graphs)} graph{'s' * (len(graphs) != 1)}."]
        for ax in graphs:
            x, y = ax.get_xlabel(), ax.get_ylabel()
            names = dict.fromkeys(name for name in ax.get_legend_handles_labels()[1] if name)
            parts = [ax.get_title(), f"{y} against {x}" if x and y else x or y, ", ".join(names)]
            sentences.append(" ".join(": ".join(filter(None, parts)).replace(r"\$", "$").split()) + ".")
        return " ".join(sentences)

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
        data = {"text/plain": self.alt(), "image/png": base64.b64encode(png(self)).decode()}
        return data, {"image/png": {"alt": data["text/plain"]}}


def new_figure(width: float, height: float, *, dpi: int = 100) -> Figure:
    """Return a Figure of this size in inches that pyplot does not know of, so that nothing keeps it alive or shows it twice."""
    return DescribedFigure(figsize=(width, height), dpi=dpi, layout="constrained")


def dress(ax: Axes, *, title: str, x: str, y: str) -> Axes:
    """Give the axes their words, in sizes that the last row can read."""
    ax.set_title(title, fontsize=TEXT + 1)
    ax.set_xlabel(x, fontsize=TEXT)
    ax.set_ylabel(y, fontsize=TEXT)
    ax.tick_params(labelsize=TEXT - 1)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


@checked
def save_figure(figure: Figure, path: str | os.PathLike[str], *, description: str = "") -> None:
    """Write the figure as PNG (150 dots an inch), SVG or PDF, by the ending of `path`; the file is there whole or not at all.

    Raises ValueError for another ending, OSError with the file.
    """
    target = Path(path)
    kind = target.suffix.lower()
    if kind not in DESCRIPTION:
        raise ValueError(f"out must end in {', '.join(DESCRIPTION)}; got {target.name}")
    metadata: dict[str, Any] = {"Title": target.stem, "Creator": MARK, DESCRIPTION[kind]: description}
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if kind == ".png":
            temporary.write_bytes(png(figure, dpi=150, metadata=metadata))
        else:
            figure.savefig(temporary, format=kind[1:], dpi=150, metadata=metadata)
        os.replace(temporary, target)
    except OSError as error:
        error.filename = str(target)  # of a full disk the system names none
        raise
    finally:
        temporary.unlink(missing_ok=True)
