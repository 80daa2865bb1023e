"""GRPO: Group Relative Policy Optimization (DeepSeekMath, arXiv 2402.03300).

    J = 1/B Σ_i 1/|o_i| Σ_t [ min(r A, clip(r, 1 − ε, 1 + ε) A) − β k3 ],   A_i = (R_i − mean) / std of its group

Against PPO: 1 no critic, the group's mean is the baseline · 2 the advantage is one number a response · 3 the KL to the
reference policy stands in the loss, estimated by k3, not in the reward · 4 the mean is over responses of their own means.
GRPO (process) (§4.1.3) is its process supervision, for rewards of single steps.
"""

from __future__ import annotations

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.pieces.advantages import GroupAdvantage, ProcessAdvantage
from rlviz.pieces.aggregation import sequence_mean
from rlviz.pieces.bounds import FixedBounds
from rlviz.pieces.kl import KLInLoss, k3
from rlviz.pieces.ratios import token_ratio
from rlviz.pieces.selection import keep_all
from rlviz.pieces.surrogate import pessimistic

GRPO = GroupPolicyGradient(
    name="GRPO",
    source="arXiv 2402.03300",
    ratio=token_ratio,
    bounds=FixedBounds(eps_low=0.2, eps_high=0.2),
    surrogate=pessimistic,
    advantage=GroupAdvantage(scale="group_std"),
    kl=KLInLoss(beta=0.04, estimator=k3),
    aggregate=sequence_mean,
    shape=None,
    select=keep_all,
)

GRPO_PROCESS = GroupPolicyGradient(
    name="GRPO (process)",
    source="arXiv 2402.03300 §4.1.3",
    ratio=token_ratio,
    bounds=FixedBounds(eps_low=0.2, eps_high=0.2),
    surrogate=pessimistic,
    advantage=ProcessAdvantage(combine="sum"),
    kl=KLInLoss(beta=0.04, estimator=k3),
    aggregate=sequence_mean,
    shape=None,
    select=keep_all,
    from_grpo={
        "advantage": (
            "sum over steps to come of (r − mean) / std of group: each step is judged by its own reward, not by the answer's."
        ),
    },
)
