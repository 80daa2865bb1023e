"""The cells of a notebook as a page shows them: live pictures, runs that train, questions, no words about running cells."""

from __future__ import annotations

import ast
import base64
import gzip
import html
import json
import re
import struct
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import nbformat

from rlviz.algorithms import GRPO
from rlviz.lessons.predictions import UNPREDICTED
from rlviz.markup import Markup, element
from rlviz.page.widget import STARTED, pack
from rlviz.runs import playground
from rlviz.runs.recordings import RECORDED, packed
from rlviz.site import questions
from rlviz.site.html import File, data

WORDS = {  # of a lesson → what its page says in their place
    "**Shift + Enter** runs a cell and goes on to the next; **Ctrl + Enter** runs it and stays at its result, which is better "
    "where a picture follows. ": "",
}
RUNNING = re.compile(r"Shift ?\+ ?Enter|\b[Rr]un (?:the|this|these|all|every|next)\b[^.\n]*\bcells?\b|\b[Rr]e-?run\b")
PANEL = "training_panel"
WAITS = "Press Train. The model is loaded then, 0.5 MB."
FIGURE = "<Figure"  # what matplotlib says of a picture


def show_in_page(notebook: Any, name: PurePosixPath) -> list[File]:
    """Change a notebook's cells into those that its page shows, and return the pictures that go with the page.

    A saved picture that answers keeps its numbers and leaves its script, which the site has once, and its PNG stands in its place
    until the script runs. A training panel becomes the run in the page. Other PNGs become files. A lesson's puzzles are
    answered in the page, and its predictions made there. Its imports go, and what undone exercises print.

    name: the notebook's path in the course. Raises ValueError where a text still tells its reader to run a cell.
    """
    pictures: list[File] = []
    is_lesson, root = len(name.parts) == 1, "../" * len(name.parts)
    is_tagged = lambda cell, tag: is_lesson and tag in cell.metadata.get("tags", ())  # noqa: E731
    is_left_out = lambda cell: is_tagged(cell, "imports") or (is_lesson and questions.is_answer(cell))  # noqa: E731
    notebook.cells = [cell for cell in notebook.cells if not is_left_out(cell)]
    predictions: dict[str, tuple[str, ...]] = {}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = page_text(cell.source, name)
        elif cell.cell_type == "code":
            predictions |= questions.read_questions(cell.source) if is_lesson else {}
            # What an exercise prints before anybody has written a line is of no use to a reader.
            saved = [] if is_tagged(cell, "exercise") else list(page_outputs(cell, name, root, pictures, predictions))
            cell.outputs = list(with_questions(cell.source, saved)) if is_lesson else saved
    return pictures


def with_questions(source: str, outputs: list[Any]) -> Iterator[Any]:
    """Yield a cell's outputs, but buttons in place of the choices that a puzzle prints, and a field for each prediction."""
    puzzles = list(questions.find_puzzles(source))
    for output in outputs:
        if not any(questions.lists_choices(plain_text(output), *puzzle) for puzzle in puzzles):
            yield output
    for puzzle in puzzles:
        yield _html(questions.puzzle_form(*puzzle))
    if fields := questions.read_questions(source):
        yield _html(questions.prediction_form(fields))


def plain_text(output: Any) -> str:
    """Return an output's text."""
    return str(output.get("text") or output.get("data", {}).get("text/plain", ""))


def page_text(text: str, name: PurePosixPath) -> str:
    """Return a lesson's text in a page's words. Raises ValueError where it still tells its reader to run a cell."""
    for before, after in WORDS.items():
        text = text.replace(before, after)
    if match := RUNNING.search(text):
        words = f"its text says {match[0]!r}; give the page's words in WORDS"
        raise ValueError(f"{name}: a page runs no cells, and {words}")
    return text


def page_outputs(
    cell: Any, name: PurePosixPath, root: str, pictures: list[File], predictions: questions.Questions
) -> Iterator[Any]:
    """Yield what a page shows below a cell; PNGs join `pictures`. predictions: the questions asked before it."""
    if (panel := panel_arguments(cell.source)) is not None:
        yield _html(training_place(*panel, root))
        return
    saved = list(cell.outputs)
    while saved:
        output = saved.pop(0)
        content = output.get("data", {})
        text = content.get("text/plain", "")
        if recorded := output.get("metadata", {}).get("text/html", {}).get(RECORDED):
            path, width, height = png_file(output, name, pictures)
            until = element("img", src=path, alt=html.unescape(text), width=width, height=height)
            yield _html(data(packed(recorded), until, data_inspector=recorded))
        elif explorer := saved_explorer(content.get("text/html", "")):
            # The next output is the picture's own PNG, which stands in its place until the script runs.
            image = []
            if saved and "image/png" in saved[0].get("data", {}):
                twin = saved.pop(0)
                path, width, height = png_file(twin, name, pictures)
                alt = html.unescape(twin.data["text/plain"])
                image = [element("img", src=path, alt=alt, width=width, height=height)]
            yield _html(data(explorer[1], *image, data_picture=explorer[0]))
        elif "image/png" in content:
            path, width, height = png_file(output, name, pictures)
            metadata = output.metadata.get("image/png", {})
            described = {} if text.startswith(FIGURE) else {"alt": html.unescape(text)}
            output.metadata["image/png"] = {"width": width, "height": height, **metadata, **described}
            output.metadata["filenames"] = {"image/png": path}
            yield output
        elif UNPREDICTED in plain_text(output):
            yield _html(questions.result_text(plain_text(output), predictions))
        else:
            yield output


def _html(markup: Markup) -> Any:
    return nbformat.v4.new_output("display_data", {"text/html": markup})


def saved_explorer(text: str) -> tuple[str, str] | None:
    """Return the name and the packed data of the picture in a saved output's HTML; None where it shows no picture."""
    if match := STARTED.search(text):
        payload = json.loads(gzip.decompress(base64.b64decode(match[2])))
        return (payload["name"], match[2]) if "picture" in payload else None
    return None


def png_file(output: Any, name: PurePosixPath, pictures: list[File]) -> tuple[str, int, int]:
    """Add an output's PNG to `pictures` as a file beside the page; return its address there, and its width and height."""
    content = base64.b64decode(output.data["image/png"])
    path = PurePosixPath(name.stem, f"{len(pictures) + 1}.png")
    pictures.append(File(f"course/{name.parent / path}", content))
    width, height = struct.unpack(">II", content[16:24])  # the first chunk of every PNG
    return str(path), width, height


def panel_arguments(source: str) -> tuple[str, dict[str, Any]] | None:
    """Return the task and the settings of the training panel that a cell ends with; None where it ends with none."""
    if PANEL not in source:
        return None
    last = ast.parse(source).body[-1]
    call = last.value if isinstance(last, ast.Expr) else None
    if not (isinstance(call, ast.Call) and ast.unparse(call.func) == PANEL):
        return None
    task = str(ast.literal_eval(call.args[0])) if call.args else "chain"
    settings = next((word.value for word in call.keywords if word.arg == "settings"), None)
    words = settings.keywords if isinstance(settings, ast.Call) else []
    return task, {str(word.arg): ast.literal_eval(word.value) for word in words}


def training_place(task: str, settings: dict[str, Any], root: str) -> Markup:
    """Return the run in the page that stands for a training panel: its task and settings, and its GRPO without a KL term."""
    payload = playground.page_payload(task=task)
    numbers = payload["numbers"][GRPO.name]
    for name, value in {"beta": 0, **settings}.items():
        if name in numbers:
            numbers[name] = value
        elif name in payload["controls"]:
            payload["controls"][name]["value"] = value
    caption = element("p", "The model trains where JavaScript runs.")
    return data(pack(payload), caption, data_playground=f"{root}training/", data_waits=WAITS)
