"""Dr.GRPO: GRPO done right (arXiv 2503.20783).

    J = 1/(B L) Σ_i Σ_t min(r A, clip(r, 1 − ε, 1 + ε) A),   A_i = R_i − mean of its group,   L a fixed maximum length

L is the longest response that may be sampled, thousands of tokens in the paper; 16 here, for answers of ten. Under Adam
its size matters little, under plain gradient descent it scales the learning rate.
"""

from __future__ import annotations

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.aggregation import Constant
from rlviz.pieces.bounds import FixedBounds
from rlviz.pieces.ratios import token_ratio
from rlviz.pieces.selection import keep_all
from rlviz.pieces.surrogate import pessimistic

DR_GRPO = GroupPolicyGradient(
    name="Dr.GRPO",
    source="arXiv 2503.20783",
    ratio=token_ratio,
    bounds=FixedBounds(eps_low=0.2, eps_high=0.2),
    surrogate=pessimistic,
    advantage=GroupAdvantage(scale="none"),
    kl=None,
    aggregate=Constant(max_length=16),
    shape=None,
    select=keep_all,
    from_grpo={
        "advantage": "R − mean of group: dividing by the group's std would lift very easy and very hard prompts over the others.",
        "kl": "–: with rewards from rules there is nothing that the reference policy has to be kept for.",
        "aggregate": "constant 1/16: under 1/|o_i| a token of a long wrong answer is punished less, so wrong answers would grow.",
    },
)
