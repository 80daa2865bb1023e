"""PPO's run: the rollout's own, with a critic that judges every token and learns beside the policy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.pieces.kl import k3
from rlviz.training.rollouts import Rollout, RolloutRun
from rlviz.training.rows import Credit, Rows, explained_variance
from rlviz.training.run import named_under, new_optimizer, optimizer_tensors, put_optimizer_tensors
from rlviz.types import LossOutput
from small_models.policies import Policy
from small_models.sampling import Samples, response_logits, response_logits_and_hidden, token_entropy, token_logp
from small_models.scorers import Scorer

LEAST_BETA = 1e-9  # halved for ever, a KL weight would end as 0


class SeparateCritic(nn.Module):
    """A critic with a trunk of its own, which starts as a copy of the policy's."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.scorer = Scorer.of(policy)

    @property
    def head(self) -> nn.Linear:
        return self.scorer.head

    def forward(self, policy: Policy, rows: Rows | Samples, *, alone: bool) -> tuple[Tensor, Tensor]:
        """Return the policy's logits [P, G, T, V] and V before each token [P, G, T]; alone: without gradients of the logits."""
        place = rows.prompt_ids, rows.prompt_mask, rows.tokens
        with torch.set_grad_enabled(torch.is_grad_enabled() and not alone):
            logits = response_logits(policy, *place)
        return logits, self.values(policy, rows)

    def values(self, policy: Policy, rows: Rows | Samples) -> Tensor:
        """Return V before each token, [P, G, T]."""
        return self.scorer.values(rows.prompt_ids, rows.prompt_mask, rows.tokens)


class SharedCritic(nn.Module):
    """A critic that is one linear layer on the policy's own trunk, so that its loss moves the policy's trunk too."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        width = policy.model.get_output_embeddings().weight.shape[1]
        self.head = nn.Linear(width, 1, device=policy.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, policy: Policy, rows: Rows | Samples, *, alone: bool) -> tuple[Tensor, Tensor]:
        """Return the policy's logits [P, G, T, V] and V before each token [P, G, T]; alone: the trunk gets no gradient."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not alone):
            logits, hidden = response_logits_and_hidden(policy, rows.prompt_ids, rows.prompt_mask, rows.tokens)
        return logits, self.head(hidden.float()).squeeze(-1)

    def values(self, policy: Policy, rows: Rows | Samples) -> Tensor:
        """Return V before each token, [P, G, T]."""
        return self(policy, rows, alone=True)[1]


class ActorCriticRun(RolloutRun):
    """A run of an algorithm with a critic: `critic`, a model of its own or a head on the policy's trunk.

    The critic starts with V = mean reward of the first rollout, everywhere. An adapted KL weight (PPO-Penalty's) is that of
    `algorithm`, which changes after each step; it stays above 1e-9, from where it can come back.
    """

    algorithm: ActorCritic

    def __init__(self, policy: Policy, *others: Any, **named: Any) -> None:
        super().__init__(policy, *others, **named)
        self._can_drop_rows = False  # without an advantage too, the critic learns
        separate = self.settings.critic == "separate"
        self.critic: SeparateCritic | SharedCritic = (SeparateCritic if separate else SharedCritic)(policy)
        self._critic_parameters = list(self.critic.parameters())
        self._critic_optimizer = new_optimizer(self._critic_parameters, self.settings.critic_lr) if separate else None
        if not separate:
            self._parameters += self._critic_parameters
            self._optimizer = new_optimizer(self._parameters, self.settings.lr)

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, counters = super()._state()
        tensors |= {f"critic.{name}": value for name, value in self.critic.state_dict().items()}
        if self._critic_optimizer is not None:
            tensors |= optimizer_tensors(self._critic_optimizer, "critic_optimizer.")
        return tensors, counters | {"beta": self.algorithm.beta}

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        super().restore(tensors, state)
        self.critic.load_state_dict(named_under("critic.", tensors))
        if self._critic_optimizer is not None:
            put_optimizer_tensors(self._critic_optimizer, named_under("critic_optimizer.", tensors))
        if state["beta"] is not None:
            self.algorithm = self.algorithm.with_parameters(beta=state["beta"])

    @property
    def _critic_alone(self) -> bool:
        return self.step < self.settings.critic_only_steps

    def _credit(
        self,
        rewards: Tensor,
        step_ends: Tensor | None,
        samples: Samples,
        mask: Tensor,
        ref_logp: Tensor | None,
        chosen: Tensor,
    ) -> Credit:
        if self.step == 0:
            nn.init.constant_(self.critic.head.bias, float(rewards.mean()))
        with torch.no_grad():
            values = self.critic.values(self.policy, samples)
        of_tokens = self.algorithm.token_rewards(rewards, mask, samples.logp, ref_logp)
        advantages, returns = self.algorithm.advantages(of_tokens, values, mask)
        return Credit(advantages, values, returns)

    def _backward(self, rows: Rows, weights: Tensor, sums: dict[str, float]) -> LossOutput:
        assert rows.old_values is not None
        assert rows.returns is not None
        if self._critic_optimizer is not None:
            self._critic_optimizer.zero_grad(set_to_none=False)
        algorithm, alone = self.algorithm, self._critic_alone
        logits, values = self.critic(self.policy, rows, alone=alone)
        output = self._policy_loss(logits, rows, weights)
        entropy = torch.zeros_like(values)
        if algorithm.entropy_weight:
            entropy = token_entropy(logits, temperature=self.settings.temperature)
        parts = values, rows.old_values, rows.returns, entropy, rows.mask, weights
        total = algorithm.total_loss(output.loss, *parts)
        if total.requires_grad:
            total.backward()
        sums["loss"] += float(output.loss.detach())
        with torch.no_grad():  # what the value loss alone adds to the total
            nothing = torch.zeros_like(output.loss)
            silent = torch.zeros_like(entropy)
            alone_loss = algorithm.total_loss(
                nothing, values, rows.old_values, rows.returns, silent, rows.mask, weights
            )
            sums["value_loss"] += float(alone_loss) / (algorithm.value_weight or 1.0)
        return output

    @property
    def _optimizers(self) -> list[Optimizer]:
        return [optimizer for optimizer in (self._optimizer, self._critic_optimizer) if optimizer is not None]

    def _warm_up_lr(self) -> float:
        share = super()._warm_up_lr()
        for group in self._critic_optimizer.param_groups if self._critic_optimizer is not None else ():
            group["lr"] = self.settings.critic_lr * share
        return share

    def _numbers(self, rollout: Rollout, sums: dict[str, float]) -> dict[str, Any]:
        credit = rollout.credit
        assert credit.old_values is not None
        assert credit.returns is not None
        return super()._numbers(rollout, sums) | {
            "value_loss": sums["value_loss"] / self.settings.updates_per_rollout,
            "explained_variance": explained_variance(credit.old_values, credit.returns, rollout.mask),
        }

    @torch.no_grad()
    def _after_the_updates(self, rollout: Rollout) -> dict[str, Any]:
        """Measure how far the policy went from the one that sampled, if the KL term is of that kind, and adapt its weight."""
        to_old = self.algorithm.asks_for("kl", "old_logp")
        kl = rollout.kl
        if to_old:
            samples = rollout.samples
            logits = response_logits(self.policy, samples.prompt_ids, samples.prompt_mask, samples.tokens)
            logp = token_logp(logits, samples.tokens, temperature=self.settings.temperature)
            estimator = self.algorithm.can.estimator or k3  # a term of one's own may be none of an estimator
            kl = float(estimator(samples.logp, logp)[rollout.mask].mean())
        if self.algorithm.controller is not None and not self._critic_alone:
            assert self.algorithm.beta is not None
            beta = self.algorithm.controller(self.algorithm.beta, kl, rollout.rewards.numel())
            self.algorithm = self.algorithm.with_parameters(beta=max(beta, LEAST_BETA))
        return {"kl_to_old": kl if to_old else None}
