"""What it costs to fill a batch with groups that teach something, and what then is in the batch."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from torch import Tensor

from rlviz.algorithms import DAPO, DCPO, DUPO, GRPO, GroupPolicyGradient, numbers
from rlviz.pictures.arguments import Slider, WholeSlider
from rlviz.pictures.arrays import Array, array
from rlviz.pictures.base import BLUE, FAINT, GREEN, GREY, LINE, TEXT, VERMILION, Handle, Picture, dress
from rlviz.pictures.explore import Algorithms, explorer
from rlviz.pictures.groups import SEED, Rate, coins, group_advantages, learns_from_a_group, share_all_equal, without_kl
from rlviz.pictures.marks import Marks
from rlviz.pieces.advantages import all_equal
from rlviz.pieces.words import label
from small_models.checks import checked

REFERENCES = (GRPO, DAPO, DUPO, DCPO)  # a way each to deal with dead groups
POINTS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95)
MOST_PROMPTS, MOST_ROUNDS, MOST_RESPONSES = 32, 10, 64
STEPS, AT_A_POINT = 32, 512  # simulated steps; groups at each point of the line
EACH = MOST_PROMPTS * MOST_ROUNDS  # groups drawn for a step; however few it takes, the next step has its own


@dataclass(frozen=True)
class BatchShares:
    """What the places of an algorithm's batch hold, over `STEPS` simulated steps, as shares of P (or of a longer batch).

    name: of the algorithm. rules: its selection without its numbers, and its memory. sampled: responses sampled ÷ P·G.
    fresh: distinct groups with right and wrong responses and a gradient. repeated: the same ones again. remembered: all-equal
    groups that still have a gradient. dead: groups without gradient. What lacks to 1 stayed empty.
    fresh_size, remembered_size: mean |A| in these groups, None where there are none.
    """

    name: str
    rules: str
    sampled: float
    fresh: float
    repeated: float
    remembered: float
    dead: float
    fresh_size: float | None
    remembered_size: float | None


@dataclass(frozen=True)
class SamplingCurve:
    """The price of informative groups against the success rate, and what batches hold at one rate.

    rates [N], price [N]: mean success rate of the prompts, and responses sampled ÷ responses wanted, expected when all-equal
    groups are replaced. points [M], simulated [M]: rates, and what the explored algorithm's selection takes there.
    success_rate, spread, group_size, num_prompts, max_rounds, visits: the setting. easy, hard: success rates of the two kinds of
    prompts, equally frequent. informative: share of groups expected to have right and wrong responses. replaced, filled:
    at success_rate, what `price` is there, and the share of a batch's places that it fills. steps: simulated for the batches.
    batches: of the explored algorithm first, then of the references that differ from it.
    """

    rates: Array
    price: Array
    points: Array
    simulated: Array
    success_rate: float
    spread: float
    group_size: int
    num_prompts: int
    max_rounds: int
    visits: int
    easy: float
    hard: float
    informative: float
    replaced: float
    filled: float
    steps: int
    batches: tuple[BatchShares, ...]

    def size_at(self, informative: float) -> int:
        """Return the group size with which nearest to this share of groups has right and wrong responses."""
        sizes = range(2, MOST_RESPONSES + 1)
        return min(sizes, key=lambda n: abs(informative_share(self.success_rate, self.spread, n) - informative))


def two_kinds(success_rate: Rate, spread: float) -> tuple[Rate, Rate]:
    """Return the success rates of harder and of easier prompts, equally frequent, whose mean is `success_rate`, one or an array.

    They lie success_rate ± spread · (the room to 0 or 1, whichever is nearer).
    """
    away = spread * np.minimum(success_rate, 1 - success_rate)
    return success_rate - away, success_rate + away


def informative_share(success_rate: Rate, spread: float, group_size: int) -> Rate:
    """1 − mean of p^G + (1 − p)^G over both kinds of prompts: the share of groups with right and wrong responses."""
    hard, easy = two_kinds(success_rate, spread)
    return 1 - (share_all_equal(hard, group_size) + share_all_equal(easy, group_size)) / 2


def replacing(informative: Array, num_prompts: int, max_rounds: int) -> tuple[Array, Array]:
    """Return what it takes to replace every other group: groups sampled ÷ P, and groups found ÷ P; both expected, at each share.

    One samples until P are informative or M = max_rounds · P were sampled, so as many are found as of M groups would be
    informative, but P at most: F = E min(P, B), B binomial with M and q. Each group sampled is informative with probability q,
    whatever came before, so F = q · (expected number sampled), by Wald's identity.
    """
    most = max_rounds * num_prompts
    q = torch.as_tensor(informative).double().unsqueeze(-1)
    found = torch.arange(num_prompts, dtype=torch.double)  # fewer than P
    ways = math.lgamma(most + 1) - torch.lgamma(found + 1) - torch.lgamma(most - found + 1)
    chance = (ways + torch.xlogy(found, q) + torch.special.xlog1py(most - found, -q)).exp()
    filled = array(1 - (chance * (1 - found / num_prompts)).sum(-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(informative > 0, filled / informative, float(max_rounds)), filled


@checked
def sampling_curve(
    algorithm: GroupPolicyGradient = DAPO,
    *,
    success_rate: float = 0.9,
    spread: float = 0.0,
    group_size: int = 8,
    num_prompts: int = 16,
    max_rounds: int = 10,
    visits: int = 3,
) -> SamplingCurve:
    """Return four answers to dead groups, and the algorithm's own: keep, replace, repeat, remember.

    What replacing them costs: responses sampled for each one wanted, against the prompts' success rate, expected and simulated
    through the algorithm's selection; and what the places of each algorithm's batch hold at one success rate. An algorithm whose
    selection returns fewer than `num_prompts` groups samples further prompts until they are as many, or max_rounds · num_prompts
    were sampled: `DynamicSampling`, DAPO's, has this max_rounds here, whichever it had.

    success_rate: mean over the prompts, 0.01 to 0.99. spread: 0, all prompts are alike, to 1, each is as hard or as easy as the
    mean allows. group_size: responses to a prompt, 2 to 64. num_prompts: groups wanted in a batch, 1 to 32. max_rounds: 1 to 10.
    visits: how often each prompt was sampled, this time included, 1 to 10; matters to an advantage with a memory, as DCPO's.
    Raises ValueError for a value out of range, and what the algorithm's pieces raise.
    """
    algorithm = without_kl(algorithm, success_rate=success_rate, group_size=group_size, visits=visits)
    algorithm, *references = (_of_rounds(each, max_rounds) for each in (algorithm, *REFERENCES))
    if not 0 <= spread <= 1:
        raise ValueError(f"spread must be from 0 to 1; got {spread}")
    for name, value, most in (("num_prompts", num_prompts, MOST_PROMPTS), ("max_rounds", max_rounds, MOST_ROUNDS)):
        if not 1 <= value <= most:
            raise ValueError(f"{name} must be from 1 to {most}; got {value}")
    rates = np.linspace(0.01, 0.99, 197)
    shares = informative_share(np.append(rates, success_rate), spread, group_size)
    price, filled = replacing(shares, num_prompts, max_rounds)
    pool = _Pool(two_kinds(success_rate, spread), group_size, num_prompts, max_rounds)
    hard, easy = pool.rates
    others = [other for other in references if _strategy(other) != _strategy(algorithm)]
    return SamplingCurve(
        rates=rates,
        price=price[:-1],
        points=np.array(POINTS),
        simulated=np.array([_price(algorithm, two_kinds(p, spread), group_size, max_rounds) for p in POINTS]),
        success_rate=success_rate,
        spread=spread,
        group_size=group_size,
        num_prompts=num_prompts,
        max_rounds=max_rounds,
        visits=visits,
        easy=easy,
        hard=hard,
        informative=float(shares[-1]),
        replaced=float(price[-1]),
        filled=float(filled[-1]),
        steps=STEPS,
        batches=tuple(_batches(each, pool, visits) for each in (algorithm, *others)),
    )


def _of_rounds(algorithm: GroupPolicyGradient, max_rounds: int) -> GroupPolicyGradient:
    return algorithm.with_parameters(max_rounds=max_rounds) if "max_rounds" in numbers(algorithm) else algorithm


def _strategy(algorithm: GroupPolicyGradient) -> tuple[object, object]:
    return algorithm.select, algorithm.advantage


@lru_cache(maxsize=1)
def harder_prompts() -> Tensor:
    """Return which of the groups are of harder prompts: each is with probability ½, always the same ones."""
    return torch.rand(STEPS * EACH, generator=torch.Generator().manual_seed(SEED)) < 0.5


@dataclass(frozen=True)
class _Pool:
    """Groups of harder and of easier prompts, `EACH` for every step, and what a step samples of them: at first, and at most."""

    rates: tuple[float, float]
    group_size: int
    num_prompts: int = MOST_PROMPTS
    max_rounds: int = MOST_ROUNDS
    _chosen: list[tuple[object, tuple[Tensor, float]]] = field(
        default_factory=list
    )  # of each selection that was asked for

    def outcomes(self, groups: slice | Tensor, before: int = 0) -> Tensor:
        """Return the rewards [groups, G], 1 or 0, of these groups so many visits before the latest one."""
        numbers = coins(STEPS * EACH)[before, groups, : self.group_size]
        return (numbers < torch.where(harder_prompts()[groups], *self.rates).unsqueeze(-1)).double()

    @cached_property
    def at_first(self) -> tuple[Tensor, ...]:
        return self._of_each_step(self.num_prompts)

    @cached_property
    def at_most(self) -> tuple[Tensor, ...]:
        return self._of_each_step(self.num_prompts * self.max_rounds)

    def _of_each_step(self, groups: int) -> tuple[Tensor, ...]:
        index = EACH * torch.arange(STEPS).unsqueeze(1) + torch.arange(groups)
        return self.outcomes(index.flatten()).split(groups)

    def chosen(self, algorithm: GroupPolicyGradient) -> tuple[Tensor, float]:
        """Return the groups in the algorithm's batches of all steps, and groups sampled ÷ groups wanted."""
        for select, chosen in self._chosen:
            if select == algorithm.select:
                return chosen
        chosen = self._choose(algorithm)
        self._chosen.append((algorithm.select, chosen))
        return chosen

    def _choose(self, algorithm: GroupPolicyGradient) -> tuple[Tensor, float]:
        generator = torch.Generator().manual_seed(0)
        sampled, chosen = 0, []
        for step, outcomes in enumerate(self.at_first):
            index, took = algorithm.selected(outcomes, generator), self.num_prompts
            if len(index) < self.num_prompts:
                took *= self.max_rounds
                index = algorithm.selected(self.at_most[step], generator)[: self.num_prompts]
                if len(index) == self.num_prompts:
                    took = int(index[-1]) + 1
            chosen.append(step * EACH + index)
            sampled += took
        return torch.cat(chosen), sampled / (STEPS * self.num_prompts)


def _price(algorithm: GroupPolicyGradient, rates: tuple[float, float], group_size: int, max_rounds: int) -> float:
    """Return how many groups the algorithm's selection takes in for one that it lets out, from 1 to max_rounds."""
    outcomes = _Pool(rates, group_size).outcomes(slice(AT_A_POINT))
    kept = len(algorithm.selected(outcomes, torch.Generator().manual_seed(0)))
    return min(max(AT_A_POINT / max(kept, 1), 1.0), float(max_rounds))


def _batches(algorithm: GroupPolicyGradient, pool: _Pool, visits: int) -> BatchShares:
    groups, sampled = pool.chosen(algorithm)
    remembers = algorithm.asks_for("advantage", "history")
    now, *earlier = (pool.outcomes(groups, before) for before in range(visits if remembers else 1))
    advantages = group_advantages(algorithm, now, earlier) if len(groups) else now
    again = torch.ones(len(groups), dtype=torch.bool)
    again[np.unique(groups.numpy(), return_index=True)[1]] = False
    alive, equal = advantages.any(1), all_equal(now)
    fresh, remembered = alive & ~again & ~equal, alive & ~again & equal
    places = max(len(groups), STEPS * pool.num_prompts)
    shares = [int(kind.sum()) / places for kind in (fresh, alive & again, remembered, ~alive)]
    memory = " + memory" if remembers else ""
    return BatchShares(
        name=algorithm.name,
        rules=f"{label(algorithm.select).partition(',')[0]}{memory}",
        sampled=sampled,
        fresh=shares[0],
        repeated=shares[1],
        remembered=shares[2],
        dead=shares[3],
        fresh_size=_size(advantages[fresh]),
        remembered_size=_size(advantages[remembered]),
    )


def _size(advantages: Tensor) -> float | None:
    return float(advantages.abs().mean()) if len(advantages) else None


# what a place of the batch holds → its looks
KINDS: dict[str, dict[str, Any]] = {
    "fresh": {"facecolor": BLUE, "edgecolor": BLUE, "label": "right and wrong responses"},
    "repeated": {"facecolor": "white", "edgecolor": GREEN, "hatch": "//", "label": "such a group repeated"},
    "remembered": {
        "facecolor": "white",
        "edgecolor": VERMILION,
        "hatch": "..",
        "label": "all equal, learns from memory",
    },
    "dead": {"facecolor": FAINT, "edgecolor": GREY, "label": "all equal, no gradient"},
}
HALF = 0.3  # of a bar's height, in rows
ROWS = 5  # at most


class SamplingPicture(Picture[SamplingCurve]):
    """Left the price of replacing dead groups against the success rate, right what the batches hold at one rate."""

    size = (10, 4.6)
    alt = (
        "Left a graph of responses sampled for each one wanted against the success rate; right a bar for each algorithm, "
        "cut into what the places of its batch hold."
    )

    def draw(self, curve: SamplingCurve) -> list[Artist]:
        left, right = self.figure.subplots(1, 2, width_ratios=(1, 1.25))
        moving = [*self._draw_price(left), *self._draw_batches(right, curve.steps)]
        handles, labels = (
            a + b for a, b in zip(*(ax.get_legend_handles_labels() for ax in (left, right)), strict=True)
        )
        self.figure.legend(
            handles, labels, loc="outside lower center", ncols=3, fontsize=TEXT - 1, frameon=False, columnspacing=1.5
        )
        return moving

    def _draw_price(self, ax: Axes) -> list[Artist]:
        dress(
            ax,
            title="What replacing dead groups costs",
            x="success rate p of the prompts",
            y="responses sampled / wanted",
        )
        ax.set(xlim=(0, 1), yscale="log", ylim=(0.85, 12))
        ax.set_yticks((1, 2, 5, 10), ("1", "2", "5", "10"))
        ax.set_yticks((), minor=True)
        (self.at,) = ax.plot([], [], color="black", linestyle="-.", linewidth=1.5, label="the prompts' success rate")
        (self.price,) = ax.plot([], [], color=GREY, linewidth=LINE, label="every dead group replaced, expected")
        (self.simulated,) = ax.plot(
            [], [], color=BLUE, linestyle="none", marker="o", markersize=8, label="the first algorithm, simulated"
        )
        return [self.price, self.at, self.simulated]

    def _draw_batches(self, ax: Axes, steps: int) -> list[Artist]:
        dress(ax, title=f"What the batch holds, {steps} simulated steps", x="share of the batch's places", y="")
        ax.set(xlim=(-0.85, 1.22), ylim=(1, -0.1), xticks=(0, 0.25, 0.5, 0.75, 1), yticks=())
        ax.xaxis.set_label_coords((0.85 + 0.5) / (0.85 + 1.22), -0.12)
        ax.spines["left"].set_visible(False)
        ax.spines["bottom"].set_bounds(0, 1)
        self.bars: dict[str, PolyCollection] = {}
        for kind, looks in KINDS.items():
            self.bars[kind] = PolyCollection([], linewidth=1.5, **looks)
            ax.add_collection(self.bars[kind], autolim=False)
        (self.expected,) = ax.plot([], [], color="black", linestyle=":", linewidth=2.5, label="informative, expected")
        ax.text(1.03, -0.04, "sampled", fontsize=TEXT - 1, va="center", style="italic")
        self.names = [
            ax.text(-0.03, 0, "", fontsize=TEXT - 1, va="center", ha="right", in_layout=False) for _ in range(ROWS)
        ]
        self.names[0].set_fontweight("bold")
        self.prices = Marks(ax, size=TEXT - 1)
        return [*self.bars.values(), self.expected, self.prices]

    def show(self, curve: SamplingCurve) -> None:
        self.price.set_data(curve.rates, curve.price)
        self.at.set_data([curve.success_rate] * 2, [0.85, 12])
        self.simulated.set_data(curve.points, curve.simulated)
        self.expected.set_data([curve.informative] * 2, [0, 1])
        rows = len(curve.batches)
        heights = (np.arange(rows) + 0.5) / rows
        starts = np.zeros(rows)
        for kind, bars in self.bars.items():
            ends = starts + [getattr(batch, kind) for batch in curve.batches]
            bars.set_verts(
                [
                    [(a, y - HALF / rows), (b, y - HALF / rows), (b, y + HALF / rows), (a, y + HALF / rows)]
                    for a, b, y in zip(starts, ends, heights, strict=True)
                    if b > a
                ]
            )
            starts = ends
        wanted = curve.num_prompts * curve.group_size
        for name in self.names[rows:]:
            name.set_text("")
        for name, batch, y in zip(self.names, curve.batches, heights, strict=False):
            name.set_text(f"{batch.name}\n{batch.rules}")
            name.set_y(y)
        prices = [f"{batch.sampled * wanted:,.0f}" for batch in curve.batches]
        self.prices.write([(price, 1.03, y) for price, y in zip(prices, heights, strict=True)], sides=["left"] * rows)

    def still(self, curve: SamplingCurve) -> Hashable:
        return tuple((batch.name, batch.rules) for batch in curve.batches)

    def handles(self, curve: SamplingCurve) -> list[Handle]:
        left, right = self.figure.axes
        return [
            Handle(left, "x", curve.success_rate, "success_rate"),
            Handle(right, "x", curve.informative, "group_size", curve.size_at),
        ]

    def conclusion(self, curve: SamplingCurve) -> str:
        first, wanted = curve.batches[0], curve.num_prompts * curve.group_size
        teach = first.fresh + first.repeated + first.remembered
        return (
            f"{curve.informative:.0%} of groups have right and wrong responses: {first.name} samples "
            f"{first.sampled * wanted:,.0f} responses for a batch of {wanted:,}, of whose places {teach:.0%} have a gradient."
        )

    def words(self, curve: SamplingCurve) -> str:
        first, *others = curve.batches
        wanted = curve.num_prompts * curve.group_size
        prompts = f"prompts of success rate {curve.hard:.2f}"
        if curve.easy != curve.hard:
            prompts = f"prompts half of success rate {curve.hard:.2f}, half of {curve.easy:.2f}"
        said = [
            f"{first.name} at G = {curve.group_size}, {prompts}, in {curve.steps} simulated steps, each for "
            f"{curve.num_prompts} groups: of the batch's places {_say_batch(first)}.",
            f"Replacing all-equal groups, up to {curve.max_rounds * curve.num_prompts} groups in all, is expected to take "
            f"{curve.replaced * wanted:,.0f} responses, {curve.replaced:.2f} times as many, and to fill {curve.filled:.0%} of "
            "the places.",
            "In the same steps " + "; ".join(f"{other.name}: {_say_batch(other)}" for other in others) + ".",
        ]
        return " ".join(said)


def _say_batch(batch: BatchShares) -> str:
    memory = "all equal with a gradient from memory"
    if batch.remembered_size is not None and batch.fresh_size is not None:
        memory += f" (mean |A| {batch.remembered_size:.2f} against {batch.fresh_size:.2f})"
    parts = (
        (batch.fresh, "informative"),
        (batch.repeated, "repeats"),
        (batch.remembered, memory),
        (batch.dead, "without gradient"),
        (1 - batch.fresh - batch.repeated - batch.remembered - batch.dead, "empty"),
    )
    return ", ".join(f"{share:.0%} {what}" for share, what in parts if share >= 0.005)


explore_sampling = explorer(
    "sampling",
    sampling_curve,
    SamplingPicture,
    algorithms=Algorithms(fits=learns_from_a_group),
    controls={
        "success_rate": Slider(0.02, 0.98, 0.01, "success rate p"),
        "spread": Slider(0.0, 1.0, 0.05, "spread of p"),
        "group_size": WholeSlider(2, MOST_RESPONSES, "group size G"),
        "num_prompts": WholeSlider(4, MOST_PROMPTS, "groups wanted P", rare=True),
        "max_rounds": WholeSlider(1, MOST_ROUNDS, "rounds at most", rare=True),
        "visits": WholeSlider(1, 10, "visit of the prompt", rare=True),
    },
    grid={
        "algorithm": (DAPO, GRPO, DCPO),
        "group_size": (4, 8, 16),
        "spread": (0.0, 0.8),
        "success_rate": (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95),
    },
    twin={
        "success rate 0.5, nearly every group differs inside": {"success_rate": 0.5},
        "success rate 0.9": {},
        "0.9 on average, half of the prompts nearly solved": {"spread": 0.8},
    },
)
