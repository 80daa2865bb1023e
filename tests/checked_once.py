"""A function's shapes are checked once for each kind of call: the same shapes, types and numbers get the same verdict.

jaxtyping and beartype take most of a training's seconds otherwise, where one function is called ten thousand times alike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from inspect import isfunction
from types import FunctionType
from typing import Any

import torch
from jaxtyping import _decorator


def looks(value: Any, deep: int = 3) -> Hashable:
    """Return all that an annotation can ask of a value: a tensor's shape and dtype, a number or a word itself, else its type.

    deep: how far into containers; further in there are none that an annotation of ours speaks of, and some hold themselves.
    """
    kind = type(value)
    if isinstance(value, torch.Tensor):
        sizes = (n if type(n) is int else str(n) for n in value.shape)  # a size that is recorded has a letter, no hash
        return kind, *sizes, value.dtype
    if kind in (bool, int, str):
        return kind, value
    if kind in (tuple, list) and deep:
        return kind, *(looks(item, deep - 1) for item in value)
    if kind is dict and deep:
        return kind, *((key, looks(item, deep - 1)) for key, item in value.items())
    return kind


def once(function: Callable[..., Any], check: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[..., Any]:
    """Return the function, checked by `check` where its arguments or what it returns look as they never did before."""
    checked = check(function)
    seen: dict[Hashable, set[Hashable]] = {}
    returned: list[Any] = []

    @functools.cache
    def check_of_returned() -> Callable[..., Any]:
        """Return the check of a value that the function has returned already: it may draw at random, and is not called again."""

        def relay(*_: Any, **__: Any) -> Any:
            return returned.pop()

        where = FunctionType(relay.__code__, function.__globals__, function.__name__, None, relay.__closure__)
        return check(functools.wraps(function)(where))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        look = (*map(looks, args), None, *((name, looks(value)) for name, value in kwargs.items()))
        if look not in seen:
            value = checked(*args, **kwargs)
            seen[look] = {looks(value)}
            return value
        value = function(*args, **kwargs)
        if (result := looks(value)) not in seen[look]:
            returned.append(value)
            check_of_returned()(*args, **kwargs)
            seen[look].add(result)
        return value

    return call


def check_each_kind_of_call_once() -> None:
    """Let jaxtyping decorate so, also where its import hook does."""
    import jaxtyping

    decorate = _decorator.jaxtyped

    def jaxtyped(fn: Any = _decorator._sentinel, *, typechecker: Any = _decorator._sentinel) -> Any:
        if fn is _decorator._sentinel:
            return functools.partial(jaxtyped, typechecker=typechecker)
        check = functools.partial(decorate, typechecker=typechecker)
        return once(fn, check) if isfunction(fn) else check(fn)

    _decorator.jaxtyped = jaxtyping.jaxtyped = jaxtyped
