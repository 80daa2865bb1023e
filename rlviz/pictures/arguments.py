"""What an explorer's argument may be, and the control that holds its value; picture.js draws each kind.

A control told to a page is a dictionary of its `kind`, label and value; what a person sets there comes back through `read`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Generic, TypeVar

from rlviz.algorithms import ALGORITHMS, RELATIVES, Algorithm
from small_models.checks import shown

T = TypeVar("T")
Values = Mapping[str, Any]  # argument → its value
OFFERED = (*ALGORITHMS, *RELATIVES)


def check_number(name: str, value: Any, what: str = "a number") -> None:
    """Raise ValueError for what is no finite number."""
    beyond = isinstance(value, int) and abs(value) >= 2**63
    if beyond or isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError(f"{name} must be {what}; got {shown(value)}")


def check_whole(name: str, value: Any) -> None:
    """Raise ValueError for what is no whole number."""
    check_number(name, value, "a whole number")
    if value != int(value):
        raise ValueError(f"{name} must be a whole number; got {shown(value)}")


def tidy(value: float) -> float:
    """Return 0.21 for the 0.21000000000000005 that a slider makes of 0.2 and a step of 0.01, and 0 for what is next to it."""
    return float(f"{round(value, 12):.10g}") + 0.0 if isinstance(value, float) else value


class Control(ABC, Generic[T]):
    """One argument and its value. hidden: neither seen nor part of a call. rare: folded away until it is asked for.

    `value` can be set, which tells whoever observes it; it raises ValueError for a value that the control cannot have.
    """

    kind: ClassVar[str]

    def __init__(self, name: str, value: T, label: str = "", *, rare: bool = False) -> None:
        self.name, self.label, self.rare, self.hidden = name, label or name, rare, False
        self._value = value
        self._changed: list[Callable[[], None]] = []

    @property
    def value(self) -> T:
        return self._value

    @value.setter
    def value(self, value: T) -> None:
        value = self.fit(value)
        if value != self._value:
            self._value = value
            for changed in self._changed:
                changed()

    @property
    def argument(self) -> Any:
        """The value as the argument that it stands for."""
        return self.value

    def observe(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever the value is another one."""
        self._changed.append(changed)

    @abstractmethod
    def fit(self, value: Any) -> T:
        """Return a value as the control holds it; raises ValueError for one that it cannot have."""

    @abstractmethod
    def read(self, said: Any) -> T:
        """Return the value that a page means by a number, an index or a list of them; the nearest one that there is."""

    def nearest(self, value: float) -> T:
        """Return the value that there is next to a number, such as one that a handle was dragged to."""
        return self.read(value)

    @abstractmethod
    def told(self) -> dict[str, Any]:
        """Return what a page needs to show it and to move it, but for what all controls have."""

    @property
    @abstractmethod
    def in_words(self) -> str:
        """The value as one reads it."""

    def to_page(self) -> dict[str, Any]:
        """Return all that a page needs."""
        same = {"name": self.name, "label": self.label, "kind": self.kind, "hidden": self.hidden, "rare": self.rare}
        return {**same, "words": self.in_words, **self.told()}


class Range(Control[float]):
    """A number between `low` and `high` in steps of `step`, or as far as the value given lies."""

    kind = "range"

    def __init__(
        self, name: str, value: float, low: float, high: float, step: float, label: str = "", *, rare: bool = False
    ) -> None:
        check_number(name, value)
        super().__init__(name, tidy(value), label, rare=rare)
        self.low, self.high, self.step = min(low, value), max(high, value), step

    def fit(self, value: Any) -> float:
        check_number(self.name, value)
        if not self.low <= value <= self.high:
            raise ValueError(f"{self.name} must be from {self.low:g} to {self.high:g}; got {shown(value)}")
        return tidy(value)

    def read(self, said: Any) -> float:
        nearest = self.low + round((float(said) - self.low) / self.step) * self.step
        return tidy(min(max(nearest, self.low), self.high))

    def told(self) -> dict[str, Any]:
        return {"min": self.low, "max": self.high, "step": self.step, "value": self.value}

    @property
    def in_words(self) -> str:
        return f"{self.value:g}"

    def move_to(self, value: float, low: float, high: float, step: float) -> None:
        """Have another range and a value in it, which is told to nobody."""
        self.low, self.high, self.step, self._value = low, high, step, tidy(value)


class Whole(Range):
    """A whole number between `low` and `high`, or as far as the value given lies."""

    def __init__(self, name: str, value: int, low: int, high: int, label: str = "", *, rare: bool = False) -> None:
        check_whole(name, value)
        super().__init__(name, value, low, high, 1, label, rare=rare)

    def fit(self, value: Any) -> float:
        check_whole(self.name, value)
        return int(super().fit(value))

    def read(self, said: Any) -> float:
        return int(super().read(round(float(said))))


class Choice(Control[Any]):
    """One of several things that have names."""

    kind = "choice"

    def __init__(
        self, name: str, value: Any, options: Sequence[tuple[str, Any]], label: str = "", *, rare: bool = False
    ) -> None:
        self.options = list(options)
        super().__init__(name, value, label, rare=rare)
        self.fit(value)

    @property
    def index(self) -> int:
        """The place of the value among the options."""
        return next(place for place, (_, option) in enumerate(self.options) if same(option, self.value))

    def fit(self, value: Any) -> Any:
        for _, option in self.options:
            if same(option, value):
                return option
        raise ValueError(f"{self.name} must be one of {listed(self.options)}; got {named(value)}")

    def read(self, said: Any) -> Any:
        return self.options[min(max(int(said), 0), len(self.options) - 1)][1]

    def told(self) -> dict[str, Any]:
        return {"options": [words for words, _ in self.options], "value": self.index}

    @property
    def in_words(self) -> str:
        return self.options[self.index][0]


class Stop(Choice):
    """One of several numbers, for those that change by factors: a slider that stops at each."""

    kind = "stops"

    def __init__(
        self, name: str, value: float, numbers: Sequence[float], label: str = "", *, rare: bool = False
    ) -> None:
        check_number(name, value)
        super().__init__(name, value, [(f"{n:g}", n) for n in sorted({*numbers, value})], label, rare=rare)

    def nearest(self, value: float) -> Any:
        return min((number for _, number in self.options), key=lambda number: abs(number - value))


class Chips(Control[tuple[Any, ...]]):
    """None, one or several of some things, at most `most`: a button for each."""

    kind = "chips"

    def __init__(
        self, name: str, value: Sequence[Any], options: Sequence[tuple[str, Any]], label: str, *, most: int
    ) -> None:
        self.options, self.most = list(options), most
        super().__init__(name, tuple(value), label)

    def fit(self, value: Any) -> tuple[Any, ...]:
        several = isinstance(value, list | tuple)
        for one in value if several else [value]:
            if not several or not any(same(option, one) for _, option in self.options):
                raise ValueError(f"{self.name} must be a list of {listed(self.options)}; got {named(one)}")
        return tuple(value)[: self.most]

    def read(self, said: Any) -> tuple[Any, ...]:
        places = sorted({int(place) for place in said if 0 <= int(place) < len(self.options)})
        return tuple(self.options[place][1] for place in places)[: self.most]

    def told(self) -> dict[str, Any]:
        chosen = [place for place, (_, option) in enumerate(self.options) if any(same(option, v) for v in self.value)]
        return {"options": [words for words, _ in self.options], "value": chosen, "most": self.most}

    @property
    def in_words(self) -> str:
        return ", ".join(words for words, option in self.options if any(same(option, v) for v in self.value)) or "none"


class WholeNumbers(Control[tuple[int, ...]]):
    """Several whole numbers as one argument, a tuple: a slider for each."""

    kind = "numbers"

    def __init__(self, name: str, values: Sequence[int], low: int, high: int, label: str = "") -> None:
        for value in values:
            check_whole(name, value)
        self.low, self.high = min([low, *values]), max([high, *values])
        super().__init__(name, tuple(values), label)

    def fit(self, value: Any) -> tuple[int, ...]:
        several = isinstance(value, list | tuple) and len(value) == len(self.value)
        for one in value if several else ():
            check_whole(self.name, one)
        if not several or not all(self.low <= one <= self.high for one in value):
            raise ValueError(
                f"{self.name} must be {len(self.value)} whole numbers from {self.low} to {self.high}; got {shown(value)}"
            )
        return tuple(int(one) for one in value)

    def read(self, said: Any) -> tuple[int, ...]:
        numbers = [min(max(round(float(one)), self.low), self.high) for one in said]
        return tuple([*numbers, *self.value[len(numbers) :]][: len(self.value)])

    def told(self) -> dict[str, Any]:
        return {"min": self.low, "max": self.high, "step": 1, "value": list(self.value)}

    @property
    def in_words(self) -> str:
        return ", ".join(map(str, self.value))


def same(a: Any, b: Any) -> bool:
    """Return whether two options are one: the very same, or equal and of a kind, so that no 1 is True."""
    return a is b or (type(a) is type(b) and bool(a == b)) or (_is_number(a) and _is_number(b) and a == b)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def listed(options: Sequence[tuple[str, Any]]) -> str:
    """Return the options as one would type them: algorithms by their names."""
    of_algorithms = any(hasattr(option, "slots") for _, option in options)
    words = [label if hasattr(option, "slots") else str(option) for label, option in options]
    return f"{'the algorithms ' if of_algorithms else ''}{', '.join(words)}"


def named(value: Any) -> str:
    """Return what came, in words: an algorithm by its name."""
    return f"the algorithm {value.name}" if hasattr(value, "slots") and hasattr(value, "name") else shown(value)


def always(values: Values) -> bool:
    """Return True: the control is in sight whatever the values are."""
    return True


@dataclass(frozen=True, kw_only=True)
class Spec(ABC):
    """What an argument may be, from which its control is made.

    shown: is the control in sight, with these values of all? rare: is it folded away until it is asked for?
    """

    shown: Callable[[Values], bool] = always
    rare: bool = False

    @abstractmethod
    def control(self, name: str, values: Values) -> Control[Any]:
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

    def control(self, name: str, values: Values) -> Range:
        return Range(name, values[name], self.low, self.high, self.step, self.label, rare=self.rare)


@dataclass(frozen=True)
class WholeSlider(Spec):
    """A whole number between `low` and `high`, or as far as the value given lies."""

    low: int
    high: int
    label: str

    @property
    def words(self) -> str:
        return f"{self.label}; its slider goes from {self.low} to {self.high}"

    def control(self, name: str, values: Values) -> Whole:
        return Whole(name, values[name], self.low, self.high, self.label, rare=self.rare)


@dataclass(frozen=True)
class Stops(Spec):
    """One of these numbers, for those that change by factors; the value given joins them."""

    numbers: Sequence[float]
    label: str

    @property
    def words(self) -> str:
        return f"{self.label}; its slider stops at {', '.join(f'{number:g}' for number in self.numbers)}"

    def control(self, name: str, values: Values) -> Stop:
        return Stop(name, values[name], self.numbers, self.label, rare=self.rare)


@dataclass(frozen=True)
class Menu(Spec):
    """One of these things, by name: name → thing."""

    options: Mapping[str, Any]
    label: str

    @property
    def words(self) -> str:
        return self.label

    def control(self, name: str, values: Values) -> Choice:
        return Choice(name, values[name], list(self.options.items()), self.label, rare=self.rare)


@dataclass(frozen=True)
class Numbers(Spec):
    """A tuple of whole numbers, as many as are given, each between `low` and `high`."""

    low: int
    high: int
    label: str

    @property
    def words(self) -> str:
        return f"{self.label} of each; its sliders go from {self.low} to {self.high}"

    def control(self, name: str, values: Values) -> WholeNumbers:
        return WholeNumbers(name, values[name], self.low, self.high, self.label)


@dataclass(frozen=True)
class Beside(Spec):
    """Up to `most` algorithms beside the first: those of the family that `fits` lets in, and those given."""

    fits: Callable[[Algorithm], bool]
    most: int

    @property
    def words(self) -> str:
        return f"up to {self.most} algorithms beside it"

    def control(self, name: str, values: Values) -> Chips:
        given = values[name]
        if len(given) > self.most:
            raise ValueError(f"{name} must be at most {self.most} algorithms; got {len(given)}")
        options = [(member.name, member) for member in with_own(given, OFFERED, self.fits)]
        return Chips(name, given, options, "beside it", most=self.most)


@dataclass(frozen=True)
class Second(Spec):
    """One algorithm beside the first, or none: of the family, those that `fits` lets in, and the one given."""

    fits: Callable[[Algorithm], bool]

    @property
    def words(self) -> str:
        return "an algorithm beside it"

    def control(self, name: str, values: Values) -> Choice:
        given = [] if values[name] is None else [values[name]]
        options = [(member.name, member) for member in with_own(given, OFFERED, self.fits)]
        return Choice(name, values[name], [("none", None), *options], "beside it", rare=self.rare)


def with_own(
    own: Sequence[Algorithm], among: Sequence[Algorithm], fits: Callable[[Algorithm], bool]
) -> list[Algorithm]:
    """Return those among the algorithms that fit, and before them those of one's own."""
    family = [member for member in among if fits(member)]
    return [*(mine for mine in own if mine not in family), *family]
