"""What the pictures that train a table share: which algorithms can, their rule, the loop over steps, entropy at a level."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any, TypeGuard

import torch
from torch import Tensor

from rlviz.algorithms import Algorithm, GroupPolicyGradient
from rlviz.page.tracing import iterated, repeated
from rlviz.pieces.advantages import PromptHistory
from rlviz.pieces.aggregation import token_mean
from rlviz.tabular import TableRollout, TableRule, Update, table_step

HISTORY = tuple(column.name for column in fields(PromptHistory))


def has_groups(algorithm: Algorithm) -> TypeGuard[GroupPolicyGradient]:
    """Return whether a table can be trained with it: groups of responses with one reward each, and no teacher."""
    return (
        isinstance(algorithm, GroupPolicyGradient)
        and not algorithm.asks_for("advantage", "step_ends")
        and not algorithm.can.from_teacher
    )


def picture_rule(algorithm: GroupPolicyGradient) -> TableRule:
    """Return the algorithm with the token mean and without its KL term.

    A table's responses all have the same length, so another aggregation would only be a factor on the learning rate.
    """
    return TableRule(replace(algorithm, kl=None, aggregate=token_mean))


def train_table_steps(
    rule: TableRule,
    start: Tensor,
    steps: int,
    *,
    draws: Callable[[Tensor], Tensor],
    grade: Callable[[Tensor, Tensor], Tensor],
    updates: int | Tensor,
    observe: Callable[[Tensor, TableRollout], Tensor],
    groups: int = 1,
    in_slices: bool = False,
    **terms: Any,
) -> Tensor:
    """Return what is observed of each step of training R tables, stacked: [steps, …].

    start: logits [R, 1, T, A]. draws, grade: of `table_step`, each first a function of the step, from 0. updates: on each
    rollout. observe: maps the logits after a step and its rollout to a tensor. groups: of a replica in a step. in_slices: see
    `repeated`. terms: further arguments of `table_step`.
    """
    replicas, table = len(start), start[0].numel()
    reference = torch.log_softmax(start, -1)

    def run_updates(update: Update, logits: Tensor, rollout: TableRollout) -> Tensor:
        minibatch = rule.weigh_by_use(rollout)  # the same in all updates
        if isinstance(updates, Tensor):
            return iterated(lambda logits: update(logits, minibatch)[0], logits, updates)
        for _ in range(updates):
            logits, _ = update(logits, minibatch)
        return logits

    def one_step(state: Tensor) -> tuple[Tensor, Tensor]:
        """Map a replica's step, logits and history, side by side, to those after a step."""
        place, logits = state[0, 0].long(), state[:, 1 : 1 + table].view(start.shape)
        logits, rollout = table_step(
            rule,
            logits,
            draws(place),
            grade=partial(grade, place),
            reference=reference,
            run_updates=run_updates,
            history=unpack_history(state[:, 1 + table :], rule),
            **terms,
        )
        after = torch.cat([state[:, :1] + 1, logits.flatten(1), pack_history(rollout.history, replicas)], 1)
        return after, observe(logits, rollout)

    history = PromptHistory.empty(replicas * groups) if rule.needs_history else None
    begin = [torch.zeros(replicas, 1, dtype=torch.double), start.flatten(1), pack_history(history, replicas)]
    return repeated(one_step, torch.cat(begin, 1), steps, in_slices=in_slices)


def pack_history(history: PromptHistory | None, replicas: int) -> Tensor:
    """Return a history as a part of a loop's state, [R, K · 5]; [R, 0] where there is none."""
    if history is None:
        return torch.zeros(replicas, 0, dtype=torch.double)
    return torch.stack([column.double() for column in vars(history).values()], -1).view(replicas, -1)


def unpack_history(state: Tensor, rule: TableRule) -> PromptHistory | None:
    """Return the history that `pack_history` made a state of, None where the rule needs none."""
    if not rule.needs_history:
        return None
    columns = dict(zip(HISTORY, state.reshape(-1, len(HISTORY)).unbind(1), strict=True))
    return PromptHistory(**{**columns, "visits": columns["visits"].long()})


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
