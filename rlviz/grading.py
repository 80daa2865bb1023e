"""Grade what students handed in: each notebook in a process of its own, with a time limit, in a folder of its own.

What this protects from is accident: an endless loop, memory that grows, a file that is deleted or overwritten. Every
submission is read before the first one runs, and the table is written after the last one, so that no file that a submission
writes can change another's grade. It is no security boundary: a submission runs as you, may read your files, leave a process
behind that left its group, or replace the checks within its own process. Run strangers' code in a container.
"""

from __future__ import annotations

import ast
import csv
import io
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import nbformat
from IPython.core.interactiveshell import InteractiveShell

from rlviz.editions import exercises_of, key_of, read_notebook
from rlviz.exercises import check
from rlviz.exercises.judge import Verdict
from rlviz.exercises.predictions import FOLDER, read_kept
from rlviz.markup import element, joined, table as html_table
from rlviz.processes import START
from small_models.checks import cut
from small_models.files import said

START_SECONDS = 300
LARGEST_FILE = 100_000_000  # bytes that a submission may write into one file
CSV_COLUMNS = (
    "student",
    "lesson",
    "passed",
    "of",
    "right",
    "mistakes",
    "predictions",
    "solutions used",
    "error",
    "seconds",
)


@dataclass
class Grade:
    """What came of one notebook. verdicts: by exercise; asked: how many the lesson has."""

    student: str
    lesson: str
    asked: int = 0
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    predictions: dict[str, str] = field(default_factory=dict)
    solutions: list[str] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> list[str]:
        return [name for name, verdict in self.verdicts.items() if verdict.passed]

    @property
    def mistakes(self) -> list[str]:
        wrong = {name: one for name, one in self.verdicts.items() if not one.passed}
        return [f"{name}: {one.mistake or cut(one.says, 80)}" for name, one in wrong.items()]


@dataclass(frozen=True)
class Submission:
    """A student's notebook, and what lies beside it, as bytes: nothing that runs later can change them."""

    student: str
    lesson: str
    files: dict[str, bytes]


def grades(folder: Path, lessons: Path, *, limit: float, memory: float) -> Iterator[Grade]:
    """Yield the grade of each notebook below a folder, each run in a process of its own.

    limit: seconds; memory: GB, on Linux. Raises ValueError for a folder without notebooks and for limits that are not positive.
    """
    for name, value in (("limit", limit), ("memory", memory)):
        if not 0 < value < float("inf"):
            raise ValueError(f"{name} must be a number > 0; got {value}")
    if not lessons.is_dir():
        raise ValueError(f"lessons must be a folder of lessons; {said(lessons)} is none")
    submissions = list(_submissions(folder))
    if not submissions:
        raise ValueError(f"folder must hold student/LESSON.ipynb or student.ipynb; {said(folder)} holds neither")
    asked = {file.stem: _asked(read_notebook(file)) for file in lessons.glob("*.ipynb")}
    if not asked:
        raise ValueError(f"lessons must be a folder with notebooks; {said(lessons)} has none")
    context: Any = multiprocessing.get_context(START)
    if START == "forkserver":
        context.set_forkserver_preload([__name__])
    return (_graded(one, _of_lesson(one, asked), context, limit, memory) for one in submissions)


def _of_lesson(submission: Submission, asked: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the exercises of the submission's lesson; where no lesson has its name, those of the only lesson, else none."""
    return asked.get(submission.lesson, next(iter(asked.values())) if len(asked) == 1 else {})


def _asked(lesson: Any) -> dict[str, str]:
    """Return the exercises of a lesson: what names each, and the call that checks it."""
    return {key_of(call): ast.unparse(call) for cell in lesson.cells for call in exercises_of(cell)}


def _submissions(folder: Path) -> Iterator[Submission]:
    if not folder.is_dir():
        raise ValueError(f"folder must be a folder of submissions; {said(folder)} is none")
    for file in sorted([*folder.glob("*.ipynb"), *folder.glob("*/*.ipynb")]):
        if file.is_symlink() or not file.is_file():
            continue
        alone = file.parent == folder
        beside = [file] if alone else [file, *file.parent.glob(f"{FOLDER}/*.json"), *file.parent.glob("mine/*.py")]
        files = {
            one.relative_to(file.parent).as_posix(): one.read_bytes()
            for one in beside
            if one.is_file() and not one.is_symlink()
        }
        yield Submission(file.stem if alone else file.parent.name, file.stem, files)


def _graded(submission: Submission, asked: dict[str, str], context: Any, limit: float, memory: float) -> Grade:
    grade = Grade(submission.student, submission.lesson, len(asked))
    own = Path(tempfile.mkdtemp(prefix="rlviz-grade-"))
    work, begun = own / "work", time.monotonic()
    try:
        for name, content in submission.files.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_bytes(content)
        try:
            notebook = read_notebook(work / f"{submission.lesson}.ipynb")
        except ValueError:
            grade.error = "it is no notebook of Jupyter's format 4"
            return grade
        sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        reports, send = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(sources, asked, str(work), memory, send))
        process.start()
        send.close()
        try:
            if reports.poll(START_SECONDS):  # the first one waits till torch is imported, which is not its time
                begun = time.monotonic()
            _listen(reports, grade, begun + limit, limit)
        finally:
            _end(process)
            reports.close()
        for kept in sorted((work / FOLDER).glob("*.json")):
            with suppress(ValueError, OSError):  # a damaged file predicts nothing
                told = read_kept(kept).predictions
                grade.predictions |= {name: one.beside() for name, one in told.items()}
    finally:
        shutil.rmtree(own, ignore_errors=True)
        grade.seconds = time.monotonic() - begun
    for name in asked:
        grade.verdicts.setdefault(name, Verdict(False, "not reached", "not reached"))
    return grade


def _listen(reports: Connection, grade: Grade, deadline: float, limit: float) -> None:
    """Take what the process says, till it says that it is done, dies, or its time is over."""
    while reports.poll(max(0.0, deadline - time.monotonic())):
        try:
            kind, name, value = reports.recv()
        except (EOFError, OSError):
            grade.error = grade.error or "the process ended by itself (by os._exit, or killed for its memory)"
            return
        if kind == "verdict":
            grade.verdicts[str(name)] = Verdict(*value)
        elif kind == "solution":
            grade.solutions.append(str(name))
        elif kind == "error":
            grade.error = grade.error or cut(str(name), 200)
        elif kind == "done":
            return
    grade.error = f"stopped after {limit:g} seconds"


def _end(process: Any) -> None:
    """Kill a process with all that it started, and wait for it."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):  # its group is its own from its first line on
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


class _Shell(InteractiveShell):
    def enable_gui(self, gui: str | None = None) -> None:
        """Do nothing: `%matplotlib inline` asks for it at a lesson's first line, and nobody looks at its pictures."""


def _run(sources: list[str], asked: dict[str, str], work: str, memory: float, send: Connection) -> None:
    """Run the cells; after one that asks for a check, check with the lesson's call, not the student's."""
    send.send(("begun", "", None))
    _limit(work, memory)
    true_checks = {name: getattr(check, name) for name in vars(check) if not name.startswith("_")}
    shell = _Shell.instance()
    _watch_solutions(send)
    judged: set[str] = set()
    for source in sources:
        result = shell.run_cell(source, store_history=False)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            send.send(("error", f"{type(error).__name__}: {error}", None))
        cell = nbformat.from_dict({"cell_type": "code", "source": source})
        for call in exercises_of(cell):
            if (key := key_of(call)) in asked:
                chosen = (
                    isinstance(call.args[0], ast.Constant) if call.args else False
                )  # a puzzle: the answer is the call
                _judge(key, ast.unparse(call) if chosen else asked[key], true_checks, shell.user_ns, send)
                judged.add(key)
    for key in asked.keys() - judged:
        _judge(key, asked[key], true_checks, shell.user_ns, send)
    send.send(("done", "", None))


def _judge(key: str, call: str, checks: dict[str, Any], namespace: dict[str, Any], send: Connection) -> None:
    names = {
        **namespace,
        "check": type("check", (), {name: staticmethod(one) for name, one in checks.items() if callable(one)}),
    }
    try:
        verdict = eval(call, names)
        send.send(("verdict", key, (verdict.passed, verdict.says, verdict.mistake)))
    except Exception as error:
        send.send(("verdict", key, (False, f"it cannot be checked ({type(error).__name__}: {error})", "")))


def _watch_solutions(send: Connection) -> None:
    """Report every file of solutions that is opened, and every module of that name that is imported."""
    seen: set[str] = set()

    def watch(event: str, given: tuple[Any, ...]) -> None:
        if event not in ("open", "import"):
            return
        parts = str(given[0]).replace("\\", "/").split("." if event == "import" else "/")
        if "solutions" in parts and parts[-1] not in seen:
            seen.add(parts[-1])
            send.send(("solution", "/".join(parts[parts.index("solutions") :]), None))

    sys.addaudithook(watch)


def _limit(work: str, memory: float) -> None:
    """Leave the terminal and the folders of whoever grades, and take limits where the system has them."""
    if hasattr(os, "setsid"):
        os.setsid()
    os.chdir(work)
    home = Path(work).parent / "home"
    home.mkdir()
    os.environ |= {"RLVIZ_ASK": "0", "MPLBACKEND": "agg"}
    os.environ |= dict.fromkeys(("HOME", "USERPROFILE", "TMPDIR", "TEMP", "TMP", "IPYTHONDIR"), str(home))
    tempfile.tempdir = None
    sys.path[:] = ["", *(path for path in sys.path if path)]
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    with suppress(ImportError):  # Windows has none
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
        mapped = Path("/proc/self/statm")
        if mapped.exists():  # beyond what torch has mapped already
            ceiling = int(mapped.read_text().split()[0]) * resource.getpagesize() + int(memory * 1e9)
            resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))


def _row(grade: Grade) -> list[str]:
    cells = [
        grade.student,
        grade.lesson,
        str(len(grade.passed)),
        str(grade.asked),
        "; ".join(grade.passed),
        "; ".join(grade.mistakes),
        "; ".join(f"{name}: {told}" for name, told in grade.predictions.items()),
        "; ".join(grade.solutions),
        grade.error,
        f"{grade.seconds:.1f}",
    ]
    return [f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t")) else cell for cell in cells]  # no formula


def table(done: list[Grade]) -> str:
    """Return the grades as CSV, a row for each notebook."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([CSV_COLUMNS, *(_row(grade) for grade in done)])
    return text.getvalue()


def page(done: list[Grade]) -> str:
    """Return the grades as one HTML page that needs no other file."""
    style = "text-align: left; vertical-align: top; padding: 4px 10px; border-top: 1px solid"
    rows = []
    for grade in done:
        told = [
            element("li", f"{name} – {'right' if one.passed else one.mistake or 'not yet'}: {one.says}")
            for name, one in grade.verdicts.items()
        ]
        notes = [element("p", text) for text in (grade.error, *(f"opened {name}" for name in grade.solutions)) if text]
        said = [element("li", f"{name}: {text}") for name, text in grade.predictions.items()]
        cells = (
            grade.student,
            grade.lesson,
            f"{len(grade.passed)} of {grade.asked}",
            joined(element("ul", *told), *notes),
            element("ul", *said) if said else "–",
            f"{grade.seconds:.1f} s",
        )
        rows.append(element("tr", *(element("td", cell, style=style) for cell in cells)))
    columns = ("student", "lesson", "checks", "what they say", "predictions", "time")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", "Grades"),
    )
    body = element(
        "body",
        element("h1", "Grades"),
        html_table(
            columns, rows, heading=style, style="border-collapse: collapse", caption="One row for each notebook"
        ),
        style="font: 16px system-ui; margin: 2em",
    )
    return joined(element("html", head, body, lang="en"))
