"""Kernels for the lessons, forked from one process that has imported what they import.

A kernel started from nothing spends most of its time on torch, transformers and matplotlib, and each of the 27 lessons and
solutions has a kernel of its own. Forked, it has the modules, and nothing else that another lesson did. `pytest notebooks` and
`rlviz lab`, which the tests in tests/browser/ open, start kernels from nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

START_SECONDS = 120


class Kernel:
    """A forked kernel, as jupyter_client wants to see a process: with the methods of subprocess.Popen."""

    stdin = stdout = stderr = None

    def __init__(self, process: BaseProcess) -> None:
        assert process.pid is not None
        self.process, self.pid = process, process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        self.process.join(timeout)
        return self.poll()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def launch_kernel(cmd: list[str], *, env: dict[str, str] | None = None, cwd: str | None = None, **_: Any) -> Kernel:
    """Fork a kernel, in place of `jupyter_client.launcher.launch_kernel`, which runs this command."""
    forking = multiprocessing.get_context("forkserver")
    forking.set_forkserver_preload(["tests.lesson_imports"])
    apart = forking.Event()
    process = forking.Process(target=_serve, args=(cmd[cmd.index("-f") :], dict(env or os.environ), cwd, apart))
    process.start()
    if not apart.wait(START_SECONDS):
        process.kill()
        raise RuntimeError(f"no kernel after {START_SECONDS} seconds")
    return Kernel(process)


def _serve(arguments: list[str], env: dict[str, str], cwd: str | None, apart: Any) -> None:
    os.setsid()  # jupyter_client sends its signals to a kernel's whole group
    apart.set()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd or ".")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()
    from ipykernel import kernelapp

    sys.argv = ["ipykernel_launcher", *arguments]
    kernelapp.launch_new_instance(argv=arguments)
