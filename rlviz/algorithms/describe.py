"""Algorithms as JSON and back, for run folders."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.algorithms.observing import ObservingPolicyGradient
from rlviz.algorithms.preference import PreferenceOptimization
from small_models.checks import annotations_of, check_type, short_repr

_KINDS = {
    f"{kind.__module__}:{kind.__qualname__}": kind
    for kind in (GroupPolicyGradient, ObservingPolicyGradient, ActorCritic, PreferenceOptimization)
}


def to_json(value: Any) -> Any:
    """Return a piece or algorithm as JSON values: {"piece": "module:name", parameter: …}."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    kind = value if callable(value) and hasattr(value, "__qualname__") else type(value)
    description: dict[str, Any] = {"piece": f"{kind.__module__}:{kind.__qualname__}"}
    if is_dataclass(value):
        description |= {field.name: to_json(getattr(value, field.name)) for field in fields(value) if field.compare}
    return description


def from_json(description: Any, where: str = "algorithm") -> Any:
    """Return the value that `to_json` described. Raises ValueError, beginning with `where`, for no piece of this rlviz."""
    if not isinstance(description, dict):
        return description
    piece = _find_piece(description.get("piece"), where)
    if not isinstance(piece, type):
        return piece
    values = {name: value for name, value in description.items() if name != "piece"}
    known = {field.name: field for field in fields(piece)}
    required = {n for n, field in known.items() if field.default is MISSING and field.default_factory is MISSING}
    if unknown := [name for name in values if name not in known]:
        raise ValueError(
            f"{where}: {piece.__name__} has no {short_repr(unknown[0])} in this version of rlviz; train again"
        )
    if missing := sorted(required - values.keys()):
        raise ValueError(f"{where}: {piece.__name__} needs {missing[0]} in this version of rlviz; train again")
    kinds, built = annotations_of(piece), {}
    for name, value in values.items():
        built[name] = from_json(value, f"{where}.{name}")
        check_type(f"{where}.{name}", built[name], kinds[name])
    try:
        return piece(**built)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None


def _find_piece(path: Any, where: str) -> Any:
    """Return the piece or kind of algorithm at "module:name": a function or a dataclass of a module of rlviz.pieces.

    A run folder may come from somebody else, so nothing outside of rlviz.pieces is imported.
    """
    if isinstance(path, str) and path in _KINDS:
        return _KINDS[path]
    module, _, name = str(path).partition(":")
    foreign = f"{where}: {short_repr(path)} is not a piece of rlviz; from Python, resume(folder, algorithm=…)"
    if not module.startswith("rlviz.pieces.") or not name.isidentifier() or name.startswith("_"):
        raise ValueError(foreign)
    try:
        piece = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        raise ValueError(f"{where}: this version of rlviz has no piece {short_repr(path)}") from None
    is_piece = inspect.isfunction(piece) or (inspect.isclass(piece) and is_dataclass(piece))
    if not is_piece or piece.__module__ != module:
        raise ValueError(foreign)
    return piece
