"""Limits on the importance ratio, possibly a function of the old probability. (old_logp) → (lower, upper)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class FixedBounds:
    """The same limits for every token: lower = 1 − eps_low, upper = 1 + eps_high.

    eps_low and eps_high are widths. Equal widths: PPO (arXiv 1707.06347) Eq. 7; eps_high > eps_low is DAPO's clip-higher
    (2503.14476) Eq. 10. Raises ValueError unless 0 < eps_low < 1 and eps_high > 0.
    """

    eps_low: float = 0.2
    eps_high: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.eps_low < 1:
            raise ValueError(
                f"eps_low must be above 0 and below 1 (the lower limit is 1 − eps_low); got {self.eps_low}"
            )
        if not 0 < self.eps_high < float("inf"):
            raise ValueError(f"eps_high must be above 0 and finite; got {self.eps_high}")

    def __call__(self, old_logp: Float[Tensor, "*n"]) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """Return lower and upper limits on the ratio, shaped like old_logp."""
        return torch.full_like(old_logp, 1 - self.eps_low), torch.full_like(old_logp, 1 + self.eps_high)
