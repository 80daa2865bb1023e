"""Looking a thing up by the name a person typed."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from small_models.checks import short_repr


def nearest(name: str, known: Sequence[str]) -> str:
    """Return "did you mean …? " with the known names that are like this one, or nothing."""
    near = get_close_matches(name.lower(), known, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(near)}? " if near else ""


def closest(what: str, name: str, known: Sequence[str]) -> str:
    """Return the known name that `name` is, letter case aside; else raise ValueError that offers the nearest ones."""
    for candidate in known:
        if candidate.lower() == name.lower():
            return candidate
    raise ValueError(f"{what} {short_repr(name)} is not known; {nearest(name[:100], known)}known: {', '.join(known)}")
