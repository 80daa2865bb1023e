"""The family side by side: what differs between two algorithms and why, and the table of all of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from rlviz.algorithms.base import SLOTS, PolicyGradient, label
from rlviz.algorithms.preference import PreferenceOptimization

Algorithm = PolicyGradient | PreferenceOptimization

NOTHING = {
    "kl": "no leash: the policy may go as far from the reference as the reward leads.",
    "shape": "rewards reach the advantage as they are.",
}
UNUSED = "not in use."
PAIRS = "it learns from given pairs of responses: nothing is sampled, so there is no ratio to limit and no group to compare."
HEADING = re.compile(r"^(.*)[Dd]ifferences from GRPO:$", re.M)
ITEM = re.compile(r"^    \d\. (\w+): (.+)$", re.M)


def changes(a: Algorithm, b: Algorithm) -> dict[str, tuple[Any, Any]]:
    """Return slot → (piece of a, piece of b) for every one of the eight slots in which the two algorithms differ."""
    return {slot: (piece, b.slots()[slot]) for slot, piece in a.slots().items() if piece != b.slots()[slot]}


def stated_differences(algorithm: Algorithm) -> dict[str, str]:
    """Return slot → what the algorithm's own text says of its difference from GRPO there: "piece: reason"."""
    parts = HEADING.split(algorithm.about)
    sections = list(zip(parts[1::2], parts[2::2], strict=True))
    titles = [re.split(r", | \(§", title)[0] for title, _ in sections]
    own = [text for title, (_, text) in zip(titles, sections, strict=True) if not title or title == algorithm.name]
    for text in own or [text for _, text in sections]:
        return dict(ITEM.findall(text.split("\n\n")[0]))
    return {}


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
    """Return a row for every slot that differs between a and b, then for parts beyond the slots, then for a critic's coming.

    The reason is the one that b's own text gives, as long as it speaks of the piece that is there, else the piece's.
    """
    rows = [
        Difference(slot, label(old), label(new), _reason(slot, new, b)) for slot, (old, new) in changes(a, b).items()
    ]
    if rows and isinstance(b, PreferenceOptimization):
        rows = [Difference("all eight slots", f"{a.name}'s", "–", PAIRS)]
    ours, theirs = a.beyond_the_slots(), b.beyond_the_slots()
    for part in [*ours, *(name for name in theirs if name not in ours)]:
        old, new = ours.get(part), theirs.get(part)
        if old != new:
            rows.append(Difference(part, label(old), label(new), why(part, new)))
    if (set(a.models) ^ set(b.models)) - {
        "reference"
    }:  # a reference comes and goes with the KL term, which has its row
        gone, more = ([m for m in x.models if m not in y.models] for x, y in ((a, b), (b, a)))
        words = [
            f"{verb} {' and '.join(models)}" for verb, models in (("does without", gone), ("adds", more)) if models
        ]
        rows.append(Difference("models", ", ".join(a.models), ", ".join(b.models), f"{', '.join(words)}."))
    return rows


def _reason(slot: str, piece: Any, algorithm: Algorithm) -> str:
    stated = stated_differences(algorithm).get(slot, "")
    for words in (label(piece), f"{label(piece)} (none)"):
        if stated.startswith(f"{words}: "):
            return stated.removeprefix(f"{words}: ")
    return why(slot, piece)


def family_table(algorithms: Iterable[Algorithm]) -> pd.DataFrame:
    """Return a row an algorithm: its pieces in the eight slots, what is beyond them, the models in play, the source."""
    rows = []
    for algorithm in algorithms:
        row = {"algorithm": algorithm.name} | {slot: label(algorithm.slots()[slot]) for slot in SLOTS}
        row["beyond the slots"] = "; ".join(label(part) for part in algorithm.beyond_the_slots().values()) or "–"
        row |= {"models": ", ".join(algorithm.models), "source": algorithm.source}
        rows.append(row)
    return pd.DataFrame(rows).set_index("algorithm")
