"""The per-token objective, to be maximised. (ratio, advantages, lower, upper) → objective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlviz.pieces.words import says
from small_models.checks import check_fields


@says(
    why="no reward for moving further than the limits, but every mistake can still be undone.",
    formula="min(ratio · advantages, clip(ratio, lower, upper) · advantages)",
)
def pessimistic(
    ratio: Float[Tensor, "*n"],
    advantages: Float[Tensor, "*n"],
    lower: Float[Tensor, "*n"],
    upper: Float[Tensor, "*n"],
) -> Float[Tensor, "*n"]:
    """Return J = min(ratio · advantages, clip(ratio, lower, upper) · advantages).

    The minimum takes the clipped branch only where that is the worse one, so a token that already moved too far the
    wrong way keeps its gradient.
    Source: PPO (arXiv 1707.06347) Eq. 7.
    """
    return torch.minimum(ratio * advantages, torch.clamp(ratio, lower, upper) * advantages)


@says(
    why="a bad token whose ratio has run up to c would pull with a weight of c and more; there it is let go.",
    formula="max(min(ratio · advantages, clip(ratio, lower, upper) · advantages), c · min(advantages, 0))",
)
@dataclass(frozen=True)
class DualClip:
    """J = max(min(ratio · advantages, clip(ratio, lower, upper) · advantages), c · min(advantages, 0)).

    That is `pessimistic`, and for advantages < 0 no less than c · advantages; for others it never was below 0.
    Raises ValueError unless c > 1.
    Source: dual-clip PPO (arXiv 1912.09729). verl always applies c = 3; DCPO uses 10; TRL calls it delta.
    """

    c: float = 3.0

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.c > 1:
            raise ValueError(f"c must be above 1 (c = 1 would cut every gradient of a bad token); got {self.c}")

    def __str__(self) -> str:
        return f"dual clip {self.c:g}"

    def __call__(
        self,
        ratio: Float[Tensor, "*n"],
        advantages: Float[Tensor, "*n"],
        lower: Float[Tensor, "*n"],
        upper: Float[Tensor, "*n"],
    ) -> Float[Tensor, "*n"]:
        objective = pessimistic(ratio, advantages, lower, upper)
        return torch.where(advantages < 0, torch.maximum(objective, self.c * advantages), objective)


@says(
    why="the plain importance-weighted policy gradient; a penalty has to keep the policy near, or one update a rollout.",
    formula="ratio · advantages",
)
def unclipped(
    ratio: Float[Tensor, "*n"],
    advantages: Float[Tensor, "*n"],
    lower: Float[Tensor, "*n"],
    upper: Float[Tensor, "*n"],
) -> Float[Tensor, "*n"]:
    """Return J = ratio · advantages, whatever the limits.

    Source: PPO (arXiv 1707.06347) Eq. 6.
    """
    return ratio * advantages


@says(
    why="the clipped ratio is a weight without a gradient of its own, so every token still learns.",
    formula="clip(ratio, lower, upper) · advantages · log(ratio)",
)
def clipped_weight(
    ratio: Float[Tensor, "*n"],
    advantages: Float[Tensor, "*n"],
    lower: Float[Tensor, "*n"],
    upper: Float[Tensor, "*n"],
) -> Float[Tensor, "*n"]:
    """Return J = sg[clip(ratio, lower, upper)] · advantages · log(ratio); sg stops the gradient, log is of a ratio above 0.

    ∂J/∂logp = clip(ratio, lower, upper) · advantages on every token.

    Source: CISPO (arXiv 2506.13585) Eq. 4, which has log π for log(ratio): the same gradient.
    """
    return torch.clamp(ratio, lower, upper).detach() * advantages * ratio.log()


@says(
    why="the gradient fades as the ratio leaves 1, and is cut nowhere; faster for bad tokens, whose push spreads over many."
)
@dataclass(frozen=True)
class SoftGate:
    """J = 4/τ · σ(τ (ratio − 1)) · advantages, τ = positive where advantages > 0, else negative; whatever the limits.

    At ratio 1 the slope is that of ratio · advantages. Raises ValueError unless both are above 0.
    Source: SAPO (arXiv 2511.20347), τ 1.0 and 1.05.
    """

    positive: float = 1.0
    negative: float = 1.05

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("positive", "negative"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be above 0 and finite; got {getattr(self, name)}")

    def __str__(self) -> str:
        return f"soft gate {self.positive:g}/{self.negative:g}"

    def __call__(
        self,
        ratio: Float[Tensor, "*n"],
        advantages: Float[Tensor, "*n"],
        lower: Float[Tensor, "*n"],
        upper: Float[Tensor, "*n"],
    ) -> Float[Tensor, "*n"]:
        tau = torch.where(advantages > 0, ratio.new_tensor(self.positive), ratio.new_tensor(self.negative))
        return 4 / tau * torch.sigmoid(tau * (ratio - 1)) * advantages


@says(why="one wild token does not carry a whole response, and each token is clipped before the mean.")
def geometric_mean(
    ratio: Float[Tensor, "*n T"],
    advantages: Float[Tensor, "*n T"],
    lower: Float[Tensor, "*n T"],
    upper: Float[Tensor, "*n T"],
    mask: Bool[Tensor, "*n T"],
) -> Float[Tensor, "*n T"]:
    """Return J = (Π_t r̂_t)^(1/|o|) · advantages on every token of a response.

    r̂ = min(ratio, upper) where advantages > 0, else max(ratio, lower): the token's own pessimistic clip.

    Source: GMPO (arXiv 2507.20673), which clips at e^±0.4.
    """
    clipped = torch.where(advantages > 0, torch.minimum(ratio, upper), torch.maximum(ratio, lower))
    logs = clipped.log().masked_fill(~mask, 0.0).sum(-1, keepdim=True)
    return (logs / mask.sum(-1, keepdim=True).clamp(min=1)).exp() * advantages


def is_clipped(
    surrogate: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
    ratio: Float[Tensor, "*n"],
    advantages: Float[Tensor, "*n"],
    lower: Float[Tensor, "*n"],
    upper: Float[Tensor, "*n"],
) -> tuple[Bool[Tensor, "*n"], Bool[Tensor, "*n"], Bool[Tensor, "*n"]]:
    """Return where the surrogate cuts the gradient of a token with advantages ≠ 0: low, high, dual.

    low: at ratios below 1. high: above 1, advantages > 0. dual: above 1, advantages < 0. Asked of autograd,
    ∂J/∂ratio = 0, so it holds for any surrogate. For `pessimistic`, low is where (ratio < lower and A < 0), high where
    (ratio > upper and A > 0), and dual is empty; `DualClip` adds (ratio > c and A < 0).
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
    above = cut & (ratio > 1)
    return cut & (ratio < 1), above & (advantages > 0), above & (advantages < 0)
