"""Bad values for all that declares its type and range: a new setting, piece, slider or argument is tested without a line here."""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
import typing
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import partial
from types import FunctionType
from typing import Any, Literal

import pytest

import rlviz
import small_models
from rlviz import settings
from rlviz.algorithms import ALGORITHMS, PPO, RELATIVES, GroupPolicyGradient, PolicyGradient
from rlviz.cli import train as options
from rlviz.page.picture import Choice, Slider
from rlviz.pictures import Explorer
from rlviz.pictures.catalogue import EXPLORERS, find_explorer
from rlviz.ranges import ranges
from rlviz.settings import LARGEST, declarations
from rlviz.training import train
from small_models.checks import SIMPLE, annotations_of, checked
from tests.refusals.sentence import outside, refused
from tests.refusals.things import SHORT

INFINITE = (math.nan, math.inf, -math.inf)
STRANGERS = ("hot", True, [1], {}, None)
ALGORITHM_KINDS = {type(algorithm): algorithm for algorithm in (*ALGORITHMS, *RELATIVES)}


def named(*values: Any) -> Any:
    """Return parameters of a test whose first two parts say which case it is."""
    return [pytest.param(*case, id=f"{getattr(case[0], '__name__', case[0])}.{case[1]}") for case in values]


def parts(annotation: Any) -> tuple[Any, ...]:
    """Return the kinds of which an annotation lets one in."""
    return (annotation,) if typing.get_origin(annotation) is Literal else typing.get_args(annotation) or (annotation,)


def strangers(annotation: Any) -> list[Any]:
    """Return values of other types than an annotation lets in."""
    classes = tuple(SIMPLE[part][0] for part in parts(annotation) if part in SIMPLE)
    return [value for value in STRANGERS if isinstance(value, bool) or not isinstance(value, classes)]


def classes_in(package: Any) -> list[type]:
    """Return the dataclasses of a package's modules."""
    names = [module.name for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    modules = [importlib.import_module(name) for name in names]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    return sorted(filter(is_dataclass, classes), key=lambda kind: kind.__name__)


def pieces() -> list[type]:
    """Return the pieces that have parameters."""
    return [kind for kind in classes_in(rlviz.pieces) if hasattr(kind, "__post_init__")]


# --- settings and options of the command line ---

SETTINGS = (settings.TrainSettings, settings.PairSettings, options.Changes, options.Start)


@pytest.mark.parametrize(("kind", "name"), named(*((kind, name) for kind in SETTINGS for name in declarations(kind))))
def test_a_setting_refuses_what_it_cannot_be(kind, name):
    declared, kinds = declarations(kind)[name], parts(annotations_of(kind)[name])
    for value in strangers(annotations_of(kind)[name]):
        refused(partial(kind, **{name: value}), f"{name} must be ", f"got {value!r}")
    wrong: list[Any] = list(outside(declared, int in kinds))
    for value in wrong:
        refused(partial(kind, **{name: value}), f"{name} must be {declared.range}", f"got {value!r}")
    if int in kinds:
        refused(lambda: kind(**{name: 4.5}), name, "whole number", "4.5")
        refused(lambda: kind(**{name: 2**63 if "below" in declared.limits else LARGEST}), f"{name} must be below")
    for value in INFINITE if float in kinds else ():
        refused(partial(kind, **{name: value}), f"{name} must be finite", str(value))


# --- pieces and algorithms ---


def build(kind: type, name: str, value: Any) -> None:
    """Build a piece with one wrong parameter, past the tests' type checker, which refuses some before it can."""
    used = {type(piece): piece for a in (*ALGORITHMS, *RELATIVES) for piece in a.slots().values()} | {type(PPO): PPO}
    piece = object.__new__(kind)
    for field in fields(kind):
        default = 1 if field.default is MISSING else field.default
        object.__setattr__(piece, field.name, getattr(used.get(kind), field.name, default))
    object.__setattr__(piece, name, value)
    piece.__post_init__()


@pytest.mark.parametrize(
    ("kind", "name"), named(*((kind, field.name) for kind in (*pieces(), type(PPO)) for field in fields(kind)))
)
def test_a_piece_refuses_what_a_parameter_cannot_be(kind, name):
    annotation = annotations_of(kind)[name]
    if typing.get_origin(annotation) is Literal:
        allowed = ", ".join(map(str, typing.get_args(annotation)))
        refused(lambda: build(kind, name, "another"), f"{name} must be one of {allowed}", "got 'another'")
    if any(part not in (int, float) for part in parts(annotation)):
        return
    for value in strangers(annotation):
        refused(partial(build, kind, name, value), f"{name} must be a ", f"got {value!r}")
    if annotation is float:
        refused(lambda: build(kind, name, math.nan), name, "must", "nan")
    if declared := ranges(kind).get(name):
        for value in outside(declared, annotation is int):
            refused(partial(build, kind, name, value), f"{name} must be {declared.range}", f"got {value!r}")


@pytest.mark.parametrize("algorithm", ALGORITHM_KINDS.values(), ids=lambda algorithm: type(algorithm).__name__)
def test_an_algorithm_refuses_what_does_not_fit_a_slot(algorithm):
    for slot in getattr(algorithm, "protocols", ("reward", "pair_loss")):
        with pytest.raises(TypeError, match=rf"^{slot} must take \d argument.*; <lambda> does not: "):
            replace(algorithm, **{slot: lambda: 0})
    refused(lambda: algorithm.with_parameters(no_such=1), f"{algorithm.name} has no parameter 'no_such'", "have ")
    if isinstance(algorithm, PolicyGradient):
        refused(lambda: replace(algorithm, bounds=lambda old_logp: (1.2, 0.8)), "lower ≤ upper", "got 1.2 and 0.8")


def test_groups_of_one_are_refused_by_all_that_compare_in_a_group():
    for algorithm in ALGORITHMS:
        if isinstance(algorithm, GroupPolicyGradient):
            alone = replace(SHORT, group_size=1)
            refused(
                partial(train, "chain", algorithm, alone, reference="chain-rare"),
                "group_size must be at least 2",
                "got 1",
            )


# --- explorers ---


@pytest.mark.parametrize("name", EXPLORERS)
def test_an_explorer_refuses_what_a_control_cannot_be(name):
    spec = find_explorer(name).spec
    refused(lambda: find_explorer(name)(no_such=1), "'no_such' is no argument", "there are")
    if spec.algorithms is not None:
        refused(lambda: find_explorer(name)("grpo"), "algorithm must be an algorithm, such as GRPO", "got 'grpo'")
    for control_name, control in spec.controls.items():
        for value, *words in wrong_values(spec, control_name, control):
            refused(partial(Explorer, spec, {control_name: value}), control_name, "must", *words)


def wrong_values(spec: Any, name: str, control: Any) -> list[tuple[Any, ...]]:
    """Return values that a control cannot have, each with words of its refusal."""
    if isinstance(control, Choice):
        return [] if name == "algorithm" else [("nothing", "one of", "got 'nothing'")]
    if not isinstance(control, Slider):
        return []
    if control.many:
        return [([1] * (control.many + 1), f"{control.many} numbers", "got [1, ")]
    is_parameter = spec.algorithms is not None and name in spec.algorithms.parameters
    if is_parameter and name not in spec.algorithms.slider_ranges(spec.algorithms.first):
        return []  # a parameter of other algorithms
    wrong: list[tuple[Any, ...]] = [("much", "got 'much'"), (math.inf, "got inf"), (math.nan, "nan")]
    ends = control.stops or (control.low, control.high)
    if is_parameter:  # its range is the piece's
        wrong.append((-1000.0, "got -1000.0"))
    elif all(isinstance(end, int | float) for end in ends):
        low, high = min(ends), max(ends)
        wrong += [(value, f"from {low:g} to {high:g}", f"got {value}") for value in (low - 1, high + 1)]
    elif isinstance(control.low, int | float):
        wrong.append((control.low - 1, f"got {control.low - 1}"))
    return wrong


# --- arguments of functions ---

CHECKED = checked(lambda: None).__code__


def checked_functions() -> list[FunctionType]:
    """Return the functions of both packages whose arguments are checked by their annotations."""
    packages = [pkgutil.walk_packages(package.__path__, f"{package.__name__}.") for package in (rlviz, small_models)]
    names = [module.name for modules in packages for module in modules if not module.name.endswith("__main__")]
    values = [value for name in names for value in vars(importlib.import_module(name)).values()]
    functions = {value for value in values if getattr(value, "__code__", None) is CHECKED}
    return sorted(functions, key=lambda function: function.__qualname__)


class Stranger:
    """No argument is one."""


@pytest.mark.parametrize("function", checked_functions(), ids=lambda function: function.__qualname__)
def test_a_function_refuses_arguments_of_another_type(function):
    """All of them are of another type; the first that is checked is named."""
    kinds, parameters = annotations_of(function), inspect.signature(function).parameters
    names = [name for name, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    first = next(name for name in names if kinds.get(name, Any) is not Any)
    refused(lambda: function(**dict.fromkeys(names, Stranger())), f"{first} must be ", "got a value of type Stranger")
