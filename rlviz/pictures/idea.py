"""An idea as a function to explore it: one file has a curve and a picture, and this makes the rest of them.

`explorer("clip", CLIP, clip, …)` returns `explore_clip`: its arguments are the picture's controls (`arguments`), it returns an
`Explorer` (`explore`), which a notebook shows as a widget, `.html()` as a page, `.figure()` on paper. Programs of the library's
algorithms are shipped beside the pictures (`shipped`); one's own algorithm is traced when it is shown, and where it cannot be,
the kernel computes its curve.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

from rlviz.algorithms import Algorithm
from rlviz.page.names import drawn
from rlviz.page.picture import Beside, Choice, Draws, Picture, Slider
from rlviz.page.tracing import Curve, Program, trace
from rlviz.page.widget import Variant
from rlviz.pictures.parameters import LABELS, OFFERED, RANGES, WIDTHS, Algorithms

if TYPE_CHECKING:
    from rlviz.pictures.explore import Explorer


def _nothing(*_: Any, **__: Any) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class Idea:
    """A curve and its picture.

    curve(algorithm, **picks) → a function of tensors, by the names of its parameters: controls (a choice as its place among its
    options), data, and `**parameters` for the algorithm's own; without `algorithms`, curve(**picks). texts, data: of the same
    arguments, the names that come with that choice. free: whether sizes of the data change. example: values to trace at, where
    the picture's own have equal sizes that are independent. fixed: of an argument that no control moves, such as a run, what
    reads it, once, as names of data; None is what it is when it is not given. named: setting's name → arguments of the
    explorer; they tell the idea on paper, and are what a page offers to jump to. adapted: what makes another idea of this one
    for arguments that ask for it, such as a table of one's own with other sizes.
    """

    name: str
    picture: Picture
    curve: Callable[..., Curve]
    algorithms: Algorithms | None = None
    texts: Callable[..., Mapping[str, str]] = _nothing
    data: Callable[..., Mapping[str, Any]] = _nothing
    free: bool = False
    example: Mapping[str, Any] = field(default_factory=dict)
    named: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fixed: Mapping[str, Callable[[Any], Mapping[str, Any]]] = field(default_factory=dict)
    adapted: Callable[[Idea, Mapping[str, Any]], Idea] | None = None

    def __post_init__(self) -> None:
        moved = {name for mark in self.picture.marks() for name in (mark.drag, *getattr(mark, "chosen", ())) if name}
        if unknown := moved - set(self.controls):
            raise ValueError(f"picture of {self.name}: a mark moves {unknown.pop()!r}, which is no control")
        both = [] if self.algorithms is None else sorted(set(self.algorithms.parameters) & set(self.picture.controls))
        if both:
            raise ValueError(
                f"picture of {self.name}: {both[0]!r} is a control and a parameter of the algorithms; name it otherwise"
            )

    @cached_property
    def members(self) -> dict[str, Algorithm]:
        """The library's algorithms that the picture can show, by name."""
        return {} if self.algorithms is None else self.algorithms.members()

    @cached_property
    def controls(self) -> dict[str, Slider | Choice | Beside]:
        """All controls: the algorithm's and the picture's."""
        if self.algorithms is None:
            return dict(self.picture.controls)
        first = self.algorithms.first
        has = self.algorithms.numbers(first)
        sliders = {
            name: Slider(*RANGES[name], has.get(name, RANGES[name][0]), LABELS.get(name, name))
            for name in self.algorithms.parameters
        }
        pick = Choice(self.members, first.name, "algorithm", picks=True)
        return {"algorithm": pick, **sliders, **self.picture.controls}

    @cached_property
    def signature(self) -> inspect.Signature:
        """The explorer's arguments: the algorithm, its parameters (None: its own), and the picture's controls."""
        made: list[inspect.Parameter] = []
        for name, control in self.controls.items():
            default = control.options[control.value] if isinstance(control, Choice) else control.value
            if isinstance(control, Beside):
                default = tuple(self.members[each] for each in control.value)
            if self.algorithms is not None and name in self.algorithms.parameters:
                default = None
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if not made else inspect.Parameter.KEYWORD_ONLY
            made.append(inspect.Parameter(name, kind, default=default))
        made += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in self.fixed]
        return inspect.Signature(made)

    def picks(self) -> list[str]:
        """Return the controls that choose another program, in order; the algorithm is the first."""
        return [name for name, control in self.controls.items() if isinstance(control, Choice) and control.picks]

    def build(self, key: str, members: Mapping[str, Algorithm]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of curve, texts and data for a key, which is the picked options joined by "|"."""
        picked = dict(zip(self.picks(), key.split("|"), strict=True)) if self.picks() else {}
        name = picked.pop("algorithm", None)
        others = {pick: self.controls[pick].options[option] for pick, option in picked.items()}  # type: ignore[union-attr]
        return (() if name is None else (members[name],)), others

    @cached_property
    def variants(self) -> dict[str, Variant]:
        """What is known of the shipped programs' choices, by key: it is the same for every explorer, and filled by the first."""
        return {}

    def variant(self, key: str, members: Mapping[str, Algorithm], program: str | None, why: str = "") -> Variant:
        """Return what a choice makes of the picture, with the name of its program."""
        arguments, others = self.build(key, members)
        own = self.algorithms.own(arguments[0]) if self.algorithms else {}
        name = arguments[0].name if arguments else ""
        texts = {"name": name, **self.texts(*arguments, **others)}
        return Variant(program, why, own, texts, self.data(*arguments, **others))

    def inputs(self, curve: Curve, own: Mapping[str, Any]) -> list[str]:
        """Return the names that a curve asks for; `own` are the algorithm's parameters, for its `**parameters`."""
        asked: list[str] = []
        for parameter in inspect.signature(curve).parameters.values():
            asked += list(own) if parameter.kind is parameter.VAR_KEYWORD else [parameter.name]
        return asked

    def traced(self, key: str, members: Mapping[str, Algorithm]) -> Program:
        """Return the program of a key. Raises CannotTrace."""
        arguments, others = self.build(key, members)
        curve = self.curve(*arguments, **others)
        values = {**{name: control.value for name, control in self.controls.items()}, **self.example}
        data = {**self.picture.data, **self.read({}), **self.data(*arguments, **others)}
        own = {n: v[0] for n, v in self.algorithms.own(arguments[0]).items()} if self.algorithms else {}
        given = {name: self.number(name, values | own, data) for name in self.inputs(curve, own)}
        tensors = {name: value for name, value in given.items() if not isinstance(value, Real)}
        return trace(curve, {n: v for n, v in given.items() if n not in tensors}, tensors, free=self.free)

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data that the arguments stand for that no control moves."""
        return {key: value for name, read in self.fixed.items() for key, value in read(arguments.get(name)).items()}

    def number(self, name: str, values: Mapping[str, Any], data: Mapping[str, Any]) -> Any:
        """Return what a name stands for as a number or a tensor: a choice is its place, a recipe its numbers."""
        import torch

        value = values[name] if name in values else data[name]
        control = self.controls.get(name)
        if isinstance(control, Choice):
            return float(list(control.options).index(value))
        if isinstance(value, Draws):
            value = drawn(value, values)
        return float(value) if isinstance(value, Real) else torch.as_tensor(value, dtype=torch.double)


def keys_of(options: Sequence[Sequence[str]]) -> list[str]:
    """Return all keys that these options make, of each pick one."""
    keys = [""]
    for place, each in enumerate(options):
        keys = [f"{key}|{option}" if place else option for key in keys for option in each]
    return keys


def explorer(name: str, picture: Picture, curve: Callable[..., Curve], **how: Any) -> Callable[..., Explorer]:
    """Return `explore_NAME`: a function of the picture's controls that returns an `Explorer`.

    The arguments are those of `Idea`.
    """
    idea = Idea(name, picture, curve, **how)

    def explore(*args: Any, **kwargs: Any) -> Explorer:
        from rlviz.pictures.explore import Explorer

        known = {name: value for name, value in kwargs.items() if name in idea.signature.parameters}
        bound = idea.signature.bind(*args, **known).arguments
        return Explorer(idea, {**bound, **kwargs})  # which refuses a name that is no argument

    explore.__name__ = explore.__qualname__ = f"explore_{name}"
    explore.__doc__ = f"Return an `Explorer`: {picture.title}\n\n{arguments_in_words(idea)}"
    vars(explore).update(idea=idea, __signature__=idea.signature.replace(return_annotation="Explorer"))
    return explore


def arguments_in_words(idea: Idea) -> str:
    """Return the explorer's arguments, a line each, and how far each control goes."""
    return "\n".join(f"{name}: {words_of(control)}." for name, control in idea.controls.items())


def words_of(control: Slider | Choice | Beside) -> str:
    """Say what an argument is, and what it can be."""
    if isinstance(control, Beside):
        return f"up to {control.most} algorithms beside it" if control.most > 1 else "one algorithm beside it"
    if isinstance(control, Choice):
        return f"{control.label}, one of {', '.join(map(str, control.options))}"
    if control.stops:
        return f"{control.label}, from {min(control.stops):g} to {max(control.stops):g}"
    low, high = (f"{end:g}" if isinstance(end, Real) else str(end) for end in (control.low, control.high))
    return f"{control.label}, from {low} to {high}" + (f", {control.many} of them" if control.many else "")


__all__ = ["OFFERED", "WIDTHS", "Algorithms", "Idea", "explorer"]
