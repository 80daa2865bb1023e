"""A figure as fragments of SVG for a page: what stands still, once, and the artists that move, again at each move.

Of matplotlib it uses the public `RendererBase` alone. Coordinates are the figure's pixels, text stays text, the house's colours
are CSS variables that the page's theme sets, and an id begins with `VIEW`, which the page replaces: two views share no id.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.transforms import Affine2D
from numpy.typing import NDArray

from rlviz.page.image import png

VIEW = "\ue000"
# colour → CSS variable; curves.js says what each is in the light and in the dark
THEME = {
    "#000000": "k",
    "#ffffff": "w",
    "#7f7f7f": "g",
    "#0072b2": "b",
    "#d55e00": "v",
    "#009e73": "n",
    "#595959": "t",
}
ANCHORS = {"left": "start", "center": "middle", "right": "end"}
LETTERS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}
POINTS_AFTER = {Path.CURVE3: 1, Path.CURVE4: 2}  # of a curve, after its first
STRAIGHT = 1e-9  # tangent of a turn that is none
BEYOND = 50  # pixels outside the figure from which a line is cut off
CURVE = "curve "  # what the gid of a line begins with that has a name to be read where a person points


@lru_cache(maxsize=1024)
def _template(codes: bytes) -> str:
    """Return the text of a path with these codes, its numbers still to come: to a hundredth of a pixel below 1000."""
    text, last, left = [], "", 0
    for code in codes:
        if left:
            left -= 1
            text.append(" %.5g %.5g")
        elif code == Path.CLOSEPOLY:
            text.append("z")
            last = ""
        else:
            letter = LETTERS[np.uint8(code)]
            left = POINTS_AFTER.get(np.uint8(code), 0)
            text.append((" " if letter == last == "L" else letter) + "%.5g %.5g")
            last = letter
    return "".join(text)


def _paint(rgb: Any) -> str:
    colour = to_hex(rgb[:3])
    return f"var(--{THEME[colour]})" if colour in THEME else colour


def _number(value: float) -> str:
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _safe(text: str) -> str:
    return html.escape(text.replace(VIEW, ""))


def _attributes(**values: str | float | None) -> str:
    """Return ` name="value"` for each that is not None: `stroke_width` is stroke-width. The values are our own."""
    return "".join(
        f' {name.replace("_", "-")}="{value if isinstance(value, str) else _number(value)}"'
        for name, value in values.items()
        if value is not None
    )


def _straight_on(codes: NDArray[np.uint8], places: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return, for each vertex but the first and the last, whether the line goes straight on there."""
    before, after = np.diff(places, axis=0)[:-1], np.diff(places, axis=0)[1:]
    turn = before[:, 0] * after[:, 1] - before[:, 1] * after[:, 0]
    along = (before * after).sum(1)
    return (codes[1:-1] == Path.LINETO) & (codes[2:] == Path.LINETO) & (along > 0) & (np.abs(turn) <= STRAIGHT * along)


class SvgRenderer(RendererBase):
    """Draws artists into the text of a fragment; `take` returns it and starts anew. part: begins the names of its definitions."""

    def __init__(self, width: float, height: float, dpi: float, part: str) -> None:
        super().__init__()
        self.width, self.height, self.dpi, self._part = width, height, dpi, part
        self._flip = Affine2D().scale(1, -1).translate(0, height)
        self._start()

    def _start(self) -> None:
        self._elements: list[str] = []
        self._definitions: dict[Hashable, tuple[str, str]] = {}
        self._curve = ""

    def take(self) -> str:
        """Return what was drawn since the last call."""
        definitions = "".join(text for _, text in self._definitions.values())
        text = (f"<defs>{definitions}</defs>" if definitions else "") + "".join(self._elements)
        self._start()
        return text

    def flipy(self) -> bool:
        return True

    def get_canvas_width_height(self) -> tuple[float, float]:
        return self.width, self.height

    def points_to_pixels(self, points: Any) -> Any:
        return points * self.dpi / 72

    def open_group(self, s: str, gid: str | None = None) -> None:
        self._curve = gid.removeprefix(CURVE) if gid and gid.startswith(CURVE) else ""

    def close_group(self, s: str) -> None:
        self._curve = ""

    def _define(self, key: Hashable, make: Callable[[str], str]) -> str:
        """Return the name of a definition, which `make` writes for that name if there is none yet."""
        if key not in self._definitions:
            name = f"{VIEW}{self._part}{len(self._definitions)}"
            self._definitions[key] = (name, make(name))
        return self._definitions[key][0]

    def _d(self, path: Path, transform: Any, *, line: bool = False) -> str:
        """Return the attribute d of a path; of a line, what is far outside is left out, and points within a straight stretch."""
        box = (-BEYOND, -BEYOND, self.width + BEYOND, self.height + BEYOND) if line else None
        clean = path.cleaned(transform + self._flip, remove_nans=True, clip=box, simplify=False, curves=True)
        codes, places = np.asarray(clean.codes), np.asarray(clean.vertices)
        kept = codes != Path.STOP
        if line:
            kept[1:-1] &= ~_straight_on(codes, places)
        codes, places = codes[kept], places[kept]
        return _template(codes.tobytes()) % tuple(places[codes != Path.CLOSEPOLY].ravel().tolist())

    def _clip(self, gc: Any) -> str:
        box = gc.get_clip_rectangle()
        if box is None:
            return ""
        x, y, width, height = (round(value, 2) for value in box.bounds)
        place = _attributes(x=x, y=self.height - y - height, width=width, height=height)
        name = self._define(("clip", place), lambda name: f'<clipPath id="{name}"><rect{place}/></clipPath>')
        return f' clip-path="url(#{name})"'

    def _style(self, gc: Any, face: Any) -> str:
        alpha = gc.get_alpha() if gc.get_forced_alpha() else None
        said = _attributes(fill="none" if face is None else _paint(face))
        if face is not None and len(face) == 4 and alpha is None and face[3] != 1:
            said += _attributes(fill_opacity=float(face[3]))
        if alpha is not None and alpha != 1:
            said += _attributes(opacity=alpha)
        width = self.points_to_pixels(gc.get_linewidth())
        if not width:
            return said
        rgb = gc.get_rgb()
        said += _attributes(
            stroke=_paint(rgb),
            stroke_opacity=rgb[3] if alpha is None and rgb[3] != 1 else None,
            stroke_width=width,
        )
        offset, dashes = gc.get_dashes()
        if dashes is not None:
            said += _attributes(
                stroke_dasharray=" ".join(_number(self.points_to_pixels(dash)) for dash in dashes),
                stroke_dashoffset=self.points_to_pixels(offset) if offset else None,
            )
        join, cap = gc.get_joinstyle(), gc.get_capstyle()
        return said + _attributes(
            stroke_linejoin=None if join == "miter" else str(join),
            stroke_linecap=None if cap == "butt" else {"projecting": "square"}.get(cap, str(cap)),
        )

    def draw_path(self, gc: Any, path: Path, transform: Any, rgbFace: Any = None) -> None:
        """Add a path; a line with a name says it."""
        line = rgbFace is None
        if d := self._d(path, transform, line=line):
            self._elements.append(f'<path{self._style(gc, rgbFace)}{self._clip(gc)}{self._name(line)} d="{d}"/>')

    def _name(self, line: bool = True) -> str:
        return f' data-curve="{_safe(self._curve)}"' if self._curve and line else ""

    def draw_markers(
        self, gc: Any, marker_path: Path, marker_trans: Any, path: Path, trans: Any, rgbFace: Any = None
    ) -> None:
        """Add a marker at each vertex; its form is defined once. Those of a named line say where they are."""
        clean = path.cleaned(trans + self._flip, remove_nans=True)
        assert clean.codes is not None
        places = np.asarray(clean.vertices)[clean.codes != Path.STOP]
        if not len(places):
            return
        d = self._d(marker_path, marker_trans + Affine2D().translate(0, self.height))
        name = self._define(("marker", d), lambda name: f'<path id="{name}" d="{d}"/>')
        uses = "".join(f'<use href="#{name}" x="{_number(x)}" y="{_number(y)}"/>' for x, y in places)
        self._elements.append(f"<g{self._style(gc, rgbFace)}{self._clip(gc)}{self._name()}>{uses}</g>")

    def draw_text(
        self, gc: Any, x: float, y: float, s: str, prop: Any, angle: float, ismath: Any = False, mtext: Any = None
    ) -> None:
        """Add a text, held where its artist is: the page's font may be wider than matplotlib's."""
        side = "left"
        if mtext is not None and angle == 0:
            side = mtext.get_horizontalalignment()
            if side != "left":
                x = mtext.get_transform().transform(mtext.get_unitless_position())[0]
        elif mtext is not None and angle == 90:
            side, y = "center", y - self.get_text_width_height_descent(s, prop, False)[0] / 2
        style = _attributes(
            font_size=self.points_to_pixels(prop.get_size_in_points()),
            text_anchor=None if side == "left" else ANCHORS[side],
            fill=_paint(gc.get_rgb()),
            transform=f"rotate({_number(-angle)} {_number(x)} {_number(y)})" if angle else None,
        )
        words = f'<text x="{_number(x)}" y="{_number(y)}">{_safe(s)}</text>'
        self._elements.append(f"<g{style}{self._clip(gc)}>{words}</g>")


class SvgFigure:
    """A figure of which only `artists` move, drawn over all else in the given order.

    still: the fragment of the rest, with `axes` and `panels` as they then were. Limits stay as they are until `freeze`,
    the layout for good.
    """

    def __init__(self, figure: Figure, artists: Sequence[Artist]) -> None:
        self.figure, self.artists = figure, list(artists)
        self.width, self.height = (float(value) for value in figure.bbox.size)
        FigureCanvasAgg(figure)
        self._renderers = [SvgRenderer(self.width, self.height, figure.dpi, part) for part in "sm"]
        engine = figure.get_layout_engine()
        assert engine is not None
        for _ in range(2):  # where a tick label overhangs its axes the layout settles on the second try
            engine.execute(figure)
        figure.set_layout_engine("none")
        for artist in self.artists:
            artist.set_animated(True)
        self.freeze()

    def freeze(self) -> None:
        """Draw again what does not move; needed after an axis limit or a still artist changed."""
        for place, ax in enumerate(self.figure.axes):
            for line in ax.get_lines():
                line.set_gid(_gid(line, place))
        patches = [self.figure.patch, *(ax.patch for ax in self.figure.axes)]
        for patch in patches:  # the page shows through
            patch.set_visible(False)
        renderer = self._renderers[0]
        self.figure.draw(renderer)
        self.still = renderer.take()
        for patch in patches:
            patch.set_visible(True)
        self.axes = [self._where(ax) for ax in self.figure.axes]
        parts: list[Axes | Legend] = [*self.figure.axes, *self.figure.legends]
        self.panels = [self._panel(part) for part in parts]

    def moving(self) -> str:
        """Return the fragment of the artists that move, as they are now."""
        for artist in self.artists:
            if artist.axes is not None:
                artist.draw(self._renderers[1])
        return self._renderers[1].take()

    def png(self) -> bytes:
        """Return the whole as it is now, for places that show no SVG."""
        return png(self.figure)

    def _where(self, ax: Axes) -> dict[str, Any]:
        """Return where the axes are, in pixels from the top left, and what their data's limits are."""
        x, y, width, height = (float(value) for value in ax.bbox.bounds)
        return {
            "box": [round(value, 2) for value in (x, self.height - y - height, width, height)],
            "x": [float(limit) for limit in ax.get_xlim()],
            "y": [float(limit) for limit in ax.get_ylim()],
        }

    def _panel(self, part: Axes | Legend) -> list[float]:
        """Return what a part of the figure takes with its words, for narrow screens, where parts are stacked."""
        box = part.get_tightbbox(self._renderers[0])
        assert box is not None
        box = box.padded(6 if isinstance(part, Axes) else 0)  # a legend has a border of its own
        return [round(float(value), 1) for value in (box.x0, self.height - box.y1, box.width, box.height)]


def _gid(line: Line2D, axes: int) -> str | None:
    """Return what tells a page the name of a line and its axes, None for a line without a name."""
    label = str(line.get_label())
    return None if label.startswith("_") or not label.strip() else f"{CURVE}{axes} {label}"
