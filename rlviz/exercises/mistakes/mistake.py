"""A mistake: a wrong variant of a piece, with a name and a word to the person who made it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mistake:
    """wrong: called like the piece that it stands for. says: to the person who made it. seen: where it was published."""

    wrong: Callable[..., Any]
    says: str
    seen: str = ""

    @property
    def name(self) -> str:
        return self.wrong.__name__.replace("_", " ")
