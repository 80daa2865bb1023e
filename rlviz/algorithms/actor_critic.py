"""Algorithms with a critic: the eight slots, a value loss, an entropy bonus and a controller of the KL weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from rlviz.algorithms.base import PolicyGradient
from rlviz.algorithms.slots import PROTOCOLS, Controller, CriticAdvantage, ValueLoss, call_of, optional_arguments
from rlviz.pieces.aggregation import weighted_sum
from rlviz.pieces.words import label
from rlviz.ranges import check_ranges, within
from rlviz.types import Mask, Responses, Scalar, Tokens, TotalLoss

LEAST_BETA = 1e-9  # halved for ever, a KL weight would end as 0


@dataclass(frozen=True, kw_only=True)
class ActorCritic(PolicyGradient):
    """Policy optimisation against a critic: minimise  −J + value_weight · L_value − entropy_weight · H.

    J is the objective of the slots. The advantage slot takes (rewards, values, mask), all [P, G, T], and returns
    (advantages, returns), as GAE does. value_loss: (values, old_values, returns) → loss per token. controller:
    (beta, kl, count) → the next beta of the KL term, which must be a parameter of it, or None where it stays. value_weight 0
    with a critic on the actor's trunk leaves that critic as it began: a constant. Raises ValueError for a negative weight,
    TypeError as `PolicyGradient` does.
    """

    value_loss: Callable[[Tensor, Tensor, Tensor], Tensor]
    value_weight: float = within(0.5, at_least=0, finite=True)
    entropy_weight: float = within(0.0, at_least=0, finite=True)
    controller: Callable[[float, float, int], float] | None = None

    protocols: ClassVar[Mapping[str, type]] = {**PROTOCOLS, "advantage": CriticAdvantage}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self)
        optional_arguments("value_loss", self.value_loss, *call_of(ValueLoss))
        if self.controller is not None:
            optional_arguments("controller", self.controller, *call_of(Controller))
            if self.beta is None:
                raise TypeError(
                    f"controller changes the beta of the KL term, and kl, {label(self.kl)}, has none: give it a dataclass with a "
                    "number beta, or controller=None"
                )

    def without_kl(self) -> ActorCritic:
        """Return the algorithm without its KL term and the controller of its weight."""
        return replace(self, kl=None, controller=None)

    @property
    def models(self) -> tuple[str, ...]:
        return ("actor", "critic", "reward", *super().models[1:])

    def token_rewards(self, scores: Responses, mask: Mask, old_logp: Tokens, ref_logp: Tokens | None = None) -> Tokens:
        """Return the reward of each token: the response's score on its last one, minus a KL penalty in the reward.

        Raises ValueError with a KL in the reward and no ref_logp.
        """
        position = torch.arange(mask.shape[-1], device=mask.device)
        last = (position * mask).amax(-1, keepdim=True)
        rewards = torch.where((position == last) & mask, scores.unsqueeze(-1), 0.0)
        if not self.kl_in_reward:
            return rewards
        if ref_logp is None:
            raise ValueError(f"{self.name} has its KL in the reward and needs ref_logp; got None")
        return rewards - self._piece("kl")(old_logp, ref_logp, mask)

    def advantages(self, rewards: Tokens, values: Tokens, mask: Mask) -> tuple[Tokens, Tokens]:
        """Return the advantage of every token and the return that the critic is trained on, both 0 on padding."""
        return self.advantage(rewards, values, mask)

    def total_loss(
        self,
        policy_loss: Scalar,
        values: Tokens,
        old_values: Tokens,
        returns: Tokens,
        entropy: Tokens,
        mask: Mask,
        weights: Tokens | None = None,
    ) -> TotalLoss:
        """Return policy_loss + value_weight · L_value − entropy_weight · H, both aggregated like the objective.

        weights: as in `Batch`, for parts of a batch.
        """
        weights = self.aggregate(mask) if weights is None else weights
        value_loss = weighted_sum(self.value_loss(values, old_values, returns), weights, mask)
        bonus = self.entropy_weight * weighted_sum(entropy, weights, mask)
        return TotalLoss(policy_loss + self.value_weight * value_loss - bonus, value_loss.detach())

    def adapt_beta(self, kl: float, responses: int) -> ActorCritic:
        """Return the algorithm with the KL weight that its controller sets after a step; from 1e-9 a weight can come back.

        kl: of the step, nats per token. responses: behind it. Without a controller the algorithm stays as it is.
        """
        if self.controller is None or self.beta is None:
            return self
        return self.with_parameters(beta=max(self.controller(self.beta, kl, responses), LEAST_BETA))

    def beyond_the_slots(self) -> Mapping[str, Any]:
        return {"value loss": self.value_loss} | ({"controller": self.controller} if self.controller else {})
