"""Algorithms side by side: the differences between two of them with reasons, and the table of all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlviz.algorithms.base import PolicyGradient
from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.algorithms.slots import SLOTS
from rlviz.pieces.words import label, reason
from small_models.checks import checked

if TYPE_CHECKING:
    import pandas as pd

Algorithm = PolicyGradient | PreferenceOptimization

NOTHING = {
    "kl": "no leash: the policy may go as far from the reference as the reward leads.",
    "shape": "rewards reach the advantage as they are.",
}
UNUSED = "not in use."
PAIRS = "it learns from given pairs of responses: nothing is sampled, so there is no ratio to limit and no group to compare."


@checked
def changes(a: Algorithm, b: Algorithm) -> dict[str, tuple[Any, Any]]:
    """Return slot → (piece of a, piece of b) for every one of the eight slots in which the two algorithms differ."""
    return {slot: (piece, b.slots()[slot]) for slot, piece in a.slots().items() if piece != b.slots()[slot]}


@checked
def why(slot: str, piece: Any) -> str:
    """Return the reason for a piece in this slot, in a line."""
    return NOTHING.get(slot, UNUSED) if piece is None else reason(piece)


@dataclass(frozen=True)
class Difference:
    """One thing in which an algorithm differs from another, in words."""

    slot: str
    before: str
    after: str
    why: str


@checked
def differences(a: Algorithm, b: Algorithm) -> list[Difference]:
    """Return a row for every slot that differs between a and b, then for pieces beyond the slots, then for the models.

    The reason is b's in `from_grpo`, where that is about the piece in the slot, else the piece's own.
    """
    if isinstance(b, PreferenceOptimization):
        rows = [Difference("all eight slots", f"{a.name}'s", "–", PAIRS)] if changes(a, b) else []
    else:
        rows = []
        for slot, (old, new) in changes(a, b).items():
            before, _, text = b.from_grpo.get(slot, "").partition(f"{label(new)}: ")
            # a reason in from_grpo is about one piece, and no longer holds once the slot has another
            rows.append(Difference(slot, label(old), label(new), text if text and not before else why(slot, new)))
    ours, theirs = a.beyond_the_slots(), b.beyond_the_slots()
    for part in [*ours, *(name for name in theirs if name not in ours)]:
        old, new = ours.get(part), theirs.get(part)
        if old != new:
            rows.append(Difference(part, label(old), label(new), why(part, new)))
    # a reference comes and goes with the KL term, which has its row
    if (set(a.models) ^ set(b.models)) - {"reference"}:
        gone, more = ([m for m in x.models if m not in y.models] for x, y in ((a, b), (b, a)))
        words = [
            f"{verb} {' and '.join(models)}" for verb, models in (("does without", gone), ("adds", more)) if models
        ]
        rows.append(Difference("models", ", ".join(a.models), ", ".join(b.models), f"{', '.join(words)}."))
    return rows


@checked
def family_table(algorithms: Iterable[Algorithm] | None = None) -> pd.DataFrame:
    """Return a row an algorithm, by default those of the course: pieces in the slots and beyond, models in play, source."""
    import pandas as pd

    from rlviz.algorithms import ALGORITHMS  # which imports this module

    rows = []
    for algorithm in ALGORITHMS if algorithms is None else algorithms:
        row = {"algorithm": algorithm.name} | {slot: label(algorithm.slots()[slot]) for slot in SLOTS}
        row["beyond the slots"] = "; ".join(label(part) for part in algorithm.beyond_the_slots().values()) or "–"
        row |= {"models": ", ".join(algorithm.models), "source": algorithm.source}
        rows.append(row)
    if not rows:
        raise ValueError("algorithms must hold at least one algorithm, such as GRPO; got none")
    return pd.DataFrame(rows).set_index("algorithm")
