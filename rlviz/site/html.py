"""The frame of every page: its head, its navigation, and a content security policy that lets in nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from rlviz.markup import DATA, Markup, content_policy, element, joined, script_hash

NAVIGATION = {
    "Start": "index.html",
    "Explorers": "explorers/index.html",
    "Symptoms": "course/symptoms.html",
    "Recorded runs": "runs.html",
    "Algorithms": "algorithms/index.html",
    "Lessons": "course/index.html",
    "A real model": "course/18_take_it_home.html",
    "Verdicts": "course/experiments/verdicts.html",
}
FOOTER = "Everything on these pages is a file beside them: no server, no tracking. Made by "
INLINE = re.compile(r"<script(?P<named>[^>]*)>(?P<text>.*?)</script>", re.S)


@dataclass(frozen=True)
class File:
    """A file of the site, by its path from the site's folder."""

    path: str
    content: str | bytes

    def write(self, site: Path) -> None:
        """Write it into the site's folder."""
        path = site / self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.content.encode() if isinstance(self.content, str) else self.content)


def policy(body: str, *, trains: bool = False) -> str:
    """Return a content security policy: files beside the page, and of scripts within it only those of this body.

    A lesson's outputs bring scripts that `element` did not make here. trains: see `content_policy`.
    """
    inline = [(match["named"], match["text"]) for match in INLINE.finditer(body)]
    scripts = [text for attributes, text in inline if "src=" not in attributes and DATA not in attributes]
    return content_policy(map(script_hash, scripts), files=True, trains=trains)


def page(path: str, title: str, *body: Markup, language: str = "en", trains: bool = False) -> File:
    """Return a page. path: from the site's folder. language: of its body, as HTML names it. trains: see `policy`."""
    root = "../" * path.count("/")
    # A page that the navigation does not list belongs to the index of its folder.
    current = path if path in NAVIGATION.values() else f"{path.partition('/')[0]}/index.html"
    links = [
        element("a", name, href=root + target, **({"aria_current": "page"} if target == current else {}))
        for name, target in NAVIGATION.items()
    ]
    main = joined(*body)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(main, trains=trains)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title if path == "index.html" else f"{title} · rlviz"),
        element("link", rel="icon", href="data:,"),
        element("link", rel="stylesheet", href=f"{root}site.css"),
        element("noscript", element("style", Markup("[role=search]{display:none}"))),
        element("script", src=f"{root}rlviz.js", defer=""),
    )
    frame = element(
        "body",
        element("a", "To the content", href="#main", class_="skip"),
        element("header", element("nav", *links, _search(root), aria_label="The site")),
        element("main", main, id="main", tabindex="-1"),
        element("footer", FOOTER, element("code", "rlviz site"), "."),
    )
    return File(path, f"<!doctype html>\n{element('html', head, frame, lang=language)}\n")


def _search(root: str) -> Markup:
    """Return the field that finds what the site has; search.js fills its list. root: leads to the site's folder."""
    field = element(
        "input",
        type="text",
        role="combobox",
        aria_label="Search symptoms, terms, config fields, lessons",
        aria_keyshortcuts="/",
        aria_autocomplete="list",
        aria_expanded="false",
        aria_controls="found",
        placeholder="Search: loss is 0",
        autocomplete="off",
        spellcheck="false",
        enterkeyhint="go",
    )
    results = element("div", id="found", role="listbox", aria_label="What was found", hidden="")
    return element("div", field, element("p", role="status"), results, role="search", class_="search", data_search=root)


def table(columns: Sequence[object], rows: Iterable[Sequence[object]]) -> Markup:
    """Return a table that scrolls by itself where the screen is narrow."""
    head = element("tr", *(element("th", name, scope="col") for name in columns))
    body = (
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    )
    return scrolling(element("table", element("thead", head), element("tbody", *body)))


def scrolling(table: Markup) -> Markup:
    """Return a table in a place that scrolls by itself where the screen is narrow."""
    return element("div", table, class_="wide", tabindex="0", role="region", aria_label="table")


def coloured_code(text: str, language: str = "python") -> Markup:
    """Return source in colours; pygments escapes it."""
    return Markup(highlight(text, get_lexer_by_name(language), HtmlFormatter()))


def data(packed: str, *until: Markup, **named: str) -> Markup:
    """Return a place in the page for what site.js shows there, and what it shows, packed. until: what stands there before."""
    return element("div", element("script", Markup(packed), type=DATA), *until, **named)
