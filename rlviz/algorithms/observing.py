"""Algorithms that also learn from tokens of the environment: the eight slots and a loss on observed tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.algorithms.slots import ObservationLoss, call_of, optional_arguments
from rlviz.pieces.aggregation import token_mean, weighted_sum
from rlviz.types import Batch, LossOutput, Tokens


@dataclass(frozen=True, kw_only=True)
class ObservingPolicyGradient(GroupPolicyGradient):
    """Policy optimisation from groups that also predicts its environment: minimise  −J + Σ observation_loss / observed tokens.

    J is the objective of the slots, over the policy's own tokens. observation_loss: (logp) → loss of each token; its mean is over
    all tokens of the batch that the environment wrote. A batch without any has J alone. Raises TypeError as `PolicyGradient`
    does.
    """

    observation_loss: Callable[[Tensor], Tensor]

    def __post_init__(self) -> None:
        super().__post_init__()
        optional_arguments("observation_loss", self.observation_loss, *call_of(ObservationLoss))

    @property
    def learns_observations(self) -> bool:
        return True

    def ignores_zero_advantages(self) -> bool:
        """Return False: a response with A = 0 still shows how the environment answers."""
        return False

    def loss(self, logp: Tokens, batch: Batch) -> LossOutput:
        """Return the loss of the slots plus that on observed tokens; the parts are those of the slots."""
        output = super().loss(logp, batch)
        if batch.observed is None:
            return output
        weights = token_mean(batch.observed) if batch.observed_weights is None else batch.observed_weights
        return replace(output, loss=output.loss + weighted_sum(self.observation_loss(logp), weights, batch.observed))

    def beyond_the_slots(self) -> Mapping[str, Any]:
        return {"observation loss": self.observation_loss}
