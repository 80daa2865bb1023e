"""A row of a table of refusals: a call that is wrong, and the sentence that answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

PYTHON = re.compile(
    r"not supported|unexpected|NoneType|positional|object has no|cannot be interpreted|not iterable|unhashable|supplied|overflow"
    r"|invalid literal|to unpack|scalar type"
)
LONGEST = 400  # characters of a sentence


@dataclass(frozen=True)
class Row:
    """One refusal: `act` raises `error` with the sentence `says`, in which … stands for any words."""

    act: Callable[[], object]
    says: str
    error: str = "ValueError"

    @property
    def pattern(self) -> str:
        """The sentence as a regular expression of all of it."""
        return f"^{re.escape(self.says).replace('…', '.*')}$"


def spread(row: str) -> list[str]:
    """Return the rows that one with alternatives, ⟨a | b⟩, stands for."""
    found = re.search("⟨(.+?)⟩", row)
    if found is None:
        return [row]
    return [
        each
        for option in found[1].split(" | ")
        for each in spread(row.replace(found[0], option, 1).replace("⟨⟩", option))
    ]


def table(names: dict[str, Any], text: str) -> list[Row]:
    """Return the rows of a text: `call → sentence`, the call in Python, for a TypeError `call → TypeError: sentence`.

    names: what a call is written in, such as globals(). An indented line goes on with the row, and # begins a remark.
    ⟨a | b⟩ makes a row of each; ⟨⟩ behind it is the same again.
    """
    rows = []
    for entry in re.split(r"\n(?=\S)", text.strip()):
        for row in () if entry.startswith("# ") else spread(" ".join(entry.split())):
            call, says = row.split(" → ", 1)
            error, sentence = re.fullmatch(r"(?:(\w+Error): )?(.*)", says).groups()
            rows.append(Row(partial(eval, call, names), sentence, error or "ValueError"))
    return rows


def of(
    call: Callable[..., Any], *rows: tuple[Mapping[str, Any] | tuple[Any, ...], str], error: str = "ValueError"
) -> list[Row]:
    """Return rows of one call, each given as its arguments, by name or in order, and what is said of them."""
    return [
        Row(partial(call, *given) if isinstance(given, tuple) else partial(call, **given), says, error)
        for given, says in rows
    ]
