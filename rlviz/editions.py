"""The editions of the course, from the committed notebooks: to read, for a student, for an instructor."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from rlviz.exercises import check, mistakes
from rlviz.exercises.judge import Mistake

FOLD = re.compile(r"<details>\s*<summary>(?P<summary>.*?)</summary>.*?</details>\n?", re.S)
NO_ANSWER = re.compile(r"Why|中文")  # so begins the summary of a fold without an answer: a derivation, or 中文提要
SECONDS = re.compile(r"\A(?:%.*\n)*# (\d+) seconds?\b", re.M)
BESIDE = ("glossary.md", "experiments/*.md", "experiments/*.png", "images/*")  # what lessons link to


@dataclass(frozen=True)
class Exercise:
    """A function that a lesson leaves to the student. name: its own; checks: the lesson's calls of `check` with it, as source."""

    name: str
    checks: tuple[str, ...]


def exercises(source: str) -> list[Exercise]:
    """Return the functions of a cell that return nothing yet, with the checks that the cell calls with them."""
    try:
        tree = ast.parse(re.sub(r"^%.*$", "", source, flags=re.M))
    except SyntaxError:
        return []
    left = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and _is_left_open(node)]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _of_check(node)]
    return [
        Exercise(name, tuple(dict.fromkeys(ast.unparse(call) for call in calls if name in _names(call))))
        for name in left
    ]


def _is_left_open(function: ast.FunctionDef) -> bool:
    last = function.body[-1]
    return isinstance(last, ast.Return) and (
        last.value is None or (isinstance(last.value, ast.Constant) and last.value.value is None)
    )


def _of_check(call: ast.Call) -> bool:
    return (
        isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "check"
    )


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def without_answers(text: str) -> str:
    """Return a text without the folds that hold an answer."""
    return FOLD.sub(lambda fold: fold[0] if NO_ANSWER.match(fold["summary"]) else "", text)


def _read(file: Path) -> NotebookNode:
    """Return the notebook as it is committed: with outputs, and answers folded."""
    return nbformat.read(file, as_version=4)


def _student(file: Path) -> NotebookNode:
    """Return the notebook without outputs and without answers."""
    notebook = nbformat.read(file, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if "answer" not in cell.metadata.get("tags", ())]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        else:
            cell.source = without_answers(cell.source)
    notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "code" or cell.source.strip()]
    return notebook


def _instructor(file: Path) -> NotebookNode:
    """Return the notebook with, first, what the teacher should know, and after each exercise its solution and its mistakes."""
    notebook = nbformat.read(file, as_version=4)
    solution = file.parent / "solutions" / file.name
    solved = _solutions(nbformat.read(solution, as_version=4)) if solution.is_file() else {}
    note = file.parent / "teaching" / f"{file.name[:2]}.md"
    cells = []
    for cell in notebook.cells:
        cells.append(cell)
        for exercise in exercises(cell.source) if cell.cell_type == "code" else ():
            known = [mistake for call in exercise.checks for mistake in mistakes_of(call)]
            listed = "\n".join(f"- *{mistake.name}*: {mistake.says}" for mistake in known)
            words = f"**For the instructor.** What the check names:\n\n{listed}" if known else "**For the instructor.**"
            cells.append(new_markdown_cell(f"{words}\n\nA solution:"))
            if exercise.name in solved:
                cells.append(new_code_cell(solved[exercise.name]))
    seconds = [int(found[1]) for cell in notebook.cells if (found := SECONDS.search(cell.source))]
    timing = f"Seconds stated by its cells, on two cores: {', '.join(map(str, seconds))}; together {sum(seconds)}."
    told = note.read_text(encoding="utf-8").replace("# ", "### ") if note.is_file() else ""
    notebook.cells = [cells[0], new_markdown_cell(f"{told}\n{timing}"), *cells[1:]]
    return notebook


def _solutions(notebook: NotebookNode) -> dict[str, str]:
    """Return function → the cell of a solution notebook that defines it."""
    return {
        name: cell.source
        for cell in notebook.cells
        if cell.cell_type == "code"
        for name in re.findall(r"^def (\w+)", cell.source, re.M)
    }


def mistakes_of(call: str) -> list[Mistake]:
    """Return the mistakes that a check knows, of a call such as check.pessimistic(my_objective)."""
    function = getattr(check, call.removeprefix("check.").partition("(")[0], None)
    source = inspect.getsource(function) if inspect.isfunction(function) else ""
    families = re.findall(r"mistakes\.(\w+)\.([A-Z]\w+)", source)
    return [row for topic, family in families for row in getattr(getattr(mistakes, topic), family) if row.says]


EDITIONS: dict[str, Callable[[Path], NotebookNode]] = {"read": _read, "student": _student, "instructor": _instructor}


def edition_files(course: Path, edition: str) -> Iterator[tuple[str, bytes]]:
    """Give each file of an edition: its name in the course's folder, and its content.

    The student's has no solutions. The teaching notes are in the instructor's only, each beside its lesson's first words.
    """
    make = EDITIONS[edition]
    for file in sorted(course.glob("[0-9][0-9]_*.ipynb")):
        notebook = make(file)
        for number, cell in enumerate(notebook.cells):
            cell["id"] = (
                f"{file.name[:2]}-{number}"  # the same at each making, so that an unchanged file is known again
            )
        yield file.name, (nbformat.writes(notebook) + "\n").encode()
    for pattern in BESIDE if edition == "student" else (*BESIDE, "solutions/*.ipynb"):
        for file in sorted(course.glob(pattern)):
            yield file.relative_to(course).as_posix(), file.read_bytes()
