"""What a response is measured against: its group, or a critic, which learns beside the policy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.base import GroupPolicyGradient, PolicyGradient
from rlviz.pieces.advantages import PromptHistory
from rlviz.pieces.selection import keep_all
from rlviz.settings import TrainSettings
from rlviz.training.adamw import AdamW
from rlviz.training.records import explained_variance
from rlviz.training.rollouts import Credit, CriticForward, Rewarded, Rollout, Rows
from rlviz.training.run import Part, like, new_optimizer, put_weights
from rlviz.training.updates import UpdateLoss, Updates
from rlviz.types import Batch, LossOutput
from small_models.policies import Policy
from small_models.sampling import Samples, response_logits, response_logits_and_hidden, token_entropy, token_logp
from small_models.scorers import Scorer, number_of


class Baseline(Part):
    """What turns rewards into advantages, and the loss of an update. can_drop_rows: whether A = 0 teaches nothing at all.

    The algorithm is an argument where it is needed, as its KL weight may change from step to step; step: those done before.
    """

    can_drop_rows: bool

    @abstractmethod
    def optimizers(self) -> list[AdamW]:
        """Return an optimizer for each model that learns, the policy's first."""

    @abstractmethod
    def credit(self, algorithm: Any, groups: Rewarded, step: int) -> Credit:
        """Return what each token earned."""

    @abstractmethod
    def loss(self, algorithm: Any, rows: Rows, weights: Tensor, step: int) -> UpdateLoss:
        """Return the loss of these rows, with gradient. weights: of their tokens in the objective of the whole minibatch."""


class GroupBaseline(Baseline):
    """The other responses to the prompt; where the algorithm remembers, earlier ones too: `history`, of all training prompts."""

    def __init__(self, policy: Policy, algorithm: PolicyGradient, settings: TrainSettings, prompts: int) -> None:
        self.policy, self.settings = policy, settings
        self.can_drop_rows = algorithm.ignores_zero_advantages()
        remembers = algorithm.asks_for("advantage", "history")
        self.history = PromptHistory.empty(prompts, policy.device) if remembers else None

    def optimizers(self) -> list[AdamW]:
        return [new_optimizer([self.policy.weights], self.settings.lr)]

    def credit(self, algorithm: GroupPolicyGradient, groups: Rewarded, step: int) -> Credit:
        rewards = groups.rewards if groups.step_rewards is None else groups.step_rewards
        history = None if self.history is None else self.history.take(groups.chosen)
        advantages, history = algorithm.advantages(
            rewards,
            groups.mask,
            old_logp=groups.samples.logp,
            sampler_logp=groups.samples.sampler_logp,
            ref_logp=groups.ref_logp,
            step_ends=groups.step_ends,
            history=history,
            old_entropy=groups.samples.entropy,
            correct=groups.correct,
            well_formed=groups.well_formed,
        )
        if self.history is not None and history is not None:
            self.history = self.history.put(groups.chosen, history)
        return Credit(advantages)

    def loss(self, algorithm: GroupPolicyGradient, rows: Rows, weights: Tensor, step: int) -> UpdateLoss:
        logits = response_logits(self.policy, **rows.place)
        logp, policy = _policy_loss(algorithm, logits, rows, weights, self.settings.temperature)
        return UpdateLoss(policy.loss, policy, logp)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        if self.history is None:
            return {}, {}
        visited = self.history.visits.nonzero().squeeze(1)
        tensors = {f"history.{name}": value for name, value in vars(self.history.take(visited)).items()}
        return tensors | {"history.prompts": visited}, {}

    def restore(self, tensors: dict[str, Tensor], counters: dict[str, Any]) -> None:
        if self.history is not None:
            prompts = tensors["history.prompts"].to(self.policy.device)
            begun = vars(self.history.take(prompts))
            kept = {name: like(tensors, f"history.{name}", own).to(own.device) for name, own in begun.items()}
            self.history = self.history.put(prompts, PromptHistory(**kept))


class CriticBaseline(Baseline):
    """A critic's value before each token. It starts with V = mean reward of the first rollout, everywhere.

    Where an update is on all that was sampled, the first one begins with the forward that gave the rollout's values.
    """

    can_drop_rows = False  # without an advantage too, the critic learns

    def __init__(self, policy: Policy, settings: TrainSettings) -> None:
        self.policy, self.settings = policy, settings
        self.critic = SeparateCritic(policy) if settings.critic == "separate" else SharedCritic(policy)

    @property
    def models(self) -> Mapping[str, nn.Module]:
        return {"critic": self.critic}

    def optimizers(self) -> list[AdamW]:
        settings = self.settings
        if isinstance(self.critic, SharedCritic):
            return [new_optimizer([self.policy.weights, self.critic], settings.lr)]
        return [new_optimizer([self.policy.weights], settings.lr), new_optimizer([self.critic], settings.critic_lr)]

    @torch.no_grad()
    def credit(self, algorithm: ActorCritic, groups: Rewarded, step: int) -> Credit:
        if step == 0:
            nn.init.constant_(self.critic.head.bias, float(groups.rewards.mean()))
        whole = self.settings.minibatches == 1 and not self.settings.micro_batch_tokens and algorithm.select is keep_all
        with torch.set_grad_enabled(whole):
            logits, values = self.critic(self.policy, groups.samples, alone=self._alone(step))
        old_values = values.detach()
        rewards = algorithm.token_rewards(groups.rewards, groups.mask, groups.samples.logp, groups.ref_logp)
        advantages, returns = algorithm.advantages(rewards, old_values, groups.mask)
        return Credit(advantages, old_values, returns, CriticForward(logits, values) if whole else None)

    def _alone(self, step: int) -> bool:
        """Return whether only the critic learns in this step."""
        return step < self.settings.critic_only_steps

    def loss(self, algorithm: ActorCritic, rows: Rows, weights: Tensor, step: int) -> UpdateLoss:
        assert rows.old_values is not None
        assert rows.returns is not None
        alone = self._alone(step)
        made = None if rows.forward is None else rows.forward.take()
        logits, values = self.critic(self.policy, rows, alone=alone) if made is None else made
        if logits is None:
            with torch.set_grad_enabled(not alone):
                logits = response_logits(self.policy, **rows.place)
        logp, policy = _policy_loss(algorithm, logits, rows, weights, self.settings.temperature)
        entropy = torch.zeros_like(values)
        if algorithm.entropy_weight:
            entropy = token_entropy(logits, temperature=self.settings.temperature)
        both = algorithm.total_loss(policy.loss, values, rows.old_values, rows.returns, entropy, rows.mask, weights)
        return UpdateLoss(both.loss, policy, logp, both.value_loss)

    def numbers(self, rollout: Rollout, updates: Updates) -> dict[str, Any]:
        credit = rollout.credit
        assert credit.old_values is not None
        assert credit.returns is not None
        return {
            "value_loss": float(updates.losses[1]) / updates.count,
            "explained_variance": explained_variance(credit.old_values, credit.returns, rollout.mask),
        }

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {f"critic.{name}": value for name, value in self.critic.state_dict().items()}, {}

    def restore(self, tensors: dict[str, Tensor], counters: dict[str, Any]) -> None:
        put_weights(self.critic, "critic.", tensors)


class SeparateCritic(nn.Module):
    """A critic with a trunk of its own, which starts as a copy of the policy's."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.scorer = Scorer.of(policy)

    @property
    def head(self) -> nn.Linear:
        return self.scorer.head

    def forward(self, policy: Policy, rows: Rows | Samples, *, alone: bool) -> tuple[None, Tensor]:
        """Return V before each token, [P, G, T], and no logits of the policy, which has no part in it."""
        return None, self.scorer.values(**rows.place)


class SharedCritic(nn.Module):
    """A critic that is one linear layer on the policy's own trunk, so that its loss moves the policy's trunk too."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        width = policy.weights.get_output_embeddings().weight.shape[1]
        self.head = nn.Linear(width, 1, device=policy.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, policy: Policy, rows: Rows | Samples, *, alone: bool) -> tuple[Tensor, Tensor]:
        """Return the policy's logits [P, G, T, V] and V before each token [P, G, T]; alone: the trunk gets no gradient."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not alone):
            logits, hidden = response_logits_and_hidden(policy, **rows.place)
        return logits, number_of(self.head, hidden)


def _policy_loss(
    algorithm: PolicyGradient, logits: Tensor, rows: Rows, weights: Tensor, temperature: float
) -> tuple[Tensor, LossOutput]:
    """Return log-probabilities of the rows' tokens, and the algorithm's loss of them."""
    logp = token_logp(logits, rows.tokens, temperature=temperature)
    entropy = token_entropy(logits, temperature=temperature) if algorithm.asks_for("surrogate", "entropy") else None
    given = weights, entropy, rows.chosen, rows.sampler_logp
    batch = Batch(rows.old_logp, rows.advantages, rows.mask, rows.ref_logp, *given)
    output = algorithm.loss(logp, batch)
    if logp.requires_grad:
        algorithm.check_gradient(output.loss)
    return logp, output
