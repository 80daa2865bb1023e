"""Grade what students handed in: each notebook in a process of its own, with a time limit, in a folder of its own.

What this protects from is accident: an endless loop, memory that grows, a file that is deleted or overwritten, a notebook that is
none. Every submission is read before the first one runs, and a row is written as each ends, from what is in memory. The same call
again goes on with the rest. What a process reports is text in a file of its own, which is read as data and counts for that
submission alone. A submission that means to, or that installs a package, can change the grades of others: see NO_WALL.
"""

from __future__ import annotations

import ast
import hashlib
import json
import multiprocessing
import os
import secrets
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path
from typing import Any, BinaryIO, Literal

from IPython.core.interactiveshell import InteractiveShell

from rlviz import __version__
from rlviz.lessons.editions import OWN, SOLUTIONS, exercises_of, files, key_of, read_notebook
from rlviz.lessons.gradebook import STOPPED, WAITING, Grade, read_grades, write_grades, write_state
from rlviz.lessons.predictions import FOLDER, Kept
from rlviz.lessons.verdict import Verdict
from small_models.checks import cut
from small_models.files import check_regular, convert, parse, said

# Imported once, what a submission needs takes no process its seconds again. Elsewhere a fork is not safe or not known.
START = "forkserver" if sys.platform == "linux" else "spawn"
START_SECONDS = 300
START_TRIES, START_AGAIN_SECONDS = 20, 0.1
LARGEST_FILE = 100_000_000  # bytes that a submission may write into one file
LARGEST_HANDED_IN = 50_000_000  # bytes; all of them are held in memory
LARGEST_SAID = 1_000_000  # bytes of reports, and of predictions; an honest process writes some thousands


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


@dataclass(frozen=True)
class Report:
    """A line that a submission's process writes. token: what the grader gave to this process and no other."""

    token: str
    kind: Literal["begun", "verdict", "solution", "error", "done"]
    name: str = ""
    verdict: Verdict | None = None


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
        raise ValueError(f"lessons must be a folder of lessons; {said(lessons)} is none")
    if not folder.is_dir():
        raise ValueError(f"folder must be a folder of submissions; {said(folder)} is none")
    asked = {file.stem: _asked(read_notebook(file)) for file in lessons.glob("*.ipynb")}
    if not asked:
        raise ValueError(f"lessons must be a folder with notebooks; {said(lessons)} has none")
    submissions = list(_submissions(folder, set(asked)))
    if not any(submission.name for submission in submissions):
        raise ValueError(f"folder must hold student/LESSON.ipynb or student.ipynb; {said(folder)} holds neither")
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
        context.set_forkserver_preload([__name__, "rlviz.lessons.check"])
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
            book[key] = replace(blank[key], error=STOPPED, stage="begun")
            write_state(out, book)
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
            _run_and_listen(grade, submission.lesson, asked, own, context, limit, memory)
            grade.predictions = _predictions(own / "work", submission)
        except Exception as error:  # whatever this one is, the others are graded
            grade.error = grade.error or f"it cannot be graded ({_told(error)})"
    return grade


def _run_and_listen(
    grade: Grade, lesson: str, asked: dict[str, str], own: Path, context: Any, limit: float, memory: float
) -> None:
    """Run the notebook in a process, and take what that reports into the grade."""
    begun = time.monotonic()
    token = secrets.token_hex(16)
    with open(own / "reports", "w+b", buffering=0) as reports:
        process = context.Process(target=_run, args=(f"{lesson}.ipynb", asked, str(own), memory, token))
        try:
            _start(process)
            # the first one waits till torch is imported, which is not its time
            while process.is_alive() and not os.fstat(reports.fileno()).st_size:
                if time.monotonic() > begun + START_SECONDS:
                    break
                process.join(0.02)
            begun = time.monotonic()
            process.join(limit)
            late = process.is_alive()
        finally:
            _end(process)
            grade.seconds = time.monotonic() - begun
        done = _listen(reports, token, grade, asked)
    if late or done:
        grade.stage = "ended"
    if late:
        _add_error(grade, f"stopped after {limit:g} seconds")
    elif not done:
        _add_error(grade, "the process ended by itself (by os._exit, or killed for its memory)")
    for name in asked:
        grade.verdicts.setdefault(name, Verdict(False, "not reached", "not reached"))


def _listen(reports: BinaryIO, token: str, grade: Grade, asked: dict[str, str]) -> bool:
    """Take what a process reported into its grade, as data; return whether it was done. What has not its token is refused."""
    reports.seek(0)
    done = forged = False
    *lines, _ = reports.read(LARGEST_SAID).split(b"\n")  # the last one may have been cut short
    for line in lines:
        try:
            report = _report(line, token)
            if (report.kind == "verdict") != (report.verdict is not None and report.name in asked):
                raise ValueError
        except ValueError:
            forged = True
            continue
        if report.verdict is not None:
            grade.verdicts[report.name] = report.verdict
        elif report.kind == "solution":
            grade.solutions.append(report.name)
        elif report.kind == "error" and not grade.error:
            grade.error = report.name
        done = done or report.kind == "done"
    if forged:
        _add_error(grade, "it wrote into the file of its reports, which was refused")
    return done


def _report(line: bytes, token: str) -> Report:
    if token.encode() not in line:  # before it is read: there may be half a million of them
        raise ValueError
    report = convert(parse(line, "report"), Report, "report")
    if report.token != token:
        raise ValueError
    return report


def _add_error(grade: Grade, error: str) -> None:
    grade.error = f"{grade.error}; {error}" if grade.error else error


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


def _told(error: BaseException) -> str:
    try:
        return cut(f"{type(error).__name__}: {error}", 200)
    except Exception:  # its own __str__ broke off
        return type(error).__name__


def _start(process: Any) -> None:
    """Start a process; the server that forks it may be just dying of the submission before, and is then begun anew."""
    for _ in range(START_TRIES - 1):
        try:
            return process.start()
        except (OSError, EOFError):
            time.sleep(START_AGAIN_SECONDS)
    return process.start()


def _end(process: Any) -> None:
    """Kill a process with all that it started, and wait for it."""
    if process.pid is None:  # a signal came before it was begun
        return
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):  # its group is its own from its first line on
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def _end_with_the_grader(own: str) -> None:
    """Lead a group of processes, and start a watch that kills it when the grader is gone, by whatever signal.

    The watch is a process of the group, since C code can keep a thread from running. Windows has neither, and gets a thread.
    """
    grader = multiprocessing.parent_process()

    def watch() -> None:
        if grader is not None:
            connection.wait([grader.sentinel])
        shutil.rmtree(own, ignore_errors=True)
        if hasattr(os, "killpg"):
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    if not hasattr(os, "fork"):
        threading.Thread(target=watch, daemon=True).start()
        return
    os.setsid()
    if os.fork() == 0:
        watch()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # one that waits ends this process, and prints nothing
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


class _Shell(InteractiveShell):
    def enable_gui(self, gui: str | None = None) -> None:
        """Do nothing: `%matplotlib inline` asks for it at a lesson's first line, and nobody looks at its pictures."""


def _close_pipes() -> None:
    """Close the pipes that a process has from the server that forked it: what is written there ends everybody's."""
    if START == "forkserver":
        tracker: Any = resource_tracker._resource_tracker
        tracker._fd = tracker._pid = None  # whoever starts processes gets a new one
        for descriptor in [int(one.name) for one in Path("/proc/self/fd").iterdir()]:
            with suppress(OSError):
                if descriptor > 2 and stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                    os.close(descriptor)


def _run(name: str, asked: dict[str, str], own: str, memory: float, token: str) -> None:
    """Run the notebook's cells; after one that asks for a check, check with the lesson's call, not the student's."""
    _end_with_the_grader(own)
    from rlviz.lessons import check  # with torch, for which the table does not wait

    _close_pipes()
    report = _reporter(Path(own) / "reports", token)
    report("begun")
    _limit(Path(own), memory)
    try:
        cells = read_notebook(Path(name)).cells
    except ValueError:
        report("error", "it is no notebook of Jupyter's format 4")
        report("done")
        os._exit(0)
    true_checks = {name: getattr(check, name) for name in vars(check) if not name.startswith("_")}
    shell = _Shell.instance()
    _watch_solutions(report)
    judged: set[str] = set()
    for cell in cells:
        if cell.cell_type != "code":
            continue
        result = shell.run_cell(cell.source, store_history=False)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            report("error", _told(error))
        for call in exercises_of(cell):
            if (key := key_of(call)) in asked:
                chosen = (
                    isinstance(call.args[0], ast.Constant) if call.args else False
                )  # a puzzle: the answer is the call
                _judge(key, ast.unparse(call) if chosen else asked[key], true_checks, shell.user_ns, report)
                judged.add(key)
    for key in asked.keys() - judged:
        _judge(key, asked[key], true_checks, shell.user_ns, report)
    report("done")
    os._exit(0)  # and wait for none of its threads


def _reporter(file: Path, token: str) -> Callable[..., None]:
    """Return what writes a report into a file, as a line of JSON."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND)

    def report(kind: str, name: str = "", verdict: Verdict | None = None) -> None:
        told = {"token": token, "kind": kind, "name": name, "verdict": verdict and asdict(verdict)}
        os.write(descriptor, f"{json.dumps(told, ensure_ascii=False)}\n".encode(errors="replace"))

    return report


def _judge(key: str, call: str, checks: dict[str, Any], namespace: dict[str, Any], report: Callable[..., None]) -> None:
    names = {
        **namespace,
        "check": type("check", (), {name: staticmethod(one) for name, one in checks.items() if callable(one)}),
    }
    try:
        report("verdict", key, eval(call, names))
    except BaseException as error:  # by sys.exit, too
        report("verdict", key, Verdict(False, f"it cannot be checked ({_told(error)})"))


def _watch_solutions(report: Callable[..., None]) -> None:
    """Report every file of solutions that is opened, and every module of that name that is imported."""
    seen: set[str] = set()

    def watch(event: str, given: tuple[Any, ...]) -> None:
        if event not in ("open", "import"):
            return
        parts = str(given[0]).replace("\\", "/").split("." if event == "import" else "/")
        if SOLUTIONS in parts and parts[-1] not in seen:
            seen.add(parts[-1])
            report("solution", cut("/".join(parts[parts.index(SOLUTIONS) :])))

    sys.addaudithook(watch)


def _limit(own: Path, memory: float) -> None:
    """Leave the streams and the folders of the person who grades, and take limits where the system has them."""
    os.chdir(own / "work")
    home = own / "home"
    home.mkdir()
    os.environ |= {"RLVIZ_ASK": "0", "MPLBACKEND": "agg"}
    os.environ |= dict.fromkeys(("HOME", "USERPROFILE", "TMPDIR", "TEMP", "TMP", "IPYTHONDIR"), str(home))
    tempfile.tempdir = None
    sys.path[:] = ["", *(path for path in sys.path if path)]
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8", errors="replace")  # noqa: SIM115 - till it ends
    with suppress(ImportError):  # Windows has none
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
        mapped = Path("/proc/self/statm")
        if mapped.exists():  # beyond what torch has mapped already
            ceiling = int(mapped.read_text().split()[0]) * resource.getpagesize() + int(memory * 1e9)
            resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))
