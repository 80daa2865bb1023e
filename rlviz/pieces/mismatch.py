"""Corrections where another policy sampled than the one that is trained: weights w = π_old / π_sampler on the advantage.

π_old is the trainer's policy before the updates, whose log-probabilities are old_logp; sampler_logp are those with which the
tokens were drawn, by an engine of another precision, or with older weights. As w ≥ 0, and every surrogate here scales with A,
J(ratio, w · A) = w · J(ratio, A): w weights the whole objective when it multiplies A.
It carries no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from rlviz.pieces.advantages import GroupAdvantage, LeaveOneOut, MeanScaled
from rlviz.pieces.ratios import token_ratio
from rlviz.pieces.words import explained, label
from rlviz.ranges import Checked, within
from rlviz.types import Mask, Responses, Tokens

Weight = Callable[[Tensor, Tensor, Tensor], Tensor]
Unweighted = GroupAdvantage | LeaveOneOut | MeanScaled


@explained(
    why="the exact weight of a whole response; it is unbiased, and its variance grows with the length.",
    formula="exp(sum(old_logp − sampler_logp))",
)
def sequence_weight(old_logp: Tokens, sampler_logp: Tokens, mask: Mask) -> Tokens:
    """Return the weight of a response on each of its tokens, and 1 on padding; GSPO takes a root of it.

    A weight that its type cannot hold is infinite.
    """
    log_weight = (old_logp - sampler_logp).masked_fill(~mask, 0.0).sum(-1, keepdim=True)
    return log_weight.exp().expand_as(old_logp).masked_fill(~mask, 1.0)


def capped_weight(
    old_logp: Tokens, sampler_logp: Tokens, mask: Mask, cap: float | Tensor = 2.0, ratio: Weight = token_ratio
) -> Tokens:
    """Return min(w, cap), w = ratio(old_logp, sampler_logp, mask); see `TruncatedWeight`."""
    return ratio(old_logp, sampler_logp, mask).clamp(max=cap)


@explained(
    why="a token that the trainer finds likelier than the sampler did counts more, but never more than cap times.",
    formula="advantage(rewards) · min(ratio(old_logp, sampler_logp, mask), cap)",
)
@dataclass(frozen=True)
class TruncatedWeight(Checked):
    """A times the capped weight of each token (ratio is `token_ratio`), or of each response (`sequence_weight`).

    advantage: what A is before. Raises ValueError unless cap > 0.
    Source: TIS, truncated importance sampling (Ionides 2008, doi 10.1198/106186008X320456), for two engines in
    https://fengyao.notion.site/off-policy-rl; cap 2 is verl's, TRL takes 3.
    """

    cap: float = within(2.0, above=0, finite=True)
    ratio: Weight = token_ratio
    advantage: Unweighted = field(default_factory=GroupAdvantage)
    min_group_size: ClassVar[int] = 2

    def __str__(self) -> str:
        return f"({self.advantage}) · min(w, {self.cap:g}), w = {label(self.ratio)}"

    def __call__(self, rewards: Responses, mask: Mask, old_logp: Tokens, sampler_logp: Tokens) -> Tokens:
        weight = capped_weight(old_logp, sampler_logp, mask, self.cap, self.ratio)
        return self.advantage(rewards).unsqueeze(-1) * weight


@explained(
    why="a token on which the two engines disagree too much, either way, is left out.",
    formula="advantage(rewards) · (w if lowest <= w <= highest else 0); w = ratio(old_logp, sampler_logp, mask)",
)
@dataclass(frozen=True)
class MaskedWeight(Checked):
    """A times a weight as in `TruncatedWeight`, where that lies between two limits, else 0.

    advantage: what A is before. Raises ValueError unless 0 ≤ lowest ≤ 1 ≤ highest.
    Source: IcePop (arXiv 2510.18855), lowest 0.5 and highest 5.
    """

    lowest: float = 0.5
    highest: float = 5.0
    ratio: Weight = token_ratio
    advantage: Unweighted = field(default_factory=GroupAdvantage)
    min_group_size: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.lowest <= 1 <= self.highest < math.inf:
            raise ValueError(
                f"lowest and highest must be finite, with 0 ≤ lowest ≤ 1 ≤ highest; got {self.lowest} and {self.highest}"
            )

    def __str__(self) -> str:
        return f"({self.advantage}) · w in {self.lowest:g} … {self.highest:g}, else 0, w = {label(self.ratio)}"

    def __call__(self, rewards: Responses, mask: Mask, old_logp: Tokens, sampler_logp: Tokens) -> Tokens:
        weight = self.ratio(old_logp, sampler_logp, mask)
        inside = (weight >= self.lowest) & (weight <= self.highest)
        return self.advantage(rewards).unsqueeze(-1) * torch.where(inside, weight, 0.0)


@explained(
    why="the weight corrects for who sampled, and the ratio, to the policy before the updates, is left to hold it near.",
    formula="advantage(rewards) · ratio(old_logp, sampler_logp, mask)",
)
@dataclass(frozen=True)
class FullWeight(Checked):
    """A times a weight w as in `TruncatedWeight`, however large.

    advantage: what A is before. With the clipped surrogate it is decoupled PPO: w · min(r A, clip(r) A), r = π / π_prox and
    w = π_prox / π_behaviour, the proximal policy being π_old, the trainer's before its updates.
    Source: decoupled PPO (arXiv 2110.00641), for asynchronous training AReaL (2505.24298).
    """

    ratio: Weight = token_ratio
    advantage: Unweighted = field(default_factory=GroupAdvantage)
    min_group_size: ClassVar[int] = 2

    def __str__(self) -> str:
        return f"({self.advantage}) · w = {label(self.ratio)}"

    def __call__(self, rewards: Responses, mask: Mask, old_logp: Tokens, sampler_logp: Tokens) -> Tokens:
        return self.advantage(rewards).unsqueeze(-1) * self.ratio(old_logp, sampler_logp, mask)
