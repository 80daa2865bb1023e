"""Many tasks at once by joblib: in processes of this machine, or on a Ray cluster, there in chunks of tasks."""

from __future__ import annotations

import importlib.util
import os
import pickle
import re
import signal
import socket
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from small_models.checks import pip_install, short_repr
from small_models.files import reason

T = TypeVar("T")
R = TypeVar("R")

LOCAL = "local"
STOPS = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]  # Windows has none
DIED = "a worker died, most likely out of memory ({}); what is done is kept; try fewer jobs"
ENDED = "a task ended by itself before it was done (by sys.exit, perhaps); what is done is kept"


def check_engine(on: str) -> None:
    """Raise ValueError, in one sentence, for an engine that there is not, is not installed, or cannot be reached."""
    if on == LOCAL:
        return
    engine = re.fullmatch(r"ray(:(?P<host>.+):(?P<port>\d+))?", on)
    if engine is None:
        raise ValueError(f"on must be local, ray, or ray:HOST:PORT of a cluster; got {short_repr(on)}")
    if importlib.util.find_spec("ray") is None:
        raise ValueError(f"on: ray is not installed; install it with: {pip_install('rlviz[ray]')}")
    if is_remote(on):
        try:
            socket.create_connection((engine["host"], int(engine["port"])), timeout=5.0).close()
        except (OSError, OverflowError, UnicodeError) as error:
            raise _unreachable(on, error) from None


def _unreachable(on: str, error: Exception) -> ValueError:
    where = f"no Ray cluster can be reached at {on[4:]}" if is_remote(on) else "Ray cannot begin a cluster here"
    return ValueError(f"on: {where} ({getattr(error, 'strerror', None) or reason(error)})")


def is_remote(on: str) -> bool:
    """Return whether an engine has cores of other machines, which are not known here."""
    return on.startswith("ray:")


def runs_in_this_process(on: str, jobs: int | None, tasks: int) -> bool:
    """Return whether so many tasks are done here, one after the other, rather than by workers."""
    return tasks == 0 or (on == LOCAL and min(jobs or 1, tasks) == 1)


def run_on(
    on: str, work: Callable[[T], Iterator[R]], tasks: Sequence[T], *, jobs: int | None
) -> Generator[R, None, None]:
    """Yield what the generator `work(task)` yields for each of the tasks.

    on: see `check_engine`. jobs: tasks at once (None: of a cluster as many as it has cores, else one). Alone they are done in
    this process, a report at a time. Workers, of one torch thread each, give the reports of a task once it is done, on Ray once
    its chunk of `jobs` tasks is. When the consumer closes, work in this process is closed, and workers are killed. They use
    this process's working folder, which the machines of a cluster must share.
    Raises what the work raises; ValueError for tasks that cannot be sent, RuntimeError where a worker dies.
    """
    if runs_in_this_process(on, jobs, len(tasks)):
        for task in tasks:
            yield from _iterate(work, task)
        return
    import cloudpickle  # it also sends what a script or a notebook defines itself
    from joblib import delayed

    try:
        calls = [delayed(_run_packed)(cloudpickle.dumps((work, task)), str(Path.cwd())) for task in tasks]
    except Exception as error:  # of many unrelated types
        raise ValueError(f"jobs: what is to be done cannot be sent to a worker ({error}); use jobs=1") from error
    with _engine(on, jobs, len(tasks)) as (parallel, chunk):
        for first in range(0, len(calls), chunk):
            with closing(_results(parallel, calls[first : first + chunk])) as results:
                for reports, failure in results:
                    yield from reports
                    if failure is not None:
                        raise failure


@contextmanager
def _engine(on: str, jobs: int | None, tasks: int) -> Iterator[tuple[Any, int]]:
    """Give joblib's Parallel, and to how many tasks at once it gives its results."""
    from joblib import Parallel

    if on == LOCAL:
        from joblib.externals.loky import get_reusable_executor

        try:
            yield Parallel(min(jobs or 1, tasks), backend="loky", batch_size=1, return_as="generator_unordered"), tasks
        finally:
            get_reusable_executor(reuse=True).shutdown(kill_workers=True)  # else they wait for minutes
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray.util.joblib import register_ray

    local = {} if is_remote(on) else {"num_cpus": max(2, jobs or os.cpu_count() or 1), "include_dashboard": False}
    try:
        ray.init(address=on[4:] or "local", log_to_driver=False, logging_level="CRITICAL", **local)
    except Exception as error:  # of many unrelated types
        raise _unreachable(on, error) from None
    try:
        register_ray()
        cores = int(ray.cluster_resources().get("CPU", 1))
        # with one worker joblib does all in this process, so that a chunk of one task leaves the second without work
        with Parallel(max(2, min(jobs or cores, cores)), backend="ray", batch_size=1) as parallel:
            yield parallel, min(jobs or cores, cores)  # Ray's backend returns no generator
    finally:
        ray.shutdown()


def _results(parallel: Any, calls: Sequence[Any]) -> Generator[tuple[list[Any], Exception | None], None, None]:
    """Yield what workers return. They inherit that a Ctrl-C, which reaches all processes of a terminal, is not theirs."""
    results: Any = ()
    before = None
    if hasattr(signal, "pthread_sigmask") and parallel.return_generator:  # else the call ends with the last task
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        try:
            results = parallel(calls)
        finally:
            if before is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for result in results:  # noqa: UP028 - which would close them, with a warning
            yield result
    except Exception as error:  # each engine has a type of its own for a worker that died
        raise RuntimeError(DIED.format(reason(error))) from None
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # joblib's, of the tasks that are left undone
            del results  # which ends them


def _run_packed(packed: bytes, folder: str) -> tuple[list[Any], Exception | None]:
    """Return what a task reported, and the error with which it ended."""
    import cloudpickle
    import torch

    reports: list[Any] = []
    try:
        os.chdir(folder)
        torch.set_num_threads(1)
        for report in _iterate(*pickle.loads(packed)):
            reports.append(report)
        return reports, None
    except Exception as error:
        try:
            pickle.loads(cloudpickle.dumps(error))
        except Exception:  # it cannot be made again
            return reports, RuntimeError(f"{type(error).__name__}: {error}")
        return reports, error


def _iterate(work: Callable[[T], Iterator[R]], task: T) -> Iterator[R]:
    try:
        yield from work(task)
    except SystemExit:  # else this process would end as if all were done
        raise RuntimeError(ENDED) from None
