"""PPO: Proximal Policy Optimization (arXiv 1707.06347), with the four models of InstructGPT (2203.02155).

    J = 1/Σ|o_i| Σ_i Σ_t min(r A, clip(r, 1 − ε, 1 + ε) A),   A from GAE;   minimise −J + c_v L_value − c_H H

PPO-Penalty (§4): J = 1/Σ|o_i| Σ_i Σ_t [ r A − β KL(π_old‖π_θ) ];   after each update β / 2 if KL < d / 1.5, 2 β if KL > 1.5 d

Both also have a critic with a clipped value loss (c_v = 0.5) and, at will, an entropy bonus (c_H = 0 to 0.01).
PPO-Penalty needs no reference model: its KL is to the policy that sampled.
"""

from __future__ import annotations

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.pieces.aggregation import token_mean
from rlviz.pieces.bounds import FixedBounds, no_bounds
from rlviz.pieces.gae import GAE
from rlviz.pieces.kl import AdaptivePenalty, KLInReward, KLToOld, k1, k3
from rlviz.pieces.ratios import token_ratio
from rlviz.pieces.selection import keep_all
from rlviz.pieces.surrogate import pessimistic, unclipped
from rlviz.pieces.values import ClippedValueLoss

PPO = ActorCritic(
    name="PPO",
    source="arXiv 1707.06347, 2203.02155",
    ratio=token_ratio,
    bounds=FixedBounds(eps_low=0.2, eps_high=0.2),
    surrogate=pessimistic,
    advantage=GAE(gamma=1.0, lam=0.95, whiten=True),
    kl=KLInReward(beta=0.02, estimator=k1),
    aggregate=token_mean,
    shape=None,
    select=keep_all,
    value_loss=ClippedValueLoss(eps_value=0.2),
    value_weight=0.5,
    entropy_weight=0.0,
    from_grpo={
        "advantage": "GAE(γ 1, λ 0.95), whitened: a critic judges every token, so one response a prompt is enough.",
        "kl": "0.02 · k1 to reference, in the reward: the leash is part of what the critic learns to predict.",
        "aggregate": "token mean: the plain mean over all tokens of the batch.",
    },
)

PPO_PENALTY = ActorCritic(
    name="PPO-Penalty",
    source="arXiv 1707.06347 §4",
    ratio=token_ratio,
    bounds=no_bounds,
    surrogate=unclipped,
    advantage=GAE(gamma=1.0, lam=0.95, whiten=True),
    kl=KLToOld(beta=0.01, estimator=k3),
    aggregate=token_mean,
    shape=None,
    select=keep_all,
    value_loss=ClippedValueLoss(eps_value=0.2),
    value_weight=0.5,
    entropy_weight=0.0,
    controller=AdaptivePenalty(target=0.02),
    from_grpo={
        "bounds": "no bounds: the ratio is not limited.",
        "surrogate": "unclipped: nothing is cut.",
        "advantage": "GAE(γ 1, λ 0.95), whitened: as in PPO.",
        "kl": "0.01 · k3 to old policy, in the loss: a penalty in place of the clip, its β adapted after each update.",
        "aggregate": "token mean: as in PPO.",
    },
)
