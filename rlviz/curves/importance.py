"""What old samples can say about a new policy."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rlviz.curves.arrays import Array
from rlviz.pieces.ratios import token_ratio
from rlviz.pieces.surrogate import unclipped
from small_models.checks import check_at_least, checked


@dataclass(frozen=True)
class ImportanceCurve:
    """Old samples judging a new policy: two actions, of which the good one earns 1 and the other 0.

    new_prob: the good action's probability under the new policy, which is also the reward to expect, exactly. mean, low,
    high: the estimate from `samples` responses of the old policy over many batches, low and high the 10th and 90th
    percentile. effective: the effective sample size, samples / mean of r², a rule of thumb for how many equal weights the
    unequal ones are worth, whatever the reward.
    old_prob: the good action's probability when sampling.
    """

    new_prob: Array
    mean: Array
    low: Array
    high: Array
    effective: Array
    old_prob: float
    samples: int


@checked
def importance_curve(
    *, old_prob: float = 0.1, samples: int = 16, batches: int = 2000, points: int = 49, seed: int = 0
) -> ImportanceCurve:
    """Return how well the mean of ratio · reward over old samples estimates what a new policy would earn.

    Raises ValueError for an old_prob outside (0, 1) or samples < 1.
    """
    if not 0 < old_prob < 1:
        raise ValueError(f"old_prob must be above 0 and below 1; got {old_prob}")
    check_at_least(1, samples=samples, batches=batches)
    check_at_least(2, points=points)
    generator = torch.Generator().manual_seed(seed)
    draws = torch.rand((batches, samples, 1), generator=generator, dtype=torch.double)
    rewards = (draws < old_prob).double()
    old_logp = torch.where(rewards > 0, old_prob, 1.0 - old_prob).double().log()
    everything = torch.ones_like(rewards, dtype=torch.bool)
    new_probs = torch.linspace(0.02, 0.98, points, dtype=torch.double)
    estimates, effective = [], []
    for prob in new_probs:
        logp = torch.where(rewards > 0, prob, 1 - prob).log()
        ratio = token_ratio(logp, old_logp, everything)
        estimates.append(unclipped(ratio, rewards, rewards, rewards).mean((1, 2)))
        effective.append(samples / ratio.square().mean())
    every = torch.stack(estimates)
    low, high = torch.quantile(every, torch.tensor([0.1, 0.9], dtype=torch.double), dim=1)
    return ImportanceCurve(
        new_prob=new_probs.numpy(),
        mean=every.mean(1).numpy(),
        low=low.numpy(),
        high=high.numpy(),
        effective=torch.stack(effective).numpy(),
        old_prob=old_prob,
        samples=samples,
    )
