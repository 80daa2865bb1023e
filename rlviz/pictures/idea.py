"""An idea as a function to explore it: one file has a curve and a picture, and this makes the rest of them.

`explorer("clip", CLIP, clip, …)` returns `explore_clip`: its arguments are the picture's controls, it returns an `Explorer`,
which a notebook shows as a widget, `.html()` as a page, `.figure()` on paper. Programs of the library's own algorithms are
shipped beside the pictures (`shipped`); one's own algorithm is traced when it is shown, and where it cannot be, the kernel
computes its curve.
"""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Any

from matplotlib.figure import Figure, SubFigure

from rlviz.algorithms import ALGORITHMS, RELATIVES, Algorithm, numbers
from rlviz.algorithms.base import with_tensors
from rlviz.markup import Markup
from rlviz.names import nearest
from rlviz.page.image import png
from rlviz.page.names import Names, drawn, formatted
from rlviz.page.paper import draw
from rlviz.page.picture import Beside, Choice, Draws, Picture, Slider
from rlviz.page.tracing import CannotTrace, Curve, Program, evaluate, trace
from rlviz.page.widget import Variant, View, finite, fragment, pack, told, with_twin
from rlviz.pictures.shipped import shipped
from small_models.checks import shown

OFFERED = (*ALGORITHMS, *RELATIVES)
FAMILY = tuple(algorithm.name for algorithm in ALGORITHMS)  # the others stand under "More"
# parameter of a piece → its slider: low, high, step
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
TINY = (1e-4, 0.05, 1e-4)  # for widths like GSPO's
# What a slider of this parameter is called, in every picture, panel and page.
LABELS = {
    "eps_low": "ε low",
    "eps_high": "ε high",
    "max_ratio": "largest ratio",
    "gamma": "γ",
    "lam": "λ",
    "beta": "β",
    "group_size": "group size G",
    "lr": "learning rate",
    "updates_per_rollout": "updates per rollout",
}
WIDTHS = ("eps_low", "eps_high", "max_ratio")  # of the bounds on a ratio


@dataclass(frozen=True)
class Algorithms:
    """Which algorithms a picture can show, and which of their parameters it moves.

    fits: lets an algorithm in. parameters: names of `RANGES`. first: the one to begin with. check: raises ValueError that says
    what an algorithm lacks, where "nothing that this picture shows" says too little. among: what is offered, in order.
    numbers: an algorithm's parameters, as far as they have a part in the picture.
    """

    fits: Callable[[Algorithm], bool]
    first: Algorithm
    parameters: Sequence[str] = ()
    check: Callable[[Algorithm], None] | None = None
    among: Sequence[Algorithm] = OFFERED
    numbers: Callable[[Algorithm], Mapping[str, float]] = numbers

    def members(self) -> dict[str, Algorithm]:
        """Return what is offered: name → algorithm."""
        return {algorithm.name: algorithm for algorithm in self.among if self.fits(algorithm)}

    def own(self, algorithm: Algorithm) -> dict[str, tuple[float, float, float, float]]:
        """Return the sliders that this algorithm has: parameter → (value, low, high, step)."""
        has = self.numbers(algorithm)
        return {name: (float(has[name]), *range_of(name, has[name])) for name in self.parameters if name in has}


def range_of(name: str, value: float) -> tuple[float, float, float]:
    """Return low, high and step of a parameter's slider, with the value in it."""
    low, high, step = TINY if name.startswith("eps") and value < RANGES[name][0] else RANGES[name]
    return min(low, value), max(high, value), step


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


class Explorer(View):
    """Controls, a picture that answers to them and can be touched, words, and the call that reproduces it.

    values: control → value, an algorithm by its name; `set` changes some. caption: the conclusion and the details. png, figure:
    the picture as it is now. html: a page's part that answers without a kernel. Made by the explore_ functions.
    """

    def __init__(self, idea: Idea, arguments: Mapping[str, Any]) -> None:
        self._names: tuple[dict[str, Any], Names] | None = None
        idea = self.idea = idea if idea.adapted is None else idea.adapted(idea, arguments)
        self._members = dict(idea.members)
        if unknown := [name for name in arguments if name not in idea.signature.parameters]:
            known = list(idea.signature.parameters)
            raise TypeError(f"{unknown[0]!r} is no argument; {nearest(unknown[0], known)}there are {', '.join(known)}")
        self._data = {**idea.picture.data, **idea.read(arguments)}
        self._fixed = [source_of_fixed(name, arguments[name]) for name in idea.fixed if arguments.get(name) is not None]
        defaults = {name: parameter.default for name, parameter in idea.signature.parameters.items()}
        values = self._values_of({**defaults, **arguments})
        self._programs, self._variants = self._prepare()
        named = {label: self._values_of({**defaults, **setting}) for label, setting in idea.named.items()}
        picture = replace(idea.picture, controls=self._offered(), named=named, data=self._data)
        call = {
            "function": f"explore_{idea.name}",
            "defaults": self._values_of(defaults),
            "sources": {name: call_name(member) for name, member in self._members.items()},
            "fixed": self._fixed,
        }
        given = told(
            idea.name,
            picture,
            programs=self._programs,
            variants=self._variants,
            family=FAMILY,
            values=values,
            call=call,
        )
        self._given = given
        self._picture = picture
        super().__init__(given, self._computed)
        self.names()  # a rule of one's own that fails says so here
        self._check_channels()

    def _check_channels(self) -> None:
        """Raise ValueError for a channel that no choice has a name for: a mark is left out where its numbers are missing."""
        known = {*self.names().known, *(name for one in self._programs.values() for name in one["outputs"])}
        known |= {name for one in self._variants.values() for name in (*one.texts, *one.data)}

        def is_known(name: str) -> bool:
            return re.sub(r"^!?(b\d_)?", "", name) in known

        names = sorted(name for name in known if "=" not in name)
        for name, where, when in self.idea.picture.channels():
            if not is_known(name) and (not when or is_known(when)):
                raise ValueError(
                    f"picture of {self.idea.name}: {where} is {name!r}, which is no control, no data and no output of the curve; "
                    f"{nearest(name, names) or 'there are ' + ', '.join(names)}"
                )

    def _offered(self) -> dict[str, Slider | Choice | Beside]:
        controls = dict(self.idea.controls)
        if "algorithm" in controls:
            controls["algorithm"] = replace(controls["algorithm"], options=dict.fromkeys(self._members))  # type: ignore[arg-type]
        return controls

    def _name_of(self, algorithm: Any) -> str:
        """Return the option that an algorithm is; one's own joins the options, before the others."""
        algorithms = self.idea.algorithms
        assert algorithms is not None
        if not hasattr(algorithm, "name") or not hasattr(algorithm, "slots"):
            raise ValueError(f"algorithm must be an algorithm, such as GRPO; got {shown(algorithm)}")
        for name, member in self._members.items():
            if member == algorithm:
                return name
        if not algorithms.fits(algorithm):
            if algorithms.check is not None:
                algorithms.check(algorithm)
            known = ", ".join(self.idea.members)
            raise ValueError(f"algorithm: {algorithm.name} has nothing that this picture shows; {known} have")
        called = algorithm.name.replace("|", "¦")  # which parts a key
        name = called if called not in self._members else f"the other {called}"
        while name in self._members:
            name += "′"
        self._members = {name: algorithm, **self._members}
        return name

    def _values_of(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as the values of controls. Raises ValueError for one that its control cannot have."""
        values: dict[str, Any] = {}
        algorithms = self.idea.algorithms
        for name, control in self.idea.controls.items():
            given = arguments[name]
            if name == "algorithm":
                values[name] = self._name_of(given)
            elif algorithms is not None and name in algorithms.parameters:
                own = algorithms.own(self._members[values["algorithm"]])
                if given is None:
                    values[name] = own[name][0] if name in own else control.value
                elif name not in own:
                    raise ValueError(
                        f"{name}: {values['algorithm']} has no such parameter in this picture; got {given}"
                    )
                else:
                    check_number(name, given)
                    self._members[values["algorithm"]].with_parameters(**{name: given})
                    values[name] = float(given)
            elif isinstance(control, Beside):
                values[name] = self._beside(name, given, control)
            else:
                values[name] = fitted(name, given, control)
        return values

    def _beside(self, name: str, given: Any, control: Beside) -> list[str]:
        several = given.tolist() if hasattr(given, "tolist") else given
        if not isinstance(several, list | tuple) or not all(hasattr(each, "slots") for each in several):
            raise ValueError(f"{name} must be a list of algorithms, such as GRPO; got {shown(several)}")
        if len(several) > control.most:
            raise ValueError(f"{name} must be at most {control.most} algorithms; got {len(several)}")
        return [self._name_of(algorithm) for algorithm in several]

    def _prepare(self) -> tuple[dict[str, Program], dict[str, Variant]]:
        """Return programs and variants: those that are shipped, and those of one's own algorithms, traced now."""
        idea = self.idea
        programs, places = shipped(idea.name)
        programs, variants = dict(programs), {}
        traced: list[tuple[Curve, str | None, str]] = []  # of one's own algorithms; equal curves have one program
        options = [list(self._members if pick == "algorithm" else idea.controls[pick].options) for pick in idea.picks()]  # type: ignore[union-attr]
        for key in keys_of(options):
            arguments, others = idea.build(key, self._members)
            if key in places and all(idea.members.get(one.name) == one for one in arguments):
                if key not in idea.variants:
                    idea.variants[key] = idea.variant(key, self._members, places[key])
                variants[key] = idea.variants[key]
                continue
            curve = idea.curve(*arguments, **others)
            known = next(((id_, said) for one, id_, said in traced if one == curve), None)
            program, why = known or self._trace(key, programs)
            traced.append((curve, program, why))
            variants[key] = idea.variant(key, self._members, program, why)
        return programs, variants

    def _trace(self, key: str, programs: dict[str, Program]) -> tuple[str | None, str]:
        """Add the program of a key under its name, and return the name; None and the reason where a page cannot follow."""
        try:
            programs[key] = self.idea.traced(key, self._members)
        except CannotTrace as error:
            return None, f"The kernel computes this rule at each move: {error}."
        return key, ""

    def key(self, algorithm: str = "") -> str:
        """Return the key of the present choice, or of another algorithm with it."""
        picked = {name: self.values[name] for name in self.idea.picks()}
        return "|".join((picked | {"algorithm": algorithm} if algorithm else picked).values())

    def set(self, **arguments: Any) -> None:
        """Change controls. Raises ValueError for a value that a control cannot have, TypeError for an unknown name."""
        if unknown := [name for name in arguments if name not in self.idea.controls]:
            raise TypeError(f"{unknown[0]!r} is no control; there are {', '.join(self.idea.controls)}")
        now: dict[str, Any] = {}
        for name, value in self.values.items():
            control = self.idea.controls[name]
            if name == "algorithm":
                now[name] = self._members[value]
            elif isinstance(control, Beside):
                now[name] = [self._members[each] for each in value]
            elif isinstance(control, Choice):
                now[name] = control.options[value]
            else:
                now[name] = value
        if "algorithm" in arguments:
            now |= dict.fromkeys(self.idea.algorithms.parameters if self.idea.algorithms else ())
        elif self.idea.algorithms is not None:
            own = self.idea.algorithms.own(now["algorithm"])
            now |= {name: None for name in self.idea.algorithms.parameters if name not in own}
        self.values = self._values_of({**now, **arguments})
        self.names()

    def _outputs(self, key: str, values: Mapping[str, Any]) -> dict[str, Any]:
        idea = self.idea
        arguments, others = idea.build(key, self._members)
        curve = idea.curve(*arguments, **others)
        data = {**self._data, **idea.data(*arguments, **others)}
        own = idea.algorithms.own(arguments[0]) if idea.algorithms else {}
        given = {name: idea.number(name, values, data) for name in idea.inputs(curve, own)}
        return evaluate(curve, given)

    def names(self) -> Names:
        """Return what the picture's names stand for now: controls, data, texts, and the curve's outputs."""
        values = dict(self.values)
        if self._names is not None and self._names[0] == values:
            return self._names[1]
        idea, key = self.idea, self.key()
        parts = [self._data, self._variants[key].texts, self._variants[key].data, self._outputs(key, values)]
        beside = next((name for name, control in idea.controls.items() if isinstance(control, Beside)), None)
        for i, other in enumerate(values[beside] if beside else (), start=1):
            variant = self._variants[self.key(other)]
            theirs = {name: number[0] for name, number in variant.numbers.items()}
            outputs = self._outputs(self.key(other), {**values, **theirs})
            texts = {**variant.texts, **({"name": f"{other}, own ε"} if other == values["algorithm"] else {})}
            parts.append({f"b{i}_{name}": value for name, value in {**texts, **outputs}.items()})
        names = Names(self._picture, values, *parts)
        self._names = (values, names)
        return names

    def _computed(self, key: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a page that cannot compute a rule of one's own; whatever the rule does becomes a sentence."""
        try:
            outputs = self._outputs(key, values)
        except Exception as error:  # a rule of one's own can do anything
            return {"why": f"Not possible: {type(error).__name__}: {error}"}
        flat = {name: [finite(x) for x in value.double().flatten().tolist()] for name, value in outputs.items()}
        return {"outputs": {name: {"shape": list(v.shape), "data": flat[name]} for name, v in outputs.items()}}

    @property
    def algorithm(self) -> Any:
        """The algorithm on show, with its sliders' values."""
        algorithms = self.idea.algorithms
        assert algorithms is not None
        member = self._members[self.values["algorithm"]]
        changed = {n: self.values[n] for n, own in algorithms.own(member).items() if self.values[n] != own[0]}
        return member.with_parameters(**changed) if changed else member

    @property
    def setting(self) -> str:
        """What is on show: the algorithm with its parameters, and each control that is not as the picture begins.

        Such as "GRPO · ε low 0.2 · ε high 0.28 · old probability 0.1".
        """
        algorithms, defaults, names = self.idea.algorithms, self._given["call"]["defaults"], self.names()
        own = algorithms.own(self._members[self.values["algorithm"]]) if algorithms else {}
        parts: list[str] = []
        for name, value in self.values.items():
            control = self.idea.controls[name]
            if name == "algorithm":
                parts.append(value)
            elif isinstance(control, Beside) or not names.holds(control.when):
                continue
            elif name in own or (value != defaults[name] and not (algorithms and name in algorithms.parameters)):
                numbers = value if isinstance(value, list) else [value]
                words = ", ".join(one if isinstance(one, str) else formatted(one, "g") for one in numbers)
                parts.append(f"{control.label} {words}")
        return " · ".join(parts)

    @property
    def title(self) -> str:
        """The question."""
        return self.names().fill(self.idea.picture.title)

    @property
    def conclusion(self) -> str:
        """What is to be seen, in one sentence."""
        return self.names().said(self.idea.picture.conclusion, only_first=True)

    @property
    def caption(self) -> str:
        """The conclusion and the details."""
        return " ".join(filter(None, (self.conclusion, self.names().said(self.idea.picture.says))))

    @property
    def alt(self) -> str:
        """What there is to see, and the caption."""
        return f"{self.idea.picture.alt} {self.caption}".strip()

    def figure(self, figure: Figure | SubFigure | None = None) -> Any:
        """Return the picture as it is now, on paper."""
        return draw(self.idea.picture, self.names(), figure)

    @property
    def png(self) -> bytes:
        """The picture as it is now."""
        return png(self.figure())

    @property
    def call(self) -> str:
        """The call that makes an explorer with these values."""
        default = self._given["call"]["defaults"]
        if "algorithm" in self.values and self.idea.algorithms is not None:
            own = self.idea.algorithms.own(self._members[self.values["algorithm"]])
            default = {
                **default,
                **{
                    name: own[name][0] if name in own else self.values[name] for name in self.idea.algorithms.parameters
                },
            }
        arguments = []
        for name, value in self.values.items():
            if value == default[name]:
                continue
            control, names = self.idea.controls[name], self._given["call"]["sources"]
            if name == "algorithm":
                arguments.append(names[value])
            elif isinstance(control, Beside):
                arguments.append(f"{name}=({''.join(f'{names[each]}, ' for each in value).strip()})")
            else:
                arguments.append(f"{name}={(control.options[value] if isinstance(control, Choice) else value)!r}")
        return f"explore_{self.idea.name}({', '.join([*arguments, *self._fixed])})"

    def given(self) -> dict[str, Any]:
        """Return what a page needs to show the picture as it is now."""
        return {**self._given, "values": dict(self.values)}

    def html(self, *, inside: Markup | None = None) -> Markup:
        """Return HTML that answers without a kernel and without a network."""
        return fragment(pack(self.given()), caption=self.caption, inside=inside)

    def _ipython_display_(self) -> None:
        """Show the widget; with RLVIZ_FROZEN=1, also what a saved notebook shows of it without a kernel, and its PNG by itself.

        nbconvert shows HTML rather than a PNG, and where scripts are not allowed the PNG is all that is left.
        """
        from IPython.display import display

        data, told = with_twin(self._repr_mimebundle_(), self.png, self.alt)
        if not os.environ.get("RLVIZ_FROZEN"):
            display(data, metadata=told, raw=True)
            return
        self.twin = True
        image, alt = ({"image/png": part.pop("image/png")} for part in (data, told))
        display({**data, "text/html": self.html()}, metadata=told, raw=True)
        display({**image, "text/plain": self.alt}, metadata=alt, raw=True)


def source_of_fixed(name: str, value: Any) -> str:
    """Return source for an argument that no control moves: a path as it is, all else as a variable of that name."""
    return f"{name}={os.fspath(value)!r}" if isinstance(value, str | os.PathLike) else f"{name}={name}"


def keys_of(options: Sequence[Sequence[str]]) -> list[str]:
    """Return all keys that these options make, of each pick one."""
    keys = [""]
    for place, each in enumerate(options):
        keys = [f"{key}|{option}" if place else option for key in keys for option in each]
    return keys


def check_number(name: str, value: Any) -> None:
    """Raise ValueError for what is no finite number."""
    beyond = isinstance(value, int) and abs(value) >= 2**63
    if beyond or isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError(f"{name} must be a number; got {shown(value)}")


def fitted(name: str, value: Any, control: Slider | Choice) -> Any:
    """Return an argument as its control's value; raises ValueError for one that it cannot have."""
    if isinstance(control, Choice):
        for option, argument in control.options.items():
            if value in (option, argument) and isinstance(value, bool) == isinstance(argument, bool):
                return option
        raise ValueError(f"{name} must be one of {', '.join(map(str, control.options.values()))}; got {shown(value)}")
    if control.many:
        if not isinstance(value, list | tuple) or len(value) != control.many:
            raise ValueError(f"{name} must be {control.many} numbers; got {shown(value)}")
        return [fitted(name, each, replace(control, many=0)) for each in value]
    check_number(name, value)
    low, high = (min(control.stops), max(control.stops)) if control.stops else (control.low, control.high)
    if isinstance(low, Real) and isinstance(high, Real) and not low <= value <= high:
        raise ValueError(f"{name} must be from {low:g} to {high:g}; got {shown(value)}")
    if not control.stops and isinstance(control.low, int) and isinstance(control.step, int) and value != int(value):
        raise ValueError(f"{name} must be a whole number; got {shown(value)}")
    return value


def call_name(algorithm: Algorithm) -> str:
    """Return what the algorithm is called in `rlviz.algorithms`, or `mine` for one's own."""
    import rlviz.algorithms

    named = vars(rlviz.algorithms).items()
    return next((name for name, value in named if name.isupper() and value == algorithm), "mine")


def explorer(name: str, picture: Picture, curve: Callable[..., Curve], **how: Any) -> Callable[..., Explorer]:
    """Return `explore_NAME`: a function of the picture's controls that returns an `Explorer`.

    The arguments are those of `Idea`.
    """
    idea = Idea(name, picture, curve, **how)

    def explore(*args: Any, **kwargs: Any) -> Explorer:
        return Explorer(idea, idea.signature.bind(*args, **kwargs).arguments)

    explore.__name__ = explore.__qualname__ = f"explore_{name}"
    explore.__doc__ = f"Return an `Explorer`: {picture.title}\n\n{arguments_in_words(idea)}"
    vars(explore).update(idea=idea, __signature__=idea.signature.replace(return_annotation=Explorer))
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


__all__ = ["Algorithms", "Explorer", "Idea", "explorer", "with_tensors"]
