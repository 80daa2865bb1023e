"""Run one submitted notebook: nbclient here, its kernel in a process of its own, with limits of time and memory.

The kernel leads a process group with all that it starts, and ends it when the grader is gone. Checks are calls of the grader's
own, between the cells, and their verdicts come back in the kernel's replies.
"""

from __future__ import annotations

import ast
import asyncio
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
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path
from typing import Any, cast

import nbformat
from jupyter_client.asynchronous import AsyncKernelClient
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError

from rlviz.lessons.editions import exercises_of, key_of, read_notebook
from rlviz.lessons.gradebook import ENDED, Grade
from rlviz.lessons.verdict import Verdict
from small_models.checks import cut
from small_models.files import convert

# Imported once, what a submission needs takes no kernel its seconds again. Elsewhere a fork is not safe or not known.
START = "forkserver" if sys.platform == "linux" else "spawn"
START_SECONDS = 300
LARGEST_FILE = 100_000_000  # bytes that a submission may write into one file


def start_server() -> None:
    """Begin the process from which kernels are forked, with torch imported."""
    if START != "forkserver":
        return
    multiprocessing.get_context(START).set_forkserver_preload(["rlviz.lessons.check", "ipykernel.kernelapp", __name__])
    resource_tracker.ensure_running()
    # A Ctrl-C reaches all processes of a terminal; the server inherits that it waits, and ends with this process.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGHUP))
    forkserver.ensure_running()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_submission(
    grade: Grade, notebook: str, exercises: dict[str, str], folder: Path, *, limit: float, memory: float
) -> None:
    """Run `notebook`, in the work folder, and write what comes of it into the grade: stage "ended" unless the kernel died.

    exercises: name → the lesson's call of its check. limit: seconds. memory: GB that may be asked for, on Linux.
    """
    token = secrets.token_hex()  # no cell of a submission begins with it
    try:
        cells = list(_with_checks(read_notebook(folder / "work" / notebook).cells, exercises, token))
    except ValueError:
        grade.error, grade.stage = "it is no notebook of Jupyter's format 4", "ended"
        cells = []
    asyncio.run(_execute(grade, cells, token, folder, limit, memory))
    for name in exercises:
        grade.verdicts.setdefault(name, Verdict(False, "not reached", "not reached"))


def _with_checks(cells: list[Any], exercises: dict[str, str], token: str) -> Iterator[Any]:
    """Yield a notebook's code with a cell of the grader's after each exercise, and at the end for those that are missing."""
    left = dict(exercises)
    for cell in cells:
        if cell.cell_type != "code":
            continue
        yield cell
        for call in exercises_of(cell):
            if (key := key_of(call)) in exercises:
                left.pop(key, None)
                is_puzzle = bool(call.args) and isinstance(call.args[0], ast.Constant)  # its answer is in the call
                check = ast.unparse(call) if is_puzzle else exercises[key]
                yield nbformat.v4.new_code_cell(token + json.dumps([key, check]))
    yield from (nbformat.v4.new_code_cell(token + json.dumps(pair)) for pair in left.items())


async def _execute(grade: Grade, cells: list[Any], token: str, folder: Path, limit: float, memory: float) -> None:
    """Let a kernel run the cells, and take errors and verdicts from its replies into the grade."""

    def read_reply(cell: Any, execute_reply: Any, **_: Any) -> None:
        content = execute_reply["content"]
        if cell.source.startswith(token):
            key, _call = json.loads(cell.source.removeprefix(token))
            grade.verdicts[key] = convert(content["user_expressions"], Verdict, "verdict")
        elif content["status"] == "error":
            grade.error = grade.error or cut(f"{content['ename']}: {content['evalue']}", 200)

    kernel = Kernel(folder, token, memory)
    book = nbformat.v4.new_notebook(cells=cells)
    client: Any = NotebookClient(book, km=cast(Any, kernel), on_cell_executed=read_reply, startup_timeout=START_SECONDS)
    client.allow_errors, client.output = True, lambda *_: None  # nobody looks at outputs, and they may be large
    try:
        await client.async_start_new_kernel_client()
        begun = time.monotonic()  # the seconds in which torch is imported are not the student's
        client.timeout_func = lambda cell: max(0.01, begun + limit - time.monotonic())
        try:
            for place, cell in enumerate(cells):
                await client.async_execute_cell(cell, place)
            grade.stage = "ended"
        except CellTimeoutError:
            grade.stage = "ended"
            grade.add_error(f"stopped after {limit:g} seconds")
        except DeadKernelError:  # which nbclient raises also where the grader is stopped
            grade.add_error(ENDED)
        finally:
            grade.seconds = time.monotonic() - begun
    finally:
        kernel.end()


class Kernel(AsyncKernelClient):
    """A kernel in a process of its own, and what speaks to it; nbclient takes it for the manager, too."""

    has_kernel = True

    def __init__(self, folder: Path, token: str, memory: float) -> None:
        local: dict[str, Any] = {"transport": "ipc", "ip": str(folder / "k")} if os.name == "posix" else {}
        super().__init__(connection_file=str(folder / "kernel.json"), **local)
        self.write_connection_file()
        context: Any = multiprocessing.get_context(START)
        self.process = context.Process(target=_serve, args=(folder, token, memory))
        self.process.start()

    def client(self) -> Kernel:
        return self

    async def _async_is_alive(self) -> bool:
        return self.process.is_alive()

    is_alive = _async_is_alive

    async def cleanup_resources(self) -> None:
        """Do nothing: `end` does all, also where the kernel did not start."""

    def end(self) -> None:
        self.stop_channels()
        _end_group(self.process.pid)
        self.process.kill()
        self.process.join()


def _end_group(leader: int) -> None:
    """Kill a kernel with all that it started, where the system has groups of processes."""
    with suppress(ProcessLookupError, PermissionError, AttributeError):
        os.killpg(leader, signal.SIGKILL)


def _serve(folder: Path, token: str, memory: float) -> None:
    """Run the kernel, in its own process, until it is killed."""
    from ipykernel.ipkernel import IPythonKernel
    from ipykernel.kernelapp import IPKernelApp

    from rlviz.lessons import check

    _limit(folder, memory)
    checks = {name: staticmethod(part) for name, part in vars(check).items() if name[0] != "_" and callable(part)}

    class Judging(IPythonKernel):
        async def do_execute(self, code: str, *more: Any, **settings: Any) -> dict[str, Any]:
            if not code.startswith(token):
                return await super().do_execute(code, *more, **settings)
            _, call = json.loads(code.removeprefix(token))
            # The grader's checks judge, whatever the notebook calls `check` by now.
            verdict = _judge(call, {**self.shell.user_ns, "check": type("check", (), checks)})
            return {"status": "ok", "execution_count": 0, "payload": [], "user_expressions": asdict(verdict)}

    # What is printed, nobody reads, and to send it may take longer than the notebook.
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8", errors="replace")  # noqa: SIM115 - till it ends
    app = IPKernelApp.instance(kernel_class=Judging, outstream_class=None)
    app.config.HistoryManager.enabled = False
    app.config.InlineBackend.figure_formats = set()  # nobody looks at the pictures
    app.initialize(["-f", str(folder / "kernel.json")])
    app.start()


def _limit(folder: Path, memory: float) -> None:
    """Separate this process from the streams, files and folders of the grader, and set its limits where the system has any."""
    parent: Any = multiprocessing.parent_process()
    if hasattr(os, "setsid"):
        os.setsid()
    if START == "forkserver":
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        tracker: Any = resource_tracker._resource_tracker
        tracker._fd = tracker._pid = None  # whoever starts processes gets a new one
        # Of the files that the server left open only the one stays by which the end of the grader is seen.
        os.closerange(3, parent.sentinel)
        os.closerange(parent.sentinel + 1, os.sysconf("SC_OPEN_MAX"))

    def end_with_the_grader() -> None:
        connection.wait([parent.sentinel])
        shutil.rmtree(folder, ignore_errors=True)
        _end_group(os.getpid())
        os._exit(1)

    threading.Thread(target=end_with_the_grader, daemon=True).start()
    os.chdir(folder / "work")
    home = folder / "home"
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


def _judge(call: str, names: dict[str, Any]) -> Verdict:
    try:
        verdict = eval(call, names)
        mistake = str(verdict.mistake) if verdict.is_attempt else "no answer"
        return Verdict(bool(verdict.passed), str(verdict.says), mistake)
    except BaseException as error:  # by sys.exit, too
        return Verdict(False, cut(f"it cannot be checked ({type(error).__name__}: {error}", 200) + ")")
