"""Handlers of Ctrl-C, SIGTERM and SIGHUP: finish the current step first, or stop the block at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rlviz.parallel import STOPS


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[Callable[[], None]]:
    """Let Ctrl-C, SIGTERM and SIGHUP call this handler; give a function that restores the usual ones early.

    One that this process was started to ignore, as `nohup` does, stays ignored.
    """
    before = {number: signal.getsignal(number) for number in STOPS}
    ours = [number for number, usual in before.items() if usual not in (signal.SIG_IGN, None)]

    def restore() -> None:
        for number in ours:
            signal.signal(number, before[number])

    for number in ours:
        signal.signal(number, handler)
    try:
        yield restore
    finally:
        restore()


@contextmanager
def graceful_interrupt() -> Iterator[list[int]]:
    """Give a list that the first Ctrl-C, SIGTERM or SIGHUP fills, so no step is cut in two; the second acts as always."""
    signals: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        restore()

    with _handled_by(note) as restore:
        yield signals


@contextmanager
def immediate_interrupt() -> Iterator[list[int]]:
    """Give a list of the signal by which Ctrl-C, SIGTERM or SIGHUP ended the block at once."""
    stopped: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    with _handled_by(interrupt):
        try:
            yield stopped
        except KeyboardInterrupt as stop:
            stopped.append(int(stop.args[0]) if stop.args else int(signal.SIGINT))
