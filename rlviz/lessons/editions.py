"""Three editions of the course from one source: to read, for students (no outputs, no answers), for the instructor."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat

# a fold holds an answer unless its summary begins with "Why", a derivation, or "More", a further finding, or is 中文提要
ANSWER = re.compile(r"<details[^>]*>\s*<summary[^>]*>\s*(?:<\w+>\s*)*(?!Why|More|中文).*?</details>\n*", re.S)
SOLUTIONS, TEACHING = "solutions", "teaching"
NEARBY = re.compile(r"\]\((?!\w+:|#|\.\./)")  # a link to a file of the course, as a lesson has it
STUDENTS_FOLDERS = ("predictions", "mine")  # what whoever ran the lessons there left beside them
UNREADABLE = (nbformat.ValidationError, AttributeError, LookupError, TypeError, ValueError, RecursionError)
Notebook = Any  # nbformat has no types


def files(edition: str, source: Path) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each file of an edition: read, student, lab or instructor.

    lab is the student's, with the solutions in a folder of their own, and beside them the answers that were folded.
    """
    for file in sorted(source.rglob("*")):
        name = file.relative_to(source)
        folder = name.parts[0] if len(name.parts) > 1 else ""
        if not file.is_file() or any(part.startswith((".", "__pycache__")) for part in name.parts):
            continue
        if (
            folder in STUDENTS_FOLDERS
            or (folder == SOLUTIONS and edition == "student")
            or (folder == TEACHING and edition in ("student", "lab"))
        ):
            continue
        if file.suffix != ".ipynb" or folder:
            yield name.as_posix(), file.read_bytes()
            continue
        notebook = read_notebook(file)
        if edition == "lab" and (answers := NEARBY.sub("](../", collect_answers(notebook))):
            yield f"{SOLUTIONS}/{file.stem}_answers.md", f"# Answers to {file.stem}\n\n{answers}".encode()
        if edition == "instructor":
            notebook = add_teaching(notebook, source, file.name)
        elif edition != "read":
            notebook = remove_answers(notebook)
        yield name.as_posix(), nbformat.writes(notebook).encode()


def read_notebook(file: Path) -> Notebook:
    """Read a notebook of format 4, or an older one as if it were of that. Raises ValueError in a sentence for anything else."""
    try:
        notebook = nbformat.reads(file.read_text(encoding="utf-8"), as_version=4)
        kinds = {"cell_type": str, "source": str, "metadata": dict}
        if not all(isinstance(cell[name], kind) for cell in notebook.cells for name, kind in kinds.items()):
            raise TypeError
    except UNREADABLE as error:
        raise ValueError(f"{file} must be a notebook of Jupyter's format 4; it cannot be read as one") from error
    return notebook


def remove_answers(notebook: Notebook) -> Notebook:
    """Return a lesson without outputs and without answers, which are the folds that are no derivation."""
    cells = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        elif not (source_left := ANSWER.sub("", cell.source).strip()):
            continue
        else:
            cell.source = source_left
        cell.pop("attachments", None)
        cells.append(cell)
    notebook.cells = cells
    return notebook


def collect_answers(notebook: Notebook) -> str:
    """Return all answers of a lesson as Markdown, each under the heading that it stood under."""
    heading, answers = "", []
    for cell in notebook.cells:
        for part in re.split(r"^(?=#)", cell.source, flags=re.M) if cell.cell_type == "markdown" else ():
            if part.startswith("#"):
                heading = part.splitlines()[0].lstrip("# ")
            answers += [f"## {heading}\n\n{answer.group().strip()}" for answer in ANSWER.finditer(part)]
    return "\n\n".join(answers)


def add_teaching(notebook: Notebook, source: Path, name: str) -> Notebook:
    """Return a lesson with the teacher's page before it, and after each exercise its solution and its check's mistakes."""
    solved, page = source / SOLUTIONS / name, source / TEACHING / f"{Path(name).stem}.md"
    open_ = [cell for cell in read_notebook(solved).cells if cell.cell_type == "code"] if solved.is_file() else []
    cells = [_text("teacher", page.read_text(encoding="utf-8"))] if page.is_file() else []
    # How long cells take, as their first line says.
    rows, heading = [], "the beginning"
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            heading = next(reversed(re.findall(r"^#+ (.+)$", cell.source, re.M)), heading)
        times = re.findall(r"^# ([\d.]+ (?:seconds?|minutes?))", cell.source, re.M)
        rows += [f"| {heading} | {seconds} |" for seconds in times]
    title = ["## How long the cells take, on two cores", "", "| under | takes |", "| --- | ---: |"]
    cells.append(_text("seconds", "\n".join([*title, *rows])))
    for cell in notebook.cells:
        cells.append(cell)
        exercises = exercises_of(cell)
        # A solution belongs to the first cell that defines one of its functions, or asks for the same puzzle.
        for solution in [one for one in open_ if exercises and _names(one) & _names(cell)]:
            open_.remove(solution)
            cells.append(_solution(solution))
        texts = [_wrong_answers(call) for call in exercises]
        cells += [_text(f"{cell.id}-{place}", text) for place, text in enumerate(texts) if text]
    if open_:
        cells += [_text("rest", "## What else the solutions hold"), *map(_solution, open_)]
    notebook.cells = cells
    return notebook


def exercises_of(cell: Notebook) -> list[ast.Call]:
    """Return the calls check.NAME(…) in a cell; none where it is no Python."""
    if cell.cell_type != "code":
        return []
    calls = [node for node in ast.walk(syntax_tree(cell.source)) if isinstance(node, ast.Call)]
    return [
        call
        for call in calls
        if isinstance(function := call.func, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "check"
    ]


def key_of(call: ast.Call) -> str:
    """Return the name of an exercise: check.assembly(my_loss), whatever stands behind the first argument."""
    return f"{ast.unparse(call.func)}({ast.unparse(call.args[0]) if call.args else ''})"


def syntax_tree(source: str) -> ast.Module:
    """Return a cell's code without its magics, parsed; an empty module where it is no Python."""
    lines = [line for line in source.splitlines() if not line.lstrip().startswith(("%", "!"))]
    try:
        return ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _names(cell: Notebook) -> set[str]:
    """Return the functions that a cell defines, and the puzzles that it answers."""
    functions = {node.name for node in syntax_tree(cell.source).body if isinstance(node, ast.FunctionDef)}
    return functions | {key_of(call) for call in exercises_of(cell)}


def _wrong_answers(call: ast.Call) -> str:
    """Return wrong answers to an exercise as a list: those that its check names, of a puzzle two; empty where none is known."""
    from rlviz.lessons import check, puzzles  # with torch, which students' copies can do without

    name = ast.unparse(call.func).removeprefix("check.")
    slips = check.EXERCISES[name].slips if name in check.EXERCISES else ()
    rows = [f"- **{slip.name}** ({slip.markdown}): {slip.says}" for slip in slips]
    if name in ("bug", "unlabelled") and call.args and isinstance(call.args[0], ast.Constant):
        with suppress(ValueError):  # a lesson of somebody's own has none
            wrong = puzzles.wrong_answers(name, str(call.args[0].value))[:2]
            rows = [f"- **{answer}**{f': {why}' if why else ''}" for answer, why in wrong]
    return "\n".join([f"**Likely wrong answers** to `{key_of(call)}`\n", *rows]) if rows else ""


def _solution(cell: Notebook) -> Notebook:
    return nbformat.from_dict(
        {
            "cell_type": "code",
            "id": f"solution-{cell.id}"[:64],
            "metadata": {"tags": ["solution"]},
            "source": f"# Solution\n{cell.source}",
            "outputs": cell.outputs,
            "execution_count": None,
        }
    )


def _text(name: str, source: str) -> Notebook:
    return nbformat.from_dict(
        {"cell_type": "markdown", "id": f"teacher-{name}"[:64], "metadata": {"tags": ["teacher"]}, "source": source}
    )
