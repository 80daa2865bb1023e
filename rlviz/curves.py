"""What the pictures show, as arrays: computed by the pieces and algorithms themselves, drawn elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlviz.algorithms.base import PolicyGradient
from rlviz.pieces.ratios import token_ratio
from rlviz.pieces.surrogate import is_clipped, unclipped
from rlviz.types import Batch

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ClipCurve:
    """The objective of one token against its ratio, for an advantage of one sign.

    ratio, objective, slope (∂objective/∂ratio), clipped: arrays over the grid of ratios. advantage: A. old_prob: the
    token's probability under the old policy. lower, upper: the limits on the ratio at that probability.
    """

    ratio: Array
    objective: Array
    slope: Array
    clipped: NDArray[np.bool_]
    advantage: float
    old_prob: float
    lower: float
    upper: float


def clip_curve(
    algorithm: PolicyGradient,
    *,
    advantage: float,
    old_prob: float = 0.6,
    max_ratio: float = 2.0,
    points: int = 401,
) -> ClipCurve:
    """Return a token's objective and slope for ratios up to `max_ratio`, through the algorithm's own pieces.

    The slope is autograd's, taken through ratio, bounds and surrogate to the new log-probability: ∂J/∂r = (∂J/∂logp) / r.
    Raises ValueError for an old_prob outside (0, 1] or a max_ratio ≤ 0.
    """
    if not 0 < old_prob <= 1:
        raise ValueError(f"old_prob must be above 0 and at most 1; got {old_prob}")
    if max_ratio <= 0:
        raise ValueError(f"max_ratio must be above 0; got {max_ratio}")
    shape = (points - 1, 1, 1)  # one response of one token for each ratio: a sequence ratio is the token's own
    grid = torch.linspace(0, max_ratio, points, dtype=torch.double)[1:].reshape(shape)
    old_logp = torch.full(shape, old_prob, dtype=torch.double).log()
    logp = (old_logp + grid.log()).requires_grad_()
    advantages = torch.full(shape, advantage, dtype=torch.double)
    without_kl = replace(algorithm, kl=None)
    part = without_kl.objective(logp, Batch(old_logp, advantages, torch.ones(shape, dtype=torch.bool)))
    (gradient,) = torch.autograd.grad(part.value.sum(), logp)
    clipped = is_clipped(part.surrogate, part.ratio, advantages, part.lower, part.upper)

    def array(values: torch.Tensor) -> NDArray:
        return values.detach().flatten().numpy()

    return ClipCurve(
        ratio=array(part.ratio),
        objective=array(part.value),
        slope=array(gradient / grid),
        clipped=array(clipped[0] | clipped[1] | clipped[2]),
        advantage=advantage,
        old_prob=old_prob,
        lower=float(part.lower[0, 0, 0]),
        upper=float(part.upper[0, 0, 0]),
    )


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


def importance_curve(
    *, old_prob: float = 0.1, samples: int = 16, batches: int = 2000, points: int = 49, seed: int = 0
) -> ImportanceCurve:
    """Return how well the mean of ratio · reward over old samples estimates what a new policy would earn.

    Raises ValueError for an old_prob outside (0, 1) or samples < 1.
    """
    if not 0 < old_prob < 1:
        raise ValueError(f"old_prob must be above 0 and below 1; got {old_prob}")
    if samples < 1:
        raise ValueError(f"samples must be at least 1; got {samples}")
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


def token_weights(aggregate: Callable[[Tensor], Tensor], lengths: Sequence[int]) -> list[Array]:
    """Return, for a group of responses of these lengths, the weight that each token of each response gets.

    Raises ValueError for a negative length, or none above 0.
    """
    if not lengths or min(lengths) < 0 or max(lengths) < 1:
        raise ValueError(f"lengths must be numbers of tokens, one of them at least 1; got {list(lengths)}")
    mask = torch.arange(max(lengths)) < torch.tensor(list(lengths)).view(1, -1, 1)
    weights = aggregate(mask)[0]
    return [weights[i, :length].numpy() for i, length in enumerate(lengths)]


@dataclass(frozen=True)
class DifficultyCurve:
    """The advantages of right and wrong responses in groups of which 1, 2, … G − 1 are right, all in one batch.

    share_right, right, wrong: arrays over the groups. size: Σ|A| of each group, how hard it pulls.
    """

    share_right: Array
    right: Array
    wrong: Array
    size: Array


def difficulty_curve(advantage: Callable[[Tensor], Tensor], group_size: int = 8) -> DifficultyCurve:
    """Return the advantages that a piece gives to groups from hard to easy. Raises ValueError unless group_size ≥ 2."""
    if group_size < 2:
        raise ValueError(f"group_size must be at least 2; got {group_size}")
    rewards = (torch.arange(group_size) < torch.arange(1, group_size).unsqueeze(1)).double()
    values = advantage(rewards)
    return DifficultyCurve(
        share_right=rewards.mean(1).numpy(),
        right=values[:, 0].numpy(),
        wrong=values[:, -1].numpy(),
        size=values.abs().sum(1).numpy(),
    )
