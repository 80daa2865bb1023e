"""The base of all explorers: controls → arguments → curve → picture, and the one-line call that reproduces it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import ipywidgets as widgets
from matplotlib.figure import Figure

import rlviz.algorithms
from rlviz.algorithms import ALGORITHMS, Algorithm, numbers
from rlviz.plots.picture import Picture, plot_small_multiples
from rlviz.widgets.live import BlittedFigure, Control, Counts, LivePicture, Pick, Several, check_number, float_control
from small_models.checks import checked

C = TypeVar("C")
# parameter of a piece → the range of its slider: low, high, step
RANGES = {
    "eps_low": (0.01, 0.99, 0.01),
    "eps_high": (0.01, 1.0, 0.01),
    "max_ratio": (1.5, 20.0, 0.5),
    "gamma": (0.0, 1.0, 0.01),
    "lam": (0.0, 1.0, 0.01),
    "beta": (0.005, 1.0, 0.005),
}
TINY = (1e-4, 0.05, 1e-4)  # for widths like GSPO's
WORDS = {"gamma": "γ gamma", "lam": "λ lam", "beta": "β beta", "max_ratio": "largest ratio"}


class AlgorithmControl:
    """A dropdown of algorithms, and a slider for each of `parameters` that the chosen one has; the others are hidden.

    algorithm: what dropdown and sliders say together. The dropdown offers those `among` which `fits` lets in, and one's own
    before them. numbers: an algorithm's parameters by name, as far as they have a part in the picture. starting: values to begin
    with, None for the algorithm's own. Raises ValueError for an algorithm that does not fit, and a value out of range.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        parameters: Sequence[str] = (),
        *,
        fits: Callable[[Algorithm], bool] = lambda algorithm: True,
        among: Sequence[Algorithm] = ALGORITHMS,
        numbers: Callable[[Algorithm], Mapping[str, float]] = numbers,
        starting: Mapping[str, float | None] | None = None,
    ) -> None:
        given = {name: value for name, value in (starting or {}).items() if value is not None}
        family = [member for member in among if fits(member)]
        ours = [] if algorithm in family else [algorithm]
        if not fits(algorithm):
            known = ", ".join(member.name for member in family)
            raise ValueError(f"algorithm: {algorithm.name} has nothing that this picture shows; {known} have")
        self._numbers = numbers
        self.pick = Pick("algorithm", algorithm, [(member.name, member) for member in (*ours, *family)])
        self._set_anew = False
        self._sliders = {name: float_control(name, 0.5, *RANGES[name], WORDS.get(name, "")) for name in parameters}
        self._changed: Callable[[], None] = lambda: None
        self._follow_the_pick()
        for name, value in given.items():
            check_number(name, value, "a number")
            if name not in numbers(algorithm):
                raise ValueError(f"{name}: {algorithm.name} has no such parameter in this picture; got {value}")
            self.algorithm.with_parameters(**{name: value})  # refuses what the slider would only move
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

    @property
    def algorithm(self) -> Any:
        own = self._numbers(self.pick.value)
        changed = {n: s.value for n, s in self._sliders.items() if not s.hidden and s.value != own[n]}
        return self.pick.value.with_parameters(**changed) if changed else self.pick.value

    @property
    def controls(self) -> dict[str, Control | Pick]:
        return {"algorithm": self.pick, **self._sliders}

    def observe(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def arguments(self, default: Any) -> list[str]:
        """Return what stands for the algorithm in a call: its name if it is not the default, and its changed numbers."""
        own = self._numbers(self.pick.value)
        shown = [] if self.pick.value == default else [call_name(self.pick.value)]
        changed = {n: s.value for n, s in self._sliders.items() if not s.hidden and s.value != own[n]}
        return shown + [f"{name}={value!r}" for name, value in changed.items()]


def algorithms_beside(given: Sequence[Algorithm], fits: Callable[[Algorithm], bool], *, most: int) -> Several:
    """Return the control of algorithms drawn beside the first: those of the family that `fits` lets in, and those given.

    Raises ValueError unless at most `most` algorithms are given.
    """
    if len(given) > most:
        raise ValueError(f"beside must be at most {most} algorithms; got {len(given)}")
    every = [*given, *(member for member in ALGORITHMS if fits(member) and member not in given)]
    return Several("beside", given, [(member.name, member) for member in every], "beside it", most=most)


def call_name(algorithm: Algorithm) -> str:
    """Return what the algorithm is called in `rlviz.algorithms`, or `mine` for one's own."""
    named = vars(rlviz.algorithms).items()
    return next((name for name, value in named if name.isupper() and value == algorithm), "mine")


def _range(name: str, value: float) -> tuple[float, float, float]:
    low, high, step = TINY if name.startswith("eps") and value < RANGES[name][0] else RANGES[name]
    return min(low, value), max(high, value), step


class Explorer(LivePicture, Generic[C]):
    """Controls, a picture that answers to them, words, and the call that reproduces it; made by the explore_ functions.

    controls: argument's name → control. curve: what is on show. picture: how it is drawn. explore: the function that makes
    such an explorer; its arguments' names are the controls'. compute: the curve of these arguments. given: argument → source
    of what no control sets, for the call.
    """

    def __init__(
        self,
        explore: Callable[..., Explorer[C]],
        kind: type[Picture[C]],
        compute: Callable[..., C],
        controls: Sequence[Control | Pick | Counts],
        algorithm: AlgorithmControl | None = None,
        given: Mapping[str, str] | None = None,
    ) -> None:
        self._explore, self._compute, self._algorithm = explore, compute, algorithm
        self._given = [f"{name}={source}" for name, source in (given or {}).items()]
        self._own = {control.name: control for control in controls}
        self.controls: dict[str, Control | Pick | Counts] = {**(algorithm.controls if algorithm else {}), **self._own}
        self.curve = self._curve()
        self.picture = kind(self.curve)
        figure = self.picture.figure
        assert isinstance(figure, Figure)
        self._still = self.picture.still(self.curve)
        rows = [control.row for control in self.controls.values()]
        box = widgets.Box(rows, layout={"display": "flex", "flex_flow": "row wrap", "grid_gap": "0 12px"})
        super().__init__(BlittedFigure(figure, self.picture.moving), [box])
        for control in (*self._own.values(), *([algorithm] if algorithm else [])):
            control.observe(self._moved)
        self._say()

    def _curve(self) -> C:
        values = {name: control.value for name, control in self._own.items()}
        if self._algorithm is not None:
            values["algorithm"] = self._algorithm.algorithm
        return self._compute(**values)

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
        defaults = {name: p.default for name, p in inspect.signature(self._explore).parameters.items()}
        arguments = self._algorithm.arguments(defaults.get("algorithm")) if self._algorithm else []
        for name, control in self._own.items():
            if not control.hidden and control.value != defaults[name]:
                arguments.append(f"{name}={_source(control.value)}")
        return f"{self._explore.__name__}({', '.join([*arguments, *self._given])})"


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
    return drawn_together({label: explore(**arguments) for label, arguments in settings.items()}, columns=columns)


def drawn_together(explorers: Mapping[str, Explorer[Any]], *, columns: int = 1) -> Figure:
    """Draw the pictures of several explorers of one kind into one figure, each under its label."""
    kind = type(next(iter(explorers.values())).picture)
    return plot_small_multiples(kind, {label: one.curve for label, one in explorers.items()}, columns=columns)
