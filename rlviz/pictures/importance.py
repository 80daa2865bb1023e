"""What old samples can say about a new policy."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure

from rlviz.page.names import Array
from rlviz.page.style import BLUE, GREY, LINE, TEXT, VERMILION, dress, new_figure
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


@checked
def plot_importance(curve: ImportanceCurve) -> Figure:
    """Draw the estimate with its spread, and what the old samples are worth, against the new policy's probability."""
    figure = new_figure(10.5, 4.2)
    left, right = figure.subplots(1, 2)
    x = "new probability of the good action"
    left.fill_between(
        curve.new_prob, curve.low, curve.high, color=BLUE, alpha=0.2, linewidth=0, label="80 % of the batches"
    )
    left.plot(curve.new_prob, curve.mean, color=BLUE, linewidth=LINE, label="mean of ratio · reward")
    left.plot(curve.new_prob, curve.new_prob, color=VERMILION, linestyle="--", linewidth=LINE, label="the truth")
    left.set(xlim=(0, 1), ylim=(0, max(1.0, 1.05 * curve.high.max())))
    left.legend(fontsize=TEXT - 2, loc="upper left", framealpha=1)
    dress(left, title=f"Estimate from {curve.samples} old samples", x=x, y="reward of the new policy")
    right.plot(curve.new_prob, curve.effective, color=BLUE, linewidth=LINE)
    right.set(xlim=(0, 1), ylim=(0, 1.05 * curve.samples))
    dress(right, title="Effective sample size", x=x, y="samples / mean of ratio²")
    for ax in (left, right):
        ax.axvline(curve.old_prob, color=GREY, linestyle=":", linewidth=2)
        ax.text(curve.old_prob + 0.015, ax.get_ylim()[1] * 0.03, "sampled here", fontsize=TEXT - 2, color="#555555")
    return figure
