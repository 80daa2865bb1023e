"""The curves of runs as a picture: graphs against the step, bound to tables that may still grow, on paper and in a page.

`build_picture` says what is drawn, `bind_data` gives the numbers that it is bound to. `LiveCurves` shows both in a notebook, and
sends new numbers alone while a run goes on; a recorded run and the inspector put the same picture into pages without a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rlviz.page.image import png
from rlviz.page.names import Names
from rlviz.page.paper import draw
from rlviz.page.picture import Axis, Line, Mark, Panel, Picture, Points, Rule, Say, Slider, to_json
from rlviz.page.style import TEXT, new_figure
from rlviz.page.widget import View, data_to_json, with_static_image
from rlviz.types import PairRecord, StepRecord

Records = Sequence[StepRecord] | Sequence[PairRecord]
Measured = tuple[NDArray[np.float64], NDArray[np.float64]]
BELOW = 0.05  # of an axis: under 0, so that a line of zeros is seen
GRAPHS_HEIGHT, LINE_HEIGHT = 4.0, 0.25  # of graphs with text below them, and of a line of it, in inches


@dataclass(frozen=True)
class Curve:
    """A column of the records as a line; is_rare: there only in runs where it was ever another number than 0."""

    column: str
    words: str
    colour: str = "blue"
    dash: str = ""
    marker: str = ""
    is_rare: bool = False


@dataclass(frozen=True)
class Graph:
    """Curves that share axes.

    top: the least that the vertical axis reaches up to. has_run_names: whether the names of runs before stand at their lines.
    tall: the height, in units of the usual one; lower graphs stand above each other, beside a full one.
    """

    title: str
    unit: str
    top: float
    curves: tuple[Curve, ...]
    has_run_names: bool = True
    tall: float = 1.0


GROUP_GRAPHS = (
    Graph("Reward and accuracy", "reward, accuracy", 1.02, (
        Curve("reward", "reward"), Curve("held_out_accuracy", "held out", "vermilion", marker="o"))),
    Graph("Entropy", "nats per token", 0.8, (Curve("entropy", ""),)),
    Graph("Clipped tokens", "share", 0.05, (
        Curve("clip_fraction_high", "above limit"), Curve("clip_fraction_low", "below limit", "vermilion", dash="6 3"),
        Curve("clip_fraction_dual", "dual clip", "green", dash="2 2", is_rare=True)), has_run_names=False),
)  # fmt: skip
REWARD_GRAPH = Graph("Reward", "reward", 1.02, (  # of rewards that are not 1 for a right answer and 0 for another
    Curve("reward", "sampled"), Curve("held_out_reward", "held out", "vermilion", marker="o"),
    Curve("held_out_accuracy", "held out, right", "green", marker="o", is_rare=True)))  # fmt: skip
PAIR_GRAPHS = (
    Graph("Accuracy", "share", 1.02, (
        Curve("pair_accuracy", "pairs"), Curve("held_out_accuracy", "held out", "vermilion", marker="o"))),
    Graph("Margin of implicit rewards", "β · nats", 0.05, (Curve("margin", ""),)),
    Graph("Log-probability against the start", "nats per response", 0.05, (
        Curve("chosen_gain", "chosen"), Curve("rejected_gain", "rejected", "vermilion", dash="6 3"))),
)  # fmt: skip


EVERY_GRAPH = (*PAIR_GRAPHS, REWARD_GRAPH, *GROUP_GRAPHS)
RATIO_1 = 1e-4  # sampling and training compute the same probability up to 1e-6


def graphs_of_steps(ratio_std: Iterable[float]) -> tuple[Graph, ...]:
    """Return the graphs below the reward's: of clipped tokens none where each ratio was 1, so that nothing could clip.

    ratio_std: the spread of the ratios, a number a step; not a number where it was not measured.
    """
    can_clip = any(not spread < RATIO_1 for spread in ratio_std)
    return GROUP_GRAPHS[1 : 2 + can_clip]


def graphs_of_runs(runs: Sequence[Records]) -> tuple[Graph, ...]:
    """Return the graphs that tell of runs."""
    records = [record for run in runs for record in run]
    steps = [record for record in records if isinstance(record, StepRecord)]
    if len(steps) < len(records):
        return PAIR_GRAPHS
    reward = REWARD_GRAPH if any(record.reward_parts for record in steps) else GROUP_GRAPHS[0]
    return (reward, *graphs_of_steps(record.ratio_std for record in steps))


@dataclass(frozen=True)
class Series:
    """A line in each graph: the mean over runs of one name, which may go on.

    look: in colour, the same dashed, a moving mean over the steps in front of the numbers as they are, or grey behind.
    """

    name: str
    seeds: Sequence[Records]
    look: Literal["now", "dashed", "smooth", "before"] = "now"

    @property
    def has_thin_lines(self) -> bool:
        """Whether each run stands behind the mean."""
        return self.look == "smooth" or (self.look != "before" and len(self.seeds) > 1)


def measured_points(records: Records, column: str) -> Measured:
    """Return the steps at which a column was measured, and its values there."""
    pairs = [(record.step, value) for record in records if (value := getattr(record, column)) is not None]
    steps, values = np.array(pairs, dtype=float).reshape(-1, 2).T
    return steps, values


def mean_over_seeds(seeds: Sequence[Records], column: str) -> Measured:
    """Return a column's mean at each step, over those seeds that have come so far."""
    measured = [measured_points(records, column) for records in seeds]
    steps, values = (np.concatenate([part[side] for part in measured] or [np.empty(0)]) for side in (0, 1))
    at, index = np.unique(steps, return_inverse=True)
    return at, np.bincount(index, values, len(at)) / np.bincount(index, minlength=len(at))


def moving_mean(values: Any) -> Any:
    """Return the mean over a fifteenth of the values around each of them, as a pandas Series."""
    import pandas as pd  # which a live picture does not wait for

    return pd.Series(values).rolling(max(1, len(values) // 15), min_periods=1, center=True).mean()


def build_picture(
    series: Sequence[Series], graphs: Sequence[Graph] = GROUP_GRAPHS, *, at: Sequence[int] = ()
) -> Picture:
    """Return the picture of series, to be bound to their `bind_data`, whose `said` stands above it.

    at: the steps at which a line can stand that a person moves, the control `step`; none: no such line.
    """
    panels = []
    for index, graph in enumerate(graphs):
        marks = _lines(graph, series)
        if at:
            label = "with tokens" if len(graph.curves) == 1 else ""
            style: dict[str, Any] = {"colour": "ink", "shape": "+", "size": 5, "label": label, "when": "token_steps"}
            marks.append(Points("token_steps", f"low{index}", **style))
            marks.append(
                Rule("step", colour="ink", drag="" if index else "step")
            )  # one handle; a click anywhere moves it
        x, y = Axis("step", 0, "steps", whole=True), Axis(graph.unit, f"low{index}", f"high{index}")
        panels.append(Panel(graph.title, x, y, tuple(marks), tall=graph.tall))
    controls = {"step": Slider(value=at[-1], label="step", stops=tuple(at))} if at else {}
    titles = ", ".join(graph.title.lower() for graph in graphs)
    alt = f"{len(graphs)} graphs against the training step: {titles}."
    columns = sum(graph.tall == 1 for graph in graphs) + any(graph.tall < 1 for graph in graphs)
    return Picture("", "", tuple(panels), controls, (Say("{said}"),), alt=alt, columns=columns)


def _lines(graph: Graph, series: Sequence[Series]) -> list[Mark]:
    """Return the lines of a graph, back to front. Those of one column are told apart by the names of the runs."""
    is_single, is_compared = len(graph.curves) == 1, sum(line.look != "before" for line in series) > 1
    marks: list[Mark] = []
    for number, line in sorted(enumerate(series), key=lambda pair: pair[1].look != "before"):
        for curve in graph.curves:
            key = f"r{number}_{curve.column}"
            style: dict[str, Any] = {"colour": curve.colour, "when": f"{key}_there" if curve.is_rare else ""}
            if line.look == "before":
                words = line.name if graph.has_run_names and curve is graph.curves[0] else ""
                style |= {"colour": "grey", "width": 1.2, "dash": curve.dash}
            else:
                if line.has_thin_lines:
                    marks.append(Line(f"{key}_each_at", f"{key}_each", width=1, **style))
                words = line.name if is_single and len(series) > 1 else curve.words if line.look != "dashed" else ""
                dash = "7 4" if line.look == "dashed" else "" if is_compared else curve.dash
                style |= {"dash": dash, "marker": curve.marker}
            marks.append(Line(f"{key}_at", key, label=words, direct=bool(words), **style))
    return marks


def bind_data(
    series: Sequence[Series], steps: int, caption: str, graphs: Sequence[Graph] = GROUP_GRAPHS, **others: Any
) -> dict[str, Any]:
    """Return what the picture of these series and graphs is bound to, as JSON has it; others: more of it.

    The axes hold `steps` steps, and the graph's least top unless a value leaves it.
    """
    bound: dict[str, Any] = {"steps": steps, "said": caption, **others}
    for index, graph in enumerate(graphs):
        values = [np.empty(0)]
        for number, line in enumerate(series):
            for curve in graph.curves:
                key = f"r{number}_{curve.column}"
                seeds = [measured_points(records, curve.column) for records in line.seeds]
                at, mean = seeds[0] if len(seeds) == 1 else mean_over_seeds(line.seeds, curve.column)
                is_smooth = line.look == "smooth" and not curve.marker
                bound |= {f"{key}_at": at, key: moving_mean(mean) if is_smooth else mean}
                if curve.is_rare:
                    bound[f"{key}_there"] = int(any(measured.any() for _, measured in seeds))
                if line.has_thin_lines:  # end to end, with a gap between two
                    for name, side in ((f"{key}_each_at", 0), (f"{key}_each", 1)):
                        bound[name] = np.concatenate([part for seed in seeds for part in ([np.nan], seed[side])])
                values += [measured for _, measured in seeds]
        low, high = _limits(np.concatenate(values), graph.top)
        bound |= {f"low{index}": low, f"high{index}": high}
    return {name: data_to_json(value.tolist() if hasattr(value, "tolist") else value) for name, value in bound.items()}


def _limits(values: NDArray[np.float64], top: float) -> tuple[float, float]:
    """Return limits around 0 and `top`, each widened in steps of a half until the values fit, so that they seldom change.

    The lower one is at least BELOW of their distance under 0: on the axis itself a line of zeros could not be told from it.
    """
    low, high, finite = 0.0, top, values[np.isfinite(values)]
    while finite.max(initial=0.0) > high:
        high *= 1.5
    while finite.min(initial=0.0) < low:
        low = 1.5 * low or -0.1 * top
    return min(low, -BELOW * high), high


def page_payload(picture: Picture, bound: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """Return what `mount` of draw.js shows; values: of its controls."""
    return {"name": "curves", "picture": to_json(picture), "values": values, "data": dict(bound)}


def draw_figure(picture: Picture, bound: Mapping[str, Any], *, below: str = "", **values: Any) -> Figure:
    """Return the picture as a figure; values: of its controls. below: lines of text to stand under the graphs."""
    numbers = {
        name: np.asarray(value, dtype=float) if isinstance(value, list) else value for name, value in bound.items()
    }
    names = Names(picture, values, numbers)
    if not below:
        figure = draw(picture, names)
        assert isinstance(figure, Figure)
        return figure
    heights = (GRAPHS_HEIGHT, LINE_HEIGHT * (below.count("\n") + 1))
    figure = new_figure(14, sum(heights))
    graphs, words = figure.subfigures(2, 1, squeeze=False, height_ratios=heights).flat
    draw(picture, names, graphs)
    words.text(0.01, 0.98, below, va="top", family="monospace", fontsize=12, parse_math=False)
    return figure


class LiveCurves(View):
    """Curves in a notebook, whose numbers may be sent again and again, from any thread.

    caption: the sentence above them. png: the picture as it is now.
    """

    def __init__(self, graphs: Sequence[Graph] = GROUP_GRAPHS) -> None:
        self._graphs = graphs
        self._picture, self._looks = build_picture([], graphs), ""
        bound = bind_data([], 1, "", graphs)
        super().__init__(page_payload(self._picture, bound), lambda key, values: {})
        self.data = bound

    def show(self, series: Sequence[Series], steps: int, caption: str) -> None:
        """Show these series and a caption. Where their names or number are others than before, all is drawn anew."""
        bound = bind_data(series, steps, caption, self._graphs)
        looks = str([(line.name, line.look, len(line.seeds)) for line in series])
        with self.hold_sync():
            self.data = bound
            if looks != self._looks:
                self._picture, self._looks = build_picture(series, self._graphs), looks
                self.show_payload(page_payload(self._picture, bound))

    @property
    def caption(self) -> str:
        return str(self.data.get("said", ""))

    def figure(self) -> Figure:
        """Return the picture as it is now on paper; empty graphs have the caption in the first."""
        figure = draw_figure(self._picture, self.data)
        first = figure.axes[0]
        if not any(np.size(line.get_xdata()) for line in first.lines):
            first.text(0.5, 0.5, self.caption, ha="center", transform=first.transAxes, fontsize=TEXT)
        return figure

    @property
    def png(self) -> bytes:
        return png(self.figure())

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return with_static_image(super()._repr_mimebundle_(**kwargs), self.png, self.caption)
