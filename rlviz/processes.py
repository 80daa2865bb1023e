"""Work on several tasks in processes side by side, and stop it between two steps rather than within one.

An executor (concurrent.futures, joblib) takes a task to a process and brings its result back. For a task that reports after each
step, and is closed between two of them, it offers nothing; before Python 3.14 it cuts no work off; when one worker dies, it ends
all others.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from queue import Empty
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

# Imported once, what a worker needs takes neither its seconds nor its memory again. Elsewhere a fork is not safe or not known.
START = "forkserver" if sys.platform == "linux" else "spawn"
STOPS = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]  # Windows has none

ENDED = "a task ended by itself before it was done (by sys.exit, perhaps); what is done is kept"


@contextmanager
def _stops_call(handler: Callable[[int, FrameType | None], None]) -> Iterator[Callable[[], None]]:
    """Let Ctrl-C, SIGTERM and SIGHUP call this; give a function that ends it early.

    One that this process was started to ignore, as `nohup` does, stays ignored.
    """
    before = {number: signal.getsignal(number) for number in STOPS}
    ours = [number for number, usual in before.items() if usual not in (signal.SIG_IGN, None)]

    def give_back() -> None:
        for number in ours:
            signal.signal(number, before[number])

    for number in ours:
        signal.signal(number, handler)
    try:
        yield give_back
    finally:
        give_back()


@contextmanager
def interrupt_is_a_wish() -> Iterator[list[int]]:
    """Let the first Ctrl-C, SIGTERM or SIGHUP fill a list, so that a step is never cut in two; the second acts as always."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        give_back()

    with _stops_call(ask) as give_back:
        yield asked


@contextmanager
def stops_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt too, with the signal's number as its argument."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    with _stops_call(interrupt):
        yield


def exit_code(number: int) -> int:
    """Return the exit code of a process that this signal ended, as shells say it: 130 for Ctrl-C."""
    return 128 + number


def side_by_side(
    work: Callable[[T], Iterator[R]], tasks: Sequence[T], *, jobs: int, at_once: bool = False
) -> Generator[R, None, None]:
    """Yield what `work(task)` yields for each of the tasks, in up to `jobs` processes of one torch thread each.

    work: a generator function of a module; it is closed after its next report when the consumer closes this one, so what it
    does on GeneratorExit is where it keeps what it has. With one job the work is done in this process, a task after the other.
    at_once: a consumer that closes waits for no report; work under way in other processes is cut off and lost.
    Raises what the work raises, ValueError for tasks that no other process can read, RuntimeError when a process dies, or all
    have ended and work is missing.
    """
    if jobs == 1:
        for task in tasks:
            try:
                yield from work(task)
            except SystemExit:  # else this process would end as if all were done
                raise RuntimeError(ENDED) from None
        return
    try:
        packed = [pickle.dumps(task) for task in tasks]
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(f"jobs: what is to be done cannot be sent to another process ({error}); use jobs=1") from error
    context: Any = multiprocessing.get_context(START)
    if START == "forkserver":
        context.set_forkserver_preload([work.__module__])
    with (
        _stops_wait()
    ):  # these start multiprocessing's resource tracker, which by itself ignores all of them but SIGHUP
        reports, stop, position = context.Queue(), context.Event(), context.Value("q", 0)
    given = work, packed, position, reports, stop
    processes = [context.Process(target=_work_off, args=given, daemon=True) for _ in range(min(jobs, len(tasks)))]
    try:
        with _stops_wait():  # a Ctrl-C reaches all processes of a terminal; the first one is to tell the others
            for process in processes:
                process.start()
        missing = len(tasks)
        while missing:
            ended = all(process.exitcode is not None for process in processes)  # before the last look for reports
            try:
                report, failure, finished = reports.get(timeout=0.2)
            except Empty:
                if codes := _bad_ends(processes):
                    raise RuntimeError(
                        f"a process ended in the middle of its work (exit code {codes[0]}): out of memory, or a script "
                        'without `if __name__ == "__main__":`'
                    ) from None
                if ended:
                    raise RuntimeError(
                        f"{missing} of {len(tasks)} tasks are not done, and no process is left to do them (one ended by itself "
                        "or by a signal); what is done is kept"
                    ) from None
                continue
            if failure is not None:
                raise failure
            if finished:
                missing -= 1
            else:
                yield report
    finally:
        stop.set()
        cut_off = at_once or bool(_bad_ends(processes))  # another may wait for a lock that a dead one held
        for process in processes:
            if cut_off and process.is_alive():
                process.kill()
                process.join()
            while process.is_alive():
                with suppress(Empty):
                    reports.get(timeout=0.05)  # a process cannot end before its reports are taken
        reports.close()


def _bad_ends(processes: Iterable[BaseProcess]) -> list[int]:
    """Return the exit codes of the processes that failed or were killed."""
    return [process.exitcode for process in processes if process.exitcode]


@contextmanager
def _stops_wait() -> Iterator[None]:
    """Hold Ctrl-C, SIGTERM and SIGHUP back; a process started meanwhile does so till it says otherwise."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work_off(
    work: Callable[[Any], Iterator[Any]], packed: list[bytes], position: Any, reports: Any, stop: Any
) -> None:
    """Do one task after the other, each the first that nobody has begun, until all are done or `stop` is set."""
    import torch

    ended: list[int] = []
    for number in STOPS:  # SIGTERM is also how this process is ended where nobody is left to close it
        signal.signal(number, signal.SIG_IGN if number != signal.SIGTERM else lambda *_: ended.append(1))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def over() -> bool:
        return bool(ended) or stop.is_set() or not parent.is_alive()

    while not over():
        with position.get_lock():
            mine = position.value
            position.value += 1
        if mine >= len(packed):
            return
        try:
            steps = work(pickle.loads(packed[mine]))
            for report in steps:
                reports.put((report, None, False))
                if over():
                    steps.close()  # type: ignore[attr-defined]
                    break
            else:
                reports.put((None, None, True))
        except Exception as error:
            reports.put((None, _sendable(error), False))
    if not parent.is_alive():
        reports.cancel_join_thread()  # nobody will take them


def _sendable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
