"""Many tasks at once, on this machine or on a Ray cluster, by joblib: progress after each step, and a stop between two steps.

joblib starts the workers. In a folder, each takes the next task that nobody has taken, and leaves a file for each report: so
every engine tells of each step, and is stopped by removing one file.
"""

from __future__ import annotations

import _thread
import importlib.util
import os
import pickle
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from small_models.checks import pip_install, shown
from small_models.files import reason

T = TypeVar("T")
R = TypeVar("R")

LOCAL = "local"
TRIES = 3  # of a task whose worker dies
REACH_SECONDS = 5.0  # to reach a cluster
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # HTTP/2, no settings: RFC 9113, 3.4
SETTINGS = 4  # the type of the frame with which a server answers, in its fourth byte
STOPS = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]  # Windows has none
POSIX = hasattr(signal, "pthread_sigmask")
DIED = "a task is not done: its workers died three times, most likely out of memory ({}); what is done is kept"
ENDED = "a task ended by itself before it was done (by sys.exit, perhaps); what is done is kept"


def check_engine(on: str) -> None:
    """Raise ValueError, in one sentence, for an engine that there is not, is not installed, or cannot be reached."""
    name, colon, address = _parts(on)
    if name not in (LOCAL, "ray") or (colon and (name != "ray" or not address)):
        raise ValueError(f"on must be local, ray, or ray:ADDRESS of a cluster; got {shown(on)}")
    if name != LOCAL and importlib.util.find_spec(name) is None:
        raise ValueError(f"on: {name} is not installed; install it with: {pip_install(f'rlviz[{name}]')}")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address and address != "auto":
        try:
            if not (host and port.isdecimal() and 0 < int(port) < 2**16):
                raise OSError("an address is HOST:PORT, ray://HOST:PORT or auto")
            _greet(host.strip("[]"), int(port))
        except (OSError, UnicodeError) as error:
            raise ValueError(f"on: no Ray cluster can be reached at {address} ({_why(error)})") from None


def _greet(host: str, port: int) -> None:
    """Raise OSError where nothing answers as Ray's gRPC does: Ray itself would try for minutes to talk to whatever is there."""
    with socket.create_connection((host, port), timeout=REACH_SECONDS) as link:
        if os.environ.get("RAY_USE_TLS", "0") != "0":
            return  # it answers to those who have its certificate
        link.sendall(HELLO)
        answer = link.makefile("rb").read(9)
        if len(answer) < 9 or answer[3] != SETTINGS:
            raise OSError("what listens there is not Ray")


def _parts(on: str) -> tuple[str, str, str]:
    """Return the engine, a colon where there is one, and the address; `ray://HOST:PORT` is an address too."""
    name, colon, address = on.partition(":")
    return name, colon, f"ray:{address}" if address.startswith("//") else address


def _why(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or reason(error)


def elsewhere(on: str) -> bool:
    """Return whether an engine has cores of other machines, which are not known here."""
    return on.startswith("ray:")


def in_this_process(on: str, jobs: int | None) -> bool:
    """Return whether the tasks are done here, one after the other, rather than by workers."""
    return on == LOCAL and jobs in (None, 1)


def run_on(
    on: str, work: Callable[[T], Iterator[R]], tasks: Sequence[T], *, jobs: int | None, at_once: bool = False
) -> Generator[R, None, None]:
    """Yield what the generator `work(task)` yields for each of the tasks, done by workers of one torch thread each.

    on: see `check_engine`. jobs: tasks at once (None: of a cluster as many as it has cores, else one); a single one is done in
    this process. When the consumer closes, each `work` is closed after its next report (on GeneratorExit it keeps what it has);
    at_once: it is interrupted instead. Workers use this process's working folder, which the machines of a cluster must share.
    Raises what the work raises; ValueError for tasks that cannot be sent, and where no cluster can be reached; RuntimeError for
    a task whose workers died three times.
    """
    if in_this_process(on, jobs) or not tasks:
        for task in tasks:
            try:
                yield from work(task)
            except SystemExit:  # else this process would end as if all were done
                raise RuntimeError(ENDED) from None
        return
    import cloudpickle  # it also sends what a script or a notebook defines itself

    try:
        packed = [cloudpickle.dumps((work, task)) for task in tasks]
    except Exception as error:  # of many unrelated types
        raise ValueError(f"jobs: what is to be done cannot be sent to a worker ({error}); use jobs=1") from error
    shared = Path.cwd() if elsewhere(on) else None
    with TemporaryDirectory(prefix=".rlviz-", dir=shared, ignore_cleanup_errors=True) as name:
        folder, ended = Path(name), list[Exception | None]()
        for place, one in enumerate(packed):
            (folder / f"{place:06}.task").write_bytes(one)
        (folder / "go").touch()

        def drive() -> None:
            try:
                _drive(on, folder, jobs, at_once)
                ended.append(None)
            except Exception as error:
                ended.append(error)

        engine, over = threading.Thread(target=drive), False
        engine.start()
        try:
            while not over:
                over = bool(ended)  # before the last look for reports; a lock that Ctrl-C interrupts would stay locked
                for file in sorted(folder.glob("*.report")):
                    report, failure = pickle.loads(file.read_bytes())
                    file.unlink()
                    if failure is not None:
                        raise failure
                    yield report
                time.sleep(0.0 if over else 0.05)
            if ended[0] is not None:
                raise ended[0]
        finally:
            (folder / "go").unlink()
            engine.join()


def _drive(on: str, folder: Path, jobs: int | None, at_once: bool) -> None:
    """Let workers do the tasks in a folder, and do again those whose worker died."""
    from joblib import Parallel, delayed

    tries: Counter[str] = Counter()
    with _backend(on, jobs) as (backend, cores):
        while (left := len(list(folder.glob("*.task")))) and (folder / "go").exists():
            workers, why = min(jobs or cores, left), "they were told to end"
            try:  # at least 2, for joblib does what is for one worker in this process
                run = Parallel(n_jobs=max(2, workers), backend=backend, batch_size=1, pre_dispatch="all")
                run([delayed(_work_off)(str(folder), str(Path.cwd()), at_once)] * workers)
            except ValueError as error:
                raise ValueError(f"on: {reason(error)}") from None
            except Exception as error:  # each engine has a type of its own for a worker that died
                why = reason(error)
            for lost in list(folder.glob("*.taken")) or list(folder.glob("*.task")):
                tries[lost.stem] += 1
                lost.replace(lost.with_suffix(".task"))
            if TRIES in tries.values():
                raise RuntimeError(DIED.format(why))


@contextmanager
def _backend(on: str, jobs: int | None) -> Iterator[tuple[str, int]]:
    """Give the name of joblib's backend, and its cores; of Ray, connected to a cluster, or to one begun here."""
    name, _, address = _parts(on)
    if name == LOCAL:
        from joblib.externals.loky import get_reusable_executor

        if POSIX:  # a Ctrl-C reaches all processes of a terminal; workers inherit that it waits until they ignore it
            signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        yield "loky", 1
        get_reusable_executor(reuse=True).shutdown(kill_workers=True)  # else they wait for minutes
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray.util.joblib import register_ray

    mine = not ray.is_initialized()  # a notebook may have its own
    own = {} if address else {"num_cpus": max(2, jobs or os.cpu_count() or 1), "include_dashboard": False}
    try:
        if mine:
            ray.init(address=address or "local", log_to_driver=False, logging_level="CRITICAL", **own)
        register_ray()
    except Exception as error:  # of many unrelated types
        where = f"no Ray cluster can be reached at {address}" if address else "Ray cannot begin a cluster here"
        token = "; a cluster that asks for a token needs RAY_AUTH_MODE=token" if address else ""
        raise ValueError(f"on: {where} ({_why(error)}{token})") from None
    try:
        yield "ray", int(ray.cluster_resources()["CPU"])
    finally:
        if mine:
            ray.shutdown()


def _work_off(name: str, here: str, at_once: bool) -> None:
    """Do one task after the other, each the first that nobody has taken, until none is left or the consumer closes."""
    parent, told, finished, folder = os.getppid(), list[bool](), threading.Event(), Path(name)

    def over() -> bool:
        return bool(told) or not (folder / "go").exists() or os.getppid() != parent

    def end(*_: Any) -> None:
        told.append(True)
        if at_once:
            raise KeyboardInterrupt

    def watch() -> None:
        while not finished.wait(0.1):
            if over():
                return _thread.interrupt_main(signal.SIGTERM)

    if threading.current_thread() is threading.main_thread():  # of a process that is a worker's own
        for number in STOPS:  # SIGTERM ends this worker alone
            signal.signal(number, end if number == signal.SIGTERM else signal.SIG_IGN)
        if POSIX:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        if at_once:
            threading.Thread(target=watch, daemon=True).start()
    if not folder.exists():
        raise ValueError(f"a worker has no folder {here}; the machines of a cluster must share the one you work in")
    import torch

    os.chdir(here)
    torch.set_num_threads(1)
    with suppress(KeyboardInterrupt):
        for task in sorted(folder.glob("*.task")):
            if over():
                break
            with suppress(FileNotFoundError):  # another has taken it
                _do(task.rename(task.with_suffix(".taken")), over)
    finished.set()


def _do(task: Path, over: Callable[[], bool]) -> None:
    """Leave each report of a task in a file of its own, and take the task away once it is done."""
    import cloudpickle

    numbers = count()

    def leave(report: Any, failure: Exception | None = None) -> None:
        part = task.with_name(f"{task.stem}-{next(numbers):09}.part")
        part.write_bytes(cloudpickle.dumps((report, failure)))
        part.replace(part.with_suffix(".report"))

    try:
        work, given = pickle.loads(task.read_bytes())
        steps = work(given)
        for report in steps:
            leave(report)
            if over():
                return steps.close()
    except SystemExit:
        leave(None, RuntimeError(ENDED))
    except Exception as error:
        try:
            pickle.loads(cloudpickle.dumps(error))
        except Exception:  # it cannot be made again
            error = RuntimeError(f"{type(error).__name__}: {error}")
        leave(None, error)
    task.unlink()
