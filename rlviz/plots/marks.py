"""Many short words that move, as one artist."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D, Transform

from rlviz.plots.style import TEXT


class Marks(PathCollection):
    """Words at places, drawn as outlines in one go: a Text for each would take ten times as long. texts: what it shows."""

    def __init__(
        self,
        ax: Axes,
        *,
        size: float = TEXT,
        weight: str = "normal",
        colour: str = "black",
        where: Transform | None = None,
    ) -> None:
        super().__init__([], offsets=np.empty((0, 2)), offset_transform=where or ax.transData)
        self.set(facecolor=colour, linewidth=0, clip_on=False, in_layout=False)
        self.set_transform(Affine2D().scale(1 / 72) + ax.figure.dpi_scale_trans)  # outlines are in points
        self.texts: tuple[str, ...] = ()
        self._font = size, weight
        ax.add_collection(self, autolim=False)

    def write(self, places: Iterable[tuple[str, float, float]]) -> None:
        """Put each text at its (x, y), and take away what was there."""
        found = list(places)
        self.texts = tuple(text for text, _, _ in found)
        self.set_paths([_outline(text, *self._font) for text in self.texts])
        self.set_offsets(np.array([(x, y) for _, x, y in found]).reshape(-1, 2))


@lru_cache(maxsize=512)
def _outline(text: str, size: float, weight: str) -> Path:
    """Return a text's outline in points, around 0; a digit's middle is at height 0."""
    outline = TextPath((0, 0), text, size=size, prop=FontProperties(weight=weight))
    box = outline.get_extents()
    return outline.transformed(Affine2D().translate(-(box.x0 + box.x1) / 2, -0.36 * size))
