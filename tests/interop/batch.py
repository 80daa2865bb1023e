"""One batch of real responses, frozen, and what our own values make of it: the same numbers with or without TRL and verl.

`chain`'s policy answered 8 prompts with 8 responses each; the new policy is that policy with weights moved by .01 · N(0,
1), so that a tenth of the tokens is clipped, and the reference is the policy before. values: of no critic, drawn once,
for PPO's GAE.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from rlviz.algorithms import ActorCritic, GroupPolicyGradient
from rlviz.types import Batch

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Frozen:
    """Log-probabilities, mask, values [P, G, T]; correct, truncated [P, G]."""

    logp: Tensor
    old_logp: Tensor
    ref_logp: Tensor
    mask: Tensor
    values: Tensor
    correct: Tensor
    truncated: Tensor

    @property
    def lengths(self) -> Tensor:
        return self.mask.sum(-1)

    @property
    def well_formed(self) -> Tensor:
        """A second kind of reward: 1 for responses of an even length."""
        return (self.lengths % 2 == 0).double()

    @property
    def sampler_logp(self) -> Tensor:
        """What a second engine, that sampled, would say, for weights of it: the reference's probabilities, which are near."""
        return self.ref_logp

    @property
    def entropy(self) -> Tensor:
        """Numbers in place of entropies, whose gradient is not asked for: −log π_old."""
        return -self.old_logp


def frozen() -> Frozen:
    return Frozen(**load_file(HERE / "batch.safetensors"))


def shaped(algorithm: GroupPolicyGradient | ActorCritic, batch: Frozen) -> Tensor:
    rules = {"correct": batch.correct, "well_formed": batch.well_formed}
    return algorithm.shaped(batch.correct, batch.lengths, truncated=batch.truncated, **rules)


def selected(algorithm: GroupPolicyGradient | ActorCritic, batch: Frozen) -> Tensor:
    return algorithm.selected(batch.correct, torch.Generator().manual_seed(0))


def ours(algorithm: GroupPolicyGradient | ActorCritic, batch: Frozen) -> tuple[Tensor, Tensor]:
    """Return our loss on the batch and its gradient by the new log-probabilities, [P, G, T]."""
    rewards = shaped(algorithm, batch)
    if isinstance(algorithm, ActorCritic):
        token_rewards = algorithm.token_rewards(rewards, batch.mask, batch.old_logp, batch.ref_logp)
        advantages, _ = algorithm.advantages(token_rewards, batch.values, batch.mask)
    else:
        asked = {"old_entropy": batch.entropy, "correct": batch.correct, "well_formed": batch.well_formed}
        logps = {"old_logp": batch.old_logp, "ref_logp": batch.ref_logp, "sampler_logp": batch.sampler_logp}
        advantages, _ = algorithm.advantages(rewards, batch.mask, **logps, **asked)
    mask = algorithm.loss_mask(batch.mask, batch.truncated)
    leaf, chosen = batch.logp.clone().requires_grad_(), selected(algorithm, batch)
    out = algorithm.loss(
        leaf[chosen],
        Batch(
            batch.old_logp[chosen],
            advantages[chosen],
            mask[chosen],
            batch.ref_logp[chosen],
            entropy=batch.entropy[chosen],
        ),
    )
    out.loss.backward()
    return out.loss.detach(), leaf.grad


def compared(mine: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor]) -> dict[str, float]:
    """Return the difference of the losses, and of the gradients: length over ours, and cosine."""
    (loss, gradient), (other, slope) = mine, theirs
    gradient, slope = gradient.flatten().double(), slope.flatten().double()
    return {
        "loss": abs(float(loss) - float(other)),
        "gradient": float((gradient - slope).norm() / gradient.norm()),
        "cosine": float(torch.cosine_similarity(gradient, slope, 0)),
    }
