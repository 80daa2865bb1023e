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
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError

from rlviz.lessons import check
from rlviz.lessons.editions import SOLUTIONS, exercises_of, key_of, read_notebook
from rlviz.lessons.gradebook import Grade
from rlviz.lessons.grading import START_SECONDS, end_group
from rlviz.lessons.verdict import Verdict
from small_models.checks import cut
from small_models.files import convert

LARGEST_FILE = 100_000_000  # bytes that a submission may write into one file
OPENED = "opened"  # the file with the names of the solutions that were opened


def run_notebook(
    grade: Grade, name: str, asked: dict[str, str], own: str, limit: float, memory: float, grader: Any
) -> None:
    """Run own/work/`name` and send the grade, as JSON, at the beginning, after each check and at the end.

    asked: name of an exercise → the lesson's call. limit: seconds. memory: GB that may be asked for, on Linux. A grade whose
    stage is not "ended" when this process has ended says that the kernel died.
    """
    if hasattr(os, "setsid"):
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def send() -> None:
        with suppress(OSError):
            grade.solutions = list(dict.fromkeys(Path(own, OPENED).read_text(encoding="utf-8").splitlines()))
        grader.send_bytes(json.dumps(asdict(grade), ensure_ascii=False).encode(errors="replace"))

    send()
    try:
        _limit(Path(own), memory)
        _execute(grade, Path(name), asked, Path(own), limit, send)
        grade.stage = "ended"
    except CellTimeoutError:
        grade.stage = "ended"
        grade.add_error(f"stopped after {limit:g} seconds")
    except DeadKernelError:
        pass
    except BaseException as error:  # whatever it is, it has a row
        grade.add_error(f"it cannot be graded ({type(error).__name__}: {cut(str(error), 200)})")
    send()
    end_group(os.getpid())
    os._exit(0)


def _execute(
    grade: Grade, notebook: Path, asked: dict[str, str], own: Path, limit: float, send: Callable[[], None]
) -> None:
    """Let a kernel run the cells, and take errors and verdicts from its replies into the grade."""
    token = secrets.token_hex()  # no cell of a submission begins with it
    try:
        cells = list(_with_checks(read_notebook(notebook).cells, asked, token))
    except ValueError:
        grade.error = "it is no notebook of Jupyter's format 4"
        return
    kernel, end = _Kernel(own, token), time.monotonic() + limit
    _end_with_the_parent(own)

    def keep(cell: Any, execute_reply: Any, **_: Any) -> None:
        content = execute_reply["content"]
        if cell.source.startswith(token):
            key, _call = json.loads(cell.source.removeprefix(token))
            grade.verdicts[key] = convert(content["user_expressions"], Verdict, "verdict")
            send()
        elif content["status"] == "error":
            grade.error = grade.error or cut(f"{content['ename']}: {content['evalue']}", 200)

    client: Any = NotebookClient(nbformat.v4.new_notebook(cells=cells), km=cast(Any, kernel), on_cell_executed=keep)
    client.allow_errors, client.startup_timeout = True, START_SECONDS
    client.timeout_func = lambda cell: max(0.01, end - time.monotonic())
    client.output = lambda *_: None  # nobody looks at outputs, and they may be large
    client.execute()


def _end_with_the_parent(own: Path) -> None:
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
    left = dict(asked)
    for cell in cells:
        if cell.cell_type != "code":
            continue
        yield cell
        for call in exercises_of(cell):
            if (key := key_of(call)) in asked:
                left.pop(key, None)
                chosen = bool(call.args) and isinstance(call.args[0], ast.Constant)  # a puzzle: the answer is the call
                yield nbformat.v4.new_code_cell(token + json.dumps([key, ast.unparse(call) if chosen else asked[key]]))
    yield from (nbformat.v4.new_code_cell(token + json.dumps(pair)) for pair in left.items())


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


class _Kernel(AsyncKernelClient):
    """A kernel in a process of its own, and what speaks to it; forked where that is safe, so that it has torch already."""

    has_kernel = True  # nbclient takes it for the manager, too

    def __init__(self, own: Path, token: str) -> None:
        local: dict[str, Any] = {"transport": "ipc", "ip": str(own / "k")} if os.name == "posix" else {}
        super().__init__(connection_file=str(own / "kernel.json"), **local)
        self.write_connection_file()
        starting: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        self.process = starting.Process(target=_serve, args=(own, token))
        self.process.start()

    def client(self) -> _Kernel:
        return self

    async def _async_is_alive(self) -> bool:
        return self.process.is_alive()

    is_alive = _async_is_alive


def _serve(own: Path, token: str) -> None:
    """Be the kernel. What it has from the child and from the server that forked both is closed: others depend on it."""
    if sys.platform == "linux":
        tracker: Any = resource_tracker._resource_tracker
        tracker._fd = tracker._pid = None  # whoever starts processes gets a new one
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    else:
        _end_with_the_parent(own)
    checks = {
        name: staticmethod(one) for name, one in vars(check).items() if not name.startswith("_") and callable(one)
    }

    class Judging(IPythonKernel):
        async def do_execute(self, code: str, *more: Any, **settings: Any) -> dict[str, Any]:
            if not code.startswith(token):
                return await super().do_execute(code, *more, **settings)
            _, call = json.loads(code.removeprefix(token))
            verdict = _judge(call, {**self.shell.user_ns, "check": type("check", (), checks)})
            return {"status": "ok", "execution_count": 0, "payload": [], "user_expressions": asdict(verdict)}

    # what is printed, nobody reads, and to send it may take longer than the notebook
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8", errors="replace")  # noqa: SIM115 - till it ends
    app = IPKernelApp.instance(kernel_class=Judging, outstream_class=None)
    app.config.HistoryManager.enabled = False
    app.config.InlineBackend.figure_formats = set()  # nobody looks at the pictures
    app.initialize(["-f", str(own / "kernel.json")])
    _watch_solutions(str(own / OPENED))
    app.start()


def _judge(call: str, names: dict[str, Any]) -> Verdict:
    try:
        verdict = eval(call, names)
        return Verdict(bool(verdict.passed), str(verdict.says), str(verdict.mistake))
    except BaseException as error:  # by sys.exit, too
        return Verdict(False, cut(f"it cannot be checked ({type(error).__name__}: {error}", 200) + ")")


def _watch_solutions(opened: str) -> None:
    """Write down every file of solutions that is opened, and every module of that name that is imported."""

    def watch(event: str, given: tuple[Any, ...]) -> None:
        if event not in ("open", "import") or given[0] == opened:
            return
        parts = str(given[0]).replace("\\", "/").split("." if event == "import" else "/")
        if SOLUTIONS in parts:
            with suppress(OSError), open(opened, "a", encoding="utf-8", errors="replace") as file:
                file.write(cut("/".join(parts[parts.index(SOLUTIONS) :])) + "\n")

    sys.addaudithook(watch)
