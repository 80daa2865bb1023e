"""What a response's luck in its group does to its advantage: distribution, groups without any, error against group size."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.curves.arrays import Array, array
from rlviz.curves.groups import SEED, coins, group_advantages, noise, share_all_equal, without_kl
from rlviz.pieces.advantages import LeaveOneOut
from rlviz.pieces.words import label
from small_models.checks import checked

RULES, REWARDS = ("own", "leave_one_out"), ("outcome", "score")
NOISE = 0.25  # standard deviation of a score around 0 or 1
GROUPS, FEWER = 1000, 256  # simulated at the setting; at each other point of a line
LARGE = 20_000  # responses of a very large group
POINTS = (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95)
SIZES = (2, 4, 8, 16, 32, 64)
BINS = 41  # odd: 0 is the middle of one
REACHES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)  # of the bins, whichever holds every advantage


@dataclass(frozen=True)
class AdvantagesCurve:
    """Advantages in simulated groups of one success rate p.

    name, rule: of the algorithm and its advantage. success_rate, group_size, visits, scores: the setting. remembers: whether
    the advantage asks for earlier visits. whole_batch: whether it depends on the other groups of the batch.
    edges [BINS + 1]: of the bins, in units of advantage. right, wrong, dead [BINS]: share of all responses in each bin: right
    and wrong ones, and those of dead groups, whose advantages are all 0. mean_right, mean_wrong: mean advantage of right and of
    wrong responses; equal_size: mean |A| in groups all right or all wrong; each None where there is no such response.
    rates [N], equal_share [N]: p and p^G + (1 − p)^G. points [M], dead_share [M]: success rates, and the share of groups that
    are dead when simulated there. equal_at, dead_at: both at success_rate.
    sizes [K]: group sizes. mean_error [K]: standard error of a group's mean reward. advantage_error [K]: root mean square
    distance of right responses' advantages from those they have in a very large group, which is `limit` for a reward of 1.
    mean_error_at, advantage_error_at: both at group_size. All means and errors count dead groups, too. groups: how many were
    simulated at the setting.
    """

    name: str
    rule: str
    success_rate: float
    group_size: int
    visits: int
    scores: bool
    remembers: bool
    whole_batch: bool
    edges: Array
    right: Array
    wrong: Array
    dead: Array
    mean_right: float | None
    mean_wrong: float | None
    equal_size: float | None
    rates: Array
    equal_share: Array
    points: Array
    dead_share: Array
    equal_at: float
    dead_at: float
    sizes: Array
    mean_error: Array
    advantage_error: Array
    mean_error_at: float
    advantage_error_at: float
    limit: float
    groups: int


@dataclass(frozen=True)
class _Groups:
    """How groups are simulated: an algorithm on its prompts' visit number `visits`, with outcomes or scores as rewards."""

    algorithm: GroupPolicyGradient
    visits: int
    scores: bool

    def draw(self, success_rate: float, group_size: int, groups: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return which responses are right, their rewards, their advantages; all [groups, group_size]."""
        visits = self.visits if self.algorithm.asks_for("advantage", "history") else 1
        part = (slice(visits), slice(None), slice(group_size))
        right = coins(groups)[part] < success_rate
        rewards = right.double() + NOISE * noise(groups)[part] if self.scores else right.double()
        now, *earlier = rewards
        return right[0], now, group_advantages(self.algorithm, now, earlier)

    def dead_share(self, success_rate: float, group_size: int) -> float:
        """Return the share of simulated groups whose advantages are all 0."""
        return float(_dead(self.draw(success_rate, group_size, FEWER)[2]).double().mean())

    def in_a_very_large_group(self, success_rate: float) -> tuple[Array, Array]:
        """Return rewards in rising order and the advantages that they have in a group of `LARGE` with exactly that rate."""
        right = torch.arange(LARGE) >= round((1 - success_rate) * LARGE)
        rewards = right.double().unsqueeze(0)
        if self.scores:
            generator = torch.Generator().manual_seed(SEED)
            rewards = rewards + NOISE * torch.randn(1, LARGE, generator=generator, dtype=torch.double)
        rewards = rewards.sort(1).values
        return array(rewards), array(group_advantages(self.algorithm, rewards, [rewards] * (self.visits - 1)))


def _error(right: Tensor, rewards: Tensor, advantages: Tensor, large: tuple[Array, Array]) -> float:
    """Return the root mean square distance of right responses' advantages from those in a very large group."""
    off = array(advantages[right]) - np.interp(array(rewards[right]), *large)
    return float(np.sqrt(np.mean(off**2)))


def _dead(advantages: Tensor) -> Tensor:
    return ~advantages.any(1)


def _mean(values: Tensor) -> float | None:
    return float(values.mean()) if values.numel() else None


@checked
def advantages_curve(
    algorithm: GroupPolicyGradient,
    *,
    success_rate: float = 0.8,
    group_size: int = 8,
    rewards: str = "outcome",
    visits: int = 1,
    rule: str = "own",
) -> AdvantagesCurve:
    """Return the advantages of simulated groups, all of prompts with one success rate and in one batch.

    rewards: "outcome", 1 or 0 for right or wrong; "score", the same plus normal noise, as of a reward model. visits: which
    visit of its prompt a group is; only an advantage that asks for the history knows of those before. rule: "own", the
    algorithm's, or "leave_one_out" in its place. Shaping, selection and KL are left out.
    Raises ValueError for a value out of range, and what the algorithm's advantage raises.
    """
    algorithm = without_kl(algorithm, success_rate=success_rate, group_size=group_size, visits=visits)
    for name, value, allowed in (("rewards", rewards, REWARDS), ("rule", rule, RULES)):
        if value not in allowed:
            raise ValueError(f"{name} must be {' or '.join(allowed)}; got {value!r}")
    if rule == "leave_one_out":
        algorithm = replace(algorithm, advantage=LeaveOneOut())
    scores = rewards == "score"
    groups = _Groups(algorithm, visits, scores)

    right, drawn, advantages = groups.draw(success_rate, group_size, GROUPS)
    dead = _dead(advantages).unsqueeze(1).expand_as(right)
    kinds = (right & ~dead, ~right & ~dead, dead)
    largest = float(advantages.abs().max())
    reach = next((r for r in REACHES if r > largest), 2.0 ** np.ceil(np.log2(max(largest, 1.0))))
    bins = [np.histogram(array(advantages[kind]), BINS, (-reach, reach))[0] / advantages.numel() for kind in kinds]
    alone, together = (group_advantages(algorithm, part)[: GROUPS // 2] for part in (drawn[: GROUPS // 2], drawn))

    rates = np.linspace(0, 1, 201)
    sizes = np.array(sorted({*SIZES, group_size}))
    large = groups.in_a_very_large_group(success_rate)
    at_sizes = [
        (right, drawn, advantages) if size == group_size else groups.draw(success_rate, int(size), FEWER)
        for size in sizes
    ]
    errors = np.array([_error(*at_size, large) for at_size in at_sizes])
    mean_error = np.sqrt((success_rate * (1 - success_rate) + scores * NOISE**2) / sizes)
    here = sizes == group_size
    return AdvantagesCurve(
        name=algorithm.name,
        rule=label(algorithm.advantage),
        success_rate=success_rate,
        group_size=group_size,
        visits=visits,
        scores=scores,
        remembers=algorithm.asks_for("advantage", "history"),
        whole_batch=not torch.allclose(alone, together),
        edges=np.linspace(-reach, reach, BINS + 1),
        right=bins[0],
        wrong=bins[1],
        dead=bins[2],
        mean_right=_mean(advantages[right]),
        mean_wrong=_mean(advantages[~right]),
        equal_size=_mean(advantages[right.all(1) | ~right.any(1)].abs()),
        rates=rates,
        equal_share=share_all_equal(rates, group_size),
        points=np.array(POINTS),
        dead_share=np.array([groups.dead_share(p, group_size) for p in POINTS]),
        equal_at=share_all_equal(success_rate, group_size),
        dead_at=float(_dead(advantages).double().mean()),
        sizes=sizes,
        mean_error=mean_error,
        advantage_error=errors,
        mean_error_at=float(mean_error[here][0]),
        advantage_error_at=float(errors[here][0]),
        limit=float(np.interp(1.0, *large)),
        groups=GROUPS,
    )
