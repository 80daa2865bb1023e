"""The array type of every curve, and the way from a tensor to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


def array(values: Tensor) -> NDArray[Any]:
    """Return a tensor's values as a flat array."""
    return values.detach().flatten().numpy()


R = TypeVar("R")


def remembered(maxsize: int) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return a decorator: `lru_cache(maxsize)`, but for arguments that cannot be a key, whose result is computed each time.

    An algorithm cannot be one when a piece of one's own is a dataclass that is not frozen.
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        cached = lru_cache(maxsize)(function)

        @wraps(function)
        def call(*args: Any) -> R:
            try:
                hash(args)
            except TypeError:
                return function(*args)
            return cached(*args)

        return call

    return decorate
