"""Arguments of an explorer as values of its controls, judged; and the setting in words.

An algorithm is its name among those that are offered. One beside it that has other numbers than its own is an *entry* such as
"GRPO~eps_high=0.02": in an address and in a page, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlviz.algorithms import Algorithm
from rlviz.page.names import Names, formatted
from rlviz.page.picture import Beside, Choice, Slider
from small_models.checks import check_number, short_repr

if TYPE_CHECKING:
    from rlviz.pictures.spec import ExplorerSpec


class Arguments:
    """The arguments of one explorer; members: name → algorithm, one's own before the library's."""

    def __init__(self, spec: ExplorerSpec) -> None:
        self.spec = spec
        self.members: dict[str, Algorithm] = dict(spec.members)
        self.parameters = () if spec.algorithms is None else spec.algorithms.parameters
        self.defaults = {name: parameter.default for name, parameter in spec.signature.parameters.items()}
        self.default_values = self.to_values({})

    def slider_ranges(self, name: str) -> dict[str, tuple[float, float, float, float]]:
        """Return the sliders of an algorithm: parameter → (value, low, high, step)."""
        return self.spec.algorithms.slider_ranges(self.members[name]) if self.spec.algorithms else {}

    def add_member(self, algorithm: Any) -> str:
        """Return the name of an algorithm among the options; one's own joins them, before the others."""
        algorithms = self.spec.algorithms
        assert algorithms is not None
        if not hasattr(algorithm, "name") or not hasattr(algorithm, "slots"):
            raise ValueError(f"algorithm must be an algorithm, such as GRPO; got {short_repr(algorithm)}")
        for name, member in self.members.items():
            if member == algorithm:
                return name
        if not algorithms.fits(algorithm):
            known = ", ".join(self.spec.members)
            raise ValueError(f"algorithm must have {algorithms.needs}, as {known} have; got {algorithm.name}")
        name = algorithm.name.replace("|", "¦").replace("~", "∼")  # signs that part a key, and an entry
        name = name if name not in self.members else f"the other {name}"
        while name in self.members:
            name += "′"
        self.members = {name: algorithm, **self.members}
        return name

    def to_entry(self, algorithm: Any) -> str:
        """Return the entry of an algorithm beside the chosen one: its name, and the numbers that are not its own."""
        for name, member in self.members.items() if hasattr(algorithm, "slots") else ():
            ranges, numbers = self.slider_ranges(name), self.spec.algorithms.numbers(algorithm)  # type: ignore[union-attr]
            changed = {n: float(numbers[n]) for n, (value, *_) in ranges.items() if numbers.get(n, value) != value}
            # A number beyond its slider would be left out by a page.
            is_inside = all(ranges[n][1] <= value <= ranges[n][2] for n, value in changed.items())
            is_like = member.name == algorithm.name and changed and is_inside
            if is_like and member.with_parameters(**changed) == algorithm:
                return "~".join([name, *(f"{n}={value:.12g}" for n, value in changed.items())])
        return self.add_member(algorithm)

    @staticmethod
    def split_entry(entry: str) -> tuple[str, dict[str, float]]:
        """Return an entry's algorithm by name, and the numbers that it has instead of its own."""
        name, *numbers = entry.split("~")
        return name, {n: float(value) for n, _, value in (number.partition("=") for number in numbers)}

    def name_beside(self, entry: str, chosen: str) -> str:
        """Return the name of an entry in the picture: with its numbers, or "NAME, default" beside the same algorithm."""
        name, numbers = self.split_entry(entry)
        if numbers:
            words = [f"{self.spec.controls[n].label} {formatted(value, 'g')}" for n, value in numbers.items()]
            return ", ".join([name, *words])
        return f"{name}, default" if name == chosen and self.slider_ranges(name) else name

    def to_values(self, arguments: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return arguments as the values of controls. Raises ValueError for one that its control cannot have.

        before: the values of controls that no argument moves; another algorithm's parameters are its own, whatever stood there.
        """
        values: dict[str, Any] = {}
        for name, control in self.spec.controls.items():
            value = arguments.get(name, self.defaults[name])
            is_reset = name in self.parameters and "algorithm" in arguments
            if before is not None and name not in arguments and not is_reset:
                values[name] = before[name]
            elif name == "algorithm":
                values[name] = self.add_member(value)
            elif name in self.parameters:
                member = values["algorithm"]
                ranges = self.slider_ranges(member)
                if value is None:
                    values[name] = ranges[name][0] if name in ranges else control.value
                elif name not in ranges:
                    raise ValueError(f"{name}: {member} has no such parameter in this picture; got {value}")
                else:
                    check_number(name, value, lambda number: True, "within its range")
                    self.members[member].with_parameters(**{name: value})  # the piece knows the range
                    values[name] = float(value)
            elif isinstance(control, Beside):
                if not isinstance(value, list | tuple) or not all(hasattr(a, "slots") for a in value):
                    raise ValueError(f"{name} must be a list of algorithms, such as GRPO; got {short_repr(value)}")
                if len(value) > control.most:
                    raise ValueError(f"{name} must be at most {control.most} algorithms; got {len(value)}")
                values[name] = [self.to_entry(algorithm) for algorithm in value]
            else:
                values[name] = check_value(name, value, control)
        return values

    def describe(self, values: Mapping[str, Any], names: Names) -> str:
        """Return the setting in words: the algorithm with its parameters, and each control that is not as the picture begins.

        Such as "GRPO · ε low 0.2 · ε high 0.28 · old probability 0.1".
        """
        ranges = self.slider_ranges(values["algorithm"]) if "algorithm" in values else {}
        parts = []
        for name, value in values.items():
            control = self.spec.controls[name]
            if isinstance(control, Beside) or not names.holds(control.when):
                continue
            if name == "algorithm":
                parts.append(value)
            elif name in ranges or (name not in self.parameters and value != self.default_values[name]):
                numbers = value if isinstance(value, list) else [value]
                words = ", ".join(n if isinstance(n, str) else formatted(n, "g") for n in numbers)
                parts.append(f"{control.label or name} {words}")
        return " · ".join(parts)


def check_value(name: str, value: Any, control: Slider | Choice) -> Any:
    """Return an argument as its control's value; raises ValueError for one that it cannot have."""
    if isinstance(control, Choice):
        for option, argument in control.options.items():
            if value in (option, argument) and isinstance(value, bool) == isinstance(argument, bool):
                return option
        raise ValueError(
            f"{name} must be one of {', '.join(map(str, control.options.values()))}; got {short_repr(value)}"
        )
    if control.many:
        if not isinstance(value, list | tuple) or len(value) != control.many:
            raise ValueError(f"{name} must be {control.many} numbers; got {short_repr(value)}")
        return [check_value(name, number, replace(control, many=0)) for number in value]
    low, high = (min(control.stops), max(control.stops)) if control.stops else (control.low, control.high)
    is_whole = not control.stops and isinstance(control.low, int) and isinstance(control.step, int)
    if isinstance(low, str) or isinstance(high, str):  # the name of a number
        check_number(name, value, lambda number: True, "finite")
    else:
        check_number(name, value, lambda number: low <= number <= high, f"from {low:g} to {high:g}", integer=is_whole)
    return value


def source_of_fixed(name: str, value: Any) -> str:
    """Return source for an argument that no control moves: a path as it is, all else as a variable of that name."""
    return f"{name}={os.fspath(value)!r}" if isinstance(value, str | os.PathLike) else f"{name}={name}"


def python_name(algorithm: Algorithm) -> str:
    """Return the algorithm's Python name in `rlviz.algorithms`, or `mine` for one's own."""
    import rlviz.algorithms

    named = vars(rlviz.algorithms).items()
    return next((name for name, value in named if name.isupper() and value == algorithm), "mine")
