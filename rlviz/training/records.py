"""What a step records: numbers of its rollout, its first groups in full, and what the loss made of each of their tokens."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rlviz.algorithms.base import PolicyGradient
from rlviz.pieces.advantages import all_equal
from rlviz.training.rollouts import Rollout, first_of_each_group, take_groups
from rlviz.types import Batch, GroupRecord, ResponseRecord, TokenRecord
from small_models.policies import Policy
from small_models.routing import routed, routing_flips
from small_models.sampling import Samples, response_logits, token_logp
from small_models.tasks import Task

WATCHED = 32  # responses whose routing is followed: an eighth of a rollout of the default size


def rollout_numbers(rollout: Rollout) -> dict[str, Any]:
    """Return the fields of a `StepRecord` that the rollout alone decides."""
    samples, grades = rollout.samples, [grade for row in rollout.grades for grade in row]
    group_size, used = rollout.rewards.shape[1], rollout.selected.unique()
    counting = (rollout.advantages[used] * rollout.mask[used]).flatten(2).any(2)
    return {
        "reward": float(rollout.rewards.mean()),
        "accuracy": sum(grade.correct for grade in grades) / len(grades),
        "well_formed": sum(grade.format for grade in grades) / len(grades),
        "truncated": float(samples.truncated.float().mean()),
        "entropy": float(samples.entropy[samples.mask].mean()),
        "response_length": float(samples.lengths.float().mean()),
        "kl": rollout.kl,
        "zero_variance_groups": float(all_equal(rollout.rewards).float().mean()) if group_size > 1 else None,
        "rounds": rollout.rounds,
        "responses_sampled": len(grades),
        "responses_used": len(used) * group_size,
        "contributing": float(counting.sum()) / len(grades),
        "repetition": repeated(samples),
    }


def repeated(samples: Samples) -> float:
    """Return the share of tokens that are the same as the one before them in their response."""
    both = samples.mask[..., 1:] & samples.mask[..., :-1]
    same = (samples.tokens[..., 1:] == samples.tokens[..., :-1]) & both
    return float(same.sum() / samples.mask.sum())


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> float | None:
    """Return 1 − var(returns − values) / var(returns) over the tokens of `mask`; None where all returns are equal."""
    returns, values = returns[mask].double(), values[mask].double()
    if returns.numel() < 2 or bool(returns.max() == returns.min()):
        return None
    return float(1 - (returns - values).var() / returns.var())


class Routing:
    """The experts that the first tokens of a rollout are routed to, before the step's updates: one response a prompt."""

    def __init__(self, policy: Policy, samples: Samples) -> None:
        part = first_of_each_group(samples)
        self._part = take_groups(part, torch.arange(min(WATCHED, len(part.tokens)), device=part.tokens.device))
        self._before = self._of(policy)

    def _of(self, policy: Policy) -> Tensor | None:
        return routed(policy, self._part.prompt_ids, self._part.prompt_mask, self._part.tokens)

    def flips(self, policy: Policy) -> float | None:
        """Return the share of decisions that are others now; None without experts."""
        now = None if self._before is None else self._of(policy)
        return None if self._before is None or now is None else routing_flips(self._before, now, self._part.mask)


def group_records(
    algorithm: PolicyGradient,
    policy: Policy,
    task: Task,
    rollout: Rollout,
    count: int,
    temperature: float,
    *,
    tokens: bool,
) -> tuple[GroupRecord, ...]:
    """Return the first `count` groups of a rollout in full; with their tokens as the loss sees them after the updates."""
    count = min(count, len(rollout.prompts))
    first = take_groups(rollout.samples, torch.arange(count, device=rollout.mask.device))
    lengths, truncated = first.lengths.tolist(), first.truncated.tolist()
    advantages = (rollout.advantages[:count].sum(-1) / rollout.mask[:count].sum(-1).clamp(min=1)).tolist()
    of_tokens = _token_records(algorithm, policy, rollout, first, temperature) if tokens else None

    def response_record(p: int, g: int) -> ResponseRecord:
        return ResponseRecord(
            text=rollout.texts[p][g],
            reward=float(rollout.rewards[p, g]),
            advantage=advantages[p][g],
            length=lengths[p][g],
            correct=rollout.grades[p][g].correct,
            well_formed=rollout.grades[p][g].format,
            truncated=truncated[p][g],
            tokens=() if of_tokens is None else of_tokens[p][g],
        )

    return tuple(
        GroupRecord(
            prompt=rollout.prompts[p],
            gold=task.gold(rollout.prompts[p]),
            responses=tuple(response_record(p, g) for g in range(len(lengths[p]))),
        )
        for p in range(count)
    )


def token_weights(
    algorithm: PolicyGradient, mask: Bool[Tensor, "P G T"], selected: Int[Tensor, " N"]
) -> Float[Tensor, "P G T"]:
    """Return each token's share in the objective of a rollout: what `aggregate` gives it among the selected groups.

    mask: the tokens that the loss sees. selected: indices of groups. A group that was selected twice counts twice, one that
    was not has 0.
    """
    chosen = mask[selected]
    weights = algorithm.aggregate(chosen.flatten(0, 1).unsqueeze(1)).double().reshape(chosen.shape)
    return torch.zeros(mask.shape, dtype=torch.double, device=mask.device).index_add(0, selected, weights)


def pushes(algorithm: PolicyGradient, logp: Float[Tensor, "P G T"], batch: Batch) -> Float[Tensor, "P G T"]:
    """Return −∂loss/∂logp: how hard, and which way, this loss pushes each token's log-probability.

    Where a token's ratio is its own this is weight · ∂value/∂logp; where a response has one ratio for all its tokens, the
    values of all of them are in it.
    """
    leaf = logp.detach().requires_grad_()
    with torch.enable_grad():
        loss = algorithm.loss(leaf, batch).loss
        slope = torch.autograd.grad(loss, leaf, allow_unused=True)[0] if loss.requires_grad else None
    return torch.zeros_like(leaf) if slope is None else -slope


def _token_records(
    algorithm: PolicyGradient, policy: Policy, rollout: Rollout, samples: Samples, temperature: float
) -> list[list[tuple[TokenRecord, ...]]]:
    """Return the records of every token of the first groups, `samples`, observations included, [P][G]."""
    count = len(samples.tokens)
    with torch.no_grad():
        logits = response_logits(policy, samples.prompt_ids, samples.prompt_mask, samples.tokens)
        logp = token_logp(logits, samples.tokens, temperature=temperature)
    weights = token_weights(algorithm, rollout.mask, rollout.selected)[:count]
    ref_logp = None if rollout.ref_logp is None else rollout.ref_logp[:count]
    batch = Batch(samples.logp, rollout.advantages[:count], rollout.mask[:count], ref_logp, weights)
    values = None if rollout.credit.old_values is None else rollout.credit.old_values[:count]
    output = algorithm.loss(logp, batch)
    columns = {
        "old_prob": samples.logp.exp(),
        "new_prob": logp.exp(),
        "ratio": output.ratio,
        "lower": output.lower,
        "upper": output.upper,
        "advantage": batch.advantages,
        "clipped": output.clipped & (weights > 0),
        "objective": algorithm.objective(logp, batch).value.detach(),
        "weight": weights,
        "push": pushes(algorithm, logp, batch),
        "observed": samples.observed,
    }
    kept = samples.there
    ids = samples.tokens[kept].tolist()
    lists: dict[str, list[Any]] = {name: column[kept].tolist() for name, column in columns.items()}
    lists["value"] = [None] * len(ids) if values is None else values[kept].tolist()
    lists["ref_prob"] = [None] * len(ids) if ref_logp is None else ref_logp[kept].exp().tolist()
    lists["upper"] = [None if limit == math.inf else limit for limit in lists["upper"]]
    text = {token: policy.tokenizer.decode([token]) for token in set(ids)}
    lists["token"] = [text[token] for token in ids]
    records = (TokenRecord(**dict(zip(lists, row, strict=True))) for row in zip(*lists.values(), strict=True))
    return [[tuple(islice(records, length)) for length in group] for group in kept.sum(-1).tolist()]
