"""What the host may ask of a device: numbers that the program reads stop it until all that the device was given is done.

On a CPU that costs nothing. On a GPU a training step that asks as often as it has tokens leaves the device idle most of the time,
so tensors stay there, and what the host needs of them comes over in one copy. While operations are recorded rather than run (a
curve that becomes a program of a page), no number is there to be read at all: `recording()` says so, and nothing is judged.
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
_refusals: ContextVar[list[Tensor] | None] = ContextVar("refusals", default=None)


@contextmanager
def recording() -> Iterator[None]:
    """While it lasts, numbers stay in their tensors: `waits` holds everywhere, and `refuse` is silent."""
    before = _recording.set(True)
    try:
        yield
    finally:
        _recording.reset(before)


def is_recording() -> bool:
    """Return whether operations are recorded rather than run."""
    return _recording.get()


def waits(device: torch.device) -> bool:
    """Return whether the host waits for this device when it reads a number, or a size that depends on numbers."""
    return device.type != "cpu" or _recording.get()


@contextmanager
def refusals() -> Iterator[list[Tensor]]:
    """While it lasts, `refuse` raises nothing; the list holds whether it would have, for a picture, which says so itself."""
    found: list[Tensor] = []
    before = _refusals.set(found)
    try:
        yield found
    finally:
        _refusals.reset(before)


def refuse(condition: Tensor, message: Callable[[], str]) -> None:
    """Raise ValueError where a condition holds anywhere; silent on a device that the host would have to wait for.

    What can be judged when a piece is built is judged there; this is for what only tensors tell. message: made when it is needed.
    """
    found = _refusals.get()
    if found is not None:
        found.append(condition.any())
    elif not waits(condition.device) and bool(condition.any()):
        raise ValueError(message())


def on_host(*values: Tensor) -> list[Tensor]:
    """Return the values on the CPU, without gradient, by one copy for all of them in float64, which holds ids too."""
    if not any(waits(value.device) for value in values):
        return [value.detach() for value in values]
    flat = torch.cat([value.detach().double().flatten() for value in values]).cpu()
    parts = flat.split([value.numel() for value in values])
    return [part.view(value.shape).to(value.dtype) for part, value in zip(parts, values, strict=True)]


def all_on_host(value: T) -> T:
    """Return a dataclass with all its tensors, and those of dataclasses in it, as `on_host` returns them."""
    return _with(value, iter(on_host(*_tensors(value))))


def _tensors(value: Any) -> Iterator[Tensor]:
    for own in (getattr(value, f.name) for f in fields(value)):
        if isinstance(own, Tensor):
            yield own
        elif is_dataclass(own):
            yield from _tensors(own)


def _with(value: Any, tensors: Iterator[Tensor]) -> Any:
    """Return the dataclass with these tensors in place of its own, in the order of `_tensors`."""
    new = {}
    for f in fields(value):
        own = getattr(value, f.name)
        if isinstance(own, Tensor):
            new[f.name] = next(tensors)
        elif is_dataclass(own):
            new[f.name] = _with(own, tensors)
    return replace(value, **new)
