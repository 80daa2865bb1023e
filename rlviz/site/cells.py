"""What a page shows of a notebook's cells: pictures that answer runs that train in it, no words about running cells."""

from __future__ import annotations

import ast
import base64
import gzip
import html
import json
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

import nbformat

from rlviz.algorithms import GRPO
from rlviz.markup import Markup, element
from rlviz.page.widget import STARTED, pack
from rlviz.runs import playground
from rlviz.site.html import File, data

UNPREDICTED = "you made no prediction; the run says"  # what a saved lesson prints before a result
WORDS = {  # of a lesson → what its page says in their place
    "Run the next two cells (**Shift + Enter** runs a cell and goes on to the next; **Ctrl + Enter** runs it and stays at its "
    "result, which is better where a picture follows), then press **Train**": "Press **Train**",
    "Press **Stop** when you like. **Resume** goes on": "Press **Pause** when you like; **Train** goes on",
    "Below the curves you see": "The first box shows",
    "before you run the cell": "before you read on",
    "(The cells call it": "(The code calls it",
}
RUNNING = re.compile(r"Shift ?\+ ?Enter|\b[Rr]un (?:the|this|these|all|every|next)\b[^.\n]*\bcells?\b|\b[Rr]e-?run\b")
PANEL = "training_panel"
WAITS = "Press Train. The model is loaded then, 0.4 MB."
FIGURE = "<Figure"  # what matplotlib says of a picture


def show_in_page(notebook: Any, name: PurePosixPath) -> list[File]:
    """Change a notebook's cells into those that its page shows, and return the pictures that go with the page.

    A saved picture that answers keeps its numbers and leaves its script, which the site has once, and its PNG stands in its place
    until the script runs. A training panel becomes the run in the page. Other PNGs become files. A lesson's imports go, and what
    its exercises print before anybody has written a line.

    name: the notebook's path in the course. Raises ValueError where a text still tells its reader to run a cell.
    """
    pictures: list[File] = []
    is_lesson, root = len(name.parts) == 1, "../" * len(name.parts)
    notebook.cells = [cell for cell in notebook.cells if not (is_lesson and "imports" in _tags(cell))]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _told(cell.source, name)
        elif cell.cell_type == "code":
            undone = is_lesson and "exercise" in _tags(cell)
            cell.outputs = [] if undone else list(_outputs(cell, name, root, pictures))
    return pictures


def _tags(cell: Any) -> Sequence[str]:
    tags: Sequence[str] = cell.metadata.get("tags", ())
    return tags


def _told(text: str, name: PurePosixPath) -> str:
    for before, after in WORDS.items():
        text = text.replace(before, after)
    if found := RUNNING.search(text):
        raise ValueError(
            f"{name}: a page runs no cells, and its text says {found[0]!r}; give the page's words in WORDS"
        )
    return text


def _outputs(cell: Any, name: PurePosixPath, root: str, pictures: list[File]) -> Iterator[Any]:
    """Yield what a page shows below a cell; PNGs join `pictures`."""
    if (asked := _asked(cell.source)) is not None:
        yield _html(_training(*asked, root))
        return
    saved = list(cell.outputs)
    while saved:
        output = saved.pop(0)
        content = output.get("data", {})
        said = content.get("text/plain", "")
        if explorer := _explorer(content.get("text/html", "")):
            twin = saved.pop(0) if saved and saved[0].get("data", {}).keys() >= {"image/png"} else None
            image = [_image(twin, name, pictures)] if twin else []
            yield _html(data(explorer[1], *image, data_picture=explorer[0]))
        elif "image/png" in content:
            path, width, height = _kept(output, name, pictures)
            given = output.metadata.get("image/png", {})
            alt = {} if said.startswith(FIGURE) else {"alt": html.unescape(said)}
            output.metadata["image/png"] = {"width": width, "height": height, **given, **alt}
            output.metadata["filenames"] = {"image/png": path}
            yield output
        elif UNPREDICTED in said:
            yield nbformat.v4.new_output("stream", text=said.replace(UNPREDICTED, "The run says"))
        else:
            if "text" in output:
                output.text = output.text.replace(UNPREDICTED, "The run says")
            yield output


def _html(markup: Markup) -> Any:
    return nbformat.v4.new_output("display_data", {"text/html": markup})


def _explorer(shown: str) -> tuple[str, str] | None:
    """Return the name of the picture that a saved output shows and what it is made of, packed; None where it shows no picture."""
    if found := STARTED.search(shown):
        told = json.loads(gzip.decompress(base64.b64decode(found[2])))
        return (told["name"], found[2]) if "picture" in told else None
    return None


def _image(output: Any, name: PurePosixPath, pictures: list[File]) -> Markup:
    path, width, height = _kept(output, name, pictures)
    return element("img", src=path, alt=html.unescape(output.data["text/plain"]), width=width, height=height)


def _kept(output: Any, name: PurePosixPath, pictures: list[File]) -> tuple[str, int, int]:
    """Keep a PNG as a file beside the page; return its address there, and its width and height."""
    content = base64.b64decode(output.data["image/png"])
    path = PurePosixPath(name.stem, f"{len(pictures) + 1}.png")
    pictures.append(File(f"course/{name.parent / path}", content))
    width, height = struct.unpack(">II", content[16:24])  # the first chunk of every PNG
    return str(path), width, height


def _asked(source: str) -> tuple[str, dict[str, Any]] | None:
    """Return the task and the settings of the training panel that a cell ends with; None where it ends with none."""
    if PANEL not in source:
        return None
    last = ast.parse(source).body[-1]
    call = last.value if isinstance(last, ast.Expr) else None
    if not (isinstance(call, ast.Call) and ast.unparse(call.func) == PANEL):
        return None
    task = str(ast.literal_eval(call.args[0])) if call.args else "chain"
    given = next((word.value for word in call.keywords if word.arg == "settings"), None)
    words = given.keywords if isinstance(given, ast.Call) else []
    return task, {str(word.arg): ast.literal_eval(word.value) for word in words}


def _training(task: str, settings: dict[str, Any], root: str) -> Markup:
    """Return the run in the page that stands for a training panel: its task and settings, and its GRPO without a KL term."""
    told = playground.page_payload(task=task)
    own = told["numbers"][GRPO.name]
    for name, value in {"beta": 0, **settings}.items():
        if name in own:
            own[name] = value
        elif name in told["controls"]:
            told["controls"][name]["value"] = value
    caption = element("p", "The model trains where JavaScript runs.")
    return data(pack(told), caption, data_playground=f"{root}training/", data_waits=WAITS)
