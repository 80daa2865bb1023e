"""Lite PPO, from "Tricks or traps?" (arXiv 2508.08221): two tricks on a critic-free PPO, and no more.

J = 1/Σ|o_i| Σ_i Σ_t min(r A, clip(r, 1 − ε, 1 + ε) A),   A_i = (R_i − mean of its group) / std of the whole batch
"""

from __future__ import annotations

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.aggregation import token_mean
from rlviz.pieces.bounds import FixedBounds
from rlviz.pieces.ratios import token_ratio
from rlviz.pieces.selection import keep_all
from rlviz.pieces.surrogate import pessimistic

LITE_PPO = GroupPolicyGradient(
    name="Lite PPO",
    source="arXiv 2508.08221",
    ratio=token_ratio,
    bounds=FixedBounds(eps_low=0.2, eps_high=0.2),
    surrogate=pessimistic,
    advantage=GroupAdvantage(scale="batch_std"),
    kl=None,
    aggregate=token_mean,
    shape=None,
    select=keep_all,
    from_grpo={
        "advantage": "(R − mean of group) / std of batch: with the batch's scale no prompt is lifted by a small std of its own.",
        "kl": "–: two tricks are claimed to be enough, and a KL term is neither of them.",
        "aggregate": "token mean: every token weighs the same, however long its answer.",
    },
)
