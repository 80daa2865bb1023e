"""One batch of real responses, frozen, and what our own values make of it: the same numbers with or without TRL and verl.

`chain`'s policy answered 8 prompts with 8 responses each; the new policy is that policy with weights moved by .01 · N(0,
1), so that a tenth of the tokens is clipped, and the reference is the policy before. values: of no critic, drawn once,
for PPO's GAE. A loss of entropies, too, has a gradient by them; by the weights, `by_weights` says what both come to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from rlviz.algorithms import ActorCritic, GroupPolicyGradient
from rlviz.types import Batch
from small_models.policies import Policy, load_policy
from small_models.sampling import Samples, response_logits, sample, token_logp
from small_models.tasks import Chain

HERE = Path(__file__).parent
P, G = 8, 8
BADLY_FORMED = "7 of 8 groups all right and badly formed"


@dataclass(frozen=True)
class Frozen:
    """Log-probabilities, mask, values [P, G, T]; correct, truncated [P, G]. bare: no response is well formed."""

    logp: Tensor
    old_logp: Tensor
    ref_logp: Tensor
    mask: Tensor
    values: Tensor
    correct: Tensor
    truncated: Tensor
    bare: bool = False

    @property
    def lengths(self) -> Tensor:
        return self.mask.sum(-1)

    @property
    def well_formed(self) -> Tensor:
        """A second kind of reward: 1 for responses of an even length."""
        return (self.lengths % 2 == 0).double() * (not self.bare)

    @property
    def sampler_logp(self) -> Tensor:
        """What a second engine, that sampled, would say, for weights of it: the reference's probabilities, which are near."""
        return self.ref_logp

    @property
    def entropy(self) -> Tensor:
        """Numbers in place of entropies: −log π_old. The gradient by them is the same whatever they are."""
        return -self.old_logp


def frozen(which: str = "") -> Frozen:
    """Return the batch, or the same responses with other rewards."""
    batch = Frozen(**load_file(HERE / "batch.safetensors"))
    if which == BADLY_FORMED:
        return replace(batch, correct=batch.correct.index_fill(0, torch.tensor([0, 1, 2, 3, 4, 6, 7]), 1.0), bare=True)
    return batch


def sampled(policy: Policy) -> Samples:
    """Return the batch's responses, which this policy gave before its weights were moved."""
    prompts = Chain().train_prompts[:P]
    return sample(
        policy,
        prompts,
        group_size=G,
        max_new_tokens=Chain().max_new_tokens,
        generator=torch.Generator().manual_seed(0),
    )


def move(policy: Policy) -> None:
    """Move the weights to those of the batch's new policy."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in policy.weights.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))


@cache
def _new_policy() -> tuple[list[Tensor], Tensor, Tensor]:
    """Return the new policy's weights, and of them log-probabilities and entropies of the batch's tokens, [P, G, T]."""
    policy = load_policy("chain", device="cpu")
    samples = sampled(policy)
    move(policy)
    policy.model.double()
    logits = response_logits(policy, **samples.model_inputs)
    logp, log_probs = token_logp(logits, samples.tokens), logits.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    return list(policy.weights.parameters()), logp, entropy


def by_weights(gradient: Tensor, entropy_gradient: Tensor) -> Tensor:
    """Return the gradient by the new policy's weights, all in one row, of those by log-probabilities and by entropies."""
    weights, logp, entropy = _new_policy()
    mask = frozen().mask
    slopes = [torch.where(mask, slope.double(), 0.0) for slope in (gradient, entropy_gradient)]
    gradients = torch.autograd.grad([logp, entropy], weights, slopes, retain_graph=True, allow_unused=True)
    return torch.cat([slope.flatten() for slope in gradients if slope is not None])


def shaped(algorithm: GroupPolicyGradient | ActorCritic, batch: Frozen) -> Tensor:
    rules = {"correct": batch.correct, "well_formed": batch.well_formed}
    return algorithm.shape_rewards(batch.correct, batch.lengths, truncated=batch.truncated, **rules)


def selected(algorithm: GroupPolicyGradient | ActorCritic, batch: Frozen) -> Tensor:
    return algorithm.select_groups(batch.correct, torch.Generator().manual_seed(0))


def ours(algorithm: GroupPolicyGradient | ActorCritic, batch: Frozen) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return our loss on the batch and its gradients by the new log-probabilities and by entropies, [P, G, T]."""
    rewards = shaped(algorithm, batch)
    if isinstance(algorithm, ActorCritic):
        token_rewards = algorithm.token_rewards(rewards, batch.mask, batch.old_logp, batch.ref_logp)
        advantages, _ = algorithm.advantages(token_rewards, batch.values, batch.mask)
    else:
        others = {"old_entropy": batch.entropy, "correct": batch.correct, "well_formed": batch.well_formed}
        logps = {"old_logp": batch.old_logp, "ref_logp": batch.ref_logp, "sampler_logp": batch.sampler_logp}
        advantages, _ = algorithm.advantages(rewards, batch.mask, **logps, **others)
    mask = algorithm.loss_mask(batch.mask, batch.truncated)
    leaf, chosen = batch.logp.clone().requires_grad_(), selected(algorithm, batch)
    entropy = batch.entropy.requires_grad_()
    out = algorithm.loss(
        leaf[chosen],
        Batch(
            batch.old_logp[chosen],
            advantages[chosen],
            mask[chosen],
            batch.ref_logp[chosen],
            entropy=entropy[chosen],
        ),
    )
    out.loss.backward()
    return out.loss.detach(), leaf.grad, entropy.grad


def compared(mine: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> dict[str, float]:
    """Return the difference of the losses, and of the gradients: length over ours, and cosine; with entropies by the weights."""
    (loss, gradient, entropy_gradient), (other, slope, other_entropy) = mine, theirs
    if entropy_gradient is not None and other_entropy is not None:
        gradient, slope = by_weights(gradient, entropy_gradient), by_weights(slope, other_entropy)
    gradient, slope = gradient.flatten().double(), slope.flatten().double()
    return {
        "loss": abs(float(loss) - float(other)),
        "gradient": float((gradient - slope).norm() / gradient.norm()),
        "cosine": float(torch.cosine_similarity(gradient, slope, 0)),
    }
