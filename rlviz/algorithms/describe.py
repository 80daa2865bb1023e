"""Algorithms as JSON, so that a run folder can say, and rebuild, what trained it."""

from __future__ import annotations

import importlib
from dataclasses import fields, is_dataclass
from typing import Any

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.algorithms.preference import PreferenceOptimization

_HERE = "rlviz.pieces."
_KINDS = {
    f"{kind.__module__}:{kind.__qualname__}": kind
    for kind in (GroupPolicyGradient, ActorCritic, PreferenceOptimization)
}


def describe(value: Any) -> Any:
    """Return a piece or algorithm as JSON values: {"piece": "module:name", parameter: …}."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    named = value if callable(value) and hasattr(value, "__qualname__") else type(value)
    described: dict[str, Any] = {"piece": f"{named.__module__}:{named.__qualname__}"}
    if is_dataclass(value):
        described |= {field.name: describe(getattr(value, field.name)) for field in fields(value) if field.compare}
    return described


def rebuild(described: Any) -> Any:
    """Return what `describe` described. Raises ValueError for what is not a piece of this rlviz."""
    if not isinstance(described, dict):
        return described
    module, _, name = str(described.get("piece")).partition(":")
    piece: Any = _KINDS.get(f"{module}:{name}")
    if piece is None:
        if not module.startswith(_HERE) or not name.isidentifier() or name.startswith("_"):
            raise ValueError(
                f"algorithm: {module}:{name} is not a piece of rlviz; from Python, resume(folder, algorithm=…)"
            )
        try:
            piece = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            raise ValueError(f"algorithm: this version of rlviz has no piece {module}:{name}") from None
    if not isinstance(piece, type):
        return piece
    try:
        return piece(**{name: rebuild(value) for name, value in described.items() if name != "piece"})
    except TypeError as error:
        raise ValueError(f"algorithm: described by another version of rlviz ({error})") from None
