"""Notebooks and Markdown as HTML that asks no other host for anything: formulas as MathML, links to what the site has."""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlencode

import nbformat
from latex2mathml.converter import convert
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from rlviz.algorithms import find_algorithm
from rlviz.markup import Markup, element
from rlviz.pictures.arguments import Arguments
from rlviz.pictures.catalogue import find_explorer
from rlviz.runs.rules import RULES
from rlviz.site.cells import lesson_body
from rlviz.site.html import File, page, scrolling

PAGES = (".ipynb", ".md")
HEADING = re.compile(r"^# (.+)$", re.M)
CALL = re.compile(r"`(explore_\w+\([^`]*\))`")
FIELD = re.compile(r"(?:<code>|`)([A-Za-z_][\w.]*)")  # a name in code, in HTML or in Markdown
SYMPTOMS = "symptoms"
LEFT_OVER = ("\\", "<mi>&</mi>")  # what is in a formula that the converter did not understand
INSTALL = (
    "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt -e . && .venv/bin/rlviz lab"  # as in the README
)


@cache
def formula(tex: str, *, block: bool) -> Markup:
    """Return a formula as MathML, which browsers draw themselves; its source where it has what the converter does not know."""
    try:
        mathml = convert(tex.strip(), display="block" if block else "inline")
    except Exception:  # the converter raises whatever its parser stumbles over
        mathml = LEFT_OVER[0]
    return element("code", tex) if any(sign in mathml for sign in LEFT_OVER) else Markup(mathml)


WAYS = (  # who reads; the lessons' numbers in order; why these
    (
        "I know PyTorch, and no reinforcement learning",
        ("00", "01", "02", "03", "04", "05", "06", "10", "11", "17"),
        "From the log-derivative trick to a whole algorithm, each term where it is needed.",
    ),
    (
        "I know reinforcement learning",
        ("00", "02", "03", "05", "06", "08", "09", "14", "16", "17"),
        "What changes when the action is a token and the critic is a group.",
    ),
    (
        "I run TRL or verl",
        ("00", "05", "06", "10", "11", "12", "13", "15", "18"),
        "Means, limits, entropy, hacking, two engines: what a setting does before you pay for it.",
    ),
)


def heading_anchor(heading: str) -> str:
    """Return the id of a heading, which is given as HTML."""
    return html.unescape(re.sub("<[^>]*>", "", heading)).replace(" ", "-")


def row_anchor(row: str, earlier: set[str]) -> str:
    """Return the id of a table's row, in HTML or in Markdown: its first name in code that no row before has; "" without one.

    earlier: the ids of the rows before, to which this one is added.
    """
    name = next((name for name in FIELD.findall(row) if name not in earlier), "")
    earlier.add(name)
    return name


class _Renderer(IPythonRenderer):
    """Markdown as HTML. here: the folder, in the course, of the text. is_page: whether the rows of its tables get ids."""

    def __init__(self, course: Course, here: PurePosixPath, *, is_page: bool) -> None:
        super().__init__(escape=False)
        self._course, self._here = course, here
        self._is_page, self._rows = is_page, set[str]()

    def heading(self, text: str, level: int, **_: Any) -> str:
        """Return a heading that can be linked to; nbconvert's own link within it is an <a> that no browser takes for closed."""
        return element(f"h{level}", Markup(text), id=heading_anchor(text))

    def table_row(self, text: str) -> str:
        name = row_anchor(text, self._rows) if self._is_page else ""
        return element("tr", Markup(text), **({"id": name} if name else {}))

    def table(self, text: str) -> str:
        """Return a table that scrolls by itself where the screen is narrow."""
        return scrolling(element("table", Markup(text)))

    def block_math(self, body: str) -> str:
        return formula(body, block=True)

    def inline_math(self, body: str) -> str:
        return formula(body, block=False)

    def latex_environment(self, name: str, body: str) -> str:
        return formula(f"\\begin{{{name}}}{body}\\end{{{name}}}", block=True)

    def link(self, text: str, url: str, title: str | None = None) -> str:
        target = self._target(url)
        return str(super().link(text, target, title)) if target else text

    def image(self, text: str, url: str, title: str | None = None) -> str:
        return str(super().image(text, self._target(url) or url, title)).replace("<img", '<img loading="lazy"')

    def _target(self, url: str) -> str | None:
        """Return where a link leads on the site: to what a notebook became, or to a file that goes with it; else None."""
        if re.match(r"[a-z]+:|#", url):
            return url
        path, _, place = url.partition("#")
        file = (self._course.folder / self._here / path).resolve()
        if not file.is_file() or not file.is_relative_to(self._course.folder):
            return None
        if file.suffix in PAGES:
            path = str(PurePosixPath(path).with_suffix(".html"))
        else:
            self._course.linked.add(file)
        return f"{path}#{place}" if place else path


class Course:
    """The folder of the notebooks, whose texts become HTML. linked: the files in it to which they lead, but for pages."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.linked = folder.resolve(), set[Path]()

    def markdown(self, text: str, here: PurePosixPath, *, is_page: bool = False) -> Markup:
        """Return a text in Markdown as HTML; see `_Renderer`."""
        renderer = _Renderer(self, here, is_page=is_page)
        return Markup(MarkdownWithMath(renderer=renderer).render(text))


def course_pages(course: Path) -> Iterator[File]:
    """Return the pages of the course, in the folders in which its notebooks are, and the files that they link to."""
    texts = Course(course)
    titles: dict[PurePosixPath, str] = {}
    named = ("symptoms.md", "glossary.md", "in_your_config.md", "experiments/verdicts.md", "experiments/family.md")
    sources = [*(texts.folder / name for name in named), *sorted((texts.folder / "teaching").glob("*.md"))]
    for file in [*sorted(texts.folder.rglob("*.ipynb")), *sources]:
        name = PurePosixPath(file.relative_to(texts.folder).as_posix())
        if not file.is_file() or any(part.startswith(".") for part in name.parts):
            continue
        titles[name], body, pictures = converted_page(file, texts, name)
        article = element("article", body, class_="lesson")
        yield page(f"course/{name.with_suffix('.html')}", titles[name], article, trains="data-playground" in body)
        yield from pictures
    yield page("course/index.html", "Lessons", *course_index(titles))
    for file in sorted(texts.linked):
        yield File(f"course/{file.relative_to(texts.folder).as_posix()}", file.read_bytes())


def course_index(titles: dict[PurePosixPath, str]) -> Iterator[Markup]:
    yield element("h1", "The lessons, to read")
    yield element(
        "p",
        "With the outputs that the notebooks were saved with. To run them, and to do the exercises, in rlviz's folder: ",
        element("code", INSTALL),
        ".",
    )
    lessons = [name for name in titles if len(name.parts) == 1 and name.suffix == ".ipynb"]
    yield element("h2", "Three ways through")
    for who, numbers, why in WAYS:
        steps = [name for number in numbers for name in lessons if name.name.startswith(f"{number}_")]
        links = [element("a", name.stem[:2], href=str(name.with_suffix(".html")), title=titles[name]) for name in steps]
        path = [part for link in links for part in (" → ", link)][1:]
        yield element("p", element("b", who), ": ", *path, f". {why}", class_="entry")
    yield element("h2", "All lessons")
    for name in lessons:
        solution = PurePosixPath("solutions") / name
        more: list[object] = []
        if solution in titles:
            more = [" (", element("a", "solutions", href=str(solution.with_suffix(".html"))), ")"]
        yield element("p", element("a", titles[name], href=str(name.with_suffix(".html"))), *more, class_="entry")
    texts = [name for name in titles if name.suffix == ".md"]
    for heading, is_for_teacher in (
        ("Glossary, and the experiments behind the claims", False),
        ("For the teacher", True),
    ):
        listed = [name for name in texts if (name.parts[0] == "teaching") is is_for_teacher]
        if listed:
            yield element("h2", heading)
        for name in listed:
            yield element("p", element("a", titles[name], href=str(name.with_suffix(".html"))), class_="entry")


def converted_page(file: Path, course: Course, name: PurePosixPath) -> tuple[str, Markup, list[File]]:
    """Return the title of a notebook or a text in Markdown, its HTML, and the pictures that its page shows."""
    if file.suffix == ".md":
        text = file.read_text(encoding="utf-8")
        source = with_rules(text) if file.stem == SYMPTOMS else text
        return title_of(text, file), course.markdown(source, name.parent, is_page=True), []
    notebook = nbformat.read(file, as_version=4)
    title = title_of("\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown"), file)
    return title, *lesson_body(notebook, name, lambda text: course.markdown(text, name.parent))


def with_rules(text: str) -> str:
    """Return the page of symptoms with its entries listed, links to its pictures, and in each what `rlviz diagnose` looks for."""
    head, *entries = re.split(r"^(?=## )", CALL.sub(_linked_call, text), flags=re.M)
    titles = [entry[3 : entry.index("\n")] for entry in entries]
    parts = [head, " · ".join(f"[{title}](#{heading_anchor(title)})" for title in titles), "\n\n"]
    for entry in entries:
        parts.append(entry.rstrip())
        rules = [rule for rule in RULES if entry.startswith(f"## {rule.symptom}\n")]
        if rules:
            parts.append("\n- **In a log**, as `rlviz diagnose PATH` says it:")
        for rule in rules:
            clauses = [clause for clause in rule.where if not clause.because.startswith("told")]
            conditions = ", ".join(f"`{clause.column}` {clause.words}" for clause in clauses)
            parts.append(f"\n    - {re.sub(r'{[^}]*}', '…', rule.seen)} *Where {conditions}.*")
        parts.append("\n\n")
    return "".join(parts)


def _linked_call(call: re.Match[str]) -> str:
    """Return the call of an explorer as a link to its page, at the setting of the call."""
    node = ast.parse(call[1], mode="eval").body
    assert isinstance(node, ast.Call)
    name = ast.unparse(node.func).removeprefix("explore_")
    values = {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}
    spec = find_explorer(name).spec
    algorithms = [find_algorithm(ast.unparse(one)) for one in node.args]
    arguments = Arguments(spec)
    setting = arguments.to_values(spec.signature.bind(*algorithms, **values).arguments)
    changed = {
        f"{name}.{key}": ",".join(map(str, value)) if isinstance(value, list) else value
        for key, value in setting.items()
        if value != arguments.default_values[key]
    }
    address = f"../explorers/{name}.html" + (f"#{urlencode(changed)}" if changed else "")
    return element("a", element("code", call[1]), href=address)


def title_of(text: str, file: Path) -> str:
    """Return the first heading of a text, as plain words; the file's name without one."""
    heading = HEADING.search(text)
    return re.sub(r"[*`$]", "", heading[1]) if heading else file.stem
