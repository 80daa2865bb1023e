"""The cells of a notebook as a page shows them: live pictures, runs that train, questions, no words about running cells."""

from __future__ import annotations

import ast
import base64
import gzip
import html
import json
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

from rlviz.algorithms import GRPO
from rlviz.lessons.predictions import UNPREDICTED
from rlviz.markup import Markup, element, joined
from rlviz.page.widget import STARTED, pack
from rlviz.runs import playground
from rlviz.runs.recordings import RECORDED, packed
from rlviz.site import questions
from rlviz.site.html import File, coloured_code, data

WORDS = {  # of a lesson → what its page says in their place
    "**Shift + Enter** runs a cell and goes on to the next; **Ctrl + Enter** runs it and stays at its result, which is better "
    "where a picture follows. ": "",
}
RUNNING = re.compile(r"Shift ?\+ ?Enter|\b[Rr]un (?:the|this|these|all|every|next)\b[^.\n]*\bcells?\b|\b[Rr]e-?run\b")
PANEL = "training_panel"
WAITS = "Press Train. The model is loaded then, 0.5 MB."
FIGURE = "<Figure"  # what matplotlib says of a picture


def lesson_body(notebook: Any, name: PurePosixPath, markdown: Callable[[str], Markup]) -> tuple[Markup, list[File]]:
    """Return a notebook's cells as its page shows them, and the pictures that go with the page.

    A saved picture that answers keeps its numbers and leaves its script, which the site has once, and its PNG stands in its place
    until the script runs. A training panel becomes the run in the page. Other PNGs become files. A lesson's puzzles are
    answered in the page, and its predictions made there. Its code is folded but for exercises; its imports go, and what undone
    exercises print.

    name: the notebook's path in the course. Raises ValueError where a text still tells its reader to run a cell.
    """
    pictures: list[File] = []
    predictions: dict[str, tuple[str, ...]] = {}
    parts: list[Markup] = []
    is_lesson = len(name.parts) == 1
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", ()) if is_lesson else ()
        if cell.cell_type == "markdown":
            parts.append(element("div", markdown(page_text(cell.source, name)), class_="cell"))
            continue
        if "imports" in tags or (is_lesson and questions.is_answer(cell)):
            continue
        puzzles = list(questions.find_puzzles(cell.source)) if is_lesson else []
        guesses = questions.read_questions(cell.source) if is_lesson else {}
        predictions |= guesses
        # What an exercise prints before anybody has written a line is of no use to a reader.
        saved = [] if "exercise" in tags else [one for one in cell.outputs if not _is_replaced(one, puzzles)]
        outputs = list(_outputs(cell.source, saved, name, markdown, pictures, predictions))
        outputs += [questions.puzzle_form(*puzzle) for puzzle in puzzles]
        outputs += [questions.prediction_form(guesses)] if guesses else []
        code = coloured_code(cell.source)
        if is_lesson and "exercise" not in tags:
            lines = len(cell.source.splitlines())
            summary = element("summary", f"Code, {lines} line{'s'[: lines > 1]}")
            code = element("details", summary, code, class_="code")
        below = [element("div", one, class_="output") for one in outputs]
        parts.append(element("div", element("div", code, class_="input"), *below, class_="cell"))
    return joined(*parts), pictures


def plain_text(output: Any) -> str:
    """Return an output's text."""
    return str(output.get("text") or output.get("data", {}).get("text/plain", ""))


def _is_replaced(output: Any, puzzles: list[tuple[str, str]]) -> bool:
    """Return True for the printed choices of a puzzle, which has buttons in the page."""
    return any(questions.lists_choices(plain_text(output), *puzzle) for puzzle in puzzles)


def page_text(text: str, name: PurePosixPath) -> str:
    """Return a lesson's text in a page's words. Raises ValueError where it still tells its reader to run a cell."""
    for before, after in WORDS.items():
        text = text.replace(before, after)
    if match := RUNNING.search(text):
        words = f"its text says {match[0]!r}; give the page's words in WORDS"
        raise ValueError(f"{name}: a page runs no cells, and {words}")
    return text


def _outputs(
    source: str,
    saved: list[Any],
    name: PurePosixPath,
    markdown: Callable[[str], Markup],
    pictures: list[File],
    predictions: questions.Questions,
) -> Iterator[Markup]:
    """Yield what a page shows below a cell; PNGs join `pictures`. predictions: the questions asked up to here."""
    if (panel := panel_arguments(source)) is not None:
        yield training_place(*panel, "../" * len(name.parts))
        return
    saved = list(saved)
    while saved:
        output = saved.pop(0)
        content, text = output.get("data", {}), plain_text(output)
        if recorded := output.get("metadata", {}).get("text/html", {}).get(RECORDED):
            yield data(packed(recorded), png_file(output, name, pictures), data_inspector=recorded)
        elif explorer := saved_explorer(content.get("text/html", "")):
            # The next output is the picture's own PNG, which stands in its place until the script runs.
            has_twin = saved and "image/png" in saved[0].get("data", {})
            twin = [png_file(saved.pop(0), name, pictures)] if has_twin else []
            yield data(explorer[1], *twin, data_picture=explorer[0])
        elif UNPREDICTED in text:
            yield questions.result_text(text, predictions)
        elif "text/html" in content:
            yield Markup(content["text/html"])
        elif "image/png" in content:
            yield png_file(output, name, pictures)
        elif "text/markdown" in content:
            yield markdown(content["text/markdown"])
        else:
            yield element("pre", text)


def saved_explorer(text: str) -> tuple[str, str] | None:
    """Return the name and the packed data of the picture in a saved output's HTML; None where it shows no picture."""
    if match := STARTED.search(text):
        payload = json.loads(gzip.decompress(base64.b64decode(match[2])))
        return (payload["name"], match[2]) if "picture" in payload else None
    return None


def png_file(output: Any, name: PurePosixPath, pictures: list[File]) -> Markup:
    """Return an output's PNG as an image; it joins `pictures` as a file beside the page."""
    content = base64.b64decode(output.data["image/png"])
    path = PurePosixPath(name.stem, f"{len(pictures) + 1}.png")
    pictures.append(File(f"course/{name.parent / path}", content))
    width, height = struct.unpack(">II", content[16:24])  # the first chunk of every PNG
    text = plain_text(output)
    alt = output.metadata.get("image/png", {}).get("alt", "") if text.startswith(FIGURE) else text
    return element("img", loading="lazy", src=path, alt=html.unescape(alt), width=width, height=height)


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
