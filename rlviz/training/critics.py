"""Critics: the value V before each token, the baseline of algorithms that compare no group; they learn beside the policy."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from rlviz.settings import Critic
from small_models.policies import Policy
from small_models.sampling import response_logits_and_hidden
from small_models.scorers import Scorer, apply_head


class HasModelInputs(Protocol):
    """Responses with the arguments of a model's forward."""

    @property
    def model_inputs(self) -> dict[str, Tensor]: ...


def new_critic(policy: Policy, kind: Critic) -> SeparateCritic | SharedCritic:
    """Return a critic of value 0 everywhere."""
    return SeparateCritic(policy) if kind == "separate" else SharedCritic(policy)


class SeparateCritic(nn.Module):
    """A critic with a trunk of its own, which starts as a copy of the policy's."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.scorer = Scorer.from_policy(policy)

    @property
    def head(self) -> nn.Linear:
        return self.scorer.head

    def forward(self, policy: Policy, rows: HasModelInputs, *, alone: bool) -> tuple[None, Tensor]:
        """Return V before each token, [P, G, T], and no logits of the policy, which has no part in it."""
        return None, self.scorer.values(**rows.model_inputs)


class SharedCritic(nn.Module):
    """A critic that is one linear layer on the policy's own trunk, so that its loss moves the policy's trunk too."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        width = policy.weights.get_output_embeddings().weight.shape[1]
        self.head = nn.Linear(width, 1, device=policy.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, policy: Policy, rows: HasModelInputs, *, alone: bool) -> tuple[Tensor, Tensor]:
        """Return the policy's logits [P, G, T, V] and V before each token [P, G, T]; alone: the trunk gets no gradient."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not alone):
            logits, hidden = response_logits_and_hidden(policy, **rows.model_inputs)
        return logits, apply_head(self.head, hidden)
