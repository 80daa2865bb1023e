"""The curves of runs as a picture: graphs against the step, bound to tables that may still grow, on paper and in a page.

`picture` says what is drawn, `data` gives the numbers that it is bound to. `LiveCurves` shows both in a notebook, and sends new
numbers alone while a run goes on; a recorded run and the inspector put the same picture into pages without a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rlviz.page.image import png
from rlviz.page.names import Names
from rlviz.page.paper import draw
from rlviz.page.picture import Axis, Line, Mark, Panel, Picture, Points, Rule, Say, Slider, to_json
from rlviz.page.widget import View, data_to_json, with_static_image
from rlviz.types import PairRecord, StepRecord

Records = Sequence[StepRecord] | Sequence[PairRecord]
Measured = tuple[NDArray[np.float64], NDArray[np.float64]]
GAP = np.array([np.nan])  # between the lines of several seeds
BELOW = 0.05  # of an axis: under 0, so that a line of zeros is seen


@dataclass(frozen=True)
class Curve:
    """A column of the records as a line; seldom: there only in runs where it was ever another number than 0."""

    column: str
    words: str
    colour: str = "blue"
    dash: str = ""
    marker: str = ""
    seldom: bool = False


@dataclass(frozen=True)
class Graph:
    """Curves that share axes.

    top: the least that the vertical axis reaches up to. named: whether the names of runs before stand at their lines. tall: the
    height, in units of the usual one; lower graphs stand above each other, beside a whole one.
    """

    title: str
    unit: str
    top: float
    curves: tuple[Curve, ...]
    named: bool = True
    tall: float = 1.0


OF_GROUPS = (
    Graph(
        "Reward and accuracy",
        "reward, accuracy",
        1.02,
        (Curve("reward", "reward"), Curve("held_out_accuracy", "held out", "vermilion", marker="o")),
    ),
    Graph("Entropy", "nats per token", 0.8, (Curve("entropy", ""),)),
    Graph(
        "Clipped tokens",
        "share",
        0.05,
        (
            Curve("clip_fraction_high", "above limit"),
            Curve("clip_fraction_low", "below limit", "vermilion", dash="6 3"),
            Curve("clip_fraction_dual", "dual clip", "green", dash="2 2", seldom=True),
        ),
        named=False,
    ),
)
OF_PAIRS = (
    Graph(
        "Accuracy",
        "share",
        1.02,
        (Curve("pair_accuracy", "pairs"), Curve("held_out_accuracy", "held out", "vermilion", marker="o")),
    ),
    Graph("Margin of implicit rewards", "β · nats", 0.05, (Curve("margin", ""),)),
    Graph(
        "Log-probability against the start",
        "nats per response",
        0.05,
        (Curve("chosen_gain", "chosen"), Curve("rejected_gain", "rejected", "vermilion", dash="6 3")),
    ),
)


@dataclass(frozen=True)
class Series:
    """A line in each graph: the mean over runs of one name, which may go on. look: in colour, the same dashed, or grey behind."""

    name: str
    seeds: Sequence[Records]
    look: Literal["now", "dashed", "before"] = "now"


def points(records: Records, column: str) -> Measured:
    """Return the steps at which a column was measured, and its values there."""
    pairs = [(record.step, value) for record in records if (value := getattr(record, column)) is not None]
    steps, values = np.array(pairs, dtype=float).reshape(-1, 2).T
    return steps, values


def mean_over_seeds(seeds: Sequence[Records], column: str) -> Measured:
    """Return a column's mean at each step, over those seeds that have come so far."""
    measured = [points(records, column) for records in seeds]
    steps, values = (np.concatenate([part[side] for part in measured] or [np.empty(0)]) for side in (0, 1))
    at, index = np.unique(steps, return_inverse=True)
    return at, np.bincount(index, values, len(at)) / np.bincount(index, minlength=len(at))


def picture(series: Sequence[Series], graphs: Sequence[Graph] = OF_GROUPS, *, at: Sequence[int] = ()) -> Picture:
    """Return the picture of series, to be bound to their `data`, whose `said` stands above it.

    at: the steps at which a line can stand that a person moves, the control `step`; none: no such line.
    """
    panels = tuple(
        Panel(
            graph.title,
            Axis("step", 0, "steps", whole=True),
            Axis(graph.unit, f"low{place}", f"high{place}"),
            tuple(_marks(place, graph, series, bool(at))),
            tall=graph.tall,
        )
        for place, graph in enumerate(graphs)
    )
    controls = {"step": Slider(value=at[-1], label="step", stops=tuple(at))} if at else {}
    titles = ", ".join(graph.title.lower() for graph in graphs)
    alt = f"{len(graphs)} graphs against the training step: {titles}."
    return Picture(
        "",
        "",
        panels,
        controls,
        (Say("{said}"),),
        alt=alt,
        columns=sum(graph.tall == 1 for graph in graphs) + any(graph.tall < 1 for graph in graphs),
    )


def _marks(place: int, graph: Graph, series: Sequence[Series], cursor: bool) -> list[Mark]:
    """Return the lines of a graph, back to front. Those of one column are told apart by the names of the runs."""
    alone, compared = len(graph.curves) == 1, sum(one.look != "before" for one in series) > 1
    marks: list[Mark] = []
    for number, one in sorted(enumerate(series), key=lambda pair: pair[1].look != "before"):
        for curve in graph.curves:
            key, when = f"r{number}_{curve.column}", f"r{number}_{curve.column}_there" if curve.seldom else ""
            if one.look == "before":
                name = one.name if graph.named and curve is graph.curves[0] else ""
                style: dict[str, Any] = {"colour": "grey", "width": 1.2, "dash": curve.dash, "when": when}
                marks.append(Line(f"{key}_at", key, label=name, direct=bool(name), **style))
                continue
            dash = "7 4" if one.look == "dashed" else "" if compared else curve.dash
            if len(one.seeds) > 1:
                marks.append(Line(f"{key}_each_at", f"{key}_each", colour=curve.colour, width=1, when=when))
            words = one.name if alone and compared else curve.words if one.look == "now" else ""
            style = {"colour": curve.colour, "dash": dash, "marker": curve.marker, "when": when}
            marks.append(Line(f"{key}_at", key, label=words, direct=bool(words), **style))
    if cursor:
        marks.append(
            Points(
                "token_steps",
                f"low{place}",
                colour="ink",
                shape="+",
                size=5,
                label="with tokens" if alone else "",
                when="token_steps",
            )
        )
        marks.append(Rule("step", colour="ink", drag="" if place else "step"))  # one handle; a click anywhere moves it
    return marks


def data(
    series: Sequence[Series], steps: int, said: str, graphs: Sequence[Graph] = OF_GROUPS, **others: Any
) -> dict[str, Any]:
    """Return what the `picture` of these series and graphs is bound to, as JSON has it; others: more of it.

    The axes hold `steps` steps, and the graph's least top unless a value leaves it.
    """
    told: dict[str, Any] = {"steps": steps, "said": said, **others}
    for place, graph in enumerate(graphs):
        every = [np.empty(0)]
        for number, one in enumerate(series):
            for curve in graph.curves:
                key = f"r{number}_{curve.column}"
                each = [points(records, curve.column) for records in one.seeds]
                told[f"{key}_at"], told[key] = each[0] if len(each) == 1 else mean_over_seeds(one.seeds, curve.column)
                if curve.seldom:
                    told[f"{key}_there"] = int(any(values.any() for _, values in each))
                if one.look != "before" and len(each) > 1:
                    told[f"{key}_each_at"], told[f"{key}_each"] = _end_to_end(each)
                every += [values for _, values in each]
        low, high = _limits(np.concatenate(every), graph.top)
        told |= {f"low{place}": low, f"high{place}": high}
    return {name: data_to_json(value.tolist() if hasattr(value, "tolist") else value) for name, value in told.items()}


def _end_to_end(lines: Sequence[Measured]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return several lines as one, with a gap between them."""
    steps, values = (np.concatenate(list(chain.from_iterable((GAP, line[side]) for line in lines))) for side in (0, 1))
    return steps, values


def _limits(values: NDArray[np.float64], top: float) -> tuple[float, float]:
    """Return limits around 0 and `top`, each widened in steps of a half until the values fit, so that they seldom change.

    The lower one is at least BELOW of their distance under 0: on the axis itself a line of zeros could not be told from it.
    """
    low, high, there = 0.0, top, values[np.isfinite(values)]
    while there.max(initial=0.0) > high:
        high *= 1.5
    while there.min(initial=0.0) < low:
        low = 1.5 * low or -0.1 * top
    return min(low, -BELOW * high), high


def given(shown: Picture, bound: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """Return what `mount` of draw.js shows; values: of its controls."""
    return {"name": "curves", "picture": to_json(shown), "values": values, "data": dict(bound)}


def on_paper(shown: Picture, bound: Mapping[str, Any], **values: Any) -> Figure:
    """Return the picture as a figure; values: of its controls."""
    numbers = {
        name: np.asarray(value, dtype=float) if isinstance(value, list) else value for name, value in bound.items()
    }
    figure = draw(shown, Names(shown, values, numbers))
    assert isinstance(figure, Figure)
    return figure


class LiveCurves(View):
    """Curves in a notebook, whose numbers may be sent again and again, from any thread.

    caption: what is said above them.
    """

    def __init__(self, graphs: Sequence[Graph] = OF_GROUPS) -> None:
        self._graphs = graphs
        self._shown, self._looks = picture([], graphs), ""
        bound = data([], 1, "", graphs)
        super().__init__(given(self._shown, bound), lambda key, values: {})
        self.data = bound

    def show(self, series: Sequence[Series], steps: int, said: str) -> None:
        """Show these series and sentences. Where their names or number are others than before, all is drawn anew."""
        bound, looks = data(series, steps, said, self._graphs), str([(s.name, s.look, len(s.seeds)) for s in series])
        with self.hold_sync():
            self.data = bound
            if looks != self._looks:
                self._shown, self._looks = picture(series, self._graphs), looks
                self.show_payload(given(self._shown, bound))

    @property
    def caption(self) -> str:
        return str(self.data.get("said", ""))

    @property
    def png(self) -> bytes:
        """The picture as it is now."""
        return png(on_paper(self._shown, self.data))

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return with_static_image(super()._repr_mimebundle_(**kwargs), self.png, self.caption)
