"""A figure of a run in a page: `PictureView`, shown by curves.js, and the base of what has Jupyter's controls around it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import anywidget
import ipywidgets as widgets
import traitlets
from traitlets import validate

from rlviz.markup import Markup, element, joined
from rlviz.page.script import module
from rlviz.page.widget import with_twin
from rlviz.runs.svg import SvgFigure

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


class PictureView(anywidget.AnyWidget):
    """A figure in a page: what stands still is sent when it changes, what moves at each `put`.

    alt: what there is to see, in words. caption: the same without what the picture is. A saved notebook, nbconvert and GitHub
    show the last picture without a kernel.
    """

    _esm = module("curves")
    size = traitlets.List().tag(sync=True)
    still = traitlets.Unicode().tag(sync=True)
    moving = traitlets.Unicode().tag(sync=True)
    axes = traitlets.List().tag(sync=True)
    panels = traitlets.List().tag(sync=True)
    alt = traitlets.Unicode().tag(sync=True)

    def __init__(self, drawn: SvgFigure) -> None:
        self._drawn = drawn
        self.caption = ""
        super().__init__(size=[drawn.width, drawn.height])

    def put(self, *, alt: str) -> None:
        """Send the figure as it is now."""
        drawn = self._drawn
        with self.hold_sync():
            self.still, self.axes, self.panels = drawn.still, drawn.axes, drawn.panels
            self.moving, self.alt = drawn.moving(), alt

    @property
    def png(self) -> bytes:
        """The picture as it is now."""
        return self._drawn.png()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return with_twin(super()._repr_mimebundle_(**kwargs), self.png, self.caption)


class LivePicture(widgets.VBox):
    """Jupyter's controls above, a picture, and below it a caption in words that screen readers announce.

    A subclass builds its figure, then calls `show` whenever the artists have moved, from any thread.
    """

    def __init__(
        self, drawn: SvgFigure, controls: Sequence[widgets.Widget], below: Sequence[widgets.Widget] = ()
    ) -> None:
        self._view = PictureView(drawn)
        self._words = Html()
        self._lock = threading.Lock()
        self.caption = ""
        self.alt = ""
        looks = Html(LOOKS, layout={"display": "none"})
        super().__init__([looks, *controls, self._view, self._words, *below])
        self.add_class("rlviz-live")

    def show(self, *, alt: str, caption: str) -> None:
        """Redraw, and set alt text and caption."""
        with self._lock:
            self.alt, self.caption = alt, caption
            self._view.put(alt=alt)
            self._words.value = joined(element("span", caption, role="status", aria_live="polite", style=WORDS))

    @property
    def png(self) -> bytes:
        """The picture as it is now."""
        with self._lock:
            return self._view.png

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return with_twin(super()._repr_mimebundle_(**kwargs), self.png, self.caption)
