"""Grade what students handed in: each notebook in a process of its own, with a time limit, in a folder of its own.

What this protects from is accident: an endless loop, memory that grows, a file that is deleted or overwritten, a notebook that is
none. Every submission is read before the first one runs, and a row is written as each ends, from what is in memory. The same call
again goes on with the rest. A submission that means to, or that installs a package, can change the grades of others: see NO_WALL.
"""

from __future__ import annotations

import ast
import hashlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

from rlviz import __version__
from rlviz.lessons.editions import OWN, SOLUTIONS, exercises_of, files, key_of, read_notebook
from rlviz.lessons.gradebook import ENDED, RUNNING, WAITING, Grade, read_grades, write_grades
from rlviz.lessons.predictions import FOLDER, Kept
from rlviz.lessons.verdict import Verdict
from small_models.checks import cut
from small_models.files import check_regular, convert, display_path, parse

# Imported once, what a submission needs takes no process its seconds again. Elsewhere a fork is not safe or not known.
START = "forkserver" if sys.platform == "linux" else "spawn"
START_SECONDS, GRACE_SECONDS = 300, 10.0
LARGEST_HANDED_IN = 50_000_000  # bytes; all of them are held in memory
LARGEST_SAID = 1_000_000  # bytes of a grade, and of predictions; an honest process writes some thousands


@dataclass(frozen=True)
class Submission:
    """A student's notebook of this name, and what lies beside it, as bytes: nothing that runs later can change them.

    lesson: that it answers. error: why it cannot be graded.
    """

    student: str
    name: str
    lesson: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    error: str = ""


def grades(folder: Path, lessons: Path, out: Path, *, limit: float, memory: float) -> Iterator[tuple[Grade, bool]]:
    """Yield the grade of each notebook below a folder, each run in a process of its own, and whether an earlier call graded it.

    out: the table, which is written as each ends, beside a page and the state from which the same call goes on. limit: seconds;
    memory: GB, on Linux. Whatever one of them is, the others are graded, and its grade has an error that says why not. Raises
    ValueError for a folder without notebooks, for limits that are not positive, and for a state that is none; OSError where
    nothing can be written.
    """
    for name, value in (("limit", limit), ("memory", memory)):
        if not 0 < value < float("inf"):
            raise ValueError(f"{name} must be a number > 0; got {value}")
    if not lessons.is_dir():
        raise ValueError(f"lessons must be a folder of lessons; {display_path(lessons)} is none")
    if not folder.is_dir():
        raise ValueError(f"folder must be a folder of submissions; {display_path(folder)} is none")
    asked = {file.stem: _asked(read_notebook(file)) for file in lessons.glob("*.ipynb")}
    if not asked:
        raise ValueError(f"lessons must be a folder with notebooks; {display_path(lessons)} has none")
    submissions = list(_submissions(folder, set(asked)))
    if not any(submission.name for submission in submissions):
        raise ValueError(
            f"folder must hold student/LESSON.ipynb or student.ipynb; {display_path(folder)} holds neither"
        )
    outputs = [out.resolve().with_suffix(suffix) for suffix in (".csv", ".html", ".json")]
    course = {
        name: content
        for name, content in files("student", lessons)
        if not name.endswith(".ipynb")
        and not (place := (lessons / name).resolve()).is_relative_to(folder.resolve())
        and place not in outputs
    }
    beside = _checksum(__version__, limit, memory, course)
    keys = [_checksum(beside, asked.get(one.lesson), one) for one in submissions]
    earlier = read_grades(out)
    context: Any = multiprocessing.get_context(START)
    if START == "forkserver":
        context.set_forkserver_preload(["rlviz.lessons.submission"])
        resource_tracker.ensure_running()
        # a Ctrl-C reaches all processes of a terminal; the server inherits that it waits, and ends with this process
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGHUP))
        forkserver.ensure_running()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def graded() -> Iterator[tuple[Grade, bool]]:
        blank = {
            key: Grade(one.student, one.name, len(asked.get(one.lesson, {})), error=WAITING)
            for key, one in zip(keys, submissions, strict=True)
        }
        book = {key: earlier.get(key, grade) for key, grade in blank.items()}
        write_grades(out, book)
        yield from ((grade, True) for grade in book.values() if grade.stage == "ended")
        left = [(key, one) for key, one in zip(keys, submissions, strict=True) if book[key].stage != "ended"]
        # what ended an earlier call may end this one, too: the others come first
        for key, one in sorted(left, key=lambda pair: book[pair[0]].stage == "begun"):
            book[key] = replace(blank[key], error=RUNNING, stage="begun")
            write_grades(out, book)
            book[key] = _graded(one, asked.get(one.lesson, {}), course, context, limit, memory)
            write_grades(out, book)
            yield book[key], False

    return graded()


def _checksum(*values: object) -> str:
    """Return what names these values: a grade holds as long as its own are the same."""
    return hashlib.sha256(repr(values).encode()).hexdigest()


def _asked(lesson: Any) -> dict[str, str]:
    """Return the exercises of a lesson: what names each, and the call that checks it."""
    return {key_of(call): ast.unparse(call) for cell in lesson.cells for call in exercises_of(cell)}


def _submissions(folder: Path, lessons: set[str]) -> Iterator[Submission]:
    """Read all that was handed in. Where there is only one lesson, a notebook may have any name."""
    for place in sorted(folder.iterdir()):
        if place.name.startswith((".", "__")) or place.name in (*OWN, SOLUTIONS):
            continue
        if alone := place.suffix == ".ipynb":
            notebooks = [place]
        elif place.is_dir() or place.is_symlink():
            notebooks = sorted(file for file in place.glob("*.ipynb") if not file.name.startswith("."))
            if not notebooks:
                yield Submission(place.name, "", error="no notebook was handed in")
        else:
            continue
        for file in notebooks:
            student, lesson = file.stem if alone else place.name, file.stem
            if len(lessons) == 1:
                (lesson,) = lessons
            try:
                if lesson not in lessons:
                    raise ValueError(f"no lesson is called {cut(lesson)}")
                read = {f"{lesson}.ipynb": _taken(file, folder)}
            except (ValueError, OSError) as error:
                why = f"{file.name} cannot be read ({error.strerror})" if isinstance(error, OSError) else str(error)
                yield Submission(student, file.stem, error=why)
                continue
            for one in () if alone else (*place.glob(f"{FOLDER}/*.json"), *place.glob("mine/*.py")):
                with suppress(ValueError, OSError):
                    read[one.relative_to(place).as_posix()] = _taken(one, folder)
            yield Submission(student, file.stem, lesson, read)


def _taken(file: Path, below: Path, largest: int = LARGEST_HANDED_IN) -> bytes:
    """Return what is in a file that lies below a folder. Raises ValueError for a link, which could lead to a neighbour's."""
    if any(one.is_symlink() for one in (file, *file.parents) if one != below and one.is_relative_to(below)):
        raise ValueError(f"{file.name} is a link, or lies behind one")
    check_regular(file)
    with open(file, "rb") as opened:
        content = opened.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"{file.name} is larger than {largest // 1_000_000} MB")
    return content


def _graded(
    submission: Submission,
    asked: dict[str, str],
    course: dict[str, bytes],
    context: Any,
    limit: float,
    memory: float,
) -> Grade:
    grade = Grade(submission.student, submission.name, len(asked), error=submission.error, stage="begun")
    if submission.error:
        return replace(grade, stage="ended")
    with tempfile.TemporaryDirectory(prefix="rlviz-grade-", ignore_cleanup_errors=True) as folder:
        own = Path(folder)
        for name, content in {**course, **submission.files}.items():
            (own / "work" / name).parent.mkdir(parents=True, exist_ok=True)
            (own / "work" / name).write_bytes(content)
        try:
            grade = _run_and_listen(grade, submission.lesson, asked, own, context, limit, memory)
            grade.predictions = _predictions(own / "work", submission)
        except Exception as error:  # whatever this one is, the others are graded
            grade.add_error(f"it cannot be graded ({type(error).__name__}: {cut(str(error), 200)})")
    return grade


def _run_and_listen(
    grade: Grade, lesson: str, asked: dict[str, str], own: Path, context: Any, limit: float, memory: float
) -> Grade:
    """Run the notebook in a child, and return the grade as the child sent it last."""
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(grade, f"{lesson}.ipynb", asked, str(own), limit, memory, theirs))
    begun, patience = None, float(START_SECONDS)  # the first one waits till torch is imported, which is not its time
    try:
        process.start()
        theirs.close()
        while ours.poll(patience):
            grade = convert(parse(ours.recv_bytes(LARGEST_SAID), "grade"), Grade, "grade")
            begun = begun or time.monotonic()
            patience = max(0.0, begun + limit + GRACE_SECONDS - time.monotonic())
        if begun is None:
            raise TimeoutError(f"it did not start in {START_SECONDS:g} seconds")
        grade.stage = "ended"  # though it does not keep its own limit
        grade.add_error(f"stopped after {limit:g} seconds")
    except EOFError:
        if grade.stage != "ended":
            grade.add_error(ENDED)
    finally:
        if process.pid is not None:
            end_group(process.pid)
            process.kill()
            process.join()
    grade.seconds = 0.0 if begun is None else time.monotonic() - begun
    for name in asked:
        grade.verdicts.setdefault(name, Verdict(False, "not reached", "not reached"))
    return grade


def end_group(leader: int) -> None:
    """Kill a child with all that it started, where the system has groups of processes."""
    with suppress(ProcessLookupError, PermissionError, AttributeError):
        os.killpg(leader, signal.SIGKILL)


def _run(*given: Any) -> None:
    from rlviz.lessons.submission import run_notebook  # with torch, for which the table does not wait

    run_notebook(*given)


def _predictions(work: Path, submission: Submission) -> list[str]:
    """Return the guesses that were handed in beside the results of this run."""
    name = f"{FOLDER}/{submission.lesson}.json"
    if not (work / name).exists():  # the lesson asks for none, or the run did not get there
        return []
    if name not in submission.files:
        return ["predictions not handed in"]
    try:
        ours, theirs = (
            convert(parse(content, name), Kept, name).predictions
            for content in (_taken(work / name, work, LARGEST_SAID), submission.files[name])
        )
    except (ValueError, OSError):
        return ["its predictions cannot be read"]
    guessed = {key: replace(one, guess=theirs[key].guess if key in theirs else None) for key, one in ours.items()}
    return [cut(f"{key}: {one.beside()}", 200) for key, one in guessed.items()]
