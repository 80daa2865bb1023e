"""Grade what students handed in: each notebook in a process of its own, with a time limit, in a folder of its own.

What this protects from is accident: an endless loop, memory that grows, a file that is deleted or overwritten, a notebook that is
none. Every submission is read before the first one runs, and a row is written as each ends, from what is in memory. The same call
again goes on with the rest. A submission that means to, or that installs a package, can change the grades of others: see NO_WALL.
"""

from __future__ import annotations

import ast
import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlviz import __version__
from rlviz.lessons.editions import SOLUTIONS, STUDENTS_FOLDERS, exercises_of, files, key_of, read_notebook
from rlviz.lessons.gradebook import RUNNING, WAITING, Grade, read_grades, write_grades
from rlviz.lessons.predictions import FOLDER, LessonPredictions
from small_models.checks import cut
from small_models.files import check_regular, convert, display_path, parse

LARGEST_HANDED_IN = 50_000_000  # bytes; all of them are held in memory


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
    exercises = {file.stem: _exercises(read_notebook(file)) for file in lessons.glob("*.ipynb")}
    if not exercises:
        raise ValueError(f"lessons must be a folder with notebooks; {display_path(lessons)} has none")
    submissions = list(_submissions(folder, set(exercises)))
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
    # A grade holds as long as all that it depends on is the same: its key is a checksum of that.
    keys = {}
    for one in submissions:
        values = (__version__, limit, memory, course, exercises.get(one.lesson), one)
        keys[hashlib.sha256(repr(values).encode()).hexdigest()] = one
    earlier = read_grades(out)

    def graded() -> Iterator[tuple[Grade, bool]]:
        from rlviz.lessons.submission import start_server  # with Jupyter's client

        blank = {
            key: Grade(one.student, one.name, len(exercises.get(one.lesson, {})), error=WAITING)
            for key, one in keys.items()
        }
        book = {key: earlier.get(key, grade) for key, grade in blank.items()}
        write_grades(out, book)
        yield from ((grade, True) for grade in book.values() if grade.stage == "ended")
        start_server()
        # What ended an earlier call may end this one, too: the others come first.
        left = [key for key in keys if book[key].stage != "ended"]
        for key in sorted(left, key=lambda key: book[key].stage == "begun"):
            book[key] = replace(blank[key], error=RUNNING, stage="begun")
            write_grades(out, book)
            one = keys[key]
            book[key] = replace(blank[key], error=one.error, stage="begun")
            _grade(book[key], one, exercises.get(one.lesson, {}), course, limit=limit, memory=memory)
            write_grades(out, book)
            yield book[key], False

    return graded()


def _exercises(lesson: Any) -> dict[str, str]:
    """Return the exercises of a lesson: the name of each, and the call that checks it."""
    return {key_of(call): ast.unparse(call) for cell in lesson.cells for call in exercises_of(cell)}


def _submissions(folder: Path, lessons: set[str]) -> Iterator[Submission]:
    """Read all that was handed in. Where there is only one lesson, a notebook may have any name."""
    for place in sorted(folder.iterdir()):
        if place.name.startswith((".", "__")) or place.name in (*STUDENTS_FOLDERS, SOLUTIONS):
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
                read = {f"{lesson}.ipynb": _read_bytes(file, folder)}
            except (ValueError, OSError) as error:
                why = f"{file.name} cannot be read ({error.strerror})" if isinstance(error, OSError) else str(error)
                yield Submission(student, file.stem, error=why)
                continue
            for one in () if alone else (*place.glob(f"{FOLDER}/*.json"), *place.glob("mine/*.py")):
                with suppress(ValueError, OSError):
                    read[one.relative_to(place).as_posix()] = _read_bytes(one, folder)
            yield Submission(student, file.stem, lesson, read)


def _read_bytes(file: Path, below: Path) -> bytes:
    """Return the bytes of a file that lies below a folder. Raises ValueError for a link, which could lead to a neighbour's."""
    if any(one.is_symlink() for one in (file, *file.parents) if one != below and one.is_relative_to(below)):
        raise ValueError(f"{file.name} is a link, or lies behind one")
    check_regular(file)
    with open(file, "rb") as opened:
        content = opened.read(LARGEST_HANDED_IN + 1)
    if len(content) > LARGEST_HANDED_IN:
        raise ValueError(f"{file.name} is larger than {LARGEST_HANDED_IN // 1_000_000} MB")
    return content


def _grade(
    grade: Grade,
    submission: Submission,
    exercises: dict[str, str],
    course: dict[str, bytes],
    *,
    limit: float,
    memory: float,
) -> None:
    """Run a submission in a folder of its own, and write into the grade what comes of it."""
    from rlviz.lessons.submission import run_submission

    if submission.error:
        grade.stage = "ended"
        return
    with tempfile.TemporaryDirectory(prefix="rlviz-grade-", ignore_cleanup_errors=True) as folder:
        work = Path(folder, "work")
        for name, content in {**course, **submission.files}.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_bytes(content)
        try:
            notebook = f"{submission.lesson}.ipynb"
            run_submission(grade, notebook, exercises, Path(folder), limit=limit, memory=memory)
            grade.predictions = _predictions(work, submission)
        except Exception as error:  # whatever this one is, the others are graded
            grade.add_error(f"it cannot be graded ({type(error).__name__}: {cut(str(error), 200)})")


def _predictions(work: Path, submission: Submission) -> list[str]:
    """Return the guesses that were handed in beside the results of this run."""
    name = f"{FOLDER}/{submission.lesson}.json"
    if not (work / name).exists():  # the lesson asks for none, or the run did not get there
        return []
    if name not in submission.files:
        return ["predictions not handed in"]
    try:
        ours, theirs = (
            convert(parse(content, name), LessonPredictions, name).predictions
            for content in (_read_bytes(work / name, work), submission.files[name])
        )
    except (ValueError, OSError):
        return ["its predictions cannot be read"]
    guessed = {key: replace(one, guess=theirs[key].guess if key in theirs else None) for key, one in ours.items()}
    return [cut(f"{key}: {one.beside()}", 200) for key, one in guessed.items()]
