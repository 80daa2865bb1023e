"""Explorers: a control for each argument of a curve, its picture, words, and the one-line call that reproduces it."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

import traitlets
from matplotlib.figure import Figure

import rlviz.algorithms
from rlviz.algorithms import Algorithm, numbers
from rlviz.pictures.arguments import OFFERED, Choice, Control, Range, Spec, Values, check_number, with_own
from rlviz.pictures.base import Handle, Picture, plot_small_multiples
from rlviz.pictures.live import PictureView
from rlviz.pictures.svg import SvgFigure
from small_models.checks import checked

P = ParamSpec("P")
C = TypeVar("C")
# parameter of a piece → the range of its slider: low, high, step
RANGES = {
    "eps_low": (0.01, 0.99, 0.01),
    "eps_high": (0.01, 1.0, 0.01),
    "max_ratio": (1.5, 20.0, 0.5),
    "gamma": (0.0, 1.0, 0.01),
    "lam": (0.0, 1.0, 0.01),
    "beta": (0.005, 1.0, 0.005),
    "cap": (0.5, 5.0, 0.1),
    "lowest": (0.0, 1.0, 0.05),
    "highest": (1.0, 10.0, 0.25),
    "delta": (0.05, 2.0, 0.05),
}
WIDTHS = ("eps_low", "eps_high", "max_ratio")  # of the bounds on a ratio
TINY = (1e-4, 0.05, 1e-4)  # for widths like GSPO's
LABELS = {"gamma": "γ gamma", "lam": "λ lam", "beta": "β beta", "max_ratio": "largest ratio", "delta": "δ delta"}


@dataclass(frozen=True)
class Algorithms:
    """A choice of the algorithms among these that `fits` lets in, and a slider for each of these parameters of theirs.

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
    """What the choice and the sliders of `Algorithms` say together; sliders that the chosen one has no use for are hidden.

    values: the algorithm and its parameters to begin with, None for the algorithm's own. One's own algorithm is offered before
    the others. Raises ValueError for an algorithm that does not fit, and a value out of range.
    """

    def __init__(self, offered: Algorithms, values: Values) -> None:
        algorithm = values["algorithm"]
        given = {name: values[name] for name in offered.parameters if values[name] is not None}
        if not offered.fits(algorithm):
            if offered.check is not None:
                offered.check(algorithm)
            known = ", ".join(member.name for member in with_own([], offered.among, offered.fits))
            raise ValueError(f"algorithm: {algorithm.name} has nothing that this picture shows; {known} have")
        self._numbers = offered.numbers
        options = [(member.name, member) for member in with_own([algorithm], offered.among, offered.fits)]
        self.pick = Choice("algorithm", algorithm, options)
        self._sliders = {n: Range(n, RANGES[n][0], *RANGES[n], LABELS.get(n, "")) for n in offered.parameters}
        self._follow_the_pick()
        for name, value in given.items():
            check_number(name, value)
            if name not in self._numbers(algorithm):
                raise ValueError(f"{name}: {algorithm.name} has no such parameter in this picture; got {value}")
            self.value.with_parameters(**{name: value})  # refuses what the slider would only move
            self._sliders[name].move_to(value, *_range(name, value))
        self.pick.observe(self._follow_the_pick)

    def _follow_the_pick(self) -> None:
        own = self._numbers(self.pick.value)
        for name, slider in self._sliders.items():
            slider.hidden = name not in own
            if name in own:
                slider.move_to(own[name], *_range(name, own[name]))

    def _changed_numbers(self) -> dict[str, float]:
        own = self._numbers(self.pick.value)
        return {n: s.value for n, s in self._sliders.items() if not s.hidden and s.value != own[n]}

    @property
    def value(self) -> Any:
        changed = self._changed_numbers()
        return self.pick.value.with_parameters(**changed) if changed else self.pick.value

    @property
    def controls(self) -> dict[str, Control[Any]]:
        return {"algorithm": self.pick, **self._sliders}

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
    grid: argument → its values in a page without a kernel, those that seldom move first.
    Raises ValueError for an argument of the curve without a control, and the other way round, and for a grid of another name.
    """

    name: str
    curve: Callable[P, C]
    picture: type[Picture[C]]
    algorithms: Algorithms | None
    controls: Mapping[str, Spec]
    fixed: Mapping[str, Callable[[Any], Any]]
    twin: Mapping[str, Values]
    grid: Mapping[str, Sequence[Any]]

    def __post_init__(self) -> None:
        of_algorithm = {"algorithm", *self.algorithms.parameters} if self.algorithms else set()
        unmatched = set(self.signature.parameters) ^ {*of_algorithm, *self.controls, *self.fixed}
        if unmatched:
            raise ValueError(
                f"controls of {self.name}: {', '.join(sorted(unmatched))} must be both a control and an argument"
            )
        if unknown := set(self.grid) - {*of_algorithm, *self.controls}:
            raise ValueError(f"grid of {self.name}: {', '.join(sorted(unknown))} must be a control")

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
    grid: Mapping[str, Sequence[Any]] | None = None,
) -> Explore[P, C]:
    """Return `explore_NAME`: a function of the curve's arguments that returns an `Explorer` with a control for each of them.

    The arguments, and what it raises, are those of `Idea`.
    """
    idea = Idea(name, curve, picture, algorithms, controls, fixed or {}, twin, grid or {})

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


class Arguments:
    """The arguments of one idea's curve as controls: what they say together, and the call that says the same."""

    def __init__(self, idea: Idea[Any, Any], values: Values) -> None:
        self.idea = idea
        self._fixed = {name: read(values[name]) for name, read in idea.fixed.items()}
        self._fixed_in_call = [_source_of_fixed(name, values[name]) for name in idea.fixed if values[name] is not None]
        self._make_controls(values)

    def _make_controls(self, values: Values) -> None:
        idea = self.idea
        self.algorithm = None if idea.algorithms is None else AlgorithmControl(idea.algorithms, values)
        self._own = {name: spec.control(name, values) for name, spec in idea.controls.items()}
        of_algorithm = {} if self.algorithm is None else self.algorithm.controls
        self.controls: dict[str, Control[Any]] = {**of_algorithm, **self._own}

    @property
    def values(self) -> dict[str, Any]:
        """The curve's arguments at these values; those that no control moves are left as they were read."""
        values = {name: control.argument for name, control in self._own.items()}
        return values if self.algorithm is None else {"algorithm": self.algorithm.value, **values}

    def curve(self) -> Any:
        """Return the curve at these values; raises ValueError where they do not fit together."""
        values = self.values
        for name, spec in self.idea.controls.items():
            self._own[name].hidden = not spec.shown(values)
        return self.idea.curve(**values, **self._fixed)

    def copy(self) -> Arguments:
        """Return controls of their own at the same values."""
        unset = {} if self.idea.algorithms is None else dict.fromkeys(self.idea.algorithms.parameters)
        copied = Arguments.__new__(Arguments)
        given = {**unset, **self.values}
        copied.idea, copied._fixed, copied._fixed_in_call = self.idea, self._fixed, self._fixed_in_call
        copied._make_controls(given)
        return copied

    @property
    def call(self) -> str:
        """The call that makes an explorer with these values."""
        defaults = {name: p.default for name, p in self.idea.signature.parameters.items()}
        arguments = [] if self.algorithm is None else self.algorithm.arguments(defaults["algorithm"])
        for name, control in self._own.items():
            if not control.hidden and control.argument != defaults[name]:
                arguments.append(f"{name}={_source(control.argument)}")
        return f"explore_{self.idea.name}({', '.join([*arguments, *self._fixed_in_call])})"


class Explorer(PictureView, Generic[C]):
    """Controls, a picture that answers to them and can be touched, words, and the call that reproduces it.

    controls: argument's name → control, whose `value` can be set. curve: what is on show. picture: how it is drawn. caption: its
    words, the conclusion first. Made by the explore_ functions.
    """

    parts = traitlets.List().tag(sync=True)  # the controls, as the page draws them
    handles = traitlets.List().tag(sync=True)
    conclusion = traitlets.Unicode().tag(sync=True)
    details = traitlets.Unicode().tag(sync=True)
    call = traitlets.Unicode().tag(sync=True)
    asked = traitlets.Dict().tag(sync=True)  # what a person moved: {turn, control, to}, or {turn, handle, place}
    answered = traitlets.Int().tag(sync=True)  # the turn that this shows
    twin = traitlets.Bool().tag(sync=True)  # whether an output of its own holds the PNG

    def __init__(self, idea: Idea[Any, C], values: Values) -> None:
        self.arguments = Arguments(idea, values)
        self.curve: C = self.arguments.curve()
        self.picture = idea.picture(self.curve)
        figure = self.picture.figure
        assert isinstance(figure, Figure)
        self._handles = Handles(self.picture)
        super().__init__(SvgFigure(figure, self.picture.moving, self.picture.still(self.curve)))
        for control in self.controls.values():
            control.observe(self._moved)
        self._say()

    @property
    def idea(self) -> Idea[Any, C]:
        return self.arguments.idea

    @property
    def controls(self) -> dict[str, Control[Any]]:
        return self.arguments.controls

    def _moved(self) -> None:
        try:
            curve = self.arguments.curve()
        except ValueError as error:  # two sliders that contradict each other; nobody sees a callback's traceback
            said = f"Not possible: {error}. The picture shows the values before."
            with self.hold_sync():
                self.conclusion, self.details, self.caption = said, "", said
                self.parts = [control.to_page() for control in self.controls.values()]
            return
        self.curve = curve
        self.picture.show(curve)
        self._drawn.arrange(self.picture.still(curve))
        self._say()

    def _say(self) -> None:
        self.caption = self.picture.caption(self.curve)
        with self.hold_sync():
            self.put(alt=f"{self.picture.alt} {self.caption}")
            self.conclusion, self.details = self.picture.conclusion(self.curve), self.picture.words(self.curve)
            self.call = self.arguments.call
            self.parts = [control.to_page() for control in self.controls.values()]
            self.handles = self._handles.to_page(self.curve, self.controls)

    def _ipython_display_(self) -> None:
        """Show the widget; with RLVIZ_FROZEN=1, also what a saved notebook shows of it: its frames, and its PNG by itself.

        nbconvert shows HTML rather than a PNG, and where scripts are not allowed the PNG is all that is left.
        """
        from IPython.display import display

        data, metadata = self._repr_mimebundle_()
        if not os.environ.get("RLVIZ_FROZEN"):
            display(data, metadata=metadata, raw=True)
            return
        from rlviz.pictures.frozen import freeze

        self.twin = True
        png = data.pop("image/png")
        display({**data, "text/html": freeze(self, twin=False)}, metadata=metadata, raw=True)
        display({"image/png": png, "text/plain": self.alt}, metadata={"image/png": {"alt": self.alt}}, raw=True)

    @traitlets.observe("asked")
    def _answer(self, change: Any) -> None:
        """Set the control that a person moved, and say so even where its value stays."""
        asked = change["new"]
        with self.hold_sync():
            if "handle" in asked:
                handle = self.picture.handles(self.curve)[asked["handle"]]
                control = self.controls[handle.control]
                control.value = control.nearest(handle.value_at(asked["place"]))
            else:
                control = self.controls[asked["control"]]
                control.value = control.read(asked["to"])
            self.answered = asked["turn"]


class Handles:
    """What a page is told of a picture's handles: where each is, and the name of the control that it sets."""

    def __init__(self, picture: Picture[Any]) -> None:
        self._picture = picture
        self._signs: dict[int, int] = {}  # asked for once, for a place may cost a search for its value

    def to_page(self, curve: Any, controls: Mapping[str, Control[Any]]) -> list[dict[str, Any]]:
        """Return them as they stand for a curve."""
        axes, found = self._picture.figure.axes, []
        for place, handle in enumerate(self._picture.handles(curve)):
            hidden = controls[handle.control].hidden or not handle.there
            if not hidden and place not in self._signs:
                self._signs[place] = _sign(handle)
            found.append(
                {
                    "axes": axes.index(handle.axes),
                    "along": handle.along,
                    "at": float(handle.at) if math.isfinite(handle.at) else None,
                    "control": handle.control,
                    "sign": self._signs.get(place, 1),
                    "click": handle.click,
                    "hidden": hidden,
                }
            )
        return found


def _sign(handle: Handle) -> int:
    """Return 1 where the control grows as the handle goes right or up, −1 where it falls."""
    low, high = handle.axes.get_xlim() if handle.along == "x" else handle.axes.get_ylim()
    a_little = 1e-4 * (high - low)
    return 1 if handle.value_at(handle.at + a_little) >= handle.value_at(handle.at - a_little) else -1


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
