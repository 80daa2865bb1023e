"""HTML, made here and nowhere else: every text that goes into it is escaped."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable

DATA = "application/json"  # of a script that does not run
MARK = "written by rlviz"  # in each page and picture: the command line replaces no file without it
EMPTY = ("br", "img", "input", "link", "meta")  # elements that have no end
CAPTION = "text-align: left; font-weight: bold; white-space: nowrap"


class Markup(str):
    """HTML that `element` and `joined` made, or that is written in our own code: it is not escaped again.

    scripts: hashes of the scripts that `element` made in it, the only ones that `content_policy` lets run.
    """

    scripts: tuple[str, ...] = ()


def allow_scripts(markup: str, scripts: Iterable[str]) -> Markup:
    """Return HTML with the hashes of its scripts."""
    allowed = Markup(markup)
    allowed.scripts = tuple(dict.fromkeys(scripts))
    return allowed


def script_hash(text: str) -> str:
    """Return the source by which a content security policy lets in a script of this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def content_policy(scripts: Iterable[str], *, files: bool = False, trains: bool = False) -> str:
    """Return a content security policy that lets in these scripts, by their hashes, and nothing from another host.

    files: whether scripts, styles and images beside the page are let in, too. trains: whether a model trains there, by
    WebAssembly in a worker that is made from a blob.
    """
    beside = ["'self'"] * files
    allowed = [*beside, *dict.fromkeys(scripts), *["'wasm-unsafe-eval'"] * trains] or ["'none'"]
    return "; ".join(
        (
            "default-src 'none'",
            " ".join(["script-src", *allowed]),
            *["worker-src blob:"] * trains,
            " ".join(["style-src", *beside, "'unsafe-inline'"]),
            " ".join(["img-src", *beside, "data:"]),
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def joined(*parts: object) -> Markup:
    """Return the parts after each other; what is no Markup is text, and escaped."""
    escaped = (part if isinstance(part, Markup) else html.escape(str(part)) for part in parts)
    return allow_scripts("".join(escaped), (script for part in parts for script in getattr(part, "scripts", ())))


def element(tag: str, *parts: object, **attributes: object) -> Markup:
    """Return an element with these parts and attributes: `aria_live` is aria-live, `class_` is class."""
    content = joined(*parts)
    runs = tag == "script" and "src" not in attributes and attributes.get("type") != DATA
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"' for name, value in attributes.items()
    )
    inside = "" if tag in EMPTY else f"{content}</{tag}>"
    return allow_scripts(f"<{tag}{named}>{inside}", [script_hash(content)] if runs else content.scripts)


def table(columns: Iterable[str], rows: Iterable[Markup], *, heading: str, style: str, caption: str = "") -> Markup:
    """Return a table of rows that `element` made, under columns whose headings have the style `heading`."""
    heading_line = element("caption", caption, style=CAPTION) if caption else ""
    head = element("tr", *(element("th", name, scope="col", style=heading) for name in columns))
    return element("table", heading_line, element("thead", head), element("tbody", *rows), style=style)
