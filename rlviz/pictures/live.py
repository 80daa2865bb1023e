"""The base of every live picture: a figure redrawn by blitting, its alt text and its caption."""

from __future__ import annotations

import base64
import struct
import threading
import zlib
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets
import numpy as np
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from traitlets import validate

from rlviz.markup import Markup, element, joined

# ipywidgets' own tracks and borders have a contrast of 1.9:1 with white, and the focus is a shade of grey
LOOKS = Markup("""<style>
.rlviz-live .noUi-target, .rlviz-live .noUi-connects {background: #767676; border-color: #767676}
.rlviz-live .noUi-handle {background: #0072B2; border-color: #0072B2}
.rlviz-live input, .rlviz-live select {border-color: #767676 !important}
.rlviz-live button {border: 1px solid #767676 !important}
.rlviz-live :focus-visible {outline: 2px solid #D55E00 !important; outline-offset: 2px}
</style>""")
WORDS = "font-size: 15px; line-height: 1.4"


class Html(widgets.HTML):
    """A widget for what `rlviz.markup` made; Jupyter typesets no $…$ or \\(…\\) in it, which may come from a file."""

    @validate("value")
    def _only_markup(self, proposal: Any) -> str:
        if not isinstance(proposal["value"], Markup) and proposal["value"]:
            raise TypeError("value must be made by rlviz.markup, which escapes texts")
        return element("div", proposal["value"], class_="mathjax_ignore tex2jax_ignore") if proposal["value"] else ""


class BlittedFigure:
    """A figure of which only `artists` move: the rest is drawn once and kept as a picture.

    A redraw costs a few milliseconds where a new figure costs over a hundred. The artists are drawn in the given
    order, over everything else; axis limits and layout stay as the first drawing left them until `freeze` is called.
    """

    def __init__(self, figure: Figure, artists: Sequence[Artist]) -> None:
        self.figure = figure
        self.artists = list(artists)
        self._canvas = FigureCanvasAgg(figure)
        self.lay_out()

    def lay_out(self) -> None:
        """Place the axes anew, then `freeze`; needed after tick labels or legends changed their size."""
        for artist in self.artists:
            artist.set_animated(False)
        self.figure.set_layout_engine("constrained")
        for ax in self.figure.axes:  # where it starts from shows in where it ends, by a hair
            place = ax.get_subplotspec()
            if place is not None:
                ax.set_subplotspec(place)
        self.figure.draw_without_rendering()  # where a tick label overhangs its axes the layout settles on the second try
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")
        for artist in self.artists:
            artist.set_animated(True)
        self.freeze()

    def freeze(self) -> None:
        """Draw again what does not move; needed after an axis limit or a still artist changed."""
        self._canvas.draw()
        self._background = self._canvas.copy_from_bbox(self.figure.bbox)

    def png(self) -> bytes:
        """Return the picture as it is now."""
        self._canvas.restore_region(self._background)
        for artist in self.artists:
            if artist.axes is not None:
                artist.axes.draw_artist(artist)
        return encode_png(np.asarray(self._canvas.buffer_rgba()))


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """Return pixels [height, width, 4] as a PNG whose rows are not filtered.

    Pillow tries filters on every row, which takes three quarters of a redraw and saves nothing on flat colours.
    """
    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + 4 * width), np.uint8)  # each row starts with the number of its filter, 0: none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)  # 8 bits a channel, RGBA, not interlaced
    png = b"\x89PNG\r\n\x1a\n"
    for name, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 1)), (b"IEND", b"")):
        png += struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return png


class LivePicture(widgets.VBox):
    """Controls above, a picture, and below it a caption in words that screen readers announce.

    A subclass builds its figure, then calls `show` whenever the artists have moved. A saved notebook, nbconvert and
    GitHub show the last picture without a kernel. `show` may be called from a thread.
    """

    def __init__(
        self, picture: BlittedFigure, controls: Sequence[widgets.Widget], below: Sequence[widgets.Widget] = ()
    ) -> None:
        self._picture = picture
        self._image = Html()
        self._words = Html()
        self._lock = threading.Lock()
        self.png = b""
        self.caption = ""
        self.alt = ""
        looks = Html(LOOKS, layout={"display": "none"})
        super().__init__([looks, *controls, self._image, self._words, *below])
        self.add_class("rlviz-live")

    def show(self, *, alt: str, caption: str, call: str = "") -> None:
        """Redraw, and set alt text, caption, and the one-line call that reproduces what is shown."""
        with self._lock:
            self.png, self.alt, self.caption = self._picture.png(), alt, caption
            encoded = base64.b64encode(self.png).decode()
            source, style = f"data:image/png;base64,{encoded}", "max-width: 100%; height: auto"
            self._image.value = element("img", alt=alt, src=source, style=style)
            words = element("span", caption, role="status", aria_live="polite", style=WORDS)
            self._words.value = joined(words, element("br"), element("code", call)) if call else words

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        return {**data, "text/plain": self.caption, "image/png": base64.b64encode(self.png).decode()}, metadata
