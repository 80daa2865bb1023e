"""What one token weighs under each aggregation, and what becomes of it when a batch is cut into two parts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.collections import PolyCollection
from matplotlib.ticker import NullLocator
from torch import Tensor

from rlviz.algorithms import DAPO, DCPO, DR_GRPO, GRPO, PolicyGradient
from rlviz.pictures.arguments import Numbers, Spec, Values, Whole, WholeSlider
from rlviz.pictures.arrays import Array, array
from rlviz.pictures.base import BLUE, GREY, LINE, TEXT, VERMILION, Handle, Picture, dress
from rlviz.pictures.clip import has_a_ratio
from rlviz.pictures.explore import Algorithms, explorer
from rlviz.pictures.marks import Marks
from rlviz.pieces.aggregation import Constant, sequence_mean, sequence_sum, token_mean, weighted_sum
from rlviz.pieces.words import label
from small_models.checks import checked


@dataclass(frozen=True)
class AggregationCurve:
    """What tokens weigh in a batch of B responses of `lengths`, under A aggregations; `name` is the algorithm's.

    names: of the aggregations: the four, and the algorithm's own if it is none of them; own: its place among them.
    weight: [A, B], of the first token of each response. whole: [B], the weight of all tokens of a response together, in the whole
    batch; parts: the same in the mean over two parts, each with the weights of its own, of which the first has `cut`
    responses. Both under the algorithm's own aggregation.
    """

    name: str
    names: tuple[str, ...]
    own: int
    lengths: tuple[int, ...]
    cut: int
    weight: Array
    whole: Array
    parts: Array

    def length_at(self, weight: float) -> float:
        """Return the length with which `Constant` gives a token this weight, between whole ones by their weights' logarithms."""
        return float(np.interp(np.log(weight), _logs_of_constants(self.lengths), range(LONGEST, 0, -1)))


LONGEST = 64  # of the constant's lengths


def _mask(lengths: Sequence[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(list(lengths)).view(1, -1, 1)


@lru_cache(maxsize=64)
def _logs_of_constants(lengths: tuple[int, ...]) -> Array:
    """Return the logarithms of what `Constant` gives a token, with its longest length first."""
    mask = _mask(lengths)
    return np.log([Constant(length)(mask)[0, 0, 0].item() for length in range(LONGEST, 0, -1)])


@checked
def aggregation_curve(
    algorithm: PolicyGradient = DAPO,
    *,
    lengths: Sequence[int] = (2, 4, 8, 16),
    max_length: int = 16,
    cut: int | None = None,
) -> AggregationCurve:
    """Return what a token weighs in responses of different lengths, and what cutting the batch in two makes of it.

    A token's weight under each of the four aggregations; and, under the algorithm's own, what all tokens of a response weigh
    together: in the whole batch, and in the mean of the means of two parts, as when gradients of micro-batches are averaged. They
    agree only when every part stands for as much of the batch: as many responses where these are averaged, as many tokens where
    those are.

    lengths: of the responses, tokens. max_length: of the `Constant` among the four; an algorithm that has one keeps its own.
    cut: responses in the first part, None: half of them, rounded down.
    Raises ValueError for fewer than two responses, a length or max_length below 1, a cut that leaves a part empty, or an
    algorithm without an aggregation.
    """
    if not isinstance(algorithm, PolicyGradient):
        raise ValueError(f"algorithm: {algorithm.name} has no aggregation")
    if len(lengths) < 2 or min(lengths) < 1:
        raise ValueError(f"lengths must be two or more numbers of tokens, each at least 1; got {tuple(lengths)}")
    cut = len(lengths) // 2 if cut is None else cut
    if not 1 <= cut < len(lengths):
        raise ValueError(f"cut must be from 1 to {len(lengths) - 1} responses; got {cut}")
    mask = _mask(lengths)
    every: list[Callable[[Tensor], Tensor]] = [sequence_mean, token_mean, Constant(max_length), sequence_sum]
    if algorithm.aggregate not in every:
        every.append(algorithm.aggregate)
    halves = mask[:, :cut], mask[:, cut:]
    of_parts = torch.cat([algorithm.aggregate(part) / len(halves) for part in halves], 1)
    each_alone = torch.eye(len(lengths), dtype=torch.double).unsqueeze(-1) * mask  # one row a response
    whole, parts = (
        torch.stack([weighted_sum(one.unsqueeze(0), weights, mask) for one in each_alone])
        for weights in (algorithm.aggregate(mask).double(), of_parts.double())
    )
    return AggregationCurve(
        name=algorithm.name,
        names=tuple(label(aggregate) for aggregate in every),
        own=every.index(algorithm.aggregate),
        lengths=tuple(lengths),
        cut=cut,
        weight=torch.stack([aggregate(mask)[0, :, 0].double() for aggregate in every]).numpy(),
        whole=array(whole),
        parts=array(parts),
    )


FOUR = ("sequence\nmean", "token\nmean", "constant", "sequence\nsum")
OWN = "own"
CONSTANT = 2  # the place of `Constant` among the four
LEAST, MOST = 0.003, 2.0  # of the weights drawn
HALF = 0.34  # of the width of a column


def _bars(middles: Iterable[float], heights: Iterable[float], half: float) -> list[list[tuple[float, float]]]:
    return [[(x - half, 0), (x - half, y), (x + half, y), (x + half, 0)] for x, y in zip(middles, heights, strict=True)]


class AggregationPicture(Picture[AggregationCurve]):
    """Left a token's weight in each response under each aggregation, right what cutting the batch makes of it."""

    size = (10, 4.5)
    alt = (
        "Left, the weight of one token of each response under each aggregation, on a log scale. "
        "Right, bars of the weight of each whole response, its tokens together: in the batch, and in the mean of two parts."
    )

    def draw(self, curve: AggregationCurve) -> list[Artist]:
        self.left, self.right = self.figure.subplots(1, 2)
        moving = [*self._draw_weights(curve), *self._draw_parts(curve)]
        handles, labels = self.right.get_legend_handles_labels()
        self.figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=TEXT - 1, frameon=False)
        return moving

    def _draw_weights(self, curve: AggregationCurve) -> list[Artist]:
        ax = self.left
        dress(ax, title="Weight of one token of response 1, 2, …", x="aggregation", y="weight of a token (log scale)")
        holes = {"marker": "o", "markersize": 13, "markerfacecolor": "white", "markeredgecolor": "white"}  # for digits
        self.lines = [ax.plot([], [], color=BLUE, linewidth=1.5, **holes)[0] for _ in (*FOUR, OWN)]
        (self.own_line,) = ax.plot([], [], color=VERMILION, linewidth=LINE, **holes)
        (self.constant,) = ax.plot([], [], color="black", linestyle="-.", linewidth=1.5)
        self.digits = Marks(ax, weight="bold", colour=BLUE)
        self.own_digits = Marks(ax, weight="bold", size=TEXT + 3, colour=VERMILION)
        self.own_name = Marks(ax, weight="bold", colour="#b24e00", where=ax.get_xaxis_transform())
        ax.set(yscale="log", ylim=(LEAST, MOST))
        ax.set_yticks([0.01, 0.1, 1], ["0.01", "0.1", "1"])
        ax.yaxis.set_minor_locator(NullLocator())
        self.across = np.linspace(-HALF, HALF, len(curve.lengths))
        return [self.constant, *self.lines, self.digits, self.own_line, self.own_digits, self.own_name]

    def _draw_parts(self, curve: AggregationCurve) -> list[Artist]:
        ax, responses = self.right, len(curve.lengths)
        dress(ax, title="Cut into two parts: does it stay the same?", x="", y="weight of all its tokens together")
        ax.set_xlabel("response, and its tokens", fontsize=TEXT, labelpad=27)
        self.whole = PolyCollection([], facecolor=BLUE, edgecolor=BLUE, linewidth=1, label="whole batch")
        self.parts = PolyCollection(
            [], facecolor="white", edgecolor=VERMILION, hatch="///", linewidth=1.5, label="mean of the parts' means"
        )
        for bars in (self.whole, self.parts):
            ax.add_collection(bars, autolim=False)
        self.knife = ax.axvline(0, color="black", linestyle=(0, (5, 3)), linewidth=2, label="where the batch is cut")
        self.tokens = Marks(ax, size=TEXT - 1, colour="#333333", where=ax.get_xaxis_transform())
        ax.axhline(0, color=GREY, linewidth=1)
        ax.set(xlim=(-0.6, responses - 0.4))
        ax.set_xticks(range(responses), [str(response + 1) for response in range(responses)])
        return [self.whole, self.parts, self.knife, self.tokens]

    def show(self, curve: AggregationCurve) -> None:
        at = np.arange(len(curve.lengths))
        columns = len(curve.names)
        if len(self.left.get_xticks()) != columns or self.left.get_xlim() != (-0.6, columns - 0.4):
            small = TEXT - 1 if columns == len(FOUR) else TEXT - 2
            self.left.set_xticks(range(columns), [*FOUR, OWN][:columns], fontsize=small)
            self.left.set_xlim(-0.6, columns - 0.4)
        for place, line in enumerate(self.lines):
            line.set_data([], [])
            if place < columns:
                line.set_data(place + self.across, curve.weight[place])
        self.constant.set_data([CONSTANT + HALF, columns - 0.4], [curve.weight[CONSTANT, 0]] * 2)
        own = curve.weight[curve.own]
        self.own_line.set_data(curve.own + self.across, own)
        every = [
            [(str(response + 1), place + self.across[response], weights[response]) for response in at]
            for place, weights in enumerate(curve.weight)
        ]
        self.own_digits.write(every.pop(curve.own))
        self.digits.write(digit for digits in every for digit in digits)
        self.own_name.write([("its own", curve.own, 0.96)])
        if self.right.get_ylim() != self._heights(curve):
            self.right.set_ylim(self._heights(curve))
        self.whole.set_verts(_bars(at - HALF / 2, curve.whole, 0.46 * HALF))
        self.parts.set_verts(_bars(at + HALF / 2, curve.parts, 0.46 * HALF))
        self.knife.set_xdata([curve.cut - 0.5, curve.cut - 0.5])
        self.tokens.write((_tokens(length), x, -0.13) for x, length in enumerate(curve.lengths))

    @staticmethod
    def _heights(curve: AggregationCurve) -> tuple[float, float]:
        """Return the limits of the right axes: up to 1.05, or as far as the aggregation goes, in steps that seldom change."""
        values = np.concatenate([curve.whole, curve.parts])
        top = 1.05 * 2.0 ** max(0, int(np.ceil(np.log2(max(values.max(), 1.0)))))
        return (0.0 if values.min() >= 0 else -top), top

    def still(self, curve: AggregationCurve) -> Hashable:
        return len(curve.names), self._heights(curve)

    def handles(self, curve: AggregationCurve) -> list[Handle]:
        return [
            Handle(self.right, "x", curve.cut - 0.5, "cut", lambda place: place + 0.5),
            Handle(self.left, "y", float(curve.weight[CONSTANT, 0]), "max_length", curve.length_at),
        ]

    def conclusion(self, curve: AggregationCurve) -> str:
        averaged = f"Averaging the means of two parts, {curve.name}"
        if np.allclose(curve.parts, curve.whole, rtol=1e-9, atol=0):
            return f"{averaged} gives every response the weight that it has in the whole batch: no trap here."
        if not (curve.whole > 0).all():
            return f"{averaged} has another objective than in the whole batch."
        times = curve.parts / curve.whole
        least, most = int(times.argmin()), int(times.argmax())
        if np.allclose(times, times[0], rtol=1e-9, atol=0):
            return f"{averaged} gives every token {times[0]:.3g} times its weight: another learning rate."
        return (
            f"{averaged} counts tokens of response {most + 1} {times[most]:.3g} times as much as it should, of response "
            f"{least + 1} {times[least]:.3g} times: the trap."
        )

    def words(self, curve: AggregationCurve) -> str:
        own = curve.weight[curve.own]
        least, most = int(own.argmin()), int(own.argmax())
        if np.isclose(own[least], own[most], rtol=1e-9):
            weigh = f"a token weighs {own[0]:.3g} in every response"
        else:
            weigh = (
                f"a token of response {most + 1} ({_tokens(curve.lengths[most])}) weighs {own[most]:.3g}, "
                f"of response {least + 1} ({_tokens(curve.lengths[least])}) {own[least]:.3g}"
            )
        first, second = curve.cut, len(curve.lengths) - curve.cut
        return (
            f"The aggregation is {curve.names[curve.own]}: {weigh}. The parts have {first} and {second} responses"
            f"{_say_parts(curve)}."
        )


def _tokens(length: int) -> str:
    return f"{length} token{'' if length == 1 else 's'}"


def _say_parts(curve: AggregationCurve) -> str:
    """Return what the mean of the parts' means does to each response, where it does not do the same to all."""
    if not (curve.whole > 0).all():
        return ""
    times = curve.parts / curve.whole
    if np.allclose(times, times[0], rtol=1e-9, atol=0):
        return ""
    *most, last = (f"{factor:.3g}" for factor in times)
    return (
        f", and tokens of responses 1 to {len(times)} count {', '.join(most)} and {last} times what they should. Weights "
        "computed on the whole batch and then cut stay right"
    )


class CutControl(Whole):
    """How many responses the first part has. As an argument it is None at half of them, which a call need not say."""

    def __init__(self, cut: int | None, responses: int) -> None:
        self._half = responses // 2
        super().__init__("cut", self._half if cut is None else cut, 1, responses - 1, "first part, responses")

    @property
    def argument(self) -> int | None:
        return None if self.value == self._half else int(self.value)


class Cut(Spec):
    """A slider over the places where a batch of `lengths` can be cut."""

    @property
    def words(self) -> str:
        return "responses in the first part; half of them unless given"

    def control(self, name: str, values: Values) -> CutControl:
        return CutControl(values[name], len(values["lengths"]))


explore_aggregation = explorer(
    "aggregation",
    aggregation_curve,
    AggregationPicture,
    algorithms=Algorithms(fits=has_a_ratio),
    controls={
        "cut": Cut(),
        "lengths": Numbers(1, 16, "length"),
        "max_length": WholeSlider(1, LONGEST, "constant's length", rare=True),
    },
    grid={
        "algorithm": (DAPO, GRPO, DR_GRPO, DCPO),
        "lengths": ((2, 4, 8, 16), (8, 8, 8, 8), (1, 2, 2, 16)),
        "max_length": (8, 16, 32),
        "cut": (1, 2, 3),
    },
    twin={
        "DAPO, lengths 2, 4, 8, 16, cut in halves": {},
        "DAPO, equal lengths, cut in halves": {"lengths": (8, 8, 8, 8)},
        "GRPO, lengths 2, 4, 8, 16, cut in halves": {"algorithm": GRPO},
        "GRPO, lengths 2, 4, 8, 16, cut after the first": {"algorithm": GRPO, "cut": 1},
    },
)
