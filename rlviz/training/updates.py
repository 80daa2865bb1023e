"""What happened in the updates of a step, in numbers that add up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.training.rollouts import Rows
from rlviz.types import LossOutput


@dataclass(frozen=True)
class UpdateLoss:
    """The loss of an update. total: what the optimizers minimise; policy: the policy's part of it and what that was made of.

    logp: of the tokens now, with gradient. value: the critic's part before it is weighted, None without a critic.
    """

    total: Tensor
    policy: LossOutput
    logp: Tensor
    value: Tensor | None = None


@dataclass(frozen=True)
class Updates:
    """Sums over `count` updates: `a + b` is what happened in both.

    loss: the policy's; value_loss: the critic's; grad_norm: before clipping. rows: responses that entered; tokens: those that the
    loss sees, of responses without an advantage too; clipped_low, clipped_high, clipped_dual: those whose gradient was cut.
    ratios: r of each token, as the loss takes it; token_ratios, and sequence_ratios, one a response: whatever the loss takes.
    All three hold a tensor an update, in float64.
    """

    count: int = 0
    loss: float = 0.0
    value_loss: float = 0.0
    grad_norm: float = 0.0
    rows: int = 0
    tokens: int = 0
    clipped_low: int = 0
    clipped_high: int = 0
    clipped_dual: int = 0
    ratios: tuple[Tensor, ...] = ()
    token_ratios: tuple[Tensor, ...] = ()
    sequence_ratios: tuple[Tensor, ...] = ()

    @classmethod
    def one(cls, loss: UpdateLoss, rows: Rows, *, tokens: int, grad_norm: float) -> Updates:
        """Return what happened in an update on these rows."""
        mask, old_logp, logp = rows.mask, rows.old_logp.double(), loss.logp.detach().double()
        of_rows = sequence_ratio(logp, old_logp, mask).gather(-1, mask.int().argmax(-1, keepdim=True)).squeeze(-1)
        return cls(
            count=1,
            loss=float(loss.policy.loss.detach()),
            value_loss=0.0 if loss.value is None else float(loss.value.detach()),
            grad_norm=grad_norm,
            rows=len(rows.tokens),
            tokens=tokens,
            clipped_low=int(loss.policy.clipped_low.sum()),
            clipped_high=int(loss.policy.clipped_high.sum()),
            clipped_dual=int(loss.policy.clipped_dual.sum()),
            ratios=(loss.policy.ratio[mask].double(),),
            token_ratios=(token_ratio(logp, old_logp, mask)[mask],),
            sequence_ratios=(of_rows[mask.any(-1)],),  # a response whose tokens are all left out has none
        )

    def __add__(self, other: Updates) -> Updates:
        return Updates(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def numbers(self) -> dict[str, Any]:
        """Return means over the updates, and over their tokens and ratios, as fields of a `StepRecord`."""
        tokens = max(1, self.tokens)
        mean, std = self._ratio_mean_and_std()
        return {
            "loss": self.loss / self.count,
            "grad_norm": self.grad_norm / self.count,
            "ratio_mean": mean,
            "ratio_std": std,
            "clip_fraction_low": self.clipped_low / tokens,
            "clip_fraction_high": self.clipped_high / tokens,
            "clip_fraction_dual": self.clipped_dual / tokens,
            "token_ratio_std": _std(self.token_ratios),
            "sequence_ratio_std": _std(self.sequence_ratios),
        }

    def _ratio_mean_and_std(self) -> tuple[float, float]:
        count = sum(ratio.numel() for ratio in self.ratios)
        if not count:
            return 1.0, 0.0
        mean = sum(float(ratio.sum()) for ratio in self.ratios) / count
        variance = sum(float(ratio.square().sum()) for ratio in self.ratios) / count - mean**2
        return mean, max(0.0, variance) ** 0.5


def _std(parts: tuple[Tensor, ...]) -> float:
    """Return the standard deviation, 0 where no response entered an update."""
    values = torch.cat(parts) if parts else torch.empty(0)
    return float(values.std(correction=0)) if values.numel() else 0.0
