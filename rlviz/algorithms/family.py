"""The family side by side: what differs between two algorithms and why, and the table of all of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from rlviz.algorithms.base import SLOTS, PolicyGradient, label
from rlviz.algorithms.preference import PreferenceOptimization

NOTHING = {
    "kl": "no leash: the policy may go as far from the reference as the reward leads.",
    "shape": "rewards reach the advantage as they are.",
}
UNUSED = "not in use."


Algorithm = PolicyGradient | PreferenceOptimization


def changes(a: Algorithm, b: Algorithm) -> dict[str, tuple[Any, Any]]:
    """Return slot → (piece of a, piece of b) for every one of the eight slots in which the two algorithms differ."""
    return {slot: (piece, b.slots()[slot]) for slot, piece in a.slots().items() if piece != b.slots()[slot]}


def why(slot: str, piece: Any) -> str:
    """Return in a line what the piece is there for: the "Why:" of its docstring, else the docstring's first paragraph."""
    if piece is None:
        return NOTHING.get(slot, UNUSED)
    text = inspect.getdoc(piece if hasattr(piece, "__name__") else type(piece)) or ""
    paragraph = text.partition("Why: ")[2] or text
    lines = paragraph.split("\n\n")[0].partition("\nSource:")[0].partition("\nRaises")[0]
    return " ".join(lines.split()) or "(its docstring does not say)"


@dataclass(frozen=True)
class Difference:
    """One thing in which an algorithm differs from another, in words."""

    slot: str
    before: str
    after: str
    why: str


def differences(a: Algorithm, b: Algorithm) -> list[Difference]:
    """Return a row for every slot that differs between a and b, then one for every part beyond the slots that does."""
    sampling = any(piece is not None for piece in b.slots().values())
    rows = [
        Difference(slot, label(old), label(new), why(slot, new) if sampling else UNUSED)
        for slot, (old, new) in changes(a, b).items()
    ]
    ours, theirs = a.beyond_the_slots(), b.beyond_the_slots()
    for part in [*ours, *(name for name in theirs if name not in ours)]:
        old, new = ours.get(part), theirs.get(part)
        if old != new:
            rows.append(Difference(part, label(old), label(new), why(part, new)))
    return rows


def family_table(algorithms: Iterable[Algorithm]) -> pd.DataFrame:
    """Return a row an algorithm: its pieces in the eight slots, what is beyond them, the models in play, the source."""
    rows = []
    for algorithm in algorithms:
        row = {"algorithm": algorithm.name} | {slot: label(algorithm.slots()[slot]) for slot in SLOTS}
        row["beyond the slots"] = "; ".join(label(part) for part in algorithm.beyond_the_slots().values()) or "–"
        row |= {"models": ", ".join(algorithm.models), "source": algorithm.source}
        rows.append(row)
    return pd.DataFrame(rows).set_index("algorithm")
