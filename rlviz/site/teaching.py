"""Slides, one screen each with explorers among them, and cheat sheets of one printed page, from the Markdown in `teaching/`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from rlviz.markup import Markup, element
from rlviz.site import pages
from rlviz.site.html import File, page
from rlviz.site.lessons import Course, title_of

BETWEEN = re.compile(r"^---$", re.M)
EXPLORER = re.compile(r"^!\[(?P<words>[^\]]*)\]\(explorer:(?P<name>\w+)\)$", re.M)
SHEETS = {"cheatsheet": "en", "cheatsheet.zh": "zh"}
HOW = (
    "A slide fills the window. Arrows, Page Down, Space or the buttons in the corner lead on; pictures can be dragged. "
    "A printed slide or sheet is one page."
)
TURN = element(  # in the corner of every slide; site.js has the keys, too
    "nav",
    element("a", "All slides", href="../teaching.html"),
    element("button", "‹", type="button", data_turn="-1", aria_label="The slide before"),
    element("button", "›", type="button", data_turn="1", aria_label="The next slide"),
    class_="turn",
    aria_label="Slides",
)
IN_SMALL = ("clip", "bounds", "aggregation")  # the explorers whose pictures stand on a cheat sheet


def teaching_pages(course: Path) -> Iterator[File]:
    """Return a page for each lecture and each cheat sheet that the course has, and one that lists them.

    In a lecture a line `---` ends a slide, and ![words](explorer:NAME) is an explorer that answers in the page.
    """
    texts = Course(course)

    def markdown(text: str) -> Markup:
        return texts.markdown(text, PurePosixPath("teaching"))

    folder = course / "teaching"
    entries = []
    for file in sorted((folder / "slides").glob("*.md")):
        text = file.read_text(encoding="utf-8")
        entries.append((f"slides/{file.stem}.html", title_of(text, file)))
        yield page(*entries[-1], element("div", *slides(BETWEEN.split(text), markdown), TURN, class_="slides"))
    for name, language in SHEETS.items():
        file = folder / f"{name}.md"
        if file.is_file():
            text = file.read_text(encoding="utf-8")
            small = [one for one in IN_SMALL if one in pages.EXPLORERS]
            pictures = [element("img", src=f"explorers/{one}.png", alt=pages.explorer_of(one).alt) for one in small]
            body = (markdown(text), element("p", *pictures))
            entries.append((f"{name}.html", title_of(text, file)))
            yield page(*entries[-1], element("article", *body, class_="lesson sheet"), language=language)
    links = [element("p", element("a", title, href=path), class_="entry") for path, title in entries]
    yield page("teaching.html", "Teach", element("h1", "Slides and cheat sheets"), element("p", HOW), *links)


def slides(texts: Sequence[str], markdown: Callable[[str], Markup]) -> Iterator[Markup]:
    """Return each text as a slide, with its explorers and its number."""
    for place, text in enumerate(texts, 1):
        parts, end = [], 0
        for match in EXPLORER.finditer(text):
            parts.append(markdown(text[end : match.start()]))
            parts.append(element("figure", pages.live(match["name"], "../"), aria_label=match["words"]))
            end = match.end()
        parts.append(markdown(text[end:]))
        number = f"{place} / {len(texts)}"
        parts.append(element("p", number, class_="number", aria_hidden="true"))
        yield element("section", *parts, class_="slide", tabindex="-1", aria_label=number)
