"""A live picture in a page without a kernel: frames that were drawn before, answered by the same JavaScript."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import itertools
import json
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from rlviz.markup import Markup, element, joined
from rlviz.page.script import module
from rlviz.pictures.explore import Explorer, Handles
from rlviz.pictures.svg import SvgFigure
from small_models.checks import checked, shown

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
NOTHING = Markup()
TAG = re.compile(r"<(/?)\w+[^>]*?(/?)>")


class Shared(dict[Hashable, int]):
    """Things that are stored once: thing → its place."""

    def place(self, thing: Hashable) -> int:
        """Return the place of a thing, a new one if it is the first of its kind."""
        return self.setdefault(thing, len(self))


def elements(fragment: str) -> list[str]:
    """Cut a fragment between its outermost elements; many of them come back in other frames."""
    found, depth, start = [], 0, 0
    for tag in TAG.finditer(fragment):
        closes, stands_alone = tag.groups()
        depth += -1 if closes else 0 if stands_alone else 1
        if depth == 0:
            found.append(fragment[start : tag.end()])
            start = tag.end()
    return found


@checked
def frames(explorer: Explorer[Any], grid: Mapping[str, Sequence[Any]] | None = None) -> dict[str, Any]:
    """Return what `frozen` of picture.js shows: the explorer's picture at every point of a grid of its controls.

    grid: control's name → its values, those that seldom move first; None: the idea's own, as far as this explorer's controls go.
    The controls of the explorer stay as they are; its own values join the grid. Raises ValueError for a control that there is
    not, a value that it cannot have, and a grid without either.
    """
    if grid is not None and not grid:
        raise ValueError(f"grid must name at least one of {', '.join(explorer.controls)}; got {shown(grid)}")
    return _Frames(explorer, _grid_of(explorer) if grid is None else grid).data()


def _grid_of(explorer: Explorer[Any]) -> dict[str, list[Any]]:
    def can_be(name: str, value: Any) -> bool:
        try:
            explorer.arguments.copy().controls[name].fit(value)
        except ValueError:
            return False
        return True

    return {name: [value for value in values if can_be(name, value)] for name, values in explorer.idea.grid.items()}


class _Frames:
    def __init__(self, explorer: Explorer[Any], grid: Mapping[str, Sequence[Any]]) -> None:
        if unknown := [name for name in grid if name not in explorer.controls]:
            raise ValueError(f"grid must be of {', '.join(explorer.controls)}; got {unknown[0]!r}")
        if hidden := [name for name in grid if explorer.controls[name].hidden]:
            grid = {name: values for name, values in grid.items() if name not in hidden}
        self.explorer = explorer
        self.values: dict[str, list[Any]] = {}
        for name, values in grid.items():
            check_values(name, values)
            control = explorer.arguments.copy().controls[name]
            every = [control.fit(value) for value in values]
            own = explorer.controls[name].value
            ordered = every if own in every else [own, *every]
            self.values[name] = sorted(ordered) if all(isinstance(one, int | float) for one in ordered) else ordered
        self.picture = explorer.idea.picture(explorer.curve)
        self.handles = Handles(self.picture)
        figure = self.picture.figure
        assert isinstance(figure, Figure)
        self.drawn = SvgFigure(figure, self.picture.moving, self.picture.still(explorer.curve))
        self.stills, self.pieces, self.kept = Shared(), Shared(), Shared()
        self._drawn: dict[Hashable, str] = {}
        self.axes: list[Any] = []
        self.panels: list[Any] = []

    def data(self) -> dict[str, Any]:
        index = [self.kept.place(self._frame(point)) for point in itertools.product(*self.values.values())]
        return {
            "size": [self.drawn.width, self.drawn.height],
            "alt": self.picture.alt,
            "stills": list(self.stills),
            "axes": self.axes,
            "panels": self.panels,
            "pieces": list(self.pieces),
            "frames": [json.loads(str(frame)) for frame in self.kept],
            "index": index,
            "controls": [self._control(name, values) for name, values in self.values.items()],
            "order": [list(self.values).index(name) for name in self.explorer.controls if name in self.values],
            "handles": [
                {name: handle[name] for name in ("axes", "along", "control", "sign", "click")}
                for handle in self._handles()
            ],
        }

    def _handles(self) -> list[dict[str, Any]]:
        """Return the handles that set a control of the grid, as they are now."""
        every = self.handles.to_page(self.curve, self.arguments.controls)
        return [handle for handle in every if handle["control"] in self.values]

    def _control(self, name: str, values: list[Any]) -> dict[str, Any]:
        told = self.explorer.controls[name].to_page()
        control, own = self.explorer.arguments.copy().controls[name], self.explorer.controls[name].value
        options = []
        for value in values:
            control.value = value
            options.append(control.in_words)
        kind = "stops" if told["kind"] in ("range", "stops") else "choice"
        return {"name": name, "label": told["label"], "kind": kind, "options": options, "value": values.index(own)}

    def _frame(self, point: Sequence[Any]) -> str:
        """Return the frame of one point of the grid, as text."""
        self.arguments = self.explorer.arguments.copy()
        hidden = []
        for name, value in zip(self.values, point, strict=True):
            control = self.arguments.controls[name]
            try:
                control.value = value
            except ValueError:  # another algorithm's parameter
                hidden.append(name)
        self.curve = curve = self.arguments.curve()
        hidden += [name for name in self.values if self.arguments.controls[name].hidden and name not in hidden]
        same = (
            self.arguments.call,
            tuple(hidden),
        )  # as another point of the grid, where a control out of sight moves nothing
        if same not in self._drawn:
            self._drawn[same] = self._draw(curve, hidden)
        return self._drawn[same]

    def _draw(self, curve: Any, hidden: list[str]) -> str:
        self.picture.show(curve)
        self.drawn.arrange(self.picture.still(curve))
        still = self.stills.place(self.drawn.still)
        if still == len(self.axes):
            self.axes.append(self.drawn.axes)
            self.panels.append(self.drawn.panels)
        frame = {
            "still": still,
            "moving": [self.pieces.place(piece) for piece in elements(self.drawn.moving())],
            "said": [self.picture.conclusion(curve), self.picture.words(curve)],
            "call": self.arguments.call,
            "at": [None if handle["hidden"] else float(f"{handle['at']:.5g}") for handle in self._handles()],
            "hidden": hidden,
        }
        return json.dumps(frame, ensure_ascii=False)


def check_values(name: str, values: Any) -> None:
    """Raise ValueError for values of a grid that are none."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Sequence) or not values:
        raise ValueError(f"grid: {name} must be a list of at least one value; got {shown(values)}")


def pack(data: Any) -> str:
    """Return data as JSON, gzip and base64, for `unpack` of picture.js; the same data give the same text."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def fragment(packed: str, script: str, *, caption: str, inside: Markup = NOTHING) -> Markup:
    """Return HTML that needs no other file, and shows `caption` until its script runs, and where none does.

    script: a module that has a function `start(el, data)`. inside: HTML before the caption, in its place until then.
    """
    name = hashlib.sha256(packed.encode()).hexdigest()[:16]
    begin = (
        f'const place = document.querySelector("[data-frozen=\\"{name}\\"]:not([data-live])");\n'
        f'if (place) {{ place.dataset.live = ""; const data = await unpack("{packed}"); '
        "hideTwin(place); place.replaceChildren(); start(place, data); }"
    )
    place = element("div", inside, element("p", caption), data_frozen=name)
    return joined(place, "\n", element("script", Markup(f"\n{script}\n{begin}\n"), type="module"))


@checked
def freeze(explorer: Explorer[Any], grid: Mapping[str, Sequence[Any]] | None = None, *, twin: bool = True) -> Markup:
    """Return an explorer as HTML that answers without a kernel and without a network: a control for each name in `grid`.

    grid, and what it raises: see `frames`. twin: whether a PNG stands in for it where no script runs.
    """
    picture = image(explorer.png, explorer.alt) if twin else NOTHING
    start = module("picture", offers="const start = (el, data) => frozen(el, data);")
    return fragment(pack(frames(explorer, grid)), start, caption=explorer.caption, inside=picture)


def image(png: bytes, alt: str) -> Markup:
    """Return an image that is part of the page, the same pixels as WebP, which takes less than half of a PNG's bytes."""
    from PIL import Image

    written = io.BytesIO()
    Image.open(io.BytesIO(png)).save(written, "webp", lossless=True)
    source = f"data:image/webp;base64,{base64.b64encode(written.getvalue()).decode()}"
    return element("img", alt=alt, src=source, style="max-width:100%")


def page(title: str, content: Markup) -> str:
    """Return a whole page around a fragment; it may ask no host for anything."""
    head = (
        element("meta", charset="utf-8"),
        element("title", title),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width"),
        element("meta", name="color-scheme", content="light dark"),
    )
    whole = element("html", element("head", *head), "\n", element("body", content), lang="en")
    return joined(Markup("<!doctype html>\n"), whole, "\n")
