"""The per-token objective, to be maximised. (ratio, advantages, lower, upper) → objective."""

from __future__ import annotations

from collections.abc import Callable

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
    surrogate: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
    ratio: Float[Tensor, "*n"],
    advantages: Float[Tensor, "*n"],
    lower: Float[Tensor, "*n"],
    upper: Float[Tensor, "*n"],
) -> tuple[Bool[Tensor, "*n"], Bool[Tensor, "*n"]]:
    """Return where the surrogate cuts the gradient of a token with advantages ≠ 0: at ratios below 1, and above 1.

    Asked of autograd, ∂J/∂ratio = 0, so it holds for any surrogate. For `pessimistic` that is where (ratio < lower and
    A < 0), and where (ratio > upper and A > 0).
    """
    with torch.enable_grad():
        leaf = ratio.detach().requires_grad_()
        objective = surrogate(leaf, advantages.detach(), lower, upper)
        slope = None
        if objective.requires_grad:
            (slope,) = torch.autograd.grad(objective.sum(), leaf, allow_unused=True)
    cut = advantages != 0
    if slope is not None:
        cut = cut & (slope == 0)
    return cut & (ratio < 1), cut & (ratio > 1)
