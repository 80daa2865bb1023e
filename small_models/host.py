"""What the host may read of a device's numbers, and when: on a GPU each read waits until the device has done all its work.

On a CPU a read costs nothing. On a GPU a training step that reads a number a token leaves the device idle most of the time, so
tensors stay there, and what the host needs comes over at once (`on_host`). While operations are recorded for a page there
are no numbers at all (`is_recording`). `check_lazily` judges tensors only where that costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
_recording: ContextVar[bool] = ContextVar("recording", default=False)
_failures: ContextVar[list[Tensor] | None] = ContextVar("failures", default=None)


@contextmanager
def recording() -> Iterator[None]:
    """Within it, operations are recorded rather than run: numbers stay in their tensors, and `check_lazily` is silent."""
    before = _recording.set(True)
    try:
        yield
    finally:
        _recording.reset(before)


def is_recording() -> bool:
    """Return True while operations are recorded rather than run, so that no tensor has numbers."""
    return _recording.get()


def needs_sync(device: torch.device) -> bool:
    """Return True if reading a number, or a size that depends on numbers, waits for this device."""
    return device.type != "cpu"


@contextmanager
def collected_checks() -> Iterator[list[Tensor]]:
    """Within it, `check_lazily` raises nothing; the list holds whether it would have, a 0-d tensor each."""
    failures: list[Tensor] = []
    before = _failures.set(failures)
    try:
        yield failures
    finally:
        _failures.reset(before)


def check_lazily(condition: Tensor, message: Callable[[], str]) -> None:
    """Raise ValueError where a condition holds anywhere; silent where its numbers cannot be read at once.

    What can be judged when a piece is built is judged there; this is for what only tensors tell. message: made when it is needed.
    """
    failures = _failures.get()
    if failures is not None:
        failures.append(condition.any())
    elif not (is_recording() or needs_sync(condition.device)) and bool(condition.any()):
        raise ValueError(message())


def on_host(*values: Tensor) -> list[Tensor]:
    """Return the values on the CPU, without gradient. The first copy waits for the device, the others find it idle."""
    return [value.detach().cpu() for value in values]


def all_on_host(value: T) -> T:
    """Return a dataclass with all its tensors, and those of dataclasses in it, on the CPU, without gradient."""
    moved: T = _map_tensors(value, lambda tensor: tensor.detach().cpu())
    return moved


def _map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    changed = {}
    for field in fields(value):
        part = getattr(value, field.name)
        if isinstance(part, Tensor):
            changed[field.name] = change(part)
        elif is_dataclass(part):
            changed[field.name] = _map_tensors(part, change)
    return replace(value, **changed)
