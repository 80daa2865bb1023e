"""Statistics of the updates of a step: losses, clipped tokens and ratios, as sums that add up over micro-batches and updates."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.types import LossOutput


class TokenRows(Protocol):
    """Rows that a loss was computed of, [N, 1, T]."""

    @property
    def tokens(self) -> Tensor: ...
    @property
    def mask(self) -> Tensor: ...
    @property
    def old_logp(self) -> Tensor: ...


@dataclass(frozen=True)
class Updates:
    """Sums over `count` updates; `a + b` has the sums of both.

    Of each kind of ratio r: how many, Σ (r − 1) and Σ (r − 1)². `ratio` is what the loss takes; token and sequence ratios are
    measured whatever the loss takes, a sequence ratio once a response.
    """

    count: int = 0
    rows: int = 0  # responses that entered
    tokens: int = 0  # in the loss, those of responses without an advantage too
    grad_norm: float = 0.0  # the policy's, before clipping
    loss: float = 0.0
    value_loss: float = 0.0  # the critic's
    clipped_low: float = 0.0  # tokens whose gradient is cut
    clipped_high: float = 0.0
    clipped_dual: float = 0.0
    ratios: float = 0.0
    ratio_deviation: float = 0.0
    ratio_squares: float = 0.0
    token_ratios: float = 0.0
    token_ratio_deviation: float = 0.0
    token_ratio_squares: float = 0.0
    sequence_ratios: float = 0.0
    sequence_ratio_deviation: float = 0.0
    sequence_ratio_squares: float = 0.0

    @classmethod
    def from_loss(cls, policy: LossOutput, logp: Tensor, rows: TokenRows, value: Tensor | float = 0.0) -> Updates:
        """Return the statistics of a micro-batch, with count 0: an update may have several.

        policy: the loss of these rows. logp: of their tokens now, [N, 1, T]. value: the critic's loss.
        """
        mask, old_logp, logp = rows.mask, rows.old_logp.double(), logp.detach().double()
        first = mask.int().argmax(-1, keepdim=True)  # a response whose tokens are all left out has no ratio

        def ratio_sums(ratio: Tensor, counted: Tensor) -> Tensor:
            deviation = (ratio - 1).masked_fill(~counted, 0.0)  # near 1 the variance would be lost in Σ r²
            return torch.stack([counted.sum(), deviation.sum(), deviation.square().sum()])

        sums = (
            torch.stack([policy.loss.detach(), torch.as_tensor(value).to(policy.loss)]).double(),
            torch.stack([cut.sum() for cut in (policy.clipped_low, policy.clipped_high, policy.clipped_dual)]).double(),
            ratio_sums(policy.ratio.double(), mask),
            ratio_sums(token_ratio(logp, old_logp, mask), mask),
            ratio_sums(sequence_ratio(logp, old_logp, mask).gather(-1, first), mask.any(-1, True)),
        )
        return cls(0, len(rows.tokens), 0, 0.0, *torch.cat(sums).tolist())  # one read from the device

    def __add__(self, other: Updates) -> Updates:
        return Updates(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def numbers(self) -> dict[str, Any]:
        """Return means over the updates, and over their tokens and ratios, as fields of a `StepRecord`."""
        mean, std = _mean_and_std(self.ratios, self.ratio_deviation, self.ratio_squares)
        token = _mean_and_std(self.token_ratios, self.token_ratio_deviation, self.token_ratio_squares)
        sequence = _mean_and_std(self.sequence_ratios, self.sequence_ratio_deviation, self.sequence_ratio_squares)
        return {
            "loss": self.loss / self.count,
            "grad_norm": self.grad_norm / self.count,
            "ratio_mean": mean,
            "ratio_std": std,
            "clip_fraction_low": self.clipped_low / max(1, self.tokens),
            "clip_fraction_high": self.clipped_high / max(1, self.tokens),
            "clip_fraction_dual": self.clipped_dual / max(1, self.tokens),
            "token_ratio_std": token[1],
            "sequence_ratio_std": sequence[1],
        }


def _mean_and_std(count: float, deviation: float, squares: float) -> tuple[float, float]:
    """Return mean and standard deviation of ratios from their sums; 1 and 0 where no response entered an update."""
    if not count:
        return 1.0, 0.0
    return 1 + deviation / count, max(0.0, squares / count - (deviation / count) ** 2) ** 0.5
