"""A step's record: numbers of its rollout, its first groups in full, and the loss, ratio and push of each of their tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rlviz.algorithms.base import PolicyGradient
from rlviz.pieces.advantages import all_equal
from rlviz.pieces.kl import k3
from rlviz.pieces.ratios import token_ratio
from rlviz.settings import TrainSettings
from rlviz.training.rewards import agreement
from rlviz.training.rollout import Rollout, entropy_under, logp_under, routes_at
from rlviz.training.state import State
from rlviz.training.updates import Updates
from rlviz.types import Batch, GroupRecord, LossOutput, ResponseRecord, TokenRecord
from small_models.host import on_host
from small_models.policies import Policy
from small_models.routing import routed, routing_flips
from small_models.sampling import Samples
from small_models.tasks import Task
from small_models.tasks.base import share_right
from small_models.tokenizer import control_ids

NEAR = 0.8, 1.2  # of w: as far as a clip at 1 ± .2 would let the policy go
DIGITS = 7  # of a token's numbers in a record, as many as float32 holds
WATCHED = 32  # responses whose routing is followed: an eighth of a rollout of the default size
ROUTING_EVERY = 5  # steps, of which the middle one stands for all; two more forwards in each would be a tenth of a run


def record_fields(
    state: State, task: Task, settings: TrainSettings, rollout: Rollout, updates: Updates
) -> dict[str, Any]:
    """Return the fields of a step's record from its rollout, on the CPU, and the statistics of its updates."""
    fields = rollout_numbers(rollout) | updates.numbers()
    entered = rollout.rewards.numel() * updates.count / settings.minibatches
    fields |= {"beta": state.algorithm.beta, "rows_used": updates.rows / entered}
    if rollout.old_values is not None and rollout.returns is not None:
        fields["value_loss"] = updates.value_loss / updates.count
        fields["explained_variance"] = explained_variance(rollout.old_values, rollout.returns, rollout.mask)
    if not task.reward_is_grade:
        parts = [grade.parts for row in rollout.sampled.grades for grade in row]
        names = dict.fromkeys(name for named in parts for name in named)
        fields["reward_parts"] = {name: fmean(named.get(name, 0.0) for named in parts) for name in names}
        fields["reward_std"] = float(rollout.rewards.std(correction=0))
    if state.reward_model is not None:
        fields["reward_agreement"] = agreement(rollout.sampled.outcomes, rollout.sampled.task_rewards)
        fields["reward_loss"] = state.reward_loss
    return fields | {"groups": record_groups(state, task, settings, rollout)}


def rollout_numbers(rollout: Rollout) -> dict[str, Any]:
    """Return the fields of a `StepRecord` that depend on the rollout alone, on the CPU."""
    samples, sampled = rollout.samples, rollout.sampled
    grades = [grade for row in sampled.grades for grade in row]
    group_size, used = rollout.rewards.shape[1], sampled.selected.unique()
    counting = (rollout.advantages[used] * rollout.mask[used]).flatten(2).any(2)
    return {
        "reward": float(rollout.rewards.mean()),
        "accuracy": share_right(grades),
        "well_formed": sum(grade.format for grade in grades) / len(grades),
        "truncated": float(samples.truncated.float().mean()),
        "entropy": float(samples.entropy[samples.mask].mean()),
        "response_length": float(samples.lengths.float().mean()),
        "kl": rollout.kl,
        "zero_variance_groups": float(all_equal(rollout.rewards).float().mean()) if group_size > 1 else None,
        "rounds": sampled.rounds,
        "responses_sampled": len(grades),
        "responses_used": len(used) * group_size,
        "contributing": float(counting.sum()) / len(grades),
        "repetition": repeated(samples),
    } | mismatch(rollout)


def mismatch(rollout: Rollout) -> dict[str, float]:
    """Return the distance of sampler and trainer as fields of a `StepRecord`; none where they are the same."""
    if rollout.sampler_logp is None:
        return {}
    old, drawn, mask = rollout.old_logp.double(), rollout.sampler_logp.double(), rollout.samples.mask
    w = token_ratio(old, drawn, mask)[mask]
    return {
        "mismatch_kl": float(k3(drawn, old)[mask].mean()),
        "mismatch_std": float(w.std(correction=0)),
        "mismatch_outside": float(((w < NEAR[0]) | (w > NEAR[1])).double().mean()),
    }


def repeated(samples: Samples) -> float:
    """Return the share of tokens that repeat the token before them."""
    both = samples.mask[..., 1:] & samples.mask[..., :-1]
    same = (samples.tokens[..., 1:] == samples.tokens[..., :-1]) & both
    return float(same.sum() / samples.mask.sum())


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> float | None:
    """Return 1 − var(returns − values) / var(returns) over the tokens of `mask`; None where all returns are equal."""
    returns, values = returns[mask].double(), values[mask].double()
    if returns.numel() < 2 or bool(returns.max() == returns.min()):
        return None
    return float(1 - (returns - values).var() / returns.var())


class RoutingProbe:
    """The experts that the first tokens of a rollout are routed to before the step's updates, of one response a prompt."""

    def __init__(self, policy: Policy, samples: Samples) -> None:
        first = samples.first_responses()
        self._part = first.take(torch.arange(min(WATCHED, len(first.tokens)), device=first.tokens.device))
        self._before = routed(policy, self._part.prompt_ids, self._part.prompt_mask, self._part.tokens)

    @staticmethod
    def is_due(step: int) -> bool:
        """Return whether the record of the step after so many has routing flips."""
        return step % ROUTING_EVERY == ROUTING_EVERY // 2

    def flips(self, policy: Policy) -> float | None:
        """Return the share of routing decisions that differ after the updates; None without experts."""
        if self._before is None:
            return None
        now = routed(policy, self._part.prompt_ids, self._part.prompt_mask, self._part.tokens)
        return None if now is None else routing_flips(self._before, now, self._part.mask)


def record_groups(state: State, task: Task, settings: TrainSettings, rollout: Rollout) -> tuple[GroupRecord, ...]:
    """Return the first groups of a rollout, which is on the CPU.

    In steps with details all of them have their tokens, as the loss sees them after the updates; in watched steps one has.
    """
    step, details = state.step + 1, settings.details_every
    count, sampled = min(settings.details_groups, len(rollout.rewards)), rollout.sampled
    detailed: Sequence[int] = ()
    if details and step % details == 0:
        detailed = range(count)
    elif details and settings.watch_every and step % settings.watch_every == 0:
        detailed = [first_informative_group(rollout.rewards[:count])]
    tokens = _token_records(state, rollout, torch.tensor(detailed), settings) if detailed else []
    tokens_of = dict(zip(detailed, tokens, strict=True))
    lengths, truncated = rollout.samples.lengths.tolist(), rollout.samples.truncated.tolist()
    rewards = rollout.rewards.tolist()
    advantages = (rollout.advantages.sum(-1) / rollout.mask.sum(-1).clamp(min=1)).tolist()
    groups = []
    for p, prompt in enumerate(sampled.prompts[:count]):
        responses = [
            ResponseRecord(
                text=text,
                reward=rewards[p][g],
                advantage=advantages[p][g],
                length=lengths[p][g],
                correct=grade.correct,
                well_formed=grade.format,
                truncated=truncated[p][g],
                tokens=tokens_of[p][g] if p in tokens_of else (),
                reward_parts=None if task.reward_is_grade else grade.parts,
            )
            for g, (text, grade) in enumerate(zip(sampled.texts[p], sampled.grades[p], strict=True))
        ]
        words = task.user_text(prompt)
        groups.append(
            GroupRecord(
                prompt=prompt,
                gold=task.gold(prompt) if task.has_answers else "",
                responses=tuple(responses),
                user_text="" if words == prompt else words,
                control=_control_tokens(state.policy, rollout.samples, p),
            )
        )
    return tuple(groups)


def _control_tokens(policy: Policy, samples: Samples, p: int) -> tuple[str, ...]:
    """Return the control tokens that occur in a prompt or in the responses to it."""
    prompt, tokens = samples.prompt_ids[p][samples.prompt_mask[p]], samples.tokens[p][samples.attention_mask[p]]
    present = control_ids(policy.vocabulary) & {*prompt.tolist(), *tokens.tolist()}
    return tuple(policy.vocabulary.decode([token]) for token in sorted(present))


def first_informative_group(rewards: Float[Tensor, "P G"]) -> int:
    """Return the index of the first group whose rewards differ, since others teach nothing; 0 where there is none."""
    return int((~all_equal(rewards)).int().argmax())


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


def loss_and_pushes(
    algorithm: PolicyGradient, logp: Float[Tensor, "P G T"], batch: Batch
) -> tuple[LossOutput, Float[Tensor, "P G T"]]:
    """Return the algorithm's loss, and each token's push −∂loss/∂logp: how hard, and which way, the loss moves its log π.

    Where a token's ratio is its own the push is weight · ∂value/∂logp; where a response has one ratio for all its tokens, the
    values of all of them are in it.
    """
    leaf = logp.detach().requires_grad_()
    with torch.enable_grad():
        output = algorithm.loss(leaf, batch)
        slope = torch.autograd.grad(output.loss, leaf, allow_unused=True)[0] if output.loss.requires_grad else None
    return output, torch.zeros_like(leaf) if slope is None else -slope


def _token_records(
    state: State, rollout: Rollout, which: Int[Tensor, " N"], settings: TrainSettings
) -> list[list[tuple[TokenRecord, ...]]]:
    """Return the records of every token of these groups, observations included, [N][G]."""
    algorithm, policy = state.algorithm, state.policy
    samples, old_logp = rollout.samples.take(which), rollout.old_logp[which]
    with torch.no_grad():
        on_device = samples.map_tensors(lambda values: values.to(policy.device))
        experts = routes_at(rollout.experts, which)
        (logp,) = on_host(logp_under(policy, on_device, settings, experts))
        entropy = None
        if algorithm.asks_for("surrogate", "entropy"):
            (entropy,) = on_host(entropy_under(policy, on_device, settings, experts))
    selected = rollout.sampled.selected
    weights = token_weights(algorithm, rollout.mask, selected)[which]
    # chosen among all tokens of the selected groups, recorded or not
    chosen = algorithm.choose_tokens(rollout.advantages[selected], rollout.old_logp[selected], rollout.mask[selected])
    if chosen is not None:
        chosen = torch.zeros_like(rollout.mask).index_copy(0, selected, chosen)[which]

    def part(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[which]

    ref_logp, drawn = part(rollout.ref_logp), part(rollout.sampler_logp)
    batch = Batch(old_logp, rollout.advantages[which], rollout.mask[which], ref_logp, weights, entropy, chosen, drawn)
    output, pushed = loss_and_pushes(algorithm, logp, batch)
    columns = {
        "old_prob": old_logp.exp(),
        "new_prob": logp.exp(),
        "ref_prob": None if ref_logp is None else ref_logp.exp(),
        "sampler_prob": None if drawn is None else drawn.exp(),
        "ratio": output.ratio,
        "lower": output.lower,
        "upper": output.upper,
        "advantage": batch.advantages,
        "clipped": output.clipped & (weights > 0),
        "objective": algorithm.objective(logp, batch).value.detach(),
        "weight": weights,
        "push": pushed,
        "observed": samples.observed,
        "value": part(rollout.old_values),
        "entropy": entropy,
        "chosen": chosen,
    }
    is_token = samples.attention_mask
    ids = samples.tokens[is_token].tolist()
    lists: dict[str, list[Any]] = {
        name: [None] * len(ids) if column is None else _rounded(column[is_token]).tolist()
        for name, column in columns.items()
    }
    lists["upper"] = [None if limit == math.inf else limit for limit in lists["upper"]]
    text = {token: policy.vocabulary.decode([token]) for token in set(ids)}
    lists["token"] = [text[token] for token in ids]
    records = (TokenRecord(**dict(zip(lists, row, strict=True))) for row in zip(*lists.values(), strict=True))
    return [[tuple(islice(records, length)) for length in group] for group in is_token.sum(-1).tolist()]


def _rounded(values: Tensor) -> Tensor:
    """Return numbers rounded to the seven digits of float32, which halves them on disk; booleans unchanged."""
    if values.dtype == torch.bool:
        return values
    exact = values.double()
    scale = 10.0 ** (DIGITS - 1 - exact.abs().log10().floor())
    rounded = (exact * scale).round() / scale
    return torch.where(rounded.isfinite(), rounded, exact)
