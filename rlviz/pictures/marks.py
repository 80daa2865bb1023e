"""Many short words that move, as one artist: a Text for each would take ten times as long to draw."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from matplotlib.artist import Artist, allow_rasterization
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.transforms import Affine2D, Transform

from rlviz.pictures.base import TEXT
from rlviz.pictures.svg import SvgRenderer

Style = Literal["normal", "italic"]
PAPER = (1.0, 1.0, 1.0, 0.85)
LEFT_OF = {"left": 0.0, "center": 0.5, "right": 1.0}  # share of a text's width that lies left of its place
MIDDLE = 0.36  # of the size: a digit's middle over the baseline


class Marks(Artist):
    """Words at places. texts: what it shows. paper: whether what lies behind the words is covered."""

    def __init__(
        self,
        ax: Axes,
        *,
        size: float = TEXT,
        weight: str = "normal",
        style: Style = "normal",
        colour: str = "black",
        where: Transform | None = None,
        paper: bool = False,
    ) -> None:
        super().__init__()
        self.set_transform(where or ax.transData)
        self.set_in_layout(False)
        self.texts: tuple[str, ...] = ()
        self.places: list[tuple[float, float, str]] = []
        self._font, self._colour, self._paper = FontProperties(size=size, weight=weight, style=style), colour, paper
        ax.add_artist(self)
        self.set_clip_on(False)

    def write(self, places: Iterable[tuple[str, float, float]], *, sides: Iterable[str] | None = None) -> None:
        """Put each text at its (x, y), and take away what was there; their middle at its height.

        sides: which side of each stands at its x, "left", "right" or "center", which is that of all unless given.
        """
        found = list(places)
        self.texts = tuple(text for text, _, _ in found)
        each = ["center"] * len(found) if sides is None else list(sides)
        self.places = [(x, y, side) for (_, x, y), side in zip(found, each, strict=True)]
        self.stale = True

    @allow_rasterization
    def draw(self, renderer: Any) -> None:
        if not self.get_visible():
            return
        gc = renderer.new_gc()
        gc.set_foreground(self._colour)
        size = renderer.points_to_pixels(self._font.get_size_in_points())
        for text, (x, y, side) in zip(self.texts, self.places, strict=True):
            at, base = self.get_transform().transform((x, y))
            base -= MIDDLE * size
            if self._paper or not isinstance(renderer, SvgRenderer):
                width = renderer.get_text_width_height_descent(text, self._font, False)[0]
                left = at - LEFT_OF[side] * width
            if self._paper:
                _cover(renderer, left, base, width, size)
            if renderer.flipy():
                base = renderer.get_canvas_width_height()[1] - base
            if isinstance(renderer, SvgRenderer):  # which holds a text at its side, whatever the page's font
                renderer.words(gc, text, at, base, self._font, side)
            else:
                renderer.draw_text(gc, left, base, text, self._font, 0)
        gc.restore()
        self.stale = False


def _cover(renderer: Any, left: float, base: float, width: float, size: float) -> None:
    """Draw paper behind a text."""
    gc = renderer.new_gc()
    gc.set_linewidth(0)
    box = Affine2D().scale(width + 0.3 * size, 1.2 * size).translate(left - 0.15 * size, base - 0.25 * size)
    renderer.draw_path(gc, Path.unit_rectangle(), box, to_rgba(PAPER))
    gc.restore()
