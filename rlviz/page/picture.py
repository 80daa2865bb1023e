"""The grammar of pictures: panels of marks whose channels are names of controls, of data, or of what a curve computes.

A picture is a value: `draw.js` draws it in a page, `paper` by matplotlib, and neither knows what it is about. A *channel* is a
name. It is looked up among the controls' values, the picture's data, the texts of the chosen algorithm, and the outputs of its
curve; a channel that is a number is that number. Of algorithms that lie beside the chosen one, all names have the prefix `b1_`,
`b2_`, `b3_`. A choice `show` with an option `fits` makes a name `show=fits`, 1 while it is chosen and 0 otherwise.

A `when` is a name: the mark, panel, control or sentence is there while that name's (first) value is neither 0 nor NaN, and not
while the name is unknown; `!name` turns it round. Text may hold `{name}` and `{name:.2f}`, with Python's formats .2f +.2f .1% .3g
d and none, and r for a ratio: two digits, four where it is next to 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

Channel = str | float
Control = str  # the name of one
COLOURS = ("blue", "vermilion", "green", "purple", "grey", "ink")


@dataclass(frozen=True, kw_only=True)
class Mark:
    """The fields of every mark.

    colour: one of COLOURS. label: what it is called, at its end where `direct`, else in the key below its panel; `{name}` in it
    is filled in. when: see the module. where: of the elements of its channels, those that are not 0. drag: the control that a
    person moves with it, by a handle.
    """

    colour: str = ""
    label: str = ""
    direct: bool = False
    when: str = ""
    where: Channel = ""
    drag: Control = ""


@dataclass(frozen=True)
class Line(Mark):
    """A line through (x, y), broken where y is NaN; dash: lengths of strokes and gaps; marker: o D s ^ v x at each point."""

    x: Channel
    y: Channel
    dash: str = ""
    width: float = 2.5
    marker: str = ""


@dataclass(frozen=True)
class Area(Mark):
    """What lies between low and high, over x."""

    x: Channel
    low: Channel
    high: Channel


@dataclass(frozen=True)
class Runs(Mark):
    """The stretches of x on which `on` is not 0, hatched, as high as the panel."""

    x: Channel
    on: Channel


@dataclass(frozen=True)
class Bars(Mark):
    """A bar from base to y at each x; width in units of x, or the name of one; fill: solid, hatch or none."""

    x: Channel
    y: Channel
    width: Channel = 0.8
    base: Channel = 0.0
    fill: str = "solid"


@dataclass(frozen=True)
class Points(Mark):
    """A sign at each (x, y): o D s ^ v x + or _ (a short level line); size: across, in points; fill: solid or none."""

    x: Channel
    y: Channel
    shape: str = "o"
    size: float = 8
    fill: str = "solid"


@dataclass(frozen=True)
class Rule(Mark):
    """A straight line across the panel at a place on one axis."""

    at: Channel
    axis: str = "x"
    dash: str = "2 3"
    width: float = 2


@dataclass(frozen=True)
class Span(Mark):
    """A stretch of one axis, across the panel; fill: hatch, or veil (the colour of the paper, nearly opaque)."""

    low: Channel
    high: Channel
    axis: str = "x"
    fill: str = "hatch"


@dataclass(frozen=True)
class Cells(Mark):
    """Unit squares at whole (x, y), shaded from −reach (orange) over 0 (paper) to +reach (blue).

    text: what stands in each. hatch: which are hatched. chosen: the two controls that a click or the arrow keys set.
    """

    x: Channel
    y: Channel
    value: Channel
    reach: Channel
    text: str = ""
    hatch: str = ""
    chosen: tuple[str, ...] = ()


@dataclass(frozen=True)
class Text(Mark):
    """Words at each (x, y): `text` names a list of words, or is itself a text with {names}; side: left, middle or right of it.

    corner: instead of (x, y), a corner of the panel: nw, ne, sw or se.
    """

    text: str
    x: Channel = 0.0
    y: Channel = 0.0
    side: str = "middle"
    corner: str = ""


@dataclass(frozen=True)
class Tokens(Mark):
    """A row of words that wraps, each shaded by its value as in `Cells`; chosen: the control that a click sets."""

    text: str
    value: Channel
    reach: Channel
    chosen: str = ""


@dataclass(frozen=True)
class Axis:
    """An axis from low to high; names: the words at its whole numbers, from 1 on; none: no ticks at all (`ticks=None`).

    whole: it counts something, so that its ticks are whole numbers.
    """

    label: str = ""
    low: Channel = 0.0
    high: Channel = 1.0
    log: Channel = 0
    ticks: tuple[float, ...] | None = ()
    names: str = ""
    whole: bool = False


@dataclass(frozen=True)
class Panel:
    """One graph; tall: its height in units of the usual one; wide: the same for its width."""

    title: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    when: str = ""
    tall: float = 1.0
    wide: float = 1.0


@dataclass(frozen=True)
class Slider:
    """A number from low to high in steps; low and high may be the names of other controls.

    stops: in place of the three, the numbers that it can be. rare: folded away under "More".
    many: how many sliders this is, for an argument that is a tuple; their names are NAME1, NAME2, ….
    plays: whether a button beside it moves it to its end, a step at a time.
    """

    low: Channel = 0.0
    high: Channel = 1.0
    step: float = 0.01
    value: Any = 0.0
    label: str = ""
    stops: tuple[float, ...] = ()
    when: str = ""
    rare: bool = False
    many: int = 0
    plays: bool = False


@dataclass(frozen=True)
class Choice:
    """One of several words: option → what a call takes for it; picks: whether another option is another program."""

    options: Mapping[str, Any]
    value: Any
    label: str
    picks: bool = False
    when: str = ""
    rare: bool = False


@dataclass(frozen=True)
class Beside:
    """Up to `most` algorithms whose outputs join with the prefixes b1_, b2_, b3_; value: the names of those to begin with."""

    most: int = 3
    label: str = "beside"
    value: tuple[str, ...] = ()


@dataclass(frozen=True)
class Say:
    """A sentence, for settings at which `when` holds; the first that holds of a picture's `conclusion` is its conclusion."""

    text: str
    when: str = ""


@dataclass(frozen=True)
class Draws:
    """Made-up numbers that page and Python make alike: uniform in [0, 1) or normal, of a shape whose last size may be a control.

    of: the longest that last size can be: a smaller group is then a part of a larger one.
    """

    kind: str
    shape: tuple[int | str, ...]
    seed: int
    of: int = 0


@dataclass(frozen=True)
class Picture:
    """What is asked, what is drawn, what moves, and the one sentence that answers.

    title: the question. look: what to do first, one line. notice: what is to be seen then, for those without a lesson.
    panels. controls: name → control, in order. conclusion: at most two sentences; the first that holds stands above the picture.
    alt: what there is to see, before any number. data: name → number, list of numbers or words, or
    Draws. named: a setting's name → values, to jump to. columns: panels side by side, where there is room.
    """

    title: str
    look: str
    panels: tuple[Panel, ...]
    controls: Mapping[str, Slider | Choice | Beside]
    conclusion: tuple[Say, ...]
    alt: str = ""
    notice: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    named: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    columns: int = 2

    def __post_init__(self) -> None:
        for mark in self.marks():
            if mark.colour and mark.colour not in COLOURS:
                raise ValueError(f"colour must be one of {', '.join(COLOURS)}; got {mark.colour!r}")
        if len(self.conclusion) > 2:
            raise ValueError(
                f"conclusion must be at most 2 sentences, one answer at each setting; got {len(self.conclusion)}: draw the rest"
            )

    def marks(self) -> list[Mark]:
        """Return all marks of all panels."""
        return [mark for panel in self.panels for mark in panel.marks]

    def channels(self) -> Iterator[tuple[str, str, str]]:
        """Yield the names that marks and axes read or move, (name, who does, the condition of its mark)."""
        for panel in self.panels:
            readers: list[Axis | Mark] = [panel.x, panel.y, *panel.marks]
            for reader in readers:
                for field_ in fields(reader):
                    value = getattr(reader, field_.name)
                    if isinstance(value, str) and value and field_.type in ("Channel", "Control"):
                        yield value, f"{type(reader).__name__}'s {field_.name}", getattr(reader, "when", "")


def to_json(value: Any) -> Any:
    """Return a picture, or a part of it, as what json.dumps takes: defaults left out, marks and controls with their names."""
    if is_dataclass(value) and not isinstance(value, type):
        set_ = {f.name: to_json(getattr(value, f.name)) for f in fields(value) if getattr(value, f.name) != f.default}
        is_named = isinstance(value, Mark | Slider | Choice | Beside | Draws)
        return {"is": type(value).__name__, **set_} if is_named else set_
    if isinstance(value, Mapping):
        return {str(key): to_json(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(part) for part in value]
    return value


def finite(value: Any) -> Any:
    """Return a value as JSON can hold it: NaN and infinities as the words that JavaScript's Number reads."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value).replace("inf", "Infinity").replace("nan", "NaN")
    return value
