"""The critic's loss, the entropy of a distribution, and its change under a policy-gradient step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rlviz.pieces.words import explained
from rlviz.ranges import Checked, within
from rlviz.types import SameShape


@explained(
    why="the critic may not run away from the one that gave the advantages, as the policy may not from π_old.",
    formula=("max((values − returns)², (clip(values, old_values − eps_value, old_values + eps_value) − returns)²) / 2"),
)
@dataclass(frozen=True)
class ClippedValueLoss(Checked):
    """Half the larger of two squared errors, of V and of V held near V_old, per token.

    Raises ValueError unless eps_value > 0 (∞ switches the clip off).
    Source: PPO's reference implementation (arXiv 2005.12729 §3); verl and TRL alike.
    """

    eps_value: float = within(0.2, above=0)

    def __str__(self) -> str:
        return f"value loss, V within ±{self.eps_value:g} of V_old"

    def __call__(self, values: SameShape, old_values: SameShape, returns: SameShape) -> SameShape:
        near = torch.clamp(values, old_values - self.eps_value, old_values + self.eps_value)
        return torch.maximum((values - returns).square(), (near - returns).square()) / 2


def entropy(log_probs: Float[Tensor, "*n V"]) -> SameShape:
    """Return H = −Σ p log p over the last axis, in nats. A bonus adds coefficient · H to each token's objective.

    It is the entropy of the whole distribution, not −logp of the sampled token. A log-probability of −∞ adds nothing.
    """
    return -(log_probs.exp() * log_probs.clamp(min=torch.finfo(log_probs.dtype).min)).sum(-1)


def entropy_change(log_probs: Float[Tensor, "*n V"], rewards: Float[Tensor, "*n V"]) -> SameShape:
    """Return dH/dη = −Cov_π(log π, π A) over the last axis, in nats, with A = rewards − their mean under π.

    It is what the expected policy gradient, with learning rate η on a softmax's logits, does to the entropy, to first order.
    Log-probabilities have to be finite. Source: arXiv 2505.22617.
    """
    p = log_probs.exp()
    A = rewards - (p * rewards).sum(-1, keepdim=True)
    return -(p * (log_probs + entropy(log_probs).unsqueeze(-1)) * p * A).sum(-1)
