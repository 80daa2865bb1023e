"""DUPO: Duplicating Sampling Policy Optimization, from WebSailor (arXiv 2507.02592).

    J = 1/Σ|o_i| Σ_i Σ_t min(r A, clip(r, 1 − ε_low, 1 + ε_high) A),   A_i = (R_i − mean) / std of its group

Before training, WebSailor filters out prompts that all of 8 rollouts answer. ByteDance's DuPO (arXiv 2508.14460), dual
preference optimisation, is another thing of nearly the same name.
"""

from __future__ import annotations

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.aggregation import token_mean
from rlviz.pieces.bounds import FixedBounds
from rlviz.pieces.ratios import token_ratio
from rlviz.pieces.selection import duplicate_informative
from rlviz.pieces.shaping import WeightedRules
from rlviz.pieces.surrogate import pessimistic

DUPO = GroupPolicyGradient(
    name="DUPO",
    source="arXiv 2507.02592",
    ratio=token_ratio,
    bounds=FixedBounds(eps_low=0.2, eps_high=0.28),
    surrogate=pessimistic,
    advantage=GroupAdvantage(scale="group_std"),
    kl=None,
    aggregate=token_mean,
    shape=WeightedRules(answer=0.9, format=0.1),
    select=duplicate_informative,
    from_grpo={
        "bounds": "1 − 0.2 … 1 + 0.28: clip-higher, as in DAPO: a rare good token gets more room to grow in one rollout.",
        "kl": "–: as in DAPO, an agent that learns new behaviour has to leave the reference policy behind.",
        "aggregate": "token mean: every token that the policy wrote weighs the same; what a tool wrote is masked out.",
        "shape": "0.9 answer + 0.1 format: an agent's trajectory must be readable, and mostly right.",
        "select": "duplicate informative: fills the places of dead groups without a further rollout, which a tool makes slow.",
    },
)
