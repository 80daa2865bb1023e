"""Work on several tasks in processes side by side, and stop it between two steps rather than within one."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def interrupt_is_a_wish() -> Iterator[list[bool]]:
    """Let the first Ctrl-C set a flag, so that a step is never cut in two; the second one interrupts as always."""
    asked: list[bool] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(True)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def side_by_side(
    work: Callable[[T], Iterator[R]], tasks: Sequence[T], *, jobs: int, at_once: bool = False
) -> Generator[R, None, None]:
    """Yield what `work(task)` yields for each of the tasks, in up to `jobs` processes of one torch thread each.

    work: a generator function of a module; it is closed after its next report when the consumer closes this one, so what it
    does on GeneratorExit is where it keeps what it has. With one job the work is done in this process, a task after the other.
    at_once: a consumer that closes waits for no report; work under way in other processes is cut off and lost.
    Raises what the work raises, ValueError for tasks that no other process can read, RuntimeError when a process dies.
    """
    if jobs == 1:
        for task in tasks:
            yield from work(task)
        return
    try:
        packed = [pickle.dumps(task) for task in tasks]
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(f"jobs: what is to be done cannot be sent to another process ({error}); use jobs=1") from error
    context = multiprocessing.get_context("spawn")
    reports, stop, position = context.Queue(), context.Event(), context.Value("q", 0)
    processes = [
        context.Process(target=_work_off, args=(work, packed, position, reports, stop), daemon=True)
        for _ in range(min(jobs, len(tasks)))
    ]
    died = False
    try:
        with _interrupts_wait():  # a Ctrl-C reaches all processes of a terminal; the first one is to tell the others
            for process in processes:
                process.start()
        missing = len(tasks)
        while missing:
            try:
                report, failure, finished = reports.get(timeout=0.2)
            except Empty:
                died = any(process.exitcode not in (None, 0) for process in processes)
                if died:
                    codes = {process.exitcode for process in processes} - {None, 0}
                    raise RuntimeError(
                        f"a process ended in the middle of its work (exit code {codes.pop()}): out of memory, or a script "
                        'without `if __name__ == "__main__":`'
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
        for process in processes:
            # where one died, another may wait for a lock that the dead one held
            if (died or at_once) and process.is_alive():
                process.terminate()
                process.join()
            while process.is_alive():
                with suppress(Empty):
                    reports.get(timeout=0.05)  # a process cannot end before its reports are taken
        reports.close()


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Hold a Ctrl-C back; a process started meanwhile holds it back for good, where the system lets it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work_off(
    work: Callable[[Any], Iterator[Any]], packed: list[bytes], position: Any, reports: Any, stop: Any
) -> None:
    """Do one task after the other, each the first that nobody has begun, until all are done or `stop` is set."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    assert parent is not None
    while not stop.is_set() and parent.is_alive():
        with position.get_lock():
            mine = position.value
            position.value += 1
        if mine >= len(packed):
            return
        try:
            steps = work(pickle.loads(packed[mine]))
            for report in steps:
                reports.put((report, None, False))
                if stop.is_set() or not parent.is_alive():
                    steps.close()  # type: ignore[attr-defined]
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
