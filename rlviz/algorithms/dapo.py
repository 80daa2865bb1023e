"""DAPO: Decoupled clip and Dynamic sAmpling Policy Optimization (arXiv 2503.14476).

    J = 1/Σ|o_i| Σ_i Σ_t min(r A, clip(r, 1 − ε_low, 1 + ε_high) A),   A_i = (R_i − mean) / std of its group

The paper punishes from 16384 to 20480 tokens; here the lengths are scaled to answers of ten, the cache being a quarter.
Its rewards are 1 and −1, so on rewards of 1 and 0 this punishment, the same −1, weighs twice as much.
It does not say when to give up looking for informative groups; public implementations stop after ten rounds or so, as here.
Its token mean is over the group's tokens, then over prompts; here, as in every public implementation, over the batch.
The alternative to the punishment is `rlviz.pieces.shaping.OverlongFilter`.
"""

from __future__ import annotations

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.aggregation import token_mean
from rlviz.pieces.bounds import FixedBounds
from rlviz.pieces.ratios import token_ratio
from rlviz.pieces.selection import DynamicSampling
from rlviz.pieces.shaping import SoftOverlongPunishment
from rlviz.pieces.surrogate import pessimistic

DAPO = GroupPolicyGradient(
    name="DAPO",
    source="arXiv 2503.14476",
    ratio=token_ratio,
    bounds=FixedBounds(eps_low=0.2, eps_high=0.28),
    surrogate=pessimistic,
    advantage=GroupAdvantage(scale="group_std"),
    kl=None,
    aggregate=token_mean,
    shape=SoftOverlongPunishment(max_length=16, cache=4),
    select=DynamicSampling(max_rounds=10),
    from_grpo={
        "bounds": "1 − 0.2 … 1 + 0.28: clip-higher: a rare good token gets more room to grow in one rollout.",
        "kl": "–: a model that learns to reason has to leave the reference policy behind.",
        "aggregate": "token mean: every token weighs the same, so a long answer's pattern is not diluted.",
        "shape": "overlong punishment from 12 to 16 tokens: a smooth warning before an answer is cut off.",
        "select": "dynamic sampling, up to 10 × P: an all-equal group has no gradient; others are sampled in its place.",
    },
)
