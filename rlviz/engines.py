"""The same work on another engine: processes of this machine (`local`), joblib, or a Ray cluster, here or elsewhere.

`rlviz.processes` tells of each step and stops between two of them. Another engine brings a task to a worker and back as a whole:
only its last report comes back, a stop cuts off what is under way, and a task whose worker died is done again.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from rlviz.processes import ENDED, STOPS, side_by_side
from small_models.checks import pip_install, shown
from small_models.files import reason

T = TypeVar("T")
R = TypeVar("R")

TRIES = 3  # of a task whose worker dies
REACH_SECONDS = 5.0  # to reach a cluster
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(
    (0, 0, 0, 4, 0, 0, 0, 0, 0)
)  # of HTTP/2, with no settings: RFC 9113, 3.4
SETTINGS = 4  # the type of the frame with which a server answers, in its fourth byte
LOCAL = "local"


def check_engine(on: str) -> None:
    """Raise ValueError, in one sentence, for an engine that there is not, is not installed, or cannot be reached."""
    name, colon, address = _parts(on)
    if name not in (LOCAL, "joblib", "ray") or (colon and (name != "ray" or not address)):
        raise ValueError(f"on must be local, joblib, ray, or ray:ADDRESS of a cluster; got {shown(on)}")
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


def elsewhere(on: str) -> bool:
    """Return whether an engine has cores of other machines, which are not known here."""
    return on.startswith("ray:")


def run_on(
    on: str, work: Callable[[T], Iterator[R]], tasks: Sequence[T], *, jobs: int | None, at_once: bool = False
) -> Generator[R, None, None]:
    """Yield the reports of `work(task)` for the tasks; of other engines than "local", the last one of each task.

    on: see `check_engine`. jobs: how many tasks at once (None: of a cluster as many as it has cores, else one). at_once: as
    `side_by_side` has it. Workers read and write in this process's working folder, which the machines of a cluster must share.
    Raises what the work raises; ValueError where the cluster cannot be reached; RuntimeError for a task whose workers died
    three times.
    """
    name, _, address = _parts(on)
    if not tasks:
        return
    if name == LOCAL:
        yield from side_by_side(work, tasks, jobs=jobs or 1, at_once=at_once)
    elif name == "joblib":
        yield from _on_joblib(work, tasks, jobs or 1)
    else:
        yield from _on_ray(work, tasks, jobs, address)


def _whole(place: int, work: Callable[[T], Iterator[R]], task: T, folder: str, asker: int) -> tuple[int, R | None]:
    """Do a task to its end, in another process on one torch thread, and return its place and its last report."""
    if os.getpid() != asker:
        import torch

        torch.set_num_threads(1)
        with suppress(ValueError):  # not the main thread
            signal.signal(
                signal.SIGINT, signal.SIG_IGN
            )  # a Ctrl-C reaches all processes of a terminal; the first one acts
        try:
            os.chdir(folder)
        except OSError:
            raise ValueError(
                f"on: a worker has no folder {folder}; the machines of a cluster must share the one you work in"
            ) from None
    try:
        reports = deque(work(task), maxlen=1)
    except SystemExit:
        raise RuntimeError(ENDED) from None
    return place, reports[0] if reports else None


def _on_joblib(work: Callable[[T], Iterator[R]], tasks: Sequence[T], jobs: int) -> Generator[R, None, None]:
    from joblib import Parallel, delayed

    folder, asker = str(Path.cwd()), os.getpid()
    left, tries = dict(enumerate(tasks)), 0
    while left:
        calls = [delayed(_whole)(place, work, task, folder, asker) for place, task in left.items()]
        parallel = Parallel(n_jobs=jobs, return_as="generator_unordered")
        try:
            with closing(parallel(calls)) as found:
                for place, report in found:
                    del left[place]
                    yield report
        except BrokenProcessPool:
            tries += 1
            if tries == TRIES:
                raise RuntimeError(_died(len(left), len(tasks))) from None


def _died(missing: int, count: int) -> str:
    return (
        f"{missing} of {count} tasks are not done: their workers died {TRIES} times, most likely out of memory; what is done is "
        "kept"
    )


def _on_ray(
    work: Callable[[T], Iterator[R]], tasks: Sequence[T], jobs: int | None, address: str
) -> Generator[R, None, None]:
    with _cluster(address, jobs) as ray:
        whole = ray.remote(num_cpus=1, max_retries=TRIES - 1)(_whole)
        folder, waiting, done = str(Path.cwd()), list(enumerate(tasks)), 0
        under_way: list[Any] = []
        try:
            while waiting or under_way:
                while waiting and len(under_way) < (jobs or len(tasks)):
                    place, task = waiting.pop(0)
                    under_way.append(whole.remote(place, work, task, folder, os.getpid()))
                ready, under_way = ray.wait(under_way, timeout=0.2)  # so that Ctrl-C is heard
                for one in ready:
                    _, report = ray.get(one)
                    done += 1
                    yield report
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.WorkerCrashedError:
            raise RuntimeError(_died(len(tasks) - done, len(tasks))) from None
        except ray.exceptions.RayError as error:
            raise RuntimeError(
                f"on: the Ray cluster could not do a task ({reason(error)}); what is done is kept"
            ) from None
        finally:
            for one in under_way:
                with suppress(Exception):  # it may be done by now
                    ray.cancel(one, force=True)


@contextmanager
def _cluster(address: str, jobs: int | None) -> Iterator[Any]:
    """Give ray, connected to the cluster: one of this machine, begun for these tasks, where there is no address."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    mine = not ray.is_initialized()  # a notebook may have its own
    handlers = {number: signal.getsignal(number) for number in STOPS}
    own = {} if address else {"num_cpus": jobs or os.cpu_count(), "include_dashboard": False}
    try:
        if mine:
            ray.init(address=address or "local", log_to_driver=False, logging_level="CRITICAL", **own)
    except Exception as error:  # of many unrelated types
        where = f"no Ray cluster can be reached at {address}" if address else "Ray cannot begin a cluster here"
        token = "; a cluster that asks for a token needs RAY_AUTH_MODE=token" if address else ""
        raise ValueError(f"on: {where} ({_why(error)}{token})") from None
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    try:
        yield ray
    finally:
        if mine:
            ray.shutdown()


def _why(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or reason(error)
