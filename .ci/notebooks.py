"""Clean notebooks for committing, or run them first.

    python .ci/notebooks.py clean FILE...      strip widget state and the views that point at it, give each PNG a palette, the
                                               explorers the script as it is now, and a link to the glossary its definition
    python .ci/notebooks.py check FILE...      exit 1 when a file is not clean, or holds an error or no output
    python .ci/notebooks.py run FILE...        execute from a fresh kernel, then clean

A saved widget view without its state shows an error where the picture beside it would do, so the view goes.
"""

from __future__ import annotations

import base64
import itertools
import os
import re
import sys
from functools import cache
from pathlib import Path

import nbformat

from rlviz.page.image import in_palette
from rlviz.page.widget import STARTED, starting
from rlviz.runs.recordings import RECORDED
from rlviz.site.lessons import heading_anchor
from rlviz.site.search import plain, sections

VIEW = "application/vnd.jupyter.widget-view+json"
PNG, HTML = "image/png", "text/html"
GLOSSARY = Path(__file__).parent.parent / "notebooks" / "glossary.md"
TERM = re.compile(r"\]\(((?:\.\./)*glossary\.md)#([^\s)]+)[^)\"]*(?:\"[^\"]*\")?\)")  # a link to it, its title last
DEFINITION = re.compile(r".+?\. .+?[.!?](?= [A-Z]|$)")  # a term's name in both languages, and the first sentence on it


def cleaned(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return the notebook without widget state, widget views, timings and kernel details, its cells numbered in order.

    A link to the glossary says its term's first sentence. Each PNG gets a palette of 256 colours, which is a quarter of its
    bytes. The first explorer carries the script of all, as it is today. A recorded run keeps its PNG alone: the package has the
    file, and a page of the site shows it.
    """
    count = itertools.count()
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = TERM.sub(with_definition, cell.source)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, start=1):
        cell.metadata.pop("execution", None)
        cell.execution_count = number  # nbval takes a cell without a number for one that never ran
        # Without its widget a progress bar would stand at its beginning for ever.
        lasting = [output for output in cell.outputs if set(output.get("data", {})) != {VIEW, "text/plain"}]
        cell.outputs = merged(lasting)
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = number
            output.get("data", {}).pop(VIEW, None)
            if PNG in output.get("data", {}):
                output.data[PNG] = smaller(output.data[PNG])
            if RECORDED in output.get("metadata", {}).get(HTML, {}):
                output.data.pop(HTML, None)
            if HTML in output.get("data", {}):
                output.data[HTML] = STARTED.sub(
                    lambda found: str(starting(*found.groups(), carries_script=next(count) == 0)), output.data[HTML]
                )
    return notebook


@cache
def definitions() -> dict[str, str]:
    """Return the id of each term of the glossary → what its links say when a pointer rests on them."""
    found = {}
    for heading, body in sections(GLOSSARY.read_text(encoding="utf-8"), "###"):
        if match := DEFINITION.match(plain(body.strip().rpartition(" *")[0])):
            found[heading_anchor(heading)] = match[0].replace('"', "'")
    return found


def with_definition(link: re.Match[str]) -> str:
    """Return a link to the glossary with its term's definition as its title."""
    return f']({link[1]}#{link[2]} "{definitions()[link[2]]}")'


def smaller(png: str) -> str:
    """Return a PNG as it is saved in a notebook with at most 256 colours; one that has no more as it is."""
    data = base64.b64decode(png)
    made = in_palette(data)
    return png if made is data else base64.b64encode(made).decode()


def merged(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Return the outputs, what was printed in several messages after each other as one: a page gives each output a box."""
    joined: list[nbformat.NotebookNode] = []
    for output in outputs:
        before = joined[-1] if joined else {}
        if output.output_type == before.get("output_type") == "stream" and output.name == before["name"]:
            before["text"] += output.text
        else:
            joined.append(output)
    return joined


def problems(path: Path) -> list[str]:
    """Return what stands in the way of committing the notebook."""
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    found = []
    if any(output.output_type == "error" for cell in code for output in cell.outputs):
        found.append("an error is saved in its outputs")
    if not any(cell.outputs for cell in code):
        found.append("no outputs are saved")
    if nbformat.writes(cleaned(nbformat.read(path, as_version=4))) != nbformat.writes(notebook):
        what = "widget state, a run out of order, a PNG without a palette, an older script or an older definition"
        found.append(f"{what} is saved (python .ci/notebooks.py clean FILE)")
    return found


def execute(path: Path) -> None:
    """Run the notebook from a fresh kernel, in its own folder, and save it clean.

    Its explorers leave what a page needs to compute them without a kernel.
    """
    from nbclient import NotebookClient

    os.environ["RLVIZ_FROZEN"] = "1"

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}}, store_widget_state=False
    ).execute()
    nbformat.write(cleaned(notebook), path)


def main(arguments: list[str]) -> int:
    if len(arguments) < 2 or arguments[0] not in ("clean", "check", "run"):
        print(__doc__)
        return 2
    command, paths = arguments[0], [Path(name) for name in arguments[1:]]
    bad = 0
    for path in paths:
        if command == "run":
            execute(path)
        elif command == "clean":
            nbformat.write(cleaned(nbformat.read(path, as_version=4)), path)
        else:
            for problem in problems(path):
                print(f"{path}: {problem}")
                bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
