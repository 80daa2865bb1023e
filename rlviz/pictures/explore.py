"""Explorers: a control for each argument of a curve, its picture, words, and the one-line call that reproduces it."""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

import ipywidgets as widgets
from matplotlib.figure import Figure

import rlviz.algorithms
from rlviz.algorithms import ALGORITHMS, RELATIVES, Algorithm, numbers
from rlviz.pictures.base import Picture, plot_small_multiples
from rlviz.pictures.controls import (
    Control,
    Counts,
    Pick,
    Several,
    check_number,
    choice_control,
    float_control,
    int_control,
)
from rlviz.pictures.live import BlittedFigure, LivePicture
from small_models.checks import checked

P = ParamSpec("P")
C = TypeVar("C")
Values = Mapping[str, Any]  # argument → its value
OFFERED = (*ALGORITHMS, *RELATIVES)
# parameter of a piece → the range of its slider: low, high, step
RANGES = {
    "eps_low": (0.01, 0.99, 0.01),
    "eps_high": (0.01, 1.0, 0.01),
    "max_ratio": (1.5, 20.0, 0.5),
    "gamma": (0.0, 1.0, 0.01),
    "lam": (0.0, 1.0, 0.01),
    "beta": (0.005, 1.0, 0.005),
}
WIDTHS = ("eps_low", "eps_high", "max_ratio")  # of the bounds on a ratio
TINY = (1e-4, 0.05, 1e-4)  # for widths like GSPO's
WORDS = {"gamma": "γ gamma", "lam": "λ lam", "beta": "β beta", "max_ratio": "largest ratio"}


def always(values: Values) -> bool:
    """Return True: the control is in sight whatever the values are."""
    return True


@dataclass(frozen=True, kw_only=True)
class Spec(ABC):
    """What an argument may be, from which its control is made. shown: is the control in sight, with these values of all?"""

    shown: Callable[[Values], bool] = always

    @abstractmethod
    def control(self, name: str, values: Values) -> Control | Pick | Counts:
        """Return the control of this argument, at its value among these; raises ValueError for one that it cannot have."""

    @property
    @abstractmethod
    def words(self) -> str:
        """Say what the argument is, and how far its control goes."""


@dataclass(frozen=True)
class Slider(Spec):
    """A number between `low` and `high`, or as far as the value given lies."""

    low: float
    high: float
    step: float
    label: str

    @property
    def words(self) -> str:
        return f"{self.label}; its slider goes from {self.low:g} to {self.high:g}"

    def control(self, name: str, values: Values) -> Control:
        return float_control(name, values[name], self.low, self.high, self.step, self.label)


@dataclass(frozen=True)
class WholeSlider(Spec):
    """A whole number between `low` and `high`, or as far as the value given lies."""

    low: int
    high: int
    label: str

    @property
    def words(self) -> str:
        return f"{self.label}; its slider goes from {self.low} to {self.high}"

    def control(self, name: str, values: Values) -> Control:
        return int_control(name, values[name], self.low, self.high, self.label)


@dataclass(frozen=True)
class Stops(Spec):
    """One of these numbers, for those that change by factors; the value given joins them."""

    numbers: Sequence[float]
    label: str

    @property
    def words(self) -> str:
        return f"{self.label}; its slider stops at {', '.join(f'{number:g}' for number in self.numbers)}"

    def control(self, name: str, values: Values) -> Control:
        return choice_control(name, values[name], self.numbers, self.label)


@dataclass(frozen=True)
class Menu(Spec):
    """One of these things, by name: name → thing."""

    options: Mapping[str, Any]
    label: str

    @property
    def words(self) -> str:
        return self.label

    def control(self, name: str, values: Values) -> Pick:
        return Pick(name, values[name], list(self.options.items()), self.label)


@dataclass(frozen=True)
class Numbers(Spec):
    """A tuple of whole numbers, as many as are given, each between `low` and `high`."""

    low: int
    high: int
    label: str

    @property
    def words(self) -> str:
        return f"{self.label} of each; its sliders go from {self.low} to {self.high}"

    def control(self, name: str, values: Values) -> Counts:
        return Counts(name, values[name], self.low, self.high, self.label)


@dataclass(frozen=True)
class Beside(Spec):
    """Up to `most` algorithms beside the first: those of the family that `fits` lets in, and those given."""

    fits: Callable[[Algorithm], bool]
    most: int

    @property
    def words(self) -> str:
        return f"up to {self.most} algorithms beside it"

    def control(self, name: str, values: Values) -> Several:
        given = values[name]
        if len(given) > self.most:
            raise ValueError(f"{name} must be at most {self.most} algorithms; got {len(given)}")
        options = [(member.name, member) for member in _with_own(given, OFFERED, self.fits)]
        return Several(name, given, options, "beside it", most=self.most)


@dataclass(frozen=True)
class Second(Spec):
    """One algorithm beside the first, or none: of the family, those that `fits` lets in, and the one given."""

    fits: Callable[[Algorithm], bool]

    @property
    def words(self) -> str:
        return "an algorithm beside it"

    def control(self, name: str, values: Values) -> Pick:
        given = [] if values[name] is None else [values[name]]
        options = [(member.name, member) for member in _with_own(given, OFFERED, self.fits)]
        return Pick(name, values[name], [("none", None), *options], "beside it")


def _with_own(
    own: Sequence[Algorithm], among: Sequence[Algorithm], fits: Callable[[Algorithm], bool]
) -> list[Algorithm]:
    """Return those among the algorithms that fit, and before them those of one's own."""
    family = [member for member in among if fits(member)]
    return [*(mine for mine in own if mine not in family), *family]


@dataclass(frozen=True)
class Algorithms:
    """A dropdown of the algorithms among these that `fits` lets in, and a slider for each of these parameters of theirs.

    numbers: an algorithm's parameters by name, as far as they have a part in the picture. check: raises ValueError that says
    what an algorithm lacks, where "nothing that this picture shows" says too little. Raises ValueError for a parameter without a
    range in `RANGES`.
    """

    fits: Callable[[Algorithm], bool]
    parameters: Sequence[str] = ()
    among: Sequence[Algorithm] = OFFERED
    numbers: Callable[[Algorithm], Mapping[str, float]] = numbers
    check: Callable[[Algorithm], None] | None = None

    def __post_init__(self) -> None:
        for name in self.parameters:
            if name not in RANGES:
                raise ValueError(
                    f"parameters must be of {', '.join(RANGES)}, which have a slider's range; got {name!r}"
                )


class AlgorithmControl:
    """What dropdown and sliders of `Algorithms` say together; sliders that the chosen one has no use for are hidden.

    values: the algorithm and its parameters to begin with, None for the algorithm's own. The dropdown offers one's own algorithm
    before the others. Raises ValueError for an algorithm that does not fit, and a value out of range.
    """

    def __init__(self, offered: Algorithms, values: Values) -> None:
        algorithm = values["algorithm"]
        given = {name: values[name] for name in offered.parameters if values[name] is not None}
        if not offered.fits(algorithm):
            if offered.check is not None:
                offered.check(algorithm)
            known = ", ".join(member.name for member in _with_own([], offered.among, offered.fits))
            raise ValueError(f"algorithm: {algorithm.name} has nothing that this picture shows; {known} have")
        self._numbers = offered.numbers
        options = [(member.name, member) for member in _with_own([algorithm], offered.among, offered.fits)]
        self.pick = Pick("algorithm", algorithm, options)
        self._set_anew = False
        self._sliders = {n: float_control(n, 0.5, *RANGES[n], WORDS.get(n, "")) for n in offered.parameters}
        self._changed: Callable[[], None] = lambda: None
        self._follow_the_pick()
        for name, value in given.items():
            check_number(name, value, "a number")
            if name not in self._numbers(algorithm):
                raise ValueError(f"{name}: {algorithm.name} has no such parameter in this picture; got {value}")
            self.value.with_parameters(**{name: value})  # refuses what the slider would only move
            self._sliders[name].move_to(value, *_range(name, value))
        self.pick.observe(self._picked)
        for slider in self._sliders.values():
            slider.observe(self._moved)

    def _follow_the_pick(self) -> None:
        own = self._numbers(self.pick.value)
        self._set_anew = True
        for name, slider in self._sliders.items():
            slider.hide(name not in own)
            if name in own:
                slider.move_to(own[name], *_range(name, own[name]))
        self._set_anew = False

    def _picked(self) -> None:
        self._follow_the_pick()
        self._changed()

    def _moved(self) -> None:
        if not self._set_anew:
            self._changed()

    def _changed_numbers(self) -> dict[str, float]:
        own = self._numbers(self.pick.value)
        return {n: s.value for n, s in self._sliders.items() if not s.hidden and s.value != own[n]}

    @property
    def value(self) -> Any:
        changed = self._changed_numbers()
        return self.pick.value.with_parameters(**changed) if changed else self.pick.value

    @property
    def controls(self) -> dict[str, Control | Pick]:
        return {"algorithm": self.pick, **self._sliders}

    def observe(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def arguments(self, default: Any) -> list[str]:
        """Return what stands for the algorithm in a call: its name if it is not the default, and its changed numbers."""
        shown = [] if self.pick.value == default else [call_name(self.pick.value)]
        return shown + [f"{name}={value!r}" for name, value in self._changed_numbers().items()]


def call_name(algorithm: Algorithm) -> str:
    """Return what the algorithm is called in `rlviz.algorithms`, or `mine` for one's own."""
    named = vars(rlviz.algorithms).items()
    return next((name for name, value in named if name.isupper() and value == algorithm), "mine")


def _range(name: str, value: float) -> tuple[float, float, float]:
    low, high, step = TINY if name.startswith("eps") and value < RANGES[name][0] else RANGES[name]
    return min(low, value), max(high, value), step


def with_given(algorithm: Any, **parameters: float | None) -> Any:
    """Return the algorithm with those of these parameters that are not None; raises ValueError for one that it lacks."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return algorithm.with_parameters(**given) if given else algorithm


@dataclass(frozen=True)
class Idea(Generic[P, C]):
    """What a picture is about, and what moves it.

    curve: computes what is shown. picture: draws it. algorithms: what the curve's argument `algorithm` may be, and which of its
    parameters are arguments too; None for a curve of no algorithm. controls: of the other arguments. fixed: of an argument that
    no control moves, such as a run, how it is read, once. twin: heading → arguments of the settings that tell the idea on paper.
    Raises ValueError for an argument of the curve without a control, and the other way round.
    """

    name: str
    curve: Callable[P, C]
    picture: type[Picture[C]]
    algorithms: Algorithms | None
    controls: Mapping[str, Spec]
    fixed: Mapping[str, Callable[[Any], Any]]
    twin: Mapping[str, Values]

    def __post_init__(self) -> None:
        of_algorithm = {"algorithm", *self.algorithms.parameters} if self.algorithms else set()
        unmatched = set(self.signature.parameters) ^ {*of_algorithm, *self.controls, *self.fixed}
        if unmatched:
            raise ValueError(
                f"controls of {self.name}: {', '.join(sorted(unmatched))} must be both a control and an argument"
            )

    @property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.curve)


class Explore(Protocol[P, C]):
    """A function `explore_NAME` that makes explorers of one idea; its arguments are those of the idea's curve."""

    __name__: str
    idea: Idea[P, C]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Explorer[C]: ...


def explorer(
    name: str,
    curve: Callable[P, C],
    picture: type[Picture[C]],
    *,
    algorithms: Algorithms | None = None,
    controls: Mapping[str, Spec],
    fixed: Mapping[str, Callable[[Any], Any]] | None = None,
    twin: Mapping[str, Values],
) -> Explore[P, C]:
    """Return `explore_NAME`: a function of the curve's arguments that returns an `Explorer` with a control for each of them.

    The arguments, and what it raises, are those of `Idea`.
    """
    idea = Idea(name, curve, picture, algorithms, controls, fixed or {}, twin)

    @wraps(curve)
    def explore(*args: P.args, **kwargs: P.kwargs) -> Explorer[C]:
        given = idea.signature.bind(*args, **kwargs)
        given.apply_defaults()
        return Explorer(idea, given.arguments)

    # help() and the check of types see the curve's arguments, and an Explorer that comes back
    what = "Return an `Explorer`: the curve below, a control for each of its arguments, `.png`, `.caption` and `.call`."
    explore.__name__ = explore.__qualname__ = f"explore_{name}"
    explore.__annotations__ = {**curve.__annotations__, "return": Explorer}
    explore.__doc__ = f"{what}\n\n{inspect.getdoc(curve) or ''}"
    vars(explore).update(idea=idea, __signature__=idea.signature.replace(return_annotation=Explorer))
    return cast(Explore[P, C], checked(explore))


class Explorer(LivePicture, Generic[C]):
    """Controls, a picture that answers to them, words, and the call that reproduces it; made by the explore_ functions.

    controls: argument's name → control. curve: what is on show. picture: how it is drawn.
    """

    def __init__(self, idea: Idea[Any, C], values: Values) -> None:
        self._idea = idea
        self._algorithm = None if idea.algorithms is None else AlgorithmControl(idea.algorithms, values)
        self._own = {name: spec.control(name, values) for name, spec in idea.controls.items()}
        self._fixed = {name: read(values[name]) for name, read in idea.fixed.items()}
        self._fixed_in_call = [_source_of_fixed(name, values[name]) for name in idea.fixed if values[name] is not None]
        of_algorithm = {} if self._algorithm is None else self._algorithm.controls
        self.controls: dict[str, Control | Pick | Counts] = {**of_algorithm, **self._own}
        self.curve = self._curve()
        self.picture = idea.picture(self.curve)
        figure = self.picture.figure
        assert isinstance(figure, Figure)
        self._still = self.picture.still(self.curve)
        rows = [control.row for control in self.controls.values()]
        box = widgets.Box(rows, layout={"display": "flex", "flex_flow": "row wrap", "grid_gap": "0 12px"})
        super().__init__(BlittedFigure(figure, self.picture.moving), [box])
        for control in (*self._own.values(), *([] if self._algorithm is None else [self._algorithm])):
            control.observe(self._moved)
        self._say()

    def _curve(self) -> C:
        values = {name: control.value for name, control in self._own.items()}
        if self._algorithm is not None:
            values["algorithm"] = self._algorithm.value
        for name, spec in self._idea.controls.items():
            self._own[name].hide(not spec.shown(values))
        return self._idea.curve(**values, **self._fixed)

    def _moved(self) -> None:
        try:
            curve = self._curve()
        except ValueError as error:  # two sliders that contradict each other; nobody sees a callback's traceback
            self.show(alt=self.alt, caption=f"Not possible: {error}. The picture shows the values before.")
            return
        self.curve = curve
        self.picture.show(curve)
        still = self.picture.still(curve)
        if still != self._still:
            self._still = still
            self._picture.lay_out()
        self._say()

    def _say(self) -> None:
        words = self.picture.words(self.curve)
        self.show(alt=f"{self.picture.alt} {words}", caption=words, call=self.call)

    @property
    def call(self) -> str:
        """The call that makes an explorer with these values."""
        defaults = {name: p.default for name, p in self._idea.signature.parameters.items()}
        arguments = [] if self._algorithm is None else self._algorithm.arguments(defaults["algorithm"])
        for name, control in self._own.items():
            if not control.hidden and control.value != defaults[name]:
                arguments.append(f"{name}={_source(control.value)}")
        return f"explore_{self._idea.name}({', '.join([*arguments, *self._fixed_in_call])})"


def _source_of_fixed(name: str, value: Any) -> str:
    """Return source for an argument that no control moves: a path as it is, all else as a variable of that name."""
    return f"{name}={os.fspath(value)!r}" if isinstance(value, str | os.PathLike) else f"{name}={name}"


def _source(value: Any) -> str:
    """Return Python source for a control's value: an algorithm by its name, all else as it prints."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_source, value))}{',' if len(value) == 1 else ''})"
    return call_name(value) if hasattr(value, "slots") else repr(value)


@checked
def small_multiples(
    explore: Callable[..., Explorer[Any]], settings: Mapping[str, Mapping[str, Any]], *, columns: int = 1
) -> Figure:
    """Draw an explorer's picture once for each setting: {"λ = 0": {"lam": 0.0}, "λ = 1": {"lam": 1.0}}.

    It tells what the sliders tell, on paper. Raises what the explorer raises.
    """
    idea = cast(Explore[Any, Any], explore).idea
    curves = {label: idea.curve(**arguments) for label, arguments in settings.items()}
    return plot_small_multiples(idea.picture, curves, columns=columns)
