"""The maps that come with rlviz: what each is called, the command that made it, and the sentence that it teaches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Shipped:
    """A map beside this file. title: its question. command: what made it. sentence: what it teaches, in a line.

    corners: (column, row) from 1 → the sign that the sentence rests on there, 0: none that is certain.
    """

    name: str
    title: str
    command: str
    sentence: str
    corners: tuple[tuple[int, int, int], ...]

    @property
    def file(self) -> Path:
        return HERE / f"{self.name}.jsonl"


_EVERY = (
    Shipped(
        "dcpo-limits",
        "DCPO's limits and entropy",
        "rlviz map --algorithm dcpo --only bounds --measure entropy --level .9 --x-values 1,2,4,8,16,32 --y-values 1,2,4,8,16,32",
        "x.",
        ((6, 1, 1),),
    ),
)
SHIPPED = {each.name: each for each in _EVERY}
