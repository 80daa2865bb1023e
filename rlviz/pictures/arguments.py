"""Arguments of an explorer as values of its controls, judged; and back: the call that makes them, and the setting in words.

An algorithm is its name among those that are offered. One beside it that has other numbers than its own is an entry such as
"GRPO~eps_high=0.02": in an address and in a page, too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from rlviz.algorithms import Algorithm
from rlviz.page.names import Names, formatted
from rlviz.page.picture import Beside, Choice, Slider
from small_models.checks import short_repr

if TYPE_CHECKING:
    from rlviz.pictures.idea import Idea


class Arguments:
    """The arguments of one explorer; members: name → algorithm, one's own before the library's."""

    def __init__(self, idea: Idea) -> None:
        self.idea = idea
        self.members: dict[str, Algorithm] = dict(idea.members)

    def sliders(self, name: str) -> dict[str, tuple[float, float, float, float]]:
        """Return the sliders that an algorithm has of its own: parameter → (value, low, high, step)."""
        return self.idea.algorithms.own(self.members[name]) if self.idea.algorithms else {}

    def is_parameter(self, name: str) -> bool:
        """Return whether a control is a parameter of the algorithms."""
        return self.idea.algorithms is not None and name in self.idea.algorithms.parameters

    def name_of(self, algorithm: Any) -> str:
        """Return the option that an algorithm is; one's own joins the options, before the others."""
        algorithms = self.idea.algorithms
        assert algorithms is not None
        if not hasattr(algorithm, "name") or not hasattr(algorithm, "slots"):
            raise ValueError(f"algorithm must be an algorithm, such as GRPO; got {short_repr(algorithm)}")
        for name, member in self.members.items():
            if member == algorithm:
                return name
        if not algorithms.fits(algorithm):
            if algorithms.check is not None:
                algorithms.check(algorithm)
            known = ", ".join(self.idea.members)
            raise ValueError(f"algorithm: {algorithm.name} has nothing that this picture shows; {known} have")
        called = algorithm.name.replace("|", "¦").replace("~", "∼")  # signs that part a key, and an entry
        name = called if called not in self.members else f"the other {called}"
        while name in self.members:
            name += "′"
        self.members = {name: algorithm, **self.members}
        return name

    def entry_of(self, algorithm: Any) -> str:
        """Return the entry of an algorithm beside the chosen one: its name, and the numbers that are not its own."""
        for name, member in self.members.items() if hasattr(algorithm, "slots") else ():
            own, theirs = self.sliders(name), self.idea.algorithms.numbers(algorithm)  # type: ignore[union-attr]
            others = {n: float(theirs[n]) for n, (value, *_) in own.items() if theirs.get(n, value) != value}
            is_inside = all(own[n][1] <= value <= own[n][2] for n, value in others.items())  # else a page leaves it out
            if member.name == algorithm.name and others and is_inside and member.with_parameters(**others) == algorithm:
                return "~".join([name, *(f"{n}={value:.12g}" for n, value in others.items())])
        return self.name_of(algorithm)

    def parts(self, entry: str) -> tuple[str, dict[str, float]]:
        """Return an entry's option, and the numbers that it has instead of its own."""
        name, *numbers = entry.split("~")
        return name, {n: float(value) for n, _, value in (number.partition("=") for number in numbers)}

    def algorithm(self, entry: str) -> Any:
        """Return the algorithm of an entry, with its numbers."""
        name, numbers = self.parts(entry)
        return self.members[name].with_parameters(**numbers) if numbers else self.members[name]

    def name_beside(self, entry: str, chosen: str) -> str:
        """Return what an entry is called in the picture: by its numbers, or as the same one at its own."""
        name, numbers = self.parts(entry)
        if numbers:
            return ", ".join(
                [name, *(f"{self.idea.controls[n].label} {formatted(value, 'g')}" for n, value in numbers.items())]
            )
        return f"{name}, own ε" if name == chosen and self.sliders(name) else name

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as the values of controls. Raises ValueError for one that its control cannot have."""
        values: dict[str, Any] = {}
        for name, control in self.idea.controls.items():
            value = arguments[name]
            if name == "algorithm":
                values[name] = self.name_of(value)
            elif self.is_parameter(name):
                own = self.sliders(values["algorithm"])
                if value is None:
                    values[name] = own[name][0] if name in own else control.value
                elif name not in own:
                    raise ValueError(
                        f"{name}: {values['algorithm']} has no such parameter in this picture; got {value}"
                    )
                else:
                    check_number(name, value)
                    self.members[values["algorithm"]].with_parameters(**{name: value})
                    values[name] = float(value)
            elif isinstance(control, Beside):
                values[name] = self._beside(name, value, control)
            else:
                values[name] = fitted(name, value, control)
        return values

    def _beside(self, name: str, value: Any, control: Beside) -> list[str]:
        several = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(several, list | tuple) or not all(hasattr(each, "slots") for each in several):
            raise ValueError(f"{name} must be a list of algorithms, such as GRPO; got {short_repr(several)}")
        if len(several) > control.most:
            raise ValueError(f"{name} must be at most {control.most} algorithms; got {len(several)}")
        return [self.entry_of(algorithm) for algorithm in several]

    def back(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments that have these values; None for a parameter that the algorithm does not have."""
        arguments: dict[str, Any] = {}
        for name, value in values.items():
            control = self.idea.controls[name]
            if name == "algorithm":
                arguments[name] = self.members[value]
            elif self.is_parameter(name):
                arguments[name] = value if name in self.sliders(values["algorithm"]) else None
            elif isinstance(control, Beside):
                arguments[name] = [self.algorithm(entry) for entry in value]
            else:
                arguments[name] = control.options[value] if isinstance(control, Choice) else value
        return arguments

    def changed(self, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that are no defaults; a parameter's default is the chosen algorithm's own."""
        own = self.sliders(values["algorithm"]) if "algorithm" in values else {}
        usual = {name: own[name][0] if name in own else values[name] for name in values if self.is_parameter(name)}
        return {name: value for name, value in values.items() if value != {**defaults, **usual}[name]}

    def call(self, values: Mapping[str, Any], defaults: Mapping[str, Any], fixed: list[str]) -> str:
        """Return the call that makes an explorer with these values; fixed: source of what no control moves."""
        arguments = []
        for name, value in self.changed(values, defaults).items():
            control = self.idea.controls[name]
            if name == "algorithm":
                arguments.append(call_name(self.members[value]))
            elif isinstance(control, Beside):
                arguments.append(f"{name}=({''.join(f'{self._source(entry)}, ' for entry in value).strip()})")
            else:
                arguments.append(f"{name}={(control.options[value] if isinstance(control, Choice) else value)!r}")
        return f"explore_{self.idea.name}({', '.join([*arguments, *fixed])})"

    def _source(self, entry: str) -> str:
        name, numbers = self.parts(entry)
        source = call_name(self.members[name])
        return f"{source}.with_parameters({', '.join(f'{n}={v}' for n, v in numbers.items())})" if numbers else source

    def setting(self, values: Mapping[str, Any], defaults: Mapping[str, Any], names: Names) -> str:
        """Return what is on show: the algorithm with its parameters, and each control that is not as the picture begins.

        Such as "GRPO · ε low 0.2 · ε high 0.28 · old probability 0.1".
        """
        own = self.sliders(values["algorithm"]) if "algorithm" in values else {}
        changed, parts = self.changed(values, defaults), []
        for name, value in values.items():
            control = self.idea.controls[name]
            if isinstance(control, Beside) or not names.holds(control.when):
                continue
            if name == "algorithm":
                parts.append(value)
            elif name in own or name in changed:
                numbers = value if isinstance(value, list) else [value]
                words = ", ".join(one if isinstance(one, str) else formatted(one, "g") for one in numbers)
                parts.append(f"{control.label or name} {words}")
        return " · ".join(parts)


def source_of_fixed(name: str, value: Any) -> str:
    """Return source for an argument that no control moves: a path as it is, all else as a variable of that name."""
    return f"{name}={os.fspath(value)!r}" if isinstance(value, str | os.PathLike) else f"{name}={name}"


def check_number(name: str, value: Any) -> None:
    """Raise ValueError for what is no finite number."""
    beyond = isinstance(value, int) and abs(value) >= 2**63
    if beyond or isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError(f"{name} must be a number; got {short_repr(value)}")


def fitted(name: str, value: Any, control: Slider | Choice) -> Any:
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
        return [fitted(name, each, replace(control, many=0)) for each in value]
    check_number(name, value)
    low, high = (min(control.stops), max(control.stops)) if control.stops else (control.low, control.high)
    if isinstance(low, Real) and isinstance(high, Real) and not low <= value <= high:
        raise ValueError(f"{name} must be from {low:g} to {high:g}; got {short_repr(value)}")
    if not control.stops and isinstance(control.low, int) and isinstance(control.step, int) and value != int(value):
        raise ValueError(f"{name} must be a whole number; got {short_repr(value)}")
    return value


def call_name(algorithm: Algorithm) -> str:
    """Return what the algorithm is called in `rlviz.algorithms`, or `mine` for one's own."""
    import rlviz.algorithms

    named = vars(rlviz.algorithms).items()
    return next((name for name, value in named if name.isupper() and value == algorithm), "mine")
