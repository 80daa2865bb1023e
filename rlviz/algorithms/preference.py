"""Algorithms that learn from pairs of responses, without sampling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Int
from torch import Tensor

from rlviz.algorithms.base import with_parameters
from rlviz.algorithms.slots import SLOTS, bind_optional, optional_arguments
from rlviz.types import PerPair, PreferenceOutput


@dataclass(frozen=True, kw_only=True)
class PreferenceOptimization:
    """Policy optimisation from preference pairs: loss = mean of pair_loss(reward of the chosen, reward of the rejected response).

    piece      called with          may also ask for, by the name of a parameter
    reward     logp                 ref_logp, lengths → reward that the policy gives a response
    pair_loss  chosen, rejected     chosen_nll → loss of a pair

    All are [N], of whole responses. lengths: tokens of the response. chosen_nll: −logp / lengths of the chosen response, nats per
    token. None of the eight slots is in use. source: the paper. Raises TypeError for a piece that does not fit.
    """

    name: str
    reward: Callable[..., Tensor]
    pair_loss: Callable[..., Tensor]
    source: str = ""

    def __post_init__(self) -> None:
        self._read_pieces()

    def _read_pieces(self) -> None:
        asks = {
            "reward": optional_arguments("reward", self.reward, ("logp",), ("ref_logp", "lengths")),
            "pair_loss": optional_arguments("pair_loss", self.pair_loss, ("chosen", "rejected"), ("chosen_nll",)),
        }
        object.__setattr__(self, "_asks", asks)

    @property
    def asks(self) -> Mapping[str, Mapping[str, bool]]:
        """The optional arguments of the pieces: "reward" or "pair_loss" → name → whether it has no default."""
        return self._asks  # type: ignore[attr-defined]

    @property
    def needs_reference(self) -> bool:
        """Whether log-probabilities under a reference policy are needed."""
        return "ref_logp" in self.asks["reward"]

    @property
    def models(self) -> tuple[str, ...]:
        """The models in play."""
        return ("actor", "reference") if self.needs_reference else ("actor",)

    def _piece(self, name: str, **optional: Tensor | None) -> Callable[..., Tensor]:
        """Return a piece with its optional arguments bound. Raises ValueError when one that it needs is None."""
        return bind_optional(self.name, name, getattr(self, name), self.asks[name], optional)

    def rewards(
        self, logp: PerPair, ref_logp: PerPair | None = None, lengths: Int[Tensor, " N"] | None = None
    ) -> PerPair:
        """Return the reward that the policy gives each of N responses. Raises ValueError when a needed argument is None."""
        return self._piece("reward", ref_logp=ref_logp, lengths=lengths)(logp)

    def pair_losses(self, chosen: PerPair, rejected: PerPair, chosen_nll: PerPair | None = None) -> PerPair:
        """Return the loss of each of N pairs of rewards. Raises ValueError when a needed argument is None."""
        return self._piece("pair_loss", chosen_nll=chosen_nll)(chosen, rejected)

    def loss(
        self,
        chosen_logp: PerPair,
        rejected_logp: PerPair,
        ref_chosen_logp: PerPair | None = None,
        ref_rejected_logp: PerPair | None = None,
        *,
        chosen_lengths: Int[Tensor, " N"] | None = None,
        rejected_lengths: Int[Tensor, " N"] | None = None,
    ) -> PreferenceOutput:
        """Return the loss over N pairs and its parts. Log-probabilities are those of whole responses, nats; lengths in tokens.

        Raises ValueError when a needed argument is None.
        """
        chosen = self.rewards(chosen_logp, ref_chosen_logp, chosen_lengths)
        rejected = self.rewards(rejected_logp, ref_rejected_logp, rejected_lengths)
        losses = self.pair_losses(chosen, rejected, None if chosen_lengths is None else -chosen_logp / chosen_lengths)
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
        """Return name → piece."""
        return {"reward": self.reward, "pair loss": self.pair_loss}
