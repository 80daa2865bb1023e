"""Students' notebooks run one by one, each in a process and a folder of its own, and what their checks find.

All submissions are read before the first is run and all grades written after the last, so that nothing one of them does on the
disk changes another's grade. A process has a limit of seconds and of memory, and a home folder of its own. That is no wall
against hostile code, which runs as the user who grades; a student's code can also deceive the checks that run beside it.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import nbformat

from rlviz.editions import exercises
from rlviz.exercises import check
from rlviz.exercises.judge import Verdict
from rlviz.exercises.predictions import FOLDER, Prediction
from rlviz.markup import element, joined, table
from rlviz.training.files import write_text
from small_models.checks import checked, cut

LONGEST = 300  # characters of what is said about one thing


@dataclass(frozen=True)
class Submission:
    """A student's notebook of a lesson, and the files beside it, as they were before anything ran."""

    student: str
    notebook: str
    content: bytes
    beside: tuple[tuple[str, bytes], ...]  # predictions/ and mine/


@dataclass(frozen=True)
class Grade:
    """One line of the table. kind: check, bug, unlabelled, prediction or run. result: passed, not yet, missing, …"""

    student: str
    notebook: str
    kind: str
    item: str
    result: str
    mistake: str = ""
    says: str = ""


@checked
def submissions(folder: str | os.PathLike[str]) -> list[Submission]:
    """Return each notebook FOLDER/STUDENT/NN_name.ipynb. Raises ValueError where there is none."""
    root = Path(folder)
    found = [
        Submission(student.name, file.name, file.read_bytes(), tuple(_beside(student)))
        for student in sorted(root.iterdir() if root.is_dir() else ())
        if student.is_dir() and not student.name.startswith(".")
        for file in sorted(student.glob("[0-9][0-9]_*.ipynb"))
        if file.is_file() and not file.is_symlink()
    ]
    if not found:
        raise ValueError(
            f"folder must hold a folder for each student, with notebooks such as 02_the_ratio.ipynb; {folder} does not"
        )
    return found


def _beside(student: Path) -> Iterator[tuple[str, bytes]]:
    for pattern in (f"{FOLDER}/*.json", "mine/*.py"):
        for file in sorted(student.glob(pattern)):
            if file.is_file() and not file.is_symlink():
                yield file.relative_to(student).as_posix(), file.read_bytes()


@checked
def grade_notebook(one: Submission, course: Path, *, seconds: float = 600, gigabytes: float = 16) -> list[Grade]:
    """Return the lines of one notebook: its exercises, puzzles, predictions, and how the run ended.

    course: the folder of the lessons, whose own calls of the checks are made; a notebook of no lesson has its run alone.
    """

    def line(kind: str, item: str, result: str, mistake: str = "", says: str = "") -> Grade:
        return Grade(one.student, one.notebook, kind, item, result, mistake, cut(" ".join(says.split()), LONGEST))

    try:
        cells = _cells(one.content)
    except Exception as error:
        return [line("run", "the notebook", "cannot be read", says=f"{type(error).__name__}: {error}")]
    lesson = course / one.notebook
    asked = (
        [exercise for source in _cells(lesson.read_bytes()) for exercise in exercises(source)]
        if lesson.is_file()
        else []
    )
    began = time.monotonic()
    said, ended = _run(one, cells, [asdict(exercise) for exercise in asked], seconds, gigabytes)
    lines = []
    for exercise in asked:
        verdicts = [entry for entry in said if entry.get("exercise") == exercise.name]
        if not verdicts:
            lines.append(line("check", exercise.name, "missing", says="no function of this name was defined."))
        for call, entry in {entry["call"]: entry for entry in verdicts}.items():  # the last of each call counts
            lines.append(line("check", call, entry["result"], entry["mistake"], entry["says"]))
    lines += [line(kind, item, result, says=says) for kind, item, result, says in _puzzles(cells)]
    lines += [line("prediction", name, "kept", says=words) for name, words in _predicted(one)]
    if any("solutions" in source for source in cells):
        lines.append(line("run", "solutions", "looked into", says="a cell names the folder of the solutions."))
    for entry in said:
        if "error" in entry:
            lines.append(line("run", f"cell {entry['cell']}", "error", says=entry["error"]))
    return [*lines, line("run", "the notebook", ended, says=f"{time.monotonic() - began:.0f} seconds")]


def _cells(content: bytes) -> list[str]:
    notebook = nbformat.reads(content.decode("utf-8"), as_version=4)
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def _run(
    one: Submission, cells: list[str], asked: list[Any], seconds: float, gigabytes: float
) -> tuple[list[dict[str, Any]], str]:
    """Return what the process said, a line of JSON for each thing, and how it ended."""
    with tempfile.TemporaryDirectory(prefix="rlviz-grade-", ignore_cleanup_errors=True) as root:
        work, home, told = Path(root, "work"), Path(root, "home"), Path(root, "said.jsonl")
        for part in (work, home):
            part.mkdir()
        for name, content in one.beside:
            (work / name).parent.mkdir(exist_ok=True)
            (work / name).write_bytes(content)
        given = Path(root, "given.json")
        given.write_text(json.dumps({"cells": cells, "asked": asked, "bytes": int(gigabytes * 1e9)}), encoding="utf-8")
        own = {"HOME": str(home), "TMPDIR": str(home), "RLVIZ_ASK": "0", "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "rlviz.graded", str(given), str(told)],
            cwd=work,
            env={**os.environ, **own, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            ended = {0: "ran"}.get(process.wait(seconds), f"ended with exit code {process.returncode}")
        except subprocess.TimeoutExpired:
            ended = f"stopped after {seconds:g} seconds"
        finally:
            _kill(process)
        return list(_said(told)), ended


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and whatever it started in its group."""
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _said(file: Path) -> Iterator[dict[str, Any]]:
    """Give the lines that are whole, and hold what a line has: the process may have been killed, or have written others."""
    for text in file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else ():
        with contextlib.suppress(ValueError):
            entry = json.loads(text)
            if isinstance(entry, dict) and all(isinstance(value, str | int) for value in entry.values()):
                yield entry


def _puzzles(cells: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
    """Give the answers to bugs and unlabelled runs that stand in the cells as plain values; no code of the student runs."""
    judges: dict[str, Callable[..., Verdict]] = {"bug": check.bug, "unlabelled": check.unlabelled}
    for source in cells:
        with contextlib.suppress(SyntaxError):
            tree = ast.parse("\n".join("" if row.startswith("%") else row for row in source.splitlines()))
            for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
                kind = ast.unparse(call.func).removeprefix("check.")
                if ast.unparse(call.func) != f"check.{kind}" or kind not in judges:
                    continue
                try:
                    named = {str(key.arg): ast.literal_eval(key.value) for key in call.keywords}
                    verdict = judges[kind](*map(ast.literal_eval, call.args), **named)
                except (ValueError, TypeError) as error:
                    yield kind, ast.unparse(call), "not judged", str(error)
                else:
                    yield kind, ast.unparse(call), result(verdict), verdict.says


def result(verdict: Verdict) -> str:
    """Return the word for a verdict."""
    return "passed" if verdict.passed else "not yet"


def _predicted(one: Submission) -> Iterator[tuple[str, str]]:
    for name, content in one.beside:
        if name == f"{FOLDER}/{Path(one.notebook).stem}.json":
            with contextlib.suppress(ValueError, TypeError, AttributeError, KeyError):
                for key, row in json.loads(content)["predictions"].items():
                    prediction = Prediction(**row)
                    if prediction.guess is not None:
                        yield key, f"{prediction.question} {prediction.beside()}."


def as_table(rows: Sequence[Grade], out: Path) -> None:
    """Write the lines as CSV, whole or not at all. What a spreadsheet would take for a formula is a text there."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(Grade))
    for row in rows:
        writer.writerow(f"'{cell}" if cell[:1] in "=+-@" and cell else cell for cell in asdict(row).values())
    write_text(out, text.getvalue())


def as_page(rows: Sequence[Grade], out: Path) -> None:
    """Write a page: first each student's count of passed checks, then every line."""
    cell = "text-align: left; padding: 3px 10px; border-bottom: 1px solid #ccc; vertical-align: top"
    checks = [row for row in rows if row.kind in ("check", "bug", "unlabelled")]
    counts = []
    for student, notebook in dict.fromkeys((row.student, row.notebook) for row in rows):
        own = [row for row in checks if (row.student, row.notebook) == (student, notebook)]
        passed = f"{sum(row.result == 'passed' for row in own)} of {len(own)}"
        counts.append((student, notebook, passed, ", ".join(row.mistake for row in own if row.mistake)))

    def shown(columns: Sequence[str], lines: Sequence[Sequence[str]], caption: str) -> str:
        made = [element("tr", *(element("td", part, style=cell) for part in line)) for line in lines]
        return table(columns, made, heading=cell, style="border-collapse: collapse; margin: 16px 0", caption=caption)

    head = element("head", element("meta", charset="utf-8"), element("title", "Grades"))
    summary = shown(("student", "notebook", "passed", "mistakes"), counts, "What passed")
    every = shown([field.name for field in fields(Grade)], [list(asdict(row).values()) for row in rows], "Everything")
    body = element(
        "body", element("h1", "Grades"), joined(summary, every), style="font: 15px system-ui, sans-serif; margin: 24px"
    )
    write_text(out, f"<!doctype html>\n{element('html', head, body, lang='en')}\n")
