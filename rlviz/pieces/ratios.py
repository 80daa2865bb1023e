"""Importance ratios: how much likelier the new policy makes what the old one sampled. (logp, old_logp, mask) → ratio."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor


def token_ratio(
    logp: Float[Tensor, "P G T"], old_logp: Float[Tensor, "P G T"], mask: Bool[Tensor, "P G T"]
) -> Float[Tensor, "P G T"]:
    """Return the ratio of each token: r = exp(logp − old_logp), and 1 on padding.

    Source: PPO (arXiv 1707.06347) §3, per token as in GRPO (2402.03300) Eq. 3.
    """
    return (logp - old_logp).masked_fill(~mask, 0.0).exp()
