"""The per-token objective, to be maximised. (ratio, advantages, lower, upper) → objective."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def pessimistic(
    ratio: Float[Tensor, "*n"],
    advantages: Float[Tensor, "*n"],
    lower: Float[Tensor, "*n"],
    upper: Float[Tensor, "*n"],
) -> Float[Tensor, "*n"]:
    """Return J = min(ratio · advantages, clip(ratio, lower, upper) · advantages).

    The minimum takes the clipped branch only where that is the worse one, so a token that already moved too far the
    wrong way keeps its gradient. Source: PPO (arXiv 1707.06347) Eq. 7.
    """
    return torch.minimum(ratio * advantages, torch.clamp(ratio, lower, upper) * advantages)


def is_clipped(
    ratio: Float[Tensor, "*n"],
    advantages: Float[Tensor, "*n"],
    lower: Float[Tensor, "*n"],
    upper: Float[Tensor, "*n"],
) -> tuple[Bool[Tensor, "*n"], Bool[Tensor, "*n"]]:
    """Return where `pessimistic` has no gradient: (ratio < lower and A < 0), (ratio > upper and A > 0)."""
    return (ratio < lower) & (advantages < 0), (ratio > upper) & (advantages > 0)
