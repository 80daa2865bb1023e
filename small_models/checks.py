"""Arguments and fields, checked and refused in one sentence: the parameter, what is allowed, and what came."""

from __future__ import annotations

import inspect
import math
import os
import shlex
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

F = TypeVar("F", bound=Callable[..., Any])
LARGEST = 2**63  # no whole number of ours is beyond, and torch takes none
LONGEST = 60  # characters of a value in a sentence
SIMPLE: dict[Any, tuple[type, str]] = {  # annotation → what is accepted (of bool: nothing else passes for it), in words
    bool: (bool, "True or False"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "a text"),
    type(None): (type(None), "None"),
}
ALGORITHMS = ("PolicyGradient", "GroupPolicyGradient", "ActorCritic", "PreferenceOptimization")
WORDS = {  # of classes, by their names, where an example says more
    "Policy": "a Policy, such as load_policy('chain')",
    "Task": "a Task, such as find_task('chain')",
    **dict.fromkeys(ALGORITHMS, "an algorithm, such as GRPO"),
    "PathLike": "a path",
}


def cut(text: str, longest: int = LONGEST) -> str:
    """Return a text, or the beginning of a long one."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def short_repr(value: Any) -> str:
    """Return a value as Python writes it, the beginning of a long one; the kind of what has no short form."""
    if isinstance(value, str | bytes):
        return cut(repr(value[:LONGEST]))
    if is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}(…)"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or isinstance(value, Real | list | tuple | dict | set | os.PathLike):
        try:
            return cut(repr(value))
        except (ValueError, RecursionError):  # more digits than Python writes out
            return "a number of thousands of digits"
    return f"a value of type {type(value).__name__}"


def pip_install(what: str) -> str:
    """Return the command that installs something beside this Python's packages, whichever pip is first on the PATH."""
    return f"{sys.executable} -m pip install {shlex.quote(what)}"


def check_number(name: str, value: Any, allowed: Callable[[Any], bool], words: str, *, integer: bool = False) -> None:
    """Raise ValueError unless `value` is a finite number that is `allowed`: "{name} must be {words}; got …".

    integer: only a whole number is allowed, one that a tensor can hold.
    """
    if not isinstance(value, Integral if integer else Real) or isinstance(value, bool):
        raise ValueError(f"{name} must be {'a whole' if integer else 'a'} number, {words}; got {short_repr(value)}")
    if isinstance(value, Integral) and abs(int(value)) >= LARGEST:
        raise ValueError(f"{name} must be {words}, and below 2**63; got {short_repr(value)}")
    if not isinstance(value, Integral) and not math.isfinite(value):
        raise ValueError(f"{name} must be {words}, and finite; got {short_repr(value)}")
    if not allowed(value):
        raise ValueError(f"{name} must be {words}; got {short_repr(value)}")


def check_at_least(least: int, **values: Any) -> None:
    """Raise ValueError for the first of these arguments that is no whole number of at least `least`."""
    for name, value in values.items():
        check_number(name, value, lambda number: number >= least, f"at least {least}", integer=True)


def check_seed(seed: Any) -> None:
    """Raise ValueError unless it is a whole number that a random generator takes: from 0 to below 2**63."""
    check_at_least(0, seed=seed)


def check_not_empty(name: str, values: Sequence[Any]) -> None:
    """Raise ValueError for a list in which nothing is."""
    if not values:
        raise ValueError(f"{name} must hold at least one; got none")


def check_type(name: str, value: Any, kind: Any) -> None:
    """Raise ValueError when a value is not what the annotation asks for; of a tensor only that it is one."""
    if isinstance(value, int) and abs(value) >= LARGEST and SIMPLE.get(kind):
        raise ValueError(f"{name} must be below 2**63 in size; got {short_repr(value)}")
    if not _fits(value, kind):
        raise ValueError(f"{name} must be {_words(kind)}; got {short_repr(value)}")


def check_fields(instance: Any) -> None:
    """Raise ValueError for a field of a dataclass that is not what its annotation asks for."""
    kind: Any = type(instance)
    kinds = annotations_of(kind)
    for field in fields(instance):
        check_type(field.name, getattr(instance, field.name), kinds.get(field.name, Any))


def checked(function: F) -> F:
    """Check the types of a function's arguments before each call; raises ValueError."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        kinds = annotations_of(function)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if signature.parameters[name].kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                check_type(name, value, kinds.get(name, Any))
        return function(*args, **kwargs)

    return typing.cast(F, call)


@cache
def annotations_of(owner: Any) -> dict[str, Any]:
    """Return name → annotation, as far as they are known at run time, of a function, or of a class with what it inherits."""
    known: dict[str, Any] = {}
    for part in reversed(owner.__mro__) if isinstance(owner, type) else (inspect.unwrap(owner),):
        for name, annotation in inspect.get_annotations(part).items():
            alone = type("alone", (), {"__module__": part.__module__, "__annotations__": {name: annotation}})
            with suppress(NameError):  # a name that only type checkers know
                known |= typing.get_type_hints(alone, getattr(part, "__globals__", None))
    return known


def _fits(value: Any, kind: Any) -> bool:
    """Return True if a value is what an annotation asks for, as far as that can be seen without reading all of it."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if kind in SIMPLE:
        return isinstance(value, SIMPLE[kind][0]) and (kind is bool or not isinstance(value, bool))
    if origin is Literal:
        return any(type(value) is type(option) and value == option for option in inner)
    if origin in (Union, types.UnionType):
        return any(_fits(value, option) for option in inner)
    if origin is Callable or kind is Callable:
        return callable(value)
    if origin is Iterable or (isinstance(origin, type) and issubclass(origin, Sequence)):
        items = [item for item in inner if item is not Ellipsis]
        if isinstance(value, list | tuple):
            return len(items) != 1 or all(_fits(item, items[0]) for item in value)
        # An array is no Sequence, but does; an Iterable may be read but once, so nothing of it is read here.
        needed = ("__iter__",) if origin is Iterable else ("__len__", "__getitem__")
        if isinstance(value, str | bytes | Mapping) or not all(hasattr(value, name) for name in needed):
            return False
        if origin is Iterable:
            return True
        is_plain = not items or items[0] in (int, float, Any)
        return getattr(value, "ndim", 1) > 0 and (is_plain or all(_fits(item, items[0]) for item in value))
    array = getattr(kind, "array_type", origin)  # jaxtyping's Float[Tensor, …]
    if isinstance(array, type):
        return isinstance(value, array)
    if (
        getattr(kind, "__name__", "") in ALGORITHMS
    ):  # what it cannot do with another kind of algorithm, a function says better
        return any(base.__name__ in ALGORITHMS for base in type(value).__mro__)
    return not isinstance(kind, type) or getattr(kind, "_is_protocol", False) or isinstance(value, kind)


def _words(kind: Any) -> str:
    """Return what an annotation asks for, in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in SIMPLE:
        return SIMPLE[kind][1]
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if origin in (Union, types.UnionType):
        words = dict.fromkeys(_words(option) for option in inner)
        return " or ".join(word for word in words if word != SIMPLE[str][1] or WORDS["PathLike"] not in words)
    if origin is Iterable or (isinstance(origin, type) and issubclass(origin, Sequence)):
        item = next((item for item in inner if item is not Ellipsis), None)
        if not isinstance(item, type):
            return "a list"
        plurals = {int: "whole numbers", float: "numbers", str: "texts"}
        name = plurals.get(item, item.__name__)
        return f"a list of {'algorithms, such as GRPO' if name in ALGORITHMS else name}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a dictionary"
    if origin is Callable or kind is Callable:
        return "a function"
    name = getattr(getattr(kind, "array_type", origin or kind), "__name__", str(kind))
    return WORDS.get(name, f"{'an' if name[0] in 'AEIOU' else 'a'} {name}")
