"""What happened in the updates of a step, in numbers that add up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.types import LossOutput

SUMS = 14


class Seen(Protocol):
    """Rows of which a loss was made, [N, 1, T]."""

    @property
    def tokens(self) -> Tensor: ...
    @property
    def mask(self) -> Tensor: ...
    @property
    def old_logp(self) -> Tensor: ...


@dataclass(frozen=True)
class Updates:
    """Sums over `count` updates: `a + b` is what happened in both.

    rows: responses that entered; tokens: those that the loss sees, of responses without an advantage too. grad_norm: the
    policy's, before clipping. sums: losses of the policy and of the critic; tokens whose gradient was cut, low, high and dual;
    then of the ratios of each token as the loss takes them, of the token ratios, and of the sequence ratios, one a response,
    whatever the loss takes: how many, Σ (r − 1) and Σ (r − 1)².
    """

    count: int = 0
    rows: int = 0
    tokens: int = 0
    grad_norm: float = 0.0
    sums: tuple[float, ...] = (0.0,) * SUMS

    @classmethod
    def one(cls, policy: LossOutput, logp: Tensor, rows: Seen, value: Tensor | float = 0.0) -> Updates:
        """Return what the loss of these rows made of them, which may be a part of an update's; it counts as none.

        logp: of their tokens, now. value: the critic's loss.
        """
        mask, old_logp, logp = rows.mask, rows.old_logp.double(), logp.detach().double()
        first = mask.int().argmax(-1, keepdim=True)  # a response whose tokens are all left out has no ratio
        losses = torch.stack([policy.loss.detach(), torch.as_tensor(value).to(policy.loss)])
        parts = (
            losses.double(),
            torch.stack([cut.sum() for cut in (policy.clipped_low, policy.clipped_high, policy.clipped_dual)]).double(),
            _deviations(policy.ratio.double(), mask),
            _deviations(token_ratio(logp, old_logp, mask), mask),
            _deviations(sequence_ratio(logp, old_logp, mask).gather(-1, first), mask.any(-1, True)),
        )
        return cls(rows=len(rows.tokens), sums=tuple(torch.cat(parts).tolist()))

    def __add__(self, other: Updates) -> Updates:
        return Updates(
            self.count + other.count,
            self.rows + other.rows,
            self.tokens + other.tokens,
            self.grad_norm + other.grad_norm,
            tuple(own + more for own, more in zip(self.sums, other.sums, strict=True)),
        )

    def numbers(self) -> dict[str, Any]:
        """Return means over the updates, and over their tokens and ratios, as fields of a `StepRecord`."""
        loss, _, low, high, dual, *ratios = self.sums
        mean, std = _mean_and_std(*ratios[:3])
        return {
            "loss": loss / self.count,
            "grad_norm": self.grad_norm / self.count,
            "ratio_mean": mean,
            "ratio_std": std,
            "clip_fraction_low": low / max(1, self.tokens),
            "clip_fraction_high": high / max(1, self.tokens),
            "clip_fraction_dual": dual / max(1, self.tokens),
            "token_ratio_std": _mean_and_std(*ratios[3:6])[1],
            "sequence_ratio_std": _mean_and_std(*ratios[6:])[1],
        }

    @property
    def value_loss(self) -> float:
        """The critic's loss, mean over the updates."""
        return self.sums[1] / self.count


def _deviations(ratio: Tensor, there: Tensor) -> Tensor:
    """Return how many ratios there are, Σ (r − 1) and Σ (r − 1)²: near 1 their variance is lost in Σ r²."""
    away = (ratio - 1).masked_fill(~there, 0.0)
    return torch.stack([there.sum(), away.sum(), away.square().sum()])


def _mean_and_std(count: float, away: float, squares: float) -> tuple[float, float]:
    """Return mean and standard deviation of ratios, 1 and 0 where no response entered an update."""
    if not count:
        return 1.0, 0.0
    return 1 + away / count, max(0.0, squares / count - (away / count) ** 2) ** 0.5
