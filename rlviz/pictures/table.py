"""A step of a table of logits as a page records it: sampling, and how an algorithm judges the replicas of a rollout."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TypeGuard

import torch
from torch import Tensor

from rlviz.algorithms import Algorithm, GroupPolicyGradient
from rlviz.pieces.advantages import PromptHistory
from rlviz.pieces.aggregation import token_mean
from rlviz.tabular import entropy_at, judged, judges_together
from rlviz.types import Batch

HISTORY = tuple(column.name for column in fields(PromptHistory))


def has_groups(algorithm: Algorithm) -> TypeGuard[GroupPolicyGradient]:
    """Return whether a table can be trained with it: groups of responses with one reward each, and no teacher."""
    return (
        isinstance(algorithm, GroupPolicyGradient)
        and not algorithm.asks_for("advantage", "step_ends")
        and not algorithm.can.from_teacher
    )


class TableRule:
    """An algorithm as it judges a table's rollout, each replica by itself; made before a curve is recorded: it reads numbers.

    Every algorithm aggregates by the token mean: a table's responses all have the same length, so its own aggregation would only
    be a factor on the learning rate. Its KL term is left out.
    """

    def __init__(self, algorithm: GroupPolicyGradient) -> None:
        self.algorithm = replace(algorithm, kl=None, aggregate=token_mean)
        self.with_old_entropy = algorithm.asks_for("advantage", "old_entropy")
        self.with_entropy = algorithm.asks_for("surrogate", "entropy")
        self.remembers = algorithm.asks_for("advantage", "history")
        self.together = judges_together(self.algorithm)

    def history_before(self, replicas: int, groups: int) -> Tensor:
        """Return what is remembered of prompts that were never sampled, [R, K · 5]; [R, 0] where no history is asked for."""
        if not self.remembers:
            return torch.zeros(replicas, 0, dtype=torch.double)
        columns = vars(PromptHistory.empty(replicas * groups)).values()
        return torch.stack([column.double() for column in columns], -1).view(replicas, -1)

    def batch(
        self, log_probs: Tensor, first: Tensor, index: Tensor, rewards: Tensor, history: Tensor
    ) -> tuple[Batch, Tensor]:
        """Return tokens as the loss sees them, as groups of one, [R · N, 1, T], and the history [R, K · 5] after them.

        log_probs, first: tables [R, 1, T, A], now and before training. index: places of tokens in their tables, [R, N, T].
        rewards: [R, K, G].
        """
        old_logp, ref_logp = at_index(log_probs, index), at_index(first, index)
        tokens = [old_logp, ref_logp, *([entropy_at(log_probs, index)] if self.with_old_entropy else [])]
        advantages, history = self._judge([rewards, *(v.unflatten(1, rewards.shape[1:]) for v in tokens)], history)
        advantages = advantages.view(index.shape)
        uses = self.algorithm.uses(rewards).unsqueeze(-1).expand(rewards.shape).flatten(1).unsqueeze(-1)
        uses = uses.expand(index.shape)  # how often each token counts in its mean
        weights = uses / uses.sum((1, 2), keepdim=True).clamp(min=1e-9)
        mask, shape = torch.ones(index.shape, dtype=torch.bool), (-1, 1, index.shape[-1])
        columns = (value.reshape(shape) for value in (old_logp, advantages, mask, ref_logp, weights))
        chosen = None
        if self.algorithm.can.choose is not None:
            chosen = torch.vmap(self.algorithm.can.choose)(advantages, old_logp, mask).reshape(shape)
        return replace(Batch(*columns), chosen=chosen), history

    def _judge(self, groups: list[Tensor], history: Tensor) -> tuple[Tensor, Tensor]:
        """Return advantages, and the history after them, of rewards and tokens' numbers, each [R, K, …]."""
        if not self.together:
            return torch.vmap(lambda *replica: judged(self.algorithm, *replica)[0])(*groups), history
        before = None
        if self.remembers:
            columns = dict(zip(HISTORY, history.reshape(-1, len(HISTORY)).unbind(1), strict=True))
            before = PromptHistory(**{**columns, "visits": columns["visits"].long()})
        advantages, after = judged(self.algorithm, *(values.flatten(0, 1) for values in groups), history=before)
        if self.remembers:
            history = torch.stack([column.double() for column in vars(after).values()], -1).view(history.shape)
        return advantages, history


def at_index(table: Tensor, index: Tensor) -> Tensor:
    """Return the numbers of tables [R, …] at the places of their tokens, `index` [R, N, T]."""
    return table.flatten(1).gather(1, index.flatten(1)).view(index.shape)


def sample_actions(log_probs: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """Return actions [R, T, N] of tables [R, 1, T, A], by draws in [0, 1), [R, T, N], and their places, `index` [R, N, T]."""
    cdf = log_probs.squeeze(1).exp().cumsum(-1)
    action = torch.searchsorted(cdf, draws * cdf[..., -1:]).clamp(max=cdf.shape[-1] - 1)
    first_of_row = (torch.arange(cdf.shape[1]) * cdf.shape[-1]).unsqueeze(-1)
    return action, (action + first_of_row).transpose(1, 2)


def at_levels(nats: Tensor, right: Tensor, levels: Tensor) -> Tensor:
    """Return the mean entropy where replicas first reach each accuracy, on the line between two steps; NaN where half do not.

    NaN, too, of accuracies at which one of them begins.
    """
    reached = right.unsqueeze(-1) >= levels  # [S + 1, R, L]
    ever, after = reached.any(0), reached.double().argmax(0)
    before = (after - 1).clamp(min=0)
    low, high = right.T.gather(1, before), right.T.gather(1, after)
    share = torch.where(high > low, (levels - low) / torch.where(high > low, high - low, 1.0), 0.0)
    from_, to = nats.T.gather(1, before), nats.T.gather(1, after)
    total, count = torch.where(ever, from_ + share * (to - from_), 0.0).sum(0), ever.double().sum(0)
    enough = (2 * count >= right.shape[1]) & (right[0].amax() < levels)
    return torch.where(enough, total / count.clamp(min=1), torch.nan)
