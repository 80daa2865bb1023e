"""A row of a table of refusals: what is called, what is wrong in it, and the sentence that answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Given = Mapping[str, Any] | tuple[Any, ...]
PYTHON = re.compile(
    r"not supported|unexpected|NoneType|positional|object has no|cannot be interpreted|not iterable|unhashable|supplied|overflow"
    r"|invalid literal|to unpack|scalar type"
)
LONGEST = 400  # characters of a sentence


def nothing() -> None:
    """Leave the folder in which a row is called empty."""


@dataclass(frozen=True)
class Row:
    """One refusal: `call` with `given`, its arguments by name or in order, raises `error` with the sentence `says`.

    In says, … stands for any words. folder writes what must lie in the folder in which the call is made.
    """

    call: Callable[..., Any]
    given: Given
    says: str
    error: type[Exception] = ValueError
    folder: Callable[[], None] = nothing

    @property
    def pattern(self) -> str:
        """The sentence as a regular expression of all of it."""
        return f"^{re.escape(self.says).replace('…', '.*')}$"

    def act(self) -> None:
        """Make the call."""
        if isinstance(self.given, tuple):
            self.call(*self.given)
        else:
            self.call(**self.given)


def of(
    call: Callable[..., Any],
    *rows: tuple[Given, str],
    error: type[Exception] = ValueError,
    folder: Callable[[], None] = nothing,
) -> list[Row]:
    """Return the rows of one call, each written as what is given and what is said."""
    return [Row(call, given, says, error, folder) for given, says in rows]
