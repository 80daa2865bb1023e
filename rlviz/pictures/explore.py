"""An explorer: an idea at one setting, as a widget, a page, a figure, words, and the call that makes it again."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure, SubFigure

from rlviz.markup import Markup
from rlviz.names import nearest
from rlviz.page.image import png
from rlviz.page.names import Names
from rlviz.page.paper import draw
from rlviz.page.picture import Beside, Choice, Slider, finite
from rlviz.page.tracing import CannotTrace, Curve, Program, evaluate
from rlviz.page.widget import Variant, View, fragment, pack, page_payload, with_static_image
from rlviz.pictures.arguments import Arguments, call_name, source_of_fixed
from rlviz.pictures.idea import Idea, keys_of
from rlviz.pictures.parameters import FAMILY
from rlviz.pictures.shipped import shipped


class Explorer(View):
    """Controls, a picture that answers to them and can be touched, words, and the call that reproduces it.

    values: control → value, an algorithm by its name; `set` changes some. conclusion: the sentence that answers. png, figure:
    the picture as it is now. html: a page's part that answers without a kernel. Made by the explore_ functions.
    """

    def __init__(self, idea: Idea, arguments: Mapping[str, Any]) -> None:
        self._names: tuple[dict[str, Any], Names] | None = None
        idea = self.idea = idea if idea.adapted is None else idea.adapted(idea, arguments)
        self._arguments = Arguments(idea)
        if unknown := [name for name in arguments if name not in idea.signature.parameters]:
            known = list(idea.signature.parameters)
            raise TypeError(f"{unknown[0]!r} is no argument; {nearest(unknown[0], known)}there are {', '.join(known)}")
        self._data = {**idea.picture.data, **idea.read(arguments)}
        self._fixed = [source_of_fixed(name, arguments[name]) for name in idea.fixed if arguments.get(name) is not None]
        defaults = {name: parameter.default for name, parameter in idea.signature.parameters.items()}
        values = self._arguments.values({**defaults, **arguments})
        self._members = self._arguments.members
        self._programs, self._variants = self._prepare()
        named = {label: self._arguments.values({**defaults, **setting}) for label, setting in idea.named.items()}
        picture = replace(idea.picture, controls=self._offered(), named=named, data=self._data)
        call = {
            "function": f"explore_{idea.name}",
            "defaults": self._arguments.values(defaults),
            "sources": {name: call_name(member) for name, member in self._members.items()},
            "fixed": self._fixed,
        }
        parts: dict[str, Any] = {"programs": self._programs, "variants": self._variants, "values": values, "call": call}
        self._given = page_payload(idea.name, picture, family=FAMILY, **parts)
        self._picture = picture
        super().__init__(self._given, self._computed)
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
        now = self._arguments.back(self.values)
        if "algorithm" in arguments and self.idea.algorithms is not None:
            now |= dict.fromkeys(self.idea.algorithms.parameters)  # another's numbers are not its own
        self.values = self._arguments.values({**now, **arguments})
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
        for i, entry in enumerate(values[beside] if beside else (), start=1):
            other, numbers = self._arguments.parts(entry)
            variant = self._variants[self.key(other)]
            own = {name: number[0] for name, number in variant.numbers.items()}
            outputs = self._outputs(self.key(other), {**values, **own, **numbers})
            texts = {**variant.texts, "name": self._arguments.name_beside(entry, values["algorithm"])}
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
        member, own = self._members[self.values["algorithm"]], self._arguments.sliders(self.values["algorithm"])
        changed = {name: self.values[name] for name in own if self.values[name] != own[name][0]}
        return member.with_parameters(**changed) if changed else member

    @property
    def setting(self) -> str:
        """What is on show, such as "GRPO · ε low 0.2 · ε high 0.28 · old probability 0.1"; see `Arguments.setting`."""
        return self._arguments.setting(self.values, self._given["call"]["defaults"], self.names())

    @property
    def title(self) -> str:
        """The question."""
        return self.names().fill(self.idea.picture.title)

    @property
    def conclusion(self) -> str:
        """What is to be seen, in one sentence."""
        return self.names().conclude(self.idea.picture.conclusion)

    @property
    def caption(self) -> str:
        """The conclusion, by the name that the pictures of runs have for theirs."""
        return self.conclusion

    @property
    def alt(self) -> str:
        """What there is to see, and the caption."""
        return f"{self.idea.picture.alt} {self.caption}".strip()

    def figure(self, figure: Figure | SubFigure | None = None) -> Any:
        """Return the picture as it is now, on paper: a figure of its own says what is on show."""
        return draw(self.idea.picture, self.names(), figure, setting=self.setting)

    @property
    def png(self) -> bytes:
        """The picture as it is now."""
        return png(self.figure())

    @property
    def call(self) -> str:
        """The call that makes an explorer with these values."""
        return self._arguments.call(self.values, self._given["call"]["defaults"], self._fixed)

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

        data, told = with_static_image(self._repr_mimebundle_(), self.png, self.alt)
        if not os.environ.get("RLVIZ_FROZEN"):
            display(data, metadata=told, raw=True)
            return
        self.twin = True
        image, alt = ({"image/png": part.pop("image/png")} for part in (data, told))
        display({**data, "text/html": self.html()}, metadata=told, raw=True)
        display({**image, "text/plain": self.alt}, metadata=alt, raw=True)
