"""Algorithms as JSON, so that a run folder can say what trained it, and that be built again."""

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

_HERE = "rlviz.pieces."
_KINDS = {
    f"{kind.__module__}:{kind.__qualname__}": kind
    for kind in (GroupPolicyGradient, ObservingPolicyGradient, ActorCritic, PreferenceOptimization)
}


def to_json(value: Any) -> Any:
    """Return a piece or algorithm as JSON values: {"piece": "module:name", parameter: …}."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    named = value if callable(value) and hasattr(value, "__qualname__") else type(value)
    described: dict[str, Any] = {"piece": f"{named.__module__}:{named.__qualname__}"}
    if is_dataclass(value):
        described |= {field.name: to_json(getattr(value, field.name)) for field in fields(value) if field.compare}
    return described


def from_json(described: Any, where: str = "algorithm") -> Any:
    """Return what `to_json` was given. Raises ValueError, beginning with `where`, for what is not a piece of this rlviz."""
    if not isinstance(described, dict):
        return described
    given = {name: value for name, value in described.items() if name != "piece"}
    piece = _piece(described.get("piece"), where)
    if not isinstance(piece, type):
        return piece
    has = {field.name: field for field in fields(piece)}
    unknown = [name for name in given if name not in has]
    needed = [name for name, field in has.items() if field.default is MISSING and field.default_factory is MISSING]
    lacking = [name for name in needed if name not in given]
    if unknown or lacking:
        what = f"has no {short_repr(unknown[0])}" if unknown else f"needs {lacking[0]}"
        raise ValueError(f"{where}: {piece.__name__} {what} in this version of rlviz; train again")
    inner = {name: from_json(value, f"{where}.{name}") for name, value in given.items()}
    kinds = annotations_of(piece)
    for name, value in inner.items():
        check_type(f"{where}.{name}", value, kinds[name])
    try:
        return piece(**inner)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None


def _piece(named: Any, where: str) -> Any:
    """Return the piece or kind of algorithm of this name: a function or a dataclass that a module of rlviz.pieces defines."""
    if isinstance(named, str) and named in _KINDS:
        return _KINDS[named]
    module, _, name = str(named).partition(":")
    own = f"{where}: {short_repr(named)} is not a piece of rlviz; from Python, resume(folder, algorithm=…)"
    if not module.startswith(_HERE) or not name.isidentifier() or name.startswith("_"):
        raise ValueError(own)
    try:
        piece = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        raise ValueError(f"{where}: this version of rlviz has no piece {short_repr(named)}") from None
    if (
        not (inspect.isfunction(piece) or (inspect.isclass(piece) and is_dataclass(piece)))
        or piece.__module__ != module
    ):
        raise ValueError(own)
    return piece
