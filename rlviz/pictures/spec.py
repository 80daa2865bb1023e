"""The definition of an explorer: a curve, its picture, and which algorithms it shows.

`explorer("clip", CLIP, clip_curve, …)` returns `explore_clip`, whose arguments are the picture's controls (`arguments`). Calling
it returns an `Explorer` (`explore`): a widget in a notebook, `.html()` for a page, `.figure()` on paper. Programs of the
library's algorithms lie beside the pictures (`shipped`); a rule of one's own is traced when it is shown, and where a page cannot
follow it, the kernel computes its curve.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from numbers import Real
from typing import TYPE_CHECKING, Any

from rlviz.algorithms import Algorithm
from rlviz.names import nearest
from rlviz.page.names import drawn
from rlviz.page.picture import Beside, Choice, Draws, Picture, Slider
from rlviz.page.tracing import Curve, Program, trace
from rlviz.page.widget import Variant
from rlviz.pictures.parameters import LABELS, OFFERED, RANGES, WIDTHS, Algorithms

if TYPE_CHECKING:
    from rlviz.pictures.explore import Explorer

__all__ = ["OFFERED", "WIDTHS", "Algorithms", "ExplorerSpec", "explorer"]


@dataclass(frozen=True)
class ExplorerSpec:
    """A curve and its picture.

    A *key* is one choice of the algorithm and of each control that picks a program: their options, joined by "|".
    """

    name: str
    picture: Picture
    curve: Callable[
        ..., Curve
    ]  # (algorithm, **picks) → function of tensors: controls, data, `**parameters`; see README.md
    algorithms: Algorithms | None = None  # None: the curve is of no algorithm
    texts: Callable[..., Mapping[str, str]] = lambda *_, **__: {}  # of the curve's arguments: the words of this choice
    data: Callable[..., Mapping[str, Any]] = lambda *_, **__: {}  # of the curve's arguments: the data of this choice
    free: bool = False  # whether sizes of the data change
    example: Mapping[str, Any] = field(default_factory=dict)  # values to trace at, where equal sizes are independent
    named: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # a setting's name → arguments of the explorer
    # an argument that no control moves, such as a run → function of it (None: not passed) that returns data
    fixed: Mapping[str, Callable[[Any], Mapping[str, Any]]] = field(default_factory=dict)
    adapt: Callable[[ExplorerSpec, Mapping[str, Any]], ExplorerSpec] | None = None  # for arguments with other sizes

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
        numbers = self.algorithms.numbers(first)
        sliders = {
            name: Slider(*RANGES[name], numbers.get(name, RANGES[name][0]), LABELS.get(name, name))
            for name in self.algorithms.parameters
        }
        pick = Choice(self.members, first.name, "algorithm", picks=True)
        return {"algorithm": pick, **sliders, **self.picture.controls}

    @cached_property
    def signature(self) -> inspect.Signature:
        """The explorer's arguments: the algorithm, its parameters (None: as the algorithm has them), the picture's controls."""
        defaults: dict[str, Any] = {}
        for name, control in self.controls.items():
            if self.algorithms is not None and name in self.algorithms.parameters:
                defaults[name] = None
            elif isinstance(control, Beside):
                defaults[name] = tuple(self.members[member] for member in control.value)
            else:
                defaults[name] = control.options[control.value] if isinstance(control, Choice) else control.value
        defaults |= dict.fromkeys(self.fixed)
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, *[inspect.Parameter.KEYWORD_ONLY] * len(defaults))
        return inspect.Signature(
            [inspect.Parameter(name, kind, default=defaults[name]) for name, kind in zip(defaults, kinds, strict=False)]
        )

    @cached_property
    def variants(self) -> dict[str, Variant]:
        """The variants of shipped programs, by key: the same for every explorer, and filled by the first."""
        return {}

    def picks(self) -> list[str]:
        """Return the controls that choose another program, in order; the algorithm is the first."""
        return [name for name, control in self.controls.items() if isinstance(control, Choice) and control.picks]

    def keys(self, members: Mapping[str, Algorithm]) -> list[str]:
        """Return all keys, with these algorithms to choose from."""
        options = [members if pick == "algorithm" else self.controls[pick].options for pick in self.picks()]  # type: ignore[union-attr]
        return ["|".join(choice) for choice in product(*options)]

    def curve_arguments(self, key: str, members: Mapping[str, Algorithm]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of curve, texts and data for a key."""
        picked = dict(zip(self.picks(), key.split("|"), strict=True)) if self.picks() else {}
        name = picked.pop("algorithm", None)
        choices = {pick: self.controls[pick].options[option] for pick, option in picked.items()}  # type: ignore[union-attr]
        return (() if name is None else (members[name],)), choices

    def make_variant(self, key: str, members: Mapping[str, Algorithm], program: str | None, why: str = "") -> Variant:
        """Return a key's program by name, slider ranges, texts and data, as a page is sent them."""
        arguments, choices = self.curve_arguments(key, members)
        ranges = self.algorithms.slider_ranges(arguments[0]) if self.algorithms else {}
        name = arguments[0].name if arguments else ""
        texts = {"name": name, **self.texts(*arguments, **choices)}
        return Variant(program, why, ranges, texts, self.data(*arguments, **choices))

    def curve_inputs(
        self, key: str, members: Mapping[str, Algorithm], values: Mapping[str, Any], data: Mapping[str, Any]
    ) -> tuple[Curve, dict[str, Any]]:
        """Return a key's curve, and its inputs at these values of controls: numbers and tensors, by its parameters' names."""
        arguments, choices = self.curve_arguments(key, members)
        curve = self.curve(*arguments, **choices)
        data = {**data, **self.data(*arguments, **choices)}
        names: list[str] = []
        for parameter in inspect.signature(curve).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                names += self.algorithms.slider_ranges(arguments[0]) if self.algorithms else []
            else:
                names.append(parameter.name)
        return curve, {name: self.to_number(name, values, data) for name in names}

    def trace(self, key: str, members: Mapping[str, Algorithm]) -> Program:
        """Return the program of a key. Raises CannotTrace."""
        arguments, _ = self.curve_arguments(key, members)
        ranges = self.algorithms.slider_ranges(arguments[0]) if self.algorithms else {}
        values = {**{name: control.value for name, control in self.controls.items()}, **self.example}
        values |= {name: value for name, (value, *_) in ranges.items()}
        curve, inputs = self.curve_inputs(key, members, values, {**self.picture.data, **self.read_fixed({})})
        tensors = {name: value for name, value in inputs.items() if not isinstance(value, Real)}
        return trace(curve, {n: v for n, v in inputs.items() if n not in tensors}, tensors, free=self.free)

    def read_fixed(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data of the arguments that no control moves."""
        return {key: value for name, read in self.fixed.items() for key, value in read(arguments.get(name)).items()}

    def to_number(self, name: str, values: Mapping[str, Any], data: Mapping[str, Any]) -> Any:
        """Return a control's value or a piece of data as a number or a tensor.

        A choice becomes its place among its options, a recipe of chance its numbers.
        """
        import torch

        value = values[name] if name in values else data[name]
        control = self.controls.get(name)
        if isinstance(control, Choice):
            return float(list(control.options).index(value))
        if isinstance(value, Draws):
            value = drawn(value, values)
        return float(value) if isinstance(value, Real) else torch.as_tensor(value, dtype=torch.double)


def explorer(name: str, picture: Picture, curve: Callable[..., Curve], **how: Any) -> Callable[..., Explorer]:
    """Return `explore_NAME`: a function of the picture's controls that returns an `Explorer`.

    The arguments are those of `ExplorerSpec`.
    """
    spec = ExplorerSpec(name, picture, curve, **how)
    known = list(spec.signature.parameters)

    def explore(*args: Any, **kwargs: Any) -> Explorer:
        from rlviz.pictures.explore import Explorer

        if unknown := [name for name in kwargs if name not in known]:
            raise TypeError(f"{unknown[0]!r} is no argument; {nearest(unknown[0], known)}there are {', '.join(known)}")
        return Explorer(spec, spec.signature.bind(*args, **kwargs).arguments)

    explore.__name__ = explore.__qualname__ = f"explore_{name}"
    arguments = [f"{name}: {describe_control(control)}." for name, control in spec.controls.items()]
    explore.__doc__ = "\n".join([f"Return an `Explorer`: {picture.title}\n", *arguments])
    vars(explore).update(spec=spec, __signature__=spec.signature.replace(return_annotation="Explorer"))
    return explore


def describe_control(control: Slider | Choice | Beside) -> str:
    """Return an argument in words: its label, and its range or options."""
    if isinstance(control, Beside):
        return f"up to {control.most} algorithms beside it" if control.most > 1 else "one algorithm beside it"
    if isinstance(control, Choice):
        return f"{control.label}, one of {', '.join(map(str, control.options))}"
    if control.stops:
        return f"{control.label}, from {min(control.stops):g} to {max(control.stops):g}"
    low, high = (f"{end:g}" if isinstance(end, Real) else str(end) for end in (control.low, control.high))
    return f"{control.label}, from {low} to {high}" + (f", {control.many} of them" if control.many else "")
