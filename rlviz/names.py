"""Looking a thing up by the name a person typed."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches


def closest(what: str, name: str, known: Sequence[str]) -> str:
    """Return the known name that `name` is, letter case aside; else raise ValueError that offers the nearest ones."""
    for candidate in known:
        if candidate.lower() == name.lower():
            return candidate
    near = get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise ValueError(f"{what} {name!r} is not known; {hint}known: {', '.join(known)}")
