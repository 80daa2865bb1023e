"""An algorithm as one frozen value that names its pieces, and what every such algorithm can do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlviz.pieces.aggregation import weighted_sum
from rlviz.pieces.kl import KLInLoss
from rlviz.pieces.surrogate import is_clipped
from rlviz.types import Batch, LossOutput


@dataclass(frozen=True, kw_only=True)
class GroupPolicyGradient:
    """Policy optimisation from groups of sampled responses; algorithms differ by their fields alone.

    maximise  Σ weights · ( surrogate(r, A, lower, upper) − kl ),   A = advantage(shape(R)),  weights = aggregate(mask)

    ratio: (logp, old_logp, mask) → r. bounds: (old_logp) → (lower, upper). surrogate: (r, A, lower, upper) → J.
    advantage: (rewards [P, G]) → A [P, G]. kl: a KLInLoss, or None. aggregate: (mask) → weights.
    shape: (rewards [P, G], lengths [P, G]) → rewards, or None. select: (rewards [P, G]) → the indices, in 0 … P − 1, of the
    groups to train on, or None for all; it sees the rewards before shaping.
    Raises TypeError, naming the slot, for a piece that cannot be called with these arguments.
    """

    name: str
    ratio: Callable[[Tensor, Tensor, Tensor], Tensor]
    bounds: Callable[[Tensor], tuple[Tensor, Tensor]]
    surrogate: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    advantage: Callable[[Tensor], Tensor]
    kl: KLInLoss | None
    aggregate: Callable[[Tensor], Tensor]
    shape: Callable[[Tensor, Tensor], Tensor] | None
    select: Callable[[Tensor], Tensor] | None

    def __post_init__(self) -> None:
        takes = {
            "ratio": 3,
            "bounds": 1,
            "surrogate": 4,
            "advantage": 1,
            "kl": 2,
            "aggregate": 1,
            "shape": 2,
            "select": 1,
        }
        for slot, count in takes.items():
            piece = getattr(self, slot)
            if piece is None and slot in ("kl", "shape", "select"):
                continue
            if not callable(piece) or inspect.isclass(piece):
                raise TypeError(f"{slot} must be a function of {count} tensors (or a built piece); got {piece!r}")
            try:
                inspect.signature(piece).bind(*[None] * count)
            except TypeError as error:
                raise TypeError(f"{slot} must take {count} tensors; {piece!r} does not: {error}") from None

    def advantages(self, rewards: Float[Tensor, "P G"], mask: Bool[Tensor, "P G T"]) -> Float[Tensor, "P G T"]:
        """Return the advantage of every token: that of its response, and 0 on padding."""
        return self.advantage(rewards).unsqueeze(-1) * mask

    def loss(self, logp: Float[Tensor, "P G T"], batch: Batch) -> LossOutput:
        """Return the loss, −objective, and its parts. Raises ValueError when there is a KL term and no ref_logp."""
        mask = batch.mask
        logp = logp.masked_fill(~mask, 0.0)
        old_logp = batch.old_logp.masked_fill(~mask, 0.0)
        advantages = batch.advantages.masked_fill(~mask, 0.0)
        ratio = self.ratio(logp, old_logp, mask)
        lower, upper = self.bounds(old_logp)
        objective = self.surrogate(ratio, advantages, lower, upper)
        if self.kl is not None:
            if batch.ref_logp is None:
                raise ValueError(f"{self.name} has a KL term (beta {self.kl.beta}) and needs ref_logp; got None")
            objective = objective - self.kl(logp, batch.ref_logp.masked_fill(~mask, 0.0))
        weights = self.aggregate(mask) if batch.weights is None else batch.weights
        clipped_low, clipped_high = is_clipped(self.surrogate, ratio, advantages, lower, upper)
        return LossOutput(
            loss=-weighted_sum(objective, weights, mask),
            ratio=ratio.detach(),
            lower=lower,
            upper=upper,
            clipped_low=clipped_low,
            clipped_high=clipped_high,
        )

    def ignores_zero_advantages(self) -> bool:
        """Return whether a response with A = 0 adds nothing to loss and gradient, so that it can leave the update."""
        if self.kl is not None:
            return False
        ratio = torch.linspace(0.1, 3.0, 59, dtype=torch.double).reshape(1, 1, -1).requires_grad_()
        old_logp = torch.full_like(ratio, -1.0).detach()
        objective = self.surrogate(ratio, torch.zeros_like(old_logp), *self.bounds(old_logp))
        (slope,) = torch.autograd.grad(objective.sum(), ratio, allow_unused=True)
        return not objective.any() and (slope is None or not slope.any())

    def with_parameters(self, **parameters: Any) -> GroupPolicyGradient:
        """Return the algorithm with parameters of its pieces changed by name: GRPO.with_parameters(eps_high=0.28).

        Raises ValueError for a name that no piece of this algorithm has, and for a value out of that piece's range.
        """
        algorithm = self
        for name, value in parameters.items():
            owners = [slot for slot, piece in algorithm.slots().items() if name in _parameters(piece)]
            if not owners:
                known = sorted({p for piece in self.slots().values() for p in _parameters(piece)})
                raise ValueError(f"{self.name} has no parameter {name!r}; its pieces have {', '.join(known) or 'none'}")
            for slot in owners:
                algorithm = replace(algorithm, **{slot: replace(getattr(algorithm, slot), **{name: value})})
        return algorithm

    def slots(self) -> Mapping[str, Any]:
        """Return slot name → piece, without the algorithm's name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}


def _parameters(piece: object) -> list[str]:
    return [field.name for field in fields(piece)] if is_dataclass(piece) and not isinstance(piece, type) else []


def changes(a: GroupPolicyGradient, b: GroupPolicyGradient) -> dict[str, tuple[Any, Any]]:
    """Return slot → (piece of a, piece of b) for every slot in which the two algorithms differ."""
    return {slot: (piece, b.slots()[slot]) for slot, piece in a.slots().items() if piece != b.slots()[slot]}
