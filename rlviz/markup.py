"""HTML, made here and nowhere else: every text that goes into it is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable

EMPTY = ("br", "img", "link", "meta")  # elements that have no end
CAPTION = "text-align: left; font-weight: bold; white-space: nowrap"


class Markup(str):
    """HTML that `element` and `joined` made, or that is written in our own code: it is not escaped again."""

    __slots__ = ()


def joined(*parts: object) -> Markup:
    """Return the parts after each other; what is no Markup is text, and escaped."""
    return Markup("".join(part if isinstance(part, Markup) else html.escape(str(part)) for part in parts))


def element(tag: str, *parts: object, **attributes: object) -> Markup:
    """Return an element with these parts and attributes: `aria_live` is aria-live, `class_` is class."""
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"' for name, value in attributes.items()
    )
    inside = "" if tag in EMPTY else f"{joined(*parts)}</{tag}>"
    return Markup(f"<{tag}{named}>{inside}")


def table(columns: Iterable[str], rows: Iterable[Markup], *, heading: str, style: str, caption: str = "") -> Markup:
    """Return a table of rows that `element` made, under columns whose headings have the style `heading`."""
    said = element("caption", caption, style=CAPTION) if caption else ""
    head = element("tr", *(element("th", name, scope="col", style=heading) for name in columns))
    return element("table", said, element("thead", head), element("tbody", *rows), style=style)
