"""The index of the site's search: symptoms, config fields, terms, lessons, algorithms and pictures, each with its address.

It is read from what the pages are made of: the course's Markdown and notebooks, the algorithms and the explorers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import nbformat

from rlviz.algorithms import ALGORITHMS, GRPO, RELATIVES, command_name, differences
from rlviz.page.widget import pack
from rlviz.site import pages
from rlviz.site.html import File
from rlviz.site.lessons import formula, heading_anchor, row_anchor, title_of

# what there is to find → how much it is favoured
KINDS = {"Symptom": 1.3, "Algorithm": 1.2, "Term": 1.15, "Config field": 1.1, "Lesson": 1.05, "Picture": 1.0}
LINK = re.compile(r"!?\[([^\]]*)\]\([^)\"]*(?:\"[^\"]*\")?\)")
FORMULA = re.compile(r"\$+([^$]+)\$+")
MARKS = re.compile(r"<[a-z/][^>]*>|[*`]|^> ?|^#+ |^- |^\d+\. ", re.M)
SIGNS = {"msub": "{}_{}", "msup": "{}^{}", "msubsup": "{}_{}^{}", "mfrac": "{}/{} ", "msqrt": "√{}", "mspace": " "}
SPACED = {sign: f" {sign} " for sign in "=−+≤≥∣~"} | {",": ", ", "log": "log "}
WORD = re.compile(r"[\w]+(?:[./+-][\w]+)*\+*")
VALUED = re.compile(r"`([A-Za-z_][\w.]*)=")  # a field with its default
NUMBER = re.compile(r"^\d+ · ")
LONGEST = 120  # characters of what is shown of an entry


@dataclass(frozen=True)
class Entry:
    """What can be found, and where it leads."""

    kind: str
    title: str
    path: str  # from the site's folder
    anchor: str = ""  # an id on that page
    look: str = ""  # its first line
    words: str = ""  # what else it is found by


def search_index(course: Path) -> File:
    """Return the index as a script, which also pages that are opened from the disk may load. course: the notebooks' folder."""
    return File("search.js", f'packed["search"]="{pack(to_json(entries(course)))}";\n')


def to_json(entries: Iterable[Entry]) -> dict[str, Any]:
    """Return the index as search.js reads it: the kinds, and each entry as a row that begins with its kind's place."""
    rows = [(list(KINDS).index(one.kind), one.title, one.path, one.anchor, one.look, one.words) for one in entries]
    return {"kinds": list(KINDS.items()), "entries": rows}


def entries(course: Path) -> Iterator[Entry]:
    """Return all that can be found; of a course without one of these pages, the others."""
    yield from symptoms(_read(course / "symptoms.md"))
    yield from config_fields(_read(course / "in_your_config.md"))
    yield from terms(_read(course / "glossary.md"))
    yield from lessons(course)
    yield from algorithms()
    for name in pages.EXPLORERS:
        picture = pages.find_explorer(name).spec.picture
        title = pages.explorer_of(name).title if "{" in picture.title else picture.title  # where it names what is shown
        yield Entry("Picture", title, f"explorers/{name}.html", "", picture.look, f"explore_{name}")


def symptoms(text: str) -> Iterator[Entry]:
    """Return the sections of the page of symptoms, found by all of their words and fields."""
    for title, body in sections(text):
        look, words = _look(body), _words(body)
        yield Entry("Symptom", plain(title), "course/symptoms.html", heading_anchor(plain(title)), look, words)


def config_fields(text: str) -> Iterator[Entry]:
    """Return the rows of the tables of fields, each under its idea and its fields' names."""
    anchors: set[str] = set()
    heads: list[str] = []
    fields: dict[str, Entry] = {}
    for row in text.splitlines():
        if not row.startswith("|"):
            heads = []
        elif not heads:
            heads = [plain(cell).partition(",")[0] for cell in _cells(row)]
        elif not row.startswith("| ---"):
            cells = list(zip(heads, _cells(row), strict=True))[heads[0] == "lesson" :]
            names = dict.fromkeys(name for _, cell in cells for name in VALUED.findall(cell))
            title = ": ".join((plain(cells[0][1]), *filter(None, [", ".join(names)])))
            look = _cut(" · ".join(f"{head}: {plain(cell)}" for head, cell in cells[1:]))
            anchor = row_anchor(row, anchors)
            fields[title] = Entry("Config field", title, "course/in_your_config.html", anchor, look, _words(row))
    yield from fields.values()  # of rows for one idea and one field the last: its lesson stands beside it


def terms(text: str) -> Iterator[Entry]:
    """Return the glossary's terms, with their Chinese names."""
    for heading, body in sections(text, "###"):
        name, _, meaning = body.strip().removeprefix("**").partition(".** ")
        title, _, chinese = name.partition(" · ")
        look = f"{chinese} · {_look(meaning.rpartition(' *')[0])}"
        words = _words(f"{heading} {meaning}")
        yield Entry("Term", plain(title), "course/glossary.html", heading_anchor(heading), look, words)


def lessons(course: Path) -> Iterator[Entry]:
    """Return the lessons and their sections, but for exercises and what several lessons have a section for."""
    read = {
        file: [cell.source for cell in nbformat.read(file, as_version=4).cells if cell.cell_type == "markdown"]
        for file in sorted(course.glob("[0-9]*.ipynb"))
    }
    parts = {file: [part for text in texts for part in sections(text)] for file, texts in read.items()}
    count = Counter(NUMBER.sub("", title) for titled in parts.values() for title, _ in titled)
    for file, texts in read.items():
        lesson, path = title_of("\n".join(texts), file), f"course/{file.stem}.html"
        opening = re.sub(r"^> ?", "", "\n".join(texts).partition("\n\n")[2], flags=re.M)
        yield Entry("Lesson", lesson, path, "", _look(re.sub(r"^\*\*.*?\*\*", "", opening)))
        for title, _ in parts[file]:
            if count[NUMBER.sub("", title)] == 1 and "●" not in title:
                heading = plain(title)
                yield Entry("Lesson", NUMBER.sub("", heading), path, heading_anchor(heading), lesson)


def algorithms() -> Iterator[Entry]:
    """Return the family, each algorithm found by its papers and by what it has instead of GRPO's pieces."""
    for one in (*ALGORITHMS, *RELATIVES):
        name, rows = command_name(one), differences(GRPO, one)
        slots = ", ".join(row.slot for row in rows)
        other = f"Differs from GRPO in {slots}." if rows else "The others are compared with it."
        words = _words(" ".join((name, *(f"{row.after} {row.why}" for row in rows))))
        yield Entry("Algorithm", one.name, f"algorithms/{name}.html", "", _cut(f"{one.source}. {other}"), words)


def sections(text: str, level: str = "##") -> list[tuple[str, str]]:
    """Return (heading, text below it) of each section of a text in Markdown. level: how its headings begin."""
    parts = re.split(rf"^{level} (.+)$", text, flags=re.M)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def plain(text: str) -> str:
    """Return Markdown as words: without marks and addresses, its formulas written in a line."""
    words = MARKS.sub("", FORMULA.sub(lambda match: in_a_line(match[1]), LINK.sub(r"\1", text)))
    return re.sub(r"[ \n]+", " ", words).strip()


def in_a_line(tex: str) -> str:
    """Return a formula as signs in a line, "ρ = π_ref/π"; its spaces do not break, so that no cut and no line goes through it."""
    return re.sub(r"\s+", " ", _signs(ElementTree.fromstring(formula(tex, block=False)))).strip().replace(" ", "\xa0")


def _signs(node: ElementTree.Element) -> str:
    """Return what an element of MathML says, a part with spaces in parentheses where it is one of several."""
    parts = [_signs(part) for part in node]
    if node.get("linethickness") == "0":
        return "{} choose {}".format(*parts)
    if shape := SIGNS.get(node.tag.rpartition("}")[2]):
        return shape.format(*(f"({part.strip()})" if " " in part.strip() else part for part in parts))
    return SPACED.get(node.text or "", node.text or "") + "".join(parts)


def _cells(row: str) -> list[str]:
    return row.strip("| ").split(" | ")


def _look(text: str) -> str:
    return _cut(plain(text.strip().partition("\n\n")[0]).lstrip(":,. "))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST].rpartition(' ')[0]} …"


def _words(text: str) -> str:
    """Return the different words of a text, as they are written."""
    return " ".join(dict.fromkeys(WORD.findall(plain(FORMULA.sub("", text)))))


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""
