"""What every picture shares: colours and sizes that the last row can see, and the figure that is drawn once and then moves.

Each colour has 3:1 contrast on white, and none speaks alone.
"""

from __future__ import annotations

import base64
import io
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from small_models.checks import checked

C = TypeVar("C")
BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7f7f7f"
FAINT = "#e3e3e3"
COLOURS = (BLUE, VERMILION, GREEN, GREY)  # of several lines in one picture, in this order
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
        """Return each graph's title, what is drawn against what, and the names in its legend."""
        shown = [ax for ax in self.axes if ax.get_visible() and (ax.get_title() or ax.get_xlabel() or ax.get_ylabel())]
        return " ".join([f"{len(shown)} graph{'s' * (len(shown) != 1)}.", *map(_words, shown)])

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
        file = io.BytesIO()
        self.savefig(file, format="png")
        data = {"text/plain": self.alt(), "image/png": base64.b64encode(file.getvalue()).decode()}
        return data, {"image/png": {"alt": data["text/plain"]}}


def _words(ax: Axes) -> str:
    against = f"{ax.get_ylabel()} against {ax.get_xlabel()}" if ax.get_ylabel() and ax.get_xlabel() else ax.get_xlabel()
    names = list(dict.fromkeys(name for name in ax.get_legend_handles_labels()[1] if name))
    told = [part for part in (ax.get_title(), against or ax.get_ylabel(), ", ".join(names)) if part]
    return " ".join(": ".join(told).replace(r"\$", "$").split()) + "."


def new_figure(width: float, height: float, *, dpi: int = 100) -> Figure:
    """Return a Figure of this size in inches that pyplot does not know of, so nothing keeps it alive or shows it twice."""
    return DescribedFigure(figsize=(width, height), dpi=dpi, layout="constrained")


def dress(ax: Axes, *, title: str, x: str, y: str) -> Axes:
    """Give the axes their words, in sizes that the last row can read."""
    ax.set_title(title, fontsize=TEXT + 1)
    ax.set_xlabel(x, fontsize=TEXT)
    ax.set_ylabel(y, fontsize=TEXT)
    ax.tick_params(labelsize=TEXT - 1)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


@dataclass(frozen=True)
class Handle:
    """A place in a picture that can be dragged, and the control that it sets.

    axes: where it is. along: "x" or "y", the way it goes. at: where it stands there, in the axes' numbers. control: the name of
    the argument that it sets. value_at: the value of the control with which the handle stands at a place. click: whether a click
    anywhere in the axes moves it there, too.
    """

    axes: Axes
    along: Literal["x", "y"]
    at: float
    control: str
    value_at: Callable[[float], float] = float
    click: bool = False

    @property
    def there(self) -> bool:
        """Whether it can be seen; one that stands outside its axes waits at their edge, an infinite one is out of sight."""
        return math.isfinite(self.at) and self.axes.get_visible()


class Picture(ABC, Generic[C]):
    """A curve as a figure. A subclass draws what stands still in `draw`, and moves the rest in `show`.

    figure: what it is drawn in, of `size` inches, or the part of a figure given to it. moving: the artists that `show`
    moves, back to front. alt: what there is to see, before any number: "Two graphs of …".
    """

    size: ClassVar[tuple[float, float]] = (10, 4.4)
    alt: ClassVar[str]

    def __init__(self, curve: C, figure: SubFigure | None = None) -> None:
        self.figure: Figure | SubFigure = new_figure(*self.size) if figure is None else figure
        self.moving: list[Artist] = list(self.draw(curve))
        self.show(curve)

    @classmethod
    def alone(cls, curve: C) -> Figure:
        """Return the curve in a figure of its own."""
        figure = cls(curve).figure
        assert isinstance(figure, Figure)
        return figure

    @abstractmethod
    def draw(self, curve: C) -> Sequence[Artist]:
        """Draw axes, words and whatever stands still; return the artists that move, back to front."""

    @abstractmethod
    def show(self, curve: C) -> None:
        """Move the artists to a curve."""

    @abstractmethod
    def words(self, curve: C) -> str:
        """Say in a sentence or two what the picture of this curve shows, with its numbers."""

    def conclusion(self, curve: C) -> str:
        """Say in one sentence what is to be seen; `words` has the details."""
        return ""

    def caption(self, curve: C) -> str:
        """Return the conclusion and the details."""
        return " ".join(filter(None, (self.conclusion(curve), self.words(curve))))

    def handles(self, curve: C) -> Sequence[Handle]:
        """Return what can be dragged, in an order that stays."""
        return ()

    def still(self, curve: C) -> Hashable:
        """Return what the standing parts (limits, legends) depend on; when it changes, all is drawn anew, which is slower."""
        return None


@checked
def plot_small_multiples(kind: type[Picture[C]], curves: Mapping[str, C], *, columns: int = 1) -> Figure:
    """Draw the same picture of several curves beside and below each other: what a slider tells, on paper."""
    width, height = kind.size
    rows = -(-len(curves) // columns)
    figure = new_figure(width * columns, (height + 0.4) * rows)
    parts = figure.subfigures(rows, columns, squeeze=False).flat
    for part, (name, curve) in zip(parts, curves.items(), strict=False):
        kind(curve, part)
        part.suptitle(name, fontsize=TEXT + 2, fontweight="bold", x=0.02, ha="left")
    return figure


@checked
def save_figure(figure: Figure, path: str | os.PathLike[str], *, description: str = "") -> None:
    """Write the figure as PNG (150 dots an inch), SVG or PDF, by the ending of `path`; the file is there whole or not at all.

    Raises ValueError for another ending, OSError as it comes.
    """
    target = Path(path)
    kind = target.suffix.lower()
    if kind not in DESCRIPTION:
        raise ValueError(f"out must end in {', '.join(DESCRIPTION)}; got {target.name}")
    metadata: dict[str, Any] = {"Title": target.stem, DESCRIPTION[kind]: description}
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        figure.savefig(temporary, format=kind[1:], dpi=150, metadata=metadata)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
