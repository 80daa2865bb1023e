"""Widget and page of a picture: the payload for draw.js, packed HTML that needs no kernel, and the notebook's widget."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import anywidget
import traitlets

from rlviz.markup import MARK, Markup, allow_scripts, content_policy, element, joined, script_hash
from rlviz.page.picture import Draws, Picture, finite, to_json
from rlviz.page.script import module
from rlviz.page.tracing import Program

ALONE = ("packed", "run", "draw")  # files of a picture in a page without a kernel
STARTED = re.compile(
    r'<script type="module">[^<]*load\("(\w+)", "[\w+/=]*", "([\w+/=]+)"\);\s*</script>'
)  # name and data


@dataclass(frozen=True)
class Variant:
    """The part of a picture that depends on one choice: its program, slider ranges, texts and data.

    program: a program, or its name among shared ones; None where it cannot be traced, and why says why. numbers: parameter →
    (value, low, high, step) of its slider. texts, data: names of this choice alone.
    """

    program: str | None
    why: str = ""
    numbers: Mapping[str, tuple[float, float, float, float]] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)


def page_payload(
    name: str,
    picture: Picture,
    *,
    programs: Mapping[str, Program],
    variants: Mapping[str, Variant],
    family: tuple[str, ...],
    values: Mapping[str, Any],
    call: Mapping[str, Any],
) -> dict[str, Any]:
    """Return all that `mount` of draw.js needs, as what json.dumps takes."""
    used = {variant.program for variant in variants.values()}
    return {
        "name": name,
        "picture": to_json(replace(picture, data={})),
        "programs": {key: relative_rows(program) for key, program in programs.items() if key in used},
        "variants": {
            key: {
                **{field: to_json(value) for field, value in vars(variant).items() if value},
                "program": variant.program,  # also where it is None
                "data": {name: data_to_json(value) for name, value in variant.data.items()},
            }
            for key, variant in variants.items()
        },
        "family": list(family),
        "values": to_json(values),
        "call": to_json(call),
        "data": {key: data_to_json(value) for key, value in picture.data.items()},
    }


def relative_rows(program: Program) -> Program:
    """Return a program whose rows refer to each other by distance, so that what two programs share is one text.

    Compressed, a page with all algorithms is a half or a third of what it would be.
    """

    def relative(value: Any, row: int) -> Any:
        if isinstance(value, dict):
            return {"r": value["r"] - row} if "r" in value else value
        return [relative(part, row) for part in value] if isinstance(value, list) else value

    rows = [
        [op, relative(args, row), *({name: relative(value, row) for name, value in words.items()} for words in named)]
        if op not in ("input", "const")
        else [op, args, *named]
        for row, (op, args, *named) in enumerate(program["rows"])
    ]
    return {"rows": rows, "outputs": program["outputs"]}


def data_to_json(value: Any) -> Any:
    """Return a piece of data as what json.dumps takes: a number, words, a recipe, or an array with its shape."""
    if isinstance(value, Draws):
        return to_json(value)
    if hasattr(value, "shape"):
        numbers = [float(number) for number in value.reshape(-1).tolist()]
        # a whole number without its ".0", for data may be long; −0.0 would lose its sign
        short = [int(n) if n.is_integer() and (n or math.copysign(1, n) > 0) else finite(n) for n in numbers]
        return {"shape": list(value.shape), "data": short}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value


def pack(data: Any) -> str:
    """Return data as JSON, packed; the same data give the same text."""
    return packed_text(json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def packed_text(text: str) -> str:
    """Return a text as gzip and base64, for `unpacked` of packed.js."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


@cache
def packed_script(files: tuple[str, ...], show: str) -> tuple[str, str]:
    """Return the files of `module` as one script, and it packed, two fifths of its bytes; `load` of packed.js calls `start`."""
    text = module(
        *files,
        offers=f"const start = (name, packed) => startAt(name, packed, (place, payload) => {show}(place, payload));",
    )
    return text, packed_text(text)


def fragment(
    packed: str, *, caption: str, inside: Markup | None = None, files: tuple[str, ...] = ALONE, show: str = "mount"
) -> Markup:
    """Return HTML that needs no other file and no kernel; it shows `caption` until its script runs, and where none does.

    files: of a script, as `module` takes them, in which the function `show` takes a place and the data. Every fragment carries it
    whole, packed: an output may stand alone, for another cell's may be deleted. A place that has its picture gets no second.
    """
    name = hashlib.sha256(packed.encode()).hexdigest()[:16]
    place = element("div", inside or Markup(), element("p", caption), data_rlviz=name)
    return joined(place, "\n", starting(name, packed, files, show))


def starting(
    name: str, packed: str, files: tuple[str, ...] = ALONE, show: str = "mount", *, carries_script: bool = True
) -> Markup:
    """Return the script that fills the place of this name; STARTED finds it in a page.

    carries_script: False where another place of the same notebook carries the script of the picture, 50 kB, for this one.
    """
    text, packed_text = packed_script(files, show)
    arguments = json.dumps([name, packed_text if carries_script else "", packed])[1:-1]
    run = f"\n{module('packed')}\nload({arguments});\n"
    loading = element("script", Markup(run), type="module")
    loaded = f'{text}\nstart("{name}", "{packed}");'  # to the letter what `load` of packed.js adds to the page
    return allow_scripts(loading, [*loading.scripts, script_hash(loaded)])


def page(title: str, content: Markup, *, trains: bool = False) -> str:
    """Return a whole page around fragments; it asks no host for anything, and runs no scripts but theirs.

    trains: see `content_policy`.
    """
    head = (
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=content_policy(content.scripts, trains=trains)),
        element("meta", name="generator", content=MARK),
        element("title", title),
        element("meta", name="viewport", content="width=device-width"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
    )
    document = element("html", element("head", *head), "\n", element("body", content), lang="en")
    return joined(Markup("<!doctype html>\n"), document, "\n")


class View(anywidget.AnyWidget):
    """A picture whose page computes it: the kernel hears of a control when it is let go, and of nothing while it moves.

    values: of the controls, in both directions. request, reply: {turn, key, values} of a rule that a page cannot follow, and
    {turn, outputs} or {turn, why}. data: of the picture, where it grows.
    """

    _esm = module(*ALONE, "widget", offers="export default { render };")
    packed = traitlets.Unicode().tag(sync=True)
    values = traitlets.Dict().tag(sync=True)
    request = traitlets.Dict().tag(sync=True)
    reply = traitlets.Dict().tag(sync=True)
    data = traitlets.Dict().tag(sync=True)
    twin = traitlets.Bool().tag(sync=True)  # whether an output of its own holds the PNG

    def __init__(self, payload: Mapping[str, Any], answer: Callable[[str, Mapping[str, Any]], dict[str, Any]]) -> None:
        self._answer = answer
        super().__init__(packed=pack(payload), values=dict(payload["values"]))

    def show_payload(self, payload: Mapping[str, Any]) -> None:
        """Show another picture in place of this one."""
        self.packed = pack(payload)

    @traitlets.observe("request")
    def _compute(self, change: Any) -> None:
        if request := change["new"]:
            self.reply = {"turn": request["turn"], **self._answer(request["key"], request["values"])}


def with_static_image(bundle: Any, png: bytes, alt: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a widget's data and metadata for Jupyter, with a PNG and its alt text for places without a kernel."""
    data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
    image = {"text/plain": alt, "image/png": base64.b64encode(png).decode()}
    return {**data, **image}, {**metadata, "image/png": {"alt": alt}}
