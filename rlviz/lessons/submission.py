"""Run a submitted notebook: nbclient in a child process, its kernel in another, with limits of time and memory.

The child runs no code of the submission. It leads a process group with the kernel and what that starts, and ends it when the
grader is gone. Checks are calls of the grader's own, between the cells, and their verdicts come back in the kernel's replies.
"""

from __future__ import annotations

import ast
import json
import multiprocessing
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from multiprocessing import connection, resource_tracker
from pathlib import Path
from typing import Any, cast

import nbformat
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.connect import write_connection_file
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError

from rlviz.lessons import check
from rlviz.lessons.editions import SOLUTIONS, exercises_of, key_of, read_notebook
from rlviz.lessons.gradebook import Grade
from rlviz.lessons.grading import DONE, START_SECONDS, end_group
from rlviz.lessons.verdict import Verdict
from small_models.checks import cut
from small_models.files import convert

LARGEST_FILE = 100_000_000  # bytes that a submission may write into one file
OPENED = "opened"  # the file with the names of the solutions that were opened


def run_notebook(
    grade: Grade, name: str, asked: dict[str, str], own: str, limit: float, memory: float, grader: Any
) -> None:
    """Run own/work/`name` and send the grade, as JSON, when its kernel is ready, after each check and at the end.

    asked: name of an exercise → the lesson's call. limit: seconds. memory: GB that may be asked for, on Linux.
    """
    if hasattr(os, "setsid"):
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def send() -> None:
        with suppress(OSError):
            grade.solutions = list(dict.fromkeys(Path(own, OPENED).read_text(encoding="utf-8").splitlines()))
        grader.send_bytes(json.dumps(asdict(grade), ensure_ascii=False).encode(errors="replace"))

    try:
        _limit(Path(own), memory)
        cells = _code_of(Path(name))
        if cells is None:
            grade.error = "it is no notebook of Jupyter's format 4"
        else:
            _execute(grade, cells, asked, own, limit, send)
        grade.stage = "ended"
    except CellTimeoutError:
        grade.stage = "ended"
        grade.add_error(f"stopped after {limit:g} seconds")
    except DeadKernelError:
        end_group(os.getpid())  # before it is done, which the grader notices
    except BaseException as error:  # whatever it is, it has a row
        grade.add_error(f"it cannot be graded ({type(error).__name__}: {cut(str(error), 200)})")
    send()
    grader.send_bytes(DONE)
    end_group(os.getpid())
    os._exit(0)


def _code_of(file: Path) -> list[Any] | None:
    try:
        return [cell for cell in read_notebook(file).cells if cell.cell_type == "code"]
    except ValueError:
        return None


def _execute(
    grade: Grade, cells: list[Any], asked: dict[str, str], own: str, limit: float, send: Callable[[], None]
) -> None:
    """Let a kernel run the cells, and take errors and verdicts from its replies into the grade."""
    token, end = secrets.token_hex(), 0.0  # no cell of a submission begins with it
    kernel = _Kernel(own, token)
    _end_with_the_parent(own)

    def begin(**_: Any) -> None:
        nonlocal end
        end = time.monotonic() + limit
        send()

    def keep(cell: Any, execute_reply: Any, **_: Any) -> None:
        content = execute_reply["content"]
        if cell.source.startswith(token):
            key = json.loads(cell.source[len(token) :])[0]
            grade.verdicts[key] = convert(content["user_expressions"], Verdict, "verdict")
            send()
        elif content["status"] == "error":
            grade.error = grade.error or cut(f"{content['ename']}: {content['evalue']}", 200)

    client = _Client(
        nbformat.v4.new_notebook(cells=list(_with_checks(cells, asked, token))),
        km=cast(Any, kernel),
        allow_errors=True,
        startup_timeout=START_SECONDS,
        timeout_func=lambda cell: max(0.01, end - time.monotonic()),
        on_notebook_start=begin,
        on_cell_executed=keep,
    )
    client.execute()


def _end_with_the_parent(own: str) -> None:
    """Let a thread end this process, and its group, when the one that started it is gone, by whatever signal."""
    parent: Any = multiprocessing.parent_process()

    def watch() -> None:
        connection.wait([parent.sentinel])
        shutil.rmtree(own, ignore_errors=True)
        end_group(os.getpid())
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _with_checks(cells: list[Any], asked: dict[str, str], token: str) -> Iterator[Any]:
    """Yield a notebook's code with a cell of the grader's after each exercise, and at the end for those that are missing."""
    judged = set()
    for cell in cells:
        yield cell
        for call in exercises_of(cell):
            if (key := key_of(call)) in asked:
                judged.add(key)
                chosen = bool(call.args) and isinstance(call.args[0], ast.Constant)  # a puzzle: the answer is the call
                yield _check(token, key, ast.unparse(call) if chosen else asked[key])
    for key in asked.keys() - judged:
        yield _check(token, key, asked[key])


def _check(token: str, *key_and_call: str) -> Any:
    return nbformat.v4.new_code_cell(token + json.dumps(key_and_call))


def _limit(own: Path, memory: float) -> None:
    """Leave the streams and the folders of the person who grades, and take limits where the system has them."""
    os.chdir(own / "work")
    home = own / "home"
    home.mkdir()
    os.environ |= {"RLVIZ_ASK": "0", "MPLBACKEND": "agg"}
    os.environ |= dict.fromkeys(("HOME", "USERPROFILE", "TMPDIR", "TEMP", "TMP", "IPYTHONDIR"), str(home))
    tempfile.tempdir = None
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


class _Client(NotebookClient):
    def output(self, *_: Any) -> None:
        """Keep no outputs: nobody looks at them, and they may be large."""


class _Connection(AsyncKernelClient):
    process: Any = None

    async def _async_is_alive(self) -> bool:
        return self.process.is_alive()

    is_alive = _async_is_alive


class _Kernel:
    """A kernel in a process of its own, as nbclient asks for one; forked where that is safe, so that it has torch already."""

    has_kernel = True

    def __init__(self, own: str, token: str) -> None:
        self.file = str(Path(own, "kernel.json"))
        local: dict[str, Any] = {"transport": "ipc", "ip": str(Path(own, "k"))} if os.name == "posix" else {}
        write_connection_file(self.file, **local)
        starting: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        self.process = starting.Process(target=_serve, args=(self.file, token, str(Path(own, OPENED))))
        self.process.start()

    def client(self) -> AsyncKernelClient:
        client = _Connection()
        client.load_connection_file(self.file)
        client.process = self.process
        return client


def _serve(file: str, token: str, opened: str) -> None:
    """Be the kernel. What it has from the child and from the server that forked both is closed: others depend on it."""
    if sys.platform == "linux":
        tracker: Any = resource_tracker._resource_tracker
        tracker._fd = tracker._pid = None  # whoever starts processes gets a new one
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    else:
        _end_with_the_parent(str(Path(file).parent))
    checks = {
        name: staticmethod(one) for name, one in vars(check).items() if not name.startswith("_") and callable(one)
    }

    class Judging(IPythonKernel):
        async def do_execute(self, code: str, *more: Any, **settings: Any) -> dict[str, Any]:
            if not code.startswith(token):
                return await super().do_execute(code, *more, **settings)
            _, call = json.loads(code[len(token) :])
            verdict = asdict(_judge(call, {**self.shell.user_ns, "check": type("check", (), checks)}))
            return {"status": "ok", "execution_count": 0, "payload": [], "user_expressions": verdict}

    # what is printed, nobody reads, and to send it may take longer than the notebook
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8", errors="replace")  # noqa: SIM115 - till it ends
    parent = os.getppid() if sys.platform == "linux" else 0  # it ends with this process
    app = IPKernelApp.instance(kernel_class=Judging, outstream_class=None, parent_handle=parent)
    app.config.HistoryManager.enabled = False
    app.config.InlineBackend.figure_formats = set()  # nobody looks at the pictures
    app.initialize(["-f", file])
    _watch_solutions(opened)
    app.start()


def _judge(call: str, names: dict[str, Any]) -> Verdict:
    try:
        verdict = eval(call, names)
        return Verdict(bool(verdict.passed), str(verdict.says), str(verdict.mistake))
    except BaseException as error:  # by sys.exit, too
        return Verdict(False, f"it cannot be checked ({type(error).__name__}: {cut(_words(error), 200)})")


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # its own __str__ broke off
        return ""


def _watch_solutions(opened: str) -> None:
    """Write down every file of solutions that is opened, and every module of that name that is imported."""

    def watch(event: str, given: tuple[Any, ...]) -> None:
        if event not in ("open", "import"):
            return
        parts = str(given[0]).replace("\\", "/").split("." if event == "import" else "/")
        if SOLUTIONS in parts and given[0] != opened:
            with suppress(OSError), open(opened, "a", encoding="utf-8", errors="replace") as file:
                file.write(cut("/".join(parts[parts.index(SOLUTIONS) :])) + "\n")

    sys.addaudithook(watch)
