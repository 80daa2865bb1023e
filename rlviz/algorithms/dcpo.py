"""DCPO: Dynamic Clipping Policy Optimization (arXiv 2509.02333).

    J = Σ_i 1/|o_i| Σ_t min(r A, clip(r, lower(q), upper(q)) A), no less than 10 A for A < 0
    q = π_old of the token;   A mixes (R − mean) / std of this visit's group with that of all rewards its prompt ever earned

The widths and the cap are the paper's (appendix A.9); the authors' script sets 0.2/0.28, and their code takes a plain sum
over tokens in place of the aggregation. A sum over responses makes the gradient longer by their number, so that a limit on
its norm, such as `max_grad_norm` 1, shortens every update.
"""

from __future__ import annotations

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.pieces.advantages import SmoothStandardization
from rlviz.pieces.aggregation import sequence_sum
from rlviz.pieces.bounds import DynamicBounds
from rlviz.pieces.ratios import token_ratio
from rlviz.pieces.selection import keep_all
from rlviz.pieces.surrogate import DualClip

DCPO = GroupPolicyGradient(
    name="DCPO",
    source="arXiv 2509.02333",
    ratio=token_ratio,
    bounds=DynamicBounds(eps_low=0.16, eps_high=0.2, max_ratio=10.0),
    surrogate=DualClip(c=10.0),
    advantage=SmoothStandardization(ddof=0),
    kl=None,
    aggregate=sequence_sum,
    shape=None,
    select=keep_all,
    from_grpo={
        "bounds": (
            "dynamic 0.16/0.2, ratio ≤ 10: a rare token may multiply its probability, where a fixed width lets .01 move by "
            ".002."
        ),
        "surrogate": "dual clip 10: the ratio is capped at 10 for bad tokens too.",
        "advantage": "smooth standardization over visits: a group of equal rewards still learns from the prompt's past.",
        "kl": "–: the bounds alone hold the policy.",
        "aggregate": "sequence sum: advantages compare responses already, so they are not averaged over the batch once more.",
    },
)
