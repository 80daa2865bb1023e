"""Algorithms that learn from pairs of responses, without sampling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from rlviz.algorithms.base import with_parameters
from rlviz.algorithms.slots import SLOTS
from rlviz.pieces.preference import ImplicitReward
from rlviz.types import PreferenceOutput


@dataclass(frozen=True, kw_only=True)
class PreferenceOptimization:
    """Policy optimisation from preference pairs: loss = mean of pair_loss(chosen reward, rejected reward).

    reward: (logp, ref_logp) of whole responses, [N] each → implicit reward. pair_loss: (chosen, rejected) → loss, [N].
    None of the eight slots is in use. source: the paper.
    """

    name: str
    reward: ImplicitReward
    pair_loss: Callable[[Tensor, Tensor], Tensor]
    source: str = ""

    models = ("actor", "reference")

    def loss(
        self,
        chosen_logp: Float[Tensor, " N"],
        rejected_logp: Float[Tensor, " N"],
        ref_chosen_logp: Float[Tensor, " N"],
        ref_rejected_logp: Float[Tensor, " N"],
    ) -> PreferenceOutput:
        """Return the loss over N pairs and its parts. Log-probabilities are those of whole responses, nats."""
        chosen = self.reward(chosen_logp, ref_chosen_logp)
        rejected = self.reward(rejected_logp, ref_rejected_logp)
        losses = self.pair_loss(chosen, rejected)
        return PreferenceOutput(
            loss=losses.mean(),
            losses=losses.detach(),
            chosen_reward=chosen.detach(),
            rejected_reward=rejected.detach(),
        )

    def with_parameters(self, **parameters: Any) -> PreferenceOptimization:
        """Return the algorithm with parameters of its pieces changed by name: DPO.with_parameters(beta=0.5).

        Raises ValueError for a name that no piece of this algorithm has, and for a value out of that piece's range.
        """
        return with_parameters(self, parameters)

    def slots(self) -> Mapping[str, Any]:
        """Return slot name → None: no slot is in use."""
        return dict.fromkeys(SLOTS)

    def beyond_the_slots(self) -> Mapping[str, Any]:
        """Return what the algorithm has that is no slot: name → piece."""
        return {"reward": self.reward, "pair loss": self.pair_loss}
