"""What it costs to fill a batch with groups that teach something, and what then is in the batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rlviz.algorithms import DAPO, DCPO, DUPO, GRPO
from rlviz.algorithms.base import GroupPolicyGradient, label
from rlviz.curves.arrays import Array
from rlviz.curves.groups import coins, group_advantages, share_all_equal, without_kl
from rlviz.pieces.advantages import all_equal

REFERENCES = (GRPO, DAPO, DUPO, DCPO)  # a way each to deal with dead groups
POINTS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95)
MOST_PROMPTS, MOST_ROUNDS = 32, 10
GROUPS = 16 * MOST_PROMPTS * MOST_ROUNDS  # drawn in all
MOST_STEPS, AT_A_POINT = 32, 512  # simulated steps; groups at each point of the line


@dataclass(frozen=True)
class BatchShares:
    """What the places of an algorithm's batch hold, over simulated steps, as shares of P (or of a longer batch).

    name, rules: of the algorithm, its selection and its advantage. sampled: responses sampled ÷ P·G.
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

    rates [N], price [N]: mean success rate of the prompts, and responses sampled ÷ responses wanted when all-equal groups are
    replaced. points [M], simulated [M]: rates, and what the explored algorithm's selection takes there.
    success_rate, group_size, num_prompts, max_rounds, visits: the setting. easy, hard: success rates of the two halves of
    the prompts. informative: share of groups expected to have right and wrong responses.
    batches: of the explored algorithm first, then of the references that differ from it.
    """

    rates: Array
    price: Array
    points: Array
    simulated: Array
    success_rate: float
    group_size: int
    num_prompts: int
    max_rounds: int
    visits: int
    easy: float
    hard: float
    informative: float
    batches: tuple[BatchShares, ...]


def two_kinds(success_rate: float, spread: float) -> tuple[float, float]:
    """Return the success rates of harder and of easier prompts, half of the pool each, whose mean is `success_rate`.

    They lie success_rate ± spread · (the room to 0 or 1, whichever is nearer).
    """
    away = spread * min(success_rate, 1 - success_rate)
    return success_rate - away, success_rate + away


def informative_share(success_rate: float, spread: float, group_size: int) -> float:
    """1 − mean of p^G + (1 − p)^G over both kinds of prompts: the share of groups with right and wrong responses."""
    return 1 - sum(share_all_equal(p, group_size) for p in two_kinds(success_rate, spread)) / 2


def sampling_curve(
    algorithm: GroupPolicyGradient,
    *,
    success_rate: float = 0.9,
    spread: float = 0.0,
    group_size: int = 8,
    num_prompts: int = 16,
    max_rounds: int = 10,
    visits: int = 3,
) -> SamplingCurve:
    """Return what informative groups cost an algorithm, and what its batches hold beside those of others.

    An algorithm whose selection returns fewer than `num_prompts` groups samples further prompts until they are as many, or
    max_rounds · num_prompts were sampled, as DAPO's paper does; training in this project goes on with the fewer ones.
    spread: 0, all prompts are alike, to 1, half of them are as hard or as easy as the mean allows. visits: how often each
    prompt was sampled, this time included.
    Expected with replacement: P·G / informative responses, at most max_rounds · P·G.
    Raises ValueError for a value out of range, and what the algorithm's pieces raise.
    """
    algorithm = without_kl(algorithm, success_rate=success_rate, group_size=group_size, visits=visits)
    if not 0 <= spread <= 1:
        raise ValueError(f"spread must be from 0 to 1; got {spread}")
    for name, value, most in (("num_prompts", num_prompts, MOST_PROMPTS), ("max_rounds", max_rounds, MOST_ROUNDS)):
        if not 1 <= value <= most:
            raise ValueError(f"{name} must be from 1 to {most}; got {value}")
    rates = np.linspace(0.01, 0.99, 197)
    informative = np.array([informative_share(p, spread, group_size) for p in rates])
    pool = _Pool(two_kinds(success_rate, spread), group_size, visits)
    hard, easy = pool.rates
    others = [other for other in REFERENCES if _strategy(other) != _strategy(algorithm)]
    return SamplingCurve(
        rates=rates,
        price=1 / np.maximum(informative, 1 / max_rounds),
        points=np.array(POINTS),
        simulated=np.array([_price(algorithm, two_kinds(p, spread), group_size, max_rounds) for p in POINTS]),
        success_rate=success_rate,
        group_size=group_size,
        num_prompts=num_prompts,
        max_rounds=max_rounds,
        visits=visits,
        easy=easy,
        hard=hard,
        informative=informative_share(success_rate, spread, group_size),
        batches=tuple(_batches(each, pool, num_prompts, max_rounds) for each in (algorithm, *others)),
    )


def _strategy(algorithm: GroupPolicyGradient) -> tuple[object, object]:
    return algorithm.select, algorithm.advantage


@dataclass(frozen=True)
class _Pool:
    """Groups of prompts, harder and easier ones in turn."""

    rates: tuple[float, float]
    group_size: int
    visits: int = 1

    def outcomes(self, visit: int, groups: slice | Tensor) -> Tensor:
        """Return the rewards [groups, G], 1 or 0, of these groups on the visit with this number, from 1."""
        numbers = coins(GROUPS)[visit - 1, groups, : self.group_size]
        index = torch.arange(GROUPS)[groups]
        return (numbers < torch.where(index % 2 == 0, *self.rates).unsqueeze(1)).double()

    def advantages(self, algorithm: GroupPolicyGradient, groups: Tensor) -> Tensor:
        """Return the advantages of these groups on the latest visit."""
        earlier = self.visits - 1 if algorithm.asks_for("advantage", "history") else 0
        return group_advantages(
            algorithm, self.outcomes(self.visits, groups), [self.outcomes(v, groups) for v in range(1, earlier + 1)]
        )


def _price(algorithm: GroupPolicyGradient, rates: tuple[float, float], group_size: int, max_rounds: int) -> float:
    """Return how many groups the algorithm's selection takes in for one that it lets out, from 1 to max_rounds."""
    outcomes = _Pool(rates, group_size).outcomes(1, slice(AT_A_POINT))
    kept = len(algorithm.selected(outcomes, torch.Generator().manual_seed(0)))
    return min(max(AT_A_POINT / max(kept, 1), 1.0), float(max_rounds))


def _batches(algorithm: GroupPolicyGradient, pool: _Pool, num_prompts: int, max_rounds: int) -> BatchShares:
    generator = torch.Generator().manual_seed(0)
    budget = num_prompts * max_rounds
    starts = range(0, min(MOST_STEPS, GROUPS // budget) * budget, budget)
    outcomes = pool.outcomes(pool.visits, slice(len(starts) * budget))
    wanted, sampled, chosen = len(starts) * num_prompts, 0, []
    for start in starts:
        index = algorithm.selected(outcomes[start : start + num_prompts], generator)
        took = num_prompts
        if len(index) < num_prompts:
            index = algorithm.selected(outcomes[start : start + budget], generator)[:num_prompts]
            took = int(index[-1]) + 1 if len(index) == num_prompts else budget
        chosen.append(start + index)
        sampled += took
    groups = torch.cat(chosen)
    advantages = pool.advantages(algorithm, groups) if len(groups) else torch.zeros(0, pool.group_size)
    again = torch.ones(len(groups), dtype=torch.bool)
    again[np.unique(groups.numpy(), return_index=True)[1]] = False
    alive, equal = advantages.any(1), all_equal(outcomes[groups])
    fresh, remembered = alive & ~again & ~equal, alive & ~again & equal
    shares = [int(kind.sum()) / max(len(groups), wanted) for kind in (fresh, alive & again, remembered, ~alive)]
    memory = " + memory" if algorithm.asks_for("advantage", "history") else ""
    return BatchShares(
        name=algorithm.name,
        rules=f"{label(algorithm.select)}{memory}",
        sampled=sampled / wanted,
        fresh=shares[0],
        repeated=shares[1],
        remembered=shares[2],
        dead=shares[3],
        fresh_size=_size(advantages[fresh]),
        remembered_size=_size(advantages[remembered]),
    )


def _size(advantages: Tensor) -> float | None:
    return float(advantages.abs().mean()) if len(advantages) else None
