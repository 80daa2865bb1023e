"""Estimators of KL(π_θ‖π_ref) on tokens sampled from the policy, and where the estimate enters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


def k3(logp: Float[Tensor, "*n"], ref_logp: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Return eˣ − x − 1 with x = ref_logp − logp: never negative, its mean is the KL, its gradient is not.

    Source: GRPO (arXiv 2402.03300) Eq. 4; Schulman, "Approximating KL divergence" (2020).
    """
    x = ref_logp - logp
    return torch.expm1(x) - x


@dataclass(frozen=True)
class KLInLoss:
    """beta · estimator(logp, ref_logp), subtracted from each token's objective.

    Raises ValueError unless beta > 0; no KL term is written kl=None. Source: GRPO (arXiv 2402.03300) Eq. 3, beta 0.04.
    """

    beta: float = 0.04
    estimator: Callable[[Tensor, Tensor], Tensor] = k3

    def __post_init__(self) -> None:
        if not 0 < self.beta < float("inf"):
            raise ValueError(f"beta must be above 0 and finite (kl=None leaves the KL term out); got {self.beta}")

    def __call__(self, logp: Float[Tensor, "*n"], ref_logp: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return self.beta * self.estimator(logp, ref_logp)
