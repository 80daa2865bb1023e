"""What happened in the updates of a step, in numbers that add up."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.training.rollouts import Rows
from rlviz.types import LossOutput
from small_models.host import waits


@dataclass(frozen=True)
class UpdateLoss:
    """The loss of an update. total: what the optimizers minimise; policy: the policy's part of it and what that was made of.

    logp: of the tokens now, with gradient. value: the critic's part before it is weighted, None without a critic.
    """

    total: Tensor
    policy: LossOutput
    logp: Tensor
    value: Tensor | None = None


TWO, THREE = (partial(torch.zeros, count, dtype=torch.double) for count in (2, 3))


@dataclass(frozen=True)
class Updates:
    """Sums over `count` updates: `a + b` is what happened in both. What a device knows stays there (`all_on_host`).

    rows: responses that entered; tokens: those that the loss sees, of responses without an advantage too. losses: of the policy
    and of the critic, [2]. grad_norms: of the policy and of a critic of its own before clipping, [2]. clipped: tokens whose
    gradient was cut, low, high and dual, [3]. ratios: of each token, as the loss takes it; token_ratios, and sequence_ratios,
    one a response: whatever the loss takes; of all three how many, Σ (r − 1) and Σ (r − 1)², [3].
    """

    count: int = 0
    rows: int = 0
    tokens: int = 0
    losses: Tensor = field(default_factory=TWO)
    grad_norms: Tensor = field(default_factory=TWO)
    clipped: Tensor = field(default_factory=THREE)
    ratios: Tensor = field(default_factory=THREE)
    token_ratios: Tensor = field(default_factory=THREE)
    sequence_ratios: Tensor = field(default_factory=THREE)

    @classmethod
    def one(cls, loss: UpdateLoss, rows: Rows) -> Updates:
        """Return what the loss of these rows made of them, which may be a part of an update's; it counts as none."""
        mask, old_logp, logp = rows.mask, rows.old_logp.double(), loss.logp.detach().double()
        first = mask.int().argmax(-1, keepdim=True)  # a response whose tokens are all left out has no ratio
        value = torch.zeros_like(loss.policy.loss) if loss.value is None else loss.value
        policy = loss.policy
        return cls(
            rows=len(rows.tokens),
            losses=torch.stack([policy.loss.detach(), value.detach()]).double(),
            clipped=torch.stack([cut.sum() for cut in (policy.clipped_low, policy.clipped_high, policy.clipped_dual)]),
            ratios=_deviations(policy.ratio.double(), mask),
            token_ratios=_deviations(token_ratio(logp, old_logp, mask), mask),
            sequence_ratios=_deviations(sequence_ratio(logp, old_logp, mask).gather(-1, first), mask.any(-1, True)),
        )

    def __add__(self, other: Updates) -> Updates:
        summed: dict[str, Any] = {}
        for f in fields(self):
            own, more = getattr(self, f.name), getattr(other, f.name)
            if isinstance(own, Tensor):  # before there was an update they are zeros of the CPU
                device = own.device if waits(own.device) else more.device
                own, more = own.to(device), more.to(device)
            summed[f.name] = own + more
        return Updates(**summed)

    def numbers(self) -> dict[str, Any]:
        """Return means over the updates, and over their tokens and ratios, as fields of a `StepRecord`."""
        mean, std = _mean_and_std(self.ratios)
        low, high, dual = (self.clipped / max(1, self.tokens)).tolist()
        return {
            "loss": float(self.losses[0]) / self.count,
            "grad_norm": float(self.grad_norms[0]) / self.count,
            "ratio_mean": mean,
            "ratio_std": std,
            "clip_fraction_low": low,
            "clip_fraction_high": high,
            "clip_fraction_dual": dual,
            "token_ratio_std": _mean_and_std(self.token_ratios)[1],
            "sequence_ratio_std": _mean_and_std(self.sequence_ratios)[1],
        }


def _deviations(ratio: Tensor, there: Tensor) -> Tensor:
    """Return how many ratios there are, Σ (r − 1) and Σ (r − 1)²: near 1 their variance is lost in Σ r²."""
    away = (ratio - 1).masked_fill(~there, 0.0)
    return torch.stack([there.sum(), away.sum(), away.square().sum()])


def _mean_and_std(deviations: Tensor) -> tuple[float, float]:
    """Return mean and standard deviation of the ratios, 1 and 0 where no response entered an update."""
    count, away, squares = deviations.tolist()
    if not count:
        return 1.0, 0.0
    return 1 + away / count, max(0.0, squares / count - (away / count) ** 2) ** 0.5
