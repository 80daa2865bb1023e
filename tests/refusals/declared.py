"""Refusals that follow from a declaration: a new setting, piece, algorithm or slider is tested without a line here."""

from __future__ import annotations

import importlib
import math
import pkgutil
import typing
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import rlviz.pieces
from rlviz import settings
from rlviz.algorithms import ALGORITHMS, RELATIVES, GroupPolicyGradient, PolicyGradient
from rlviz.cli import train as options
from rlviz.page.picture import Choice, Slider
from rlviz.pictures.catalogue import EXPLORERS, find_explorer
from rlviz.pictures.idea import Explorer, Idea
from rlviz.ranges import SEEDS, Limits, ranges
from rlviz.settings import LARGEST, Declaration, declarations
from rlviz.study import regime
from rlviz.training import train
from small_models.checks import annotations_of
from tests.refusals.row import Row, of
from tests.refusals.things import SHORT

# what an annotation lets in beside a number → what another value must be, in words
ALIKE = {int: "a whole number", float: "a number", str: "a text", Path: "a Path", type(None): "None"}
BEYOND = {"at least": -1, "above": 0, "at most": 1, "below": 0}  # a limit and this is outside
NO_NUMBERS = (
    ("hot", "'hot'"),
    (True, "True"),
    ([1], "[1]"),
    ({}, "{}"),
    (1j, "a value of type complex"),
    (None, "None"),
)  # each parameter is given one of these, in turn
INFINITE = (math.nan, math.inf, -math.inf)


def parts(annotation: Any) -> tuple[Any, ...]:
    """Return the kinds of which an annotation lets one in."""
    return (annotation,) if typing.get_origin(annotation) is Literal else typing.get_args(annotation) or (annotation,)


def words(annotation: Any) -> str:
    """Return what a value must be by its annotation, as a refusal says it."""
    if typing.get_origin(annotation) is Literal:
        return f"one of {', '.join(typing.get_args(annotation))}"
    return " or ".join(ALIKE[part] for part in parts(annotation))


def wrong(annotation: Any, place: int) -> tuple[Any, str]:
    """Return a value that an annotation of a number does not let in, another one at each place, and how it is shown."""
    lets_in = tuple(kind for kind in (str, type(None)) if kind in parts(annotation))
    others = [each for each in NO_NUMBERS if not isinstance(each[0], lets_in)]
    return others[place % len(others)]


def outside(name: str, declared: Limits) -> Iterator[tuple[Any, str]]:
    """Give the values beside the limits of a range, with what is said of them."""
    reason = f" ({declared.reason})" if declared.reason else ""
    for each, limit in declared.limits.items():
        if limit != SEEDS:  # refused as what torch does not take
            value = limit + BEYOND[each]
            yield value, f"{name} must be {declared.range}{reason}; got {value}"
    if declared.finite:
        yield math.inf, f"{name} must be {declared.range}{reason}; got inf"


# --- settings ---


def kinds_in(module: Any) -> list[type]:
    """Return the dataclasses of settings that a module declares."""
    own = (kind for kind in vars(module).values() if getattr(kind, "__module__", "") == module.__name__)
    return [
        kind
        for kind in own
        if is_dataclass(kind) and fields(kind) and all("setting" in field.metadata for field in fields(kind))
    ]


def of_setting(kind: type, name: str, declaration: Declaration, place: int) -> Iterator[tuple[Any, str]]:
    """Give values that a setting cannot have, each with what is said of it."""
    annotation = annotations_of(kind)[name]
    value, shown = wrong(annotation, place)
    yield value, f"{name} must be {words(annotation)}; got {shown}"
    if int in parts(annotation):
        yield 4.5, f"{name} must be {words(annotation)}; got 4.5"
        if "below" not in declaration.limits:
            yield LARGEST, f"{name} must be below 1,000,000,000; got 1000000000"
    if float in parts(annotation):
        value = INFINITE[place % len(INFINITE)]
        yield value, f"{name} must be finite; got {value}"
    yield from outside(name, declaration)


SETTINGS = [kind for module in (settings, regime, options) for kind in kinds_in(module)]
OF_SETTINGS = [
    Row(partial(kind, **{name: value}), says)
    for kind in SETTINGS
    for place, (name, declaration) in enumerate(declarations(kind).items())
    for value, says in of_setting(kind, name, declaration, place)
]

# --- pieces ---


FAMILY = (*ALGORITHMS, *RELATIVES)
USED = {type(piece): piece for algorithm in FAMILY for piece in algorithm.slots().values()}


def pieces() -> list[type]:
    """Return the pieces that have parameters."""
    modules = [
        importlib.import_module(found.name) for found in pkgutil.iter_modules(rlviz.pieces.__path__, "rlviz.pieces.")
    ]
    own = (value for module in modules for value in vars(module).values() if isinstance(value, type))
    return sorted(
        {kind for kind in own if is_dataclass(kind) and hasattr(kind, "__post_init__")}, key=lambda kind: kind.__name__
    )


def built(piece: type, name: str, value: Any) -> None:
    """Build a piece with one parameter that is wrong, past the tests' type checker, which refuses some before it can."""
    made = object.__new__(piece)
    for field in fields(piece):
        default = 1 if field.default is MISSING else field.default
        object.__setattr__(made, field.name, getattr(USED.get(piece), field.name, default))
    object.__setattr__(made, name, value)
    made.__post_init__()


def of_parameter(piece: type, name: str, place: int) -> Iterator[tuple[Any, str]]:
    """Give values that a parameter cannot have, each with what is said of it."""
    annotation = annotations_of(piece)[name]
    if all(part in (int, float) for part in parts(annotation)):
        value, shown = wrong(annotation, place)
        yield value, f"{name} must be {words(annotation)}; got {shown}"
    if annotation is float:
        yield math.nan, f"{name}… must …nan…"
    if typing.get_origin(annotation) is Literal:
        yield "another", f"{name} must be one of {', '.join(map(str, typing.get_args(annotation)))}; got 'another'"
    if name in ranges(piece):
        yield from outside(name, ranges(piece)[name])


OF_PIECES = [
    Row(partial(built, piece, name, value), f"…{says}")
    for place, (piece, name) in enumerate((piece, field.name) for piece in pieces() for field in fields(piece))
    for value, says in of_parameter(piece, name, place)
]

# --- algorithms ---


def with_slot(algorithm: Any, slot: str) -> Any:
    return replace(algorithm, **{slot: lambda: 0})


def alone(algorithm: Any) -> Any:
    return train("chain", algorithm, replace(SHORT, group_size=1), reference="chain-rare")


# what an algorithm refuses is the same for all of its kind, and the slots of each kind are other ones
OF_EACH_KIND = list({type(algorithm): algorithm for algorithm in FAMILY}.values())
OF_ALGORITHMS = [
    *of(
        with_slot,
        *(
            ((algorithm, slot), f"{slot} must take … argument… (…)…; <lambda> does not: …")
            for algorithm in OF_EACH_KIND
            for slot in getattr(algorithm, "protocols", ("reward", "pair_loss"))
        ),
        error="TypeError",
    ),
    *of(
        lambda algorithm: algorithm.with_parameters(no_such=1),
        *(((each,), f"{each.name} has no parameter 'no_such'; its pieces have …") for each in OF_EACH_KIND),
    ),
    *of(
        alone,
        *(
            ((algorithm,), f"group_size must be at least 2 for {algorithm.name}…; got 1")
            for algorithm in ALGORITHMS
            if isinstance(algorithm, GroupPolicyGradient)
        ),
    ),
    *of(
        lambda algorithm: replace(algorithm, bounds=lambda old_logp: (1.2, 0.8)),
        *(
            ((each,), f"{each.name}'s bounds, <lambda>, must give limits with lower ≤ upper; … got 1.2 and 0.8")
            for each in OF_EACH_KIND
            if isinstance(each, PolicyGradient)
        ),
    ),
]

# --- sliders ---


def explored(idea: Idea, name: str, value: Any) -> Explorer:
    return Explorer(idea, {name: value})


def of_control(idea: Idea, name: str, control: Slider | Choice, place: int) -> Iterator[tuple[Any, str]]:
    """Give values that a control cannot have, each with what is said of it."""
    if isinstance(control, Choice):
        if name != "algorithm":
            yield "nothing", f"{name} must be one of …; got 'nothing'"
        return
    if control.many:
        yield [1] * (control.many + 1), f"{name} must be {control.many} numbers; got [1, …"
        return
    own = idea.algorithms is not None and name in idea.algorithms.parameters
    if own and name not in idea.algorithms.own(idea.algorithms.first):
        return  # a parameter of other algorithms
    yield [("much", f"{name} must be …; got 'much'"), (math.inf, f"{name} must be …; got inf")][place % 2]
    if own:  # its range is the piece's
        yield -1000.0, f"…{name}… must …; got -1000.0…"
        return
    ends = control.stops or (control.low, control.high)
    if all(isinstance(end, int | float) for end in ends):
        low, high = min(ends), max(ends)
        for value in (low - 1, high + 1):
            yield value, f"{name} must be from {low:g} to {high:g}…; got {value}"
    elif isinstance(control.low, int | float):
        yield control.low - 1, f"{name} must be …; got {control.low - 1}"


IDEAS = [find_explorer(name).idea for name in EXPLORERS]
OF_SLIDERS = [
    Row(partial(explored, idea, name, value), says)
    for idea in IDEAS
    for place, (name, control) in enumerate(idea.controls.items())
    if isinstance(control, Slider | Choice)
    for value, says in of_control(idea, name, control, place)
] + [Row(partial(explored, idea, "no_such", 1), "'no_such' is no argument; …", "TypeError") for idea in IDEAS]

ROWS = OF_SETTINGS + OF_PIECES + OF_ALGORITHMS + OF_SLIDERS
