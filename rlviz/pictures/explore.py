"""An explorer at one setting: as a widget, a page, a figure, and in words."""

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
from rlviz.page.picture import Beside, finite
from rlviz.page.tracing import evaluate
from rlviz.page.widget import View, fragment, pack, page_payload, with_static_image
from rlviz.pictures.arguments import Arguments, python_name, source_of_fixed
from rlviz.pictures.parameters import FAMILY
from rlviz.pictures.shipped import load_programs, trace_missing
from rlviz.pictures.spec import ExplorerSpec


class Explorer(View):
    """Controls, a picture that answers to them and can be touched, and words; its page writes the call that reproduces it.

    values: control → value, an algorithm by its name; `set` changes some. conclusion: the sentence that answers. png, figure:
    the picture as it is now. html: a page's part that answers without a kernel. Made by the explore_ functions.
    """

    def __init__(self, spec: ExplorerSpec, arguments: Mapping[str, Any]) -> None:
        self._names: tuple[dict[str, Any], Names] | None = None
        spec = self.spec = spec if spec.adapt is None else spec.adapt(spec, arguments)
        self._arguments = Arguments(spec)
        self._data = {**spec.picture.data, **spec.read_fixed(arguments)}
        values = self._arguments.to_values(arguments)
        members = self._members = self._arguments.members

        # Shipped programs are taken as they are; those of a rule of one's own are traced now.
        shipped = load_programs(spec.name)
        self._programs, ids, reasons = trace_missing(spec, members, *shipped)
        self._variants = {}
        for key in spec.keys(members):
            known = spec.variants if key in shipped[1] else {}
            if key not in known:
                why = f"The kernel computes this rule at each move: {reasons[key]}." if key in reasons else ""
                known[key] = spec.make_variant(key, members, ids.get(key), why)
            self._variants[key] = known[key]

        controls = dict(spec.controls)
        if "algorithm" in controls:
            controls["algorithm"] = replace(controls["algorithm"], options=dict.fromkeys(members))  # type: ignore[arg-type]
        named = {label: self._arguments.to_values(setting) for label, setting in spec.named.items()}
        self._picture = replace(spec.picture, controls=controls, named=named, data=self._data)
        call = {
            "function": f"explore_{spec.name}",
            "defaults": self._arguments.default_values,
            "sources": {name: python_name(member) for name, member in members.items()},
            "fixed": [source_of_fixed(name, arguments[name]) for name in spec.fixed if arguments.get(name) is not None],
        }
        parts: dict[str, Any] = {"programs": self._programs, "variants": self._variants, "values": values, "call": call}
        self._payload = page_payload(spec.name, self._picture, family=FAMILY, **parts)
        super().__init__(self._payload, self._answer_page)
        self.names()  # a rule of one's own that fails says so here
        self._check_channels()

    def _check_channels(self) -> None:
        """Raise ValueError for a channel that no choice has a name for: a mark is left out where its numbers are missing."""
        known = {*self.names().known, *(name for program in self._programs.values() for name in program["outputs"])}
        known |= {name for variant in self._variants.values() for name in (*variant.texts, *variant.data)}

        def is_known(name: str) -> bool:
            return re.sub(r"^!?(b\d_)?", "", name) in known

        names = sorted(name for name in known if "=" not in name)
        for name, where, when in self.spec.picture.channels():
            if not is_known(name) and (not when or is_known(when)):
                raise ValueError(
                    f"picture of {self.spec.name}: {where} is {name!r}, which is no control, no data and no output of the curve; "
                    f"{nearest(name, names) or 'there are ' + ', '.join(names)}"
                )

    def key(self, algorithm: str = "") -> str:
        """Return the key of the present choice, or of another algorithm with it."""
        picked = {name: self.values[name] for name in self.spec.picks()}
        return "|".join((picked | {"algorithm": algorithm} if algorithm else picked).values())

    def set(self, **arguments: Any) -> None:
        """Change controls. Raises ValueError for a value that a control cannot have, TypeError for an unknown name."""
        if unknown := [name for name in arguments if name not in self.spec.controls]:
            raise TypeError(f"{unknown[0]!r} is no control; there are {', '.join(self.spec.controls)}")
        self.values = self._arguments.to_values(arguments, self.values)
        self.names()

    def _outputs(self, key: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return evaluate(*self.spec.curve_inputs(key, self._members, values, self._data))

    def names(self) -> Names:
        """Return the values of the picture's names at this setting: controls, data, texts, and the curve's outputs."""
        values = dict(self.values)
        if self._names is not None and self._names[0] == values:
            return self._names[1]
        key = self.key()
        parts = [self._data, self._variants[key].texts, self._variants[key].data, self._outputs(key, values)]
        beside = next((name for name, control in self.spec.controls.items() if isinstance(control, Beside)), None)
        for i, entry in enumerate(values[beside] if beside else (), start=1):
            other, numbers = self._arguments.split_entry(entry)
            variant = self._variants[self.key(other)]
            defaults = {name: number[0] for name, number in variant.numbers.items()}
            outputs = self._outputs(self.key(other), {**values, **defaults, **numbers})
            texts = {**variant.texts, "name": self._arguments.name_beside(entry, values["algorithm"])}
            parts.append({f"b{i}_{name}": value for name, value in {**texts, **outputs}.items()})
        names = Names(self._picture, values, *parts)
        self._names = (values, names)
        return names

    def _answer_page(self, key: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a page that cannot compute a rule of one's own; whatever the rule does becomes a sentence."""
        try:
            outputs = self._outputs(key, values)
        except Exception as error:  # a rule of one's own can do anything
            return {"why": f"Not possible: {type(error).__name__}: {error}"}
        flat = {name: [finite(x) for x in value.double().flatten().tolist()] for name, value in outputs.items()}
        return {"outputs": {name: {"shape": list(v.shape), "data": flat[name]} for name, v in outputs.items()}}

    @property
    def setting(self) -> str:
        """The setting in words, such as "GRPO · ε low 0.2 · ε high 0.28 · old probability 0.1"; see `Arguments.describe`."""
        return self._arguments.describe(self.values, self.names())

    @property
    def title(self) -> str:
        """The question."""
        return self.names().fill(self.spec.picture.title)

    @property
    def conclusion(self) -> str:
        """The sentence that answers the title at this setting."""
        return self.names().conclude(self.spec.picture.conclusion)

    @property
    def caption(self) -> str:
        """The conclusion, by the name that the pictures of runs have for theirs."""
        return self.conclusion

    @property
    def alt(self) -> str:
        """The alternative text: the panels in words, and the caption."""
        return f"{self.spec.picture.alt} {self.caption}".strip()

    def figure(self, figure: Figure | SubFigure | None = None) -> Any:
        """Return the picture as it is now, on paper: a figure of its own says what is on show."""
        return draw(self.spec.picture, self.names(), figure, setting=self.setting)

    @property
    def png(self) -> bytes:
        """The picture as it is now."""
        return png(self.figure())

    def page_payload(self) -> dict[str, Any]:
        """Return the picture, its programs and its present values as JSON for `mount` of draw.js."""
        return {**self._payload, "values": dict(self.values)}

    def html(self, *, inside: Markup | None = None) -> Markup:
        """Return HTML that answers without a kernel and without a network."""
        return fragment(pack(self.page_payload()), caption=self.caption, inside=inside)

    def _ipython_display_(self) -> None:
        """Show the widget; with RLVIZ_FROZEN=1, also what a saved notebook shows of it without a kernel, and its PNG by itself.

        nbconvert shows HTML rather than a PNG, and where scripts are not allowed the PNG is all that is left.
        """
        from IPython.display import display

        data, metadata = with_static_image(self._repr_mimebundle_(), self.png, self.alt)
        if not os.environ.get("RLVIZ_FROZEN"):
            display(data, metadata=metadata, raw=True)
            return
        self.twin = True
        image, alt = ({"image/png": part.pop("image/png")} for part in (data, metadata))
        display({**data, "text/html": self.html()}, metadata=metadata, raw=True)
        display({**image, "text/plain": self.alt}, metadata=alt, raw=True)
