"""What every picture that matplotlib moves shares: the figure that is drawn once and then moves, and its handles."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from rlviz.page.style import (  # noqa: F401  what the lessons and the older pictures import from here
    BLUE,
    CYCLE,
    DESCRIPTION,
    FAINT,
    GREEN,
    GREY,
    LINE,
    LINE_STYLES,
    TEXT,
    VERMILION,
    DescribedFigure,
    dress,
    new_figure,
    plain,
    save_figure,
    signed,
)
from small_models.checks import checked

C = TypeVar("C")
COLOURS = CYCLE


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
