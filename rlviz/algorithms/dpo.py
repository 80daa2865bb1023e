"""DPO: Direct Preference Optimization (arXiv 2305.18290).

    loss = −log σ( β[(log π_θ(y_w) − log π_ref(y_w)) − (log π_θ(y_l) − log π_ref(y_l))] ),   mean over pairs (y_w, y_l)

Against GRPO: 1 no sampling: pairs of a chosen and a rejected response are given · 2 no reward: the policy's own
β log(π_θ/π_ref) is one, whose optimum under a KL leash is the policy itself · 3 none of the eight slots is in use.

DPO_LINEAR replaces −log σ(margin) by −margin: a constant gradient that never stops, for contrast.
"""

from __future__ import annotations

from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.pieces.preference import ImplicitReward, SigmoidPreference, linear_preference

DPO = PreferenceOptimization(
    name="DPO",
    source="arXiv 2305.18290",
    reward=ImplicitReward(beta=0.1),
    pair_loss=SigmoidPreference(),
)

DPO_LINEAR = PreferenceOptimization(
    name="DPO (linear)",
    source="arXiv 2305.18290",
    reward=ImplicitReward(beta=0.1),
    pair_loss=linear_preference,
)
