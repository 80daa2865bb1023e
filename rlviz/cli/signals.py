"""What Ctrl-C, SIGTERM and SIGHUP do to a command: they end it between two steps, and its exit code says so."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rlviz.parallel import STOPS


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
def stops_interrupt() -> Iterator[list[int]]:
    """Let Ctrl-C, SIGTERM and SIGHUP end the block at once; the signal stands in a list then."""
    stopped: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    with _stops_call(interrupt):
        try:
            yield stopped
        except KeyboardInterrupt as stop:
            stopped.append(int(stop.args[0]) if stop.args else int(signal.SIGINT))
