"""Many short words that move, as one artist."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D, BboxTransformTo, Transform

from rlviz.pictures.base import TEXT

Style = Literal["normal", "italic"]
PAPER = (1.0, 1.0, 1.0, 0.85)


class Marks(PathCollection):
    """Words at places, drawn as outlines in one go: a Text for each would take ten times as long. texts: what it shows.

    paper: whether what lies behind the words is covered.
    """

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
        super().__init__([], offsets=np.empty((0, 2)), offset_transform=where or ax.transData)
        self.set(facecolor=[PAPER, colour] if paper else colour, linewidth=0, clip_on=False, in_layout=False)
        self.set_transform(Affine2D().scale(1 / 72) + ax.figure.dpi_scale_trans)  # outlines are in points
        self.texts: tuple[str, ...] = ()
        self._font, self._paper = (size, weight, style), paper
        ax.add_collection(self, autolim=False)

    def write(self, places: Iterable[tuple[str, float, float]], *, sides: Iterable[str] | None = None) -> None:
        """Put each text at its (x, y), and take away what was there; their middle at its height.

        sides: which side of each stands at its x, "left", "right" or "center", which is that of all unless given.
        """
        found = list(places)
        self.texts = tuple(text for text, _, _ in found)
        each = ["center"] * len(found) if sides is None else list(sides)
        paths, at = [], []
        for (text, x, y), side in zip(found, each, strict=True):
            words = _outline(text, side, *self._font)
            paths += [_behind(words), words] if self._paper else [words]
            at += [(x, y)] * (1 + self._paper)
        self.set_paths(paths)
        self.set_offsets(np.array(at).reshape(-1, 2))


@lru_cache(maxsize=512)
def _outline(text: str, side: str, size: float, weight: str, style: Style) -> Path:
    """Return a text's outline in points, one side of it at 0; a digit's middle is at height 0."""
    outline = TextPath((0, 0), text, size=size, prop=FontProperties(weight=weight, style=style))
    box = outline.get_extents()
    at = {"center": (box.x0 + box.x1) / 2, "left": box.x0, "right": box.x1}[side]
    return outline.transformed(Affine2D().translate(-at, -0.36 * size))


def _behind(words: Path) -> Path:
    """Return the box around an outline, two points wider."""
    return Path.unit_rectangle().transformed(BboxTransformTo(words.get_extents().padded(2)))
