"""GSPO and GSPO-token: Group Sequence Policy Optimization (arXiv 2507.18071).

    J = 1/B Σ_i min(s A, clip(s, 1 − ε_low, 1 + ε_high) A),   s_i = (π_θ(o_i) / π_old(o_i))^(1/|o_i|)

GSPO-token (§4.3) has s_{i,t} = sg[s_i] · π_θ(t) / sg[π_θ(t)] in place of s_i, where sg stops the gradient, and an A that may
differ by token.

For answers of ten tokens widths of .01 to .03 suit: GSPO.with_parameters(eps_low=.02, eps_high=.02). With those of the paper
about half of their tokens are clipped at several updates a rollout, and they learn nevertheless.
"""

from __future__ import annotations

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.aggregation import sequence_mean
from rlviz.pieces.bounds import FixedBounds
from rlviz.pieces.ratios import sequence_ratio, sequence_token_ratio
from rlviz.pieces.selection import keep_all
from rlviz.pieces.surrogate import pessimistic

GSPO = GroupPolicyGradient(
    name="GSPO",
    source="arXiv 2507.18071",
    ratio=sequence_ratio,
    bounds=FixedBounds(eps_low=3e-4, eps_high=4e-4),
    surrogate=pessimistic,
    advantage=GroupAdvantage(scale="group_std"),
    kl=None,
    aggregate=sequence_mean,
    shape=None,
    select=keep_all,
    from_grpo={
        "ratio": "sequence ratio: the reward is given to the whole answer, so its ratio is what has to stay near 1.",
        "bounds": "1 − 0.0003 … 1 + 0.0004: a mean over thousands of tokens moves far less than one token's ratio.",
        "kl": "–: the paper's comparison runs without; add one where a reference is to be kept.",
    },
)

GSPO_TOKEN = GroupPolicyGradient(
    name="GSPO-token",
    source="arXiv 2507.18071 §4.3",
    ratio=sequence_token_ratio,
    bounds=FixedBounds(eps_low=3e-4, eps_high=4e-4),
    surrogate=pessimistic,
    advantage=GroupAdvantage(scale="group_std"),
    kl=None,
    aggregate=sequence_mean,
    shape=None,
    select=keep_all,
    from_grpo={
        "ratio": "sequence token ratio: the same value, but each token's gradient is its own, so tokens may have own advantages.",
        "bounds": "1 − 0.0003 … 1 + 0.0004: the value is GSPO's, so its widths are too.",
        "kl": "–: as in GSPO.",
    },
)
