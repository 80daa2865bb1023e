"""Training from sampled responses: rollout → reward → shape → select → advantages → loss → update, a record a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms.base import PolicyGradient
from rlviz.pieces.advantages import PromptHistory, all_equal
from rlviz.pieces.kl import k3
from rlviz.pieces.words import label
from rlviz.settings import TrainSettings
from rlviz.training.details import token_records, token_weights
from rlviz.training.groups import GroupSampler
from rlviz.training.rewards import agreement, pairs_among, refresh, step_rewards
from rlviz.training.rows import Credit, Rows, first_of_each_group, repeated, take_groups
from rlviz.training.run import TrainingRun, named_under
from rlviz.training.run_folder import RunFolder
from rlviz.training.spread import Routing, Spread
from rlviz.types import Batch, GroupRecord, LossOutput, ResponseRecord, StepRecord, TokenRecord
from small_models.pairs import Pair
from small_models.policies import Policy
from small_models.sampling import Samples, response_logits, token_logp
from small_models.scorers import RewardModel
from small_models.tasks import Grade, Task


@dataclass(frozen=True)
class Rollout:
    """A graded rollout. P: prompts of all rounds. rewards [P, G]: after shaping, of single steps their mean; mask: the tokens
    that the loss sees, and ref_logp where the algorithm needs it: [P, G, T]; selected: indices of the groups to update on.
    agreement: of learned rewards with what is right."""

    prompts: list[str]
    samples: Samples
    texts: list[list[str]]
    grades: list[list[Grade]]
    rewards: Tensor
    mask: Tensor
    credit: Credit
    ref_logp: Tensor | None
    kl: float
    selected: Tensor
    rounds: int
    agreement: float | None

    @property
    def advantages(self) -> Tensor:
        return self.credit.advantages


class RolloutRun(TrainingRun[StepRecord]):
    """A run of an algorithm that samples: of groups, here; with a critic, see `ActorCriticRun`.

    reference: π_ref, the start of the run unless the settings reset it. reward_model: what scores responses in place of the
    task's rule (None: the rule). reward_pairs: what the reward model learned from, and what a refresh replays a part of.
    """

    def __init__(
        self,
        policy: Policy,
        start: Policy,
        task: Task,
        algorithm: PolicyGradient,
        settings: TrainSettings,
        folder: RunFolder | None,
        reward_model: RewardModel | None = None,
        reward_pairs: Sequence[Pair] = (),
    ) -> None:
        _check_fit(algorithm, settings, reward_model)
        super().__init__(policy, start, task, algorithm, settings, folder)
        self.reference, self.reward_model, self.reward_pairs = start, reward_model, list(reward_pairs)
        self._sampler = GroupSampler(policy, task, algorithm, settings, reward_model, self._generator)
        self._reward_loss: float | None = None
        self._spread = Spread()
        self._of_steps = algorithm.asks_for("advantage", "step_ends")
        self._can_drop_rows = algorithm.ignores_zero_advantages()
        self._history = None
        if algorithm.asks_for("advantage", "history"):
            self._history = PromptHistory.empty(len(task.train_prompts), policy.device)

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, counters = super()._state()
        if self.settings.filter_solved:
            tensors["pool"] = self._sampler.pool
        if self._history is not None:
            visited = self._history.visits.nonzero().squeeze(1)
            tensors |= {f"history.{name}": value for name, value in vars(self._history.take(visited)).items()}
            tensors["history.prompts"] = visited
        if self.settings.reset_reference_every:
            tensors |= {f"reference.{name}": value for name, value in self.reference.model.state_dict().items()}
        if self.reward_model is not None and self.settings.refresh_reward_every:
            scorer = self.reward_model.scorer
            tensors |= {f"reward_model.{name}": value for name, value in scorer.state_dict().items()}
            counters |= {"reward_loss": self._reward_loss, "reward_pairs": [vars(pair) for pair in self.reward_pairs]}
        return tensors, counters

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        super().restore(tensors, state)
        if self.settings.filter_solved:
            self._sampler.pool = tensors["pool"]
        if self._history is not None:
            values = {name: value.to(self.policy.device) for name, value in named_under("history.", tensors).items()}
            self._history = self._history.put(values.pop("prompts"), PromptHistory(**values))
        if self.settings.reset_reference_every:
            self._reset_reference()
            self.reference.model.load_state_dict(named_under("reference.", tensors))
        if self.reward_model is not None and self.settings.refresh_reward_every:
            self.reward_model.scorer.load_state_dict(named_under("reward_model.", tensors))
            self._reward_loss = state["reward_loss"]
            self.reward_pairs = [Pair(**pair) for pair in state["reward_pairs"]]

    def _learn(self) -> dict[str, Any]:
        before = 0
        if self.settings.filter_solved and self.step == 0:
            before, tokens = self._sampler.filter_solved()
            self.tokens_sampled += tokens
        rollout = self._roll_out()
        beta = self.algorithm.beta
        routing = Routing(self.policy, rollout.samples)
        sums = self._update(rollout)
        every = self.settings.details_every
        details = bool(every) and (self.step + 1) % every == 0
        fields = self._numbers(rollout, sums) | {"beta": beta, "groups": self._group_records(rollout, details)}
        fields["responses_sampled"] += before
        fields |= self._spread.numbers() | routing.numbers(self.policy)
        fields |= self._after_the_updates(rollout)
        done = self.step + 1
        if self.settings.reset_reference_every and done % self.settings.reset_reference_every == 0:
            self._reset_reference()
        if self.settings.refresh_reward_every and done % self.settings.refresh_reward_every == 0:
            self._refresh_reward(rollout)
        return fields

    def _record(self, **fields: Any) -> StepRecord:
        return StepRecord(**fields)

    def _roll_out(self) -> Rollout:
        settings, task = self.settings, self.task
        sampled = self._sampler.sample()
        samples, prompts, texts, grades = sampled.samples, sampled.prompts, sampled.texts, sampled.grades
        correct, well_formed = sampled.of_grades("correct"), sampled.of_grades("format")
        self.tokens_sampled += int(samples.mask.sum())
        if not samples.logp[samples.mask].isfinite().all():  # with equal rewards no loss would show it
            raise FloatingPointError(self._diverged("log-probability of a sampled token"))
        mask = self.algorithm.loss_mask(samples.mask, samples.truncated)
        if settings.min_old_prob:
            least = samples.logp.masked_fill(~samples.mask, 0.0).amin(-1, keepdim=True)
            mask = mask & (least.exp() >= settings.min_old_prob)
        ref_logp, kl = self._reference(samples)
        ends = None
        if self._of_steps:
            earned, ends = step_rewards(self.policy, task, prompts, texts, samples)
            rewards = earned.sum(-1) / ends.sum(-1)
        else:
            raw = settings.reward_correct * correct + settings.reward_format * well_formed
            if self.reward_model is not None:
                raw = sampled.outcomes
            rewards = earned = self.algorithm.shaped(
                raw, samples.lengths, truncated=samples.truncated, correct=correct, well_formed=well_formed
            )
        if not rewards.isfinite().all():
            raise FloatingPointError(self._diverged("mean reward", "a reward model or a piece of your own gave that"))
        credit = self._credit(earned, ends, samples, mask, ref_logp, sampled.chosen.to(self.policy.device))
        return Rollout(
            prompts=prompts,
            samples=samples,
            texts=texts,
            grades=grades,
            rewards=rewards,
            mask=mask,
            credit=credit,
            ref_logp=ref_logp,
            kl=kl,
            selected=sampled.selected,
            rounds=sampled.rounds,
            agreement=None if self.reward_model is None else agreement(sampled.outcomes, correct),
        )

    def _credit(
        self,
        rewards: Tensor,
        step_ends: Tensor | None,
        samples: Samples,
        mask: Tensor,
        ref_logp: Tensor | None,
        chosen: Tensor,
    ) -> Credit:
        """Return what each token earned. rewards: [P, G], or with step_ends [P, G, T]. chosen: the prompts' indices."""
        history = None if self._history is None else self._history.take(chosen)
        advantages, history = self.algorithm.advantages(
            rewards, mask, old_logp=samples.logp, ref_logp=ref_logp, step_ends=step_ends, history=history
        )
        if self._history is not None:
            self._history = self._history.put(chosen, history)
        return Credit(advantages)

    @torch.no_grad()
    def _reference(self, samples: Samples) -> tuple[Tensor | None, float]:
        """Return log π_ref where it is needed, and the KL to the reference; one response a prompt is enough for that."""
        needed = self.algorithm.needs_reference
        part = samples if needed else first_of_each_group(samples)
        logits = response_logits(self.reference, part.prompt_ids, part.prompt_mask, part.tokens)
        ref_logp = token_logp(logits, part.tokens, temperature=self.settings.temperature)
        kl = k3(part.logp, ref_logp)[part.mask].mean()
        return (ref_logp if needed else None), float(kl)

    def _update(self, rollout: Rollout) -> dict[str, float]:
        """Make the step's optimizer steps and return sums over them (token counts, losses, ratios)."""
        settings = self.settings
        rows = Rows.of(rollout.samples, rollout.mask, rollout.credit, rollout.ref_logp, rollout.selected)
        self._warm_up_lr()
        self._spread = Spread()
        names = ("loss", "value_loss", "grad_norm", "tokens", "low", "high", "dual", "ratios", "ratio", "ratio_squared")
        sums = dict.fromkeys((*names, "rows"), 0.0)
        count = len(rows.tokens)
        parts: list[Tensor] = []
        for _ in range(settings.updates_per_rollout):
            if not parts:
                whole = settings.minibatches == 1
                order = torch.arange(count) if whole else torch.randperm(count, generator=self._generator)
                parts = [part.to(rows.tokens.device) for part in order.tensor_split(settings.minibatches)]
            minibatch = rows.take(parts.pop())
            sums["tokens"] += float(minibatch.mask.sum())
            weights = self.algorithm.aggregate(minibatch.mask)
            if self._can_drop_rows:
                used = minibatch.advantages.flatten(1).any(1)
                minibatch = minibatch.take(used)
                longest = minibatch.longest  # the rows that left may have been the long ones
                minibatch, weights = minibatch.cut(longest), weights[used, :, :longest]
            self._optimizer.zero_grad(set_to_none=False)
            if len(minibatch.tokens):
                output = self._backward(minibatch, weights, sums)
                ratio = output.ratio[minibatch.mask].double()
                sums["low"] += float(output.clipped_low.sum())
                sums["high"] += float(output.clipped_high.sum())
                sums["dual"] += float(output.clipped_dual.sum())
                sums["ratios"] += ratio.numel()
                sums["ratio"] += float(ratio.sum())
                sums["ratio_squared"] += float(ratio.square().sum())
                sums["rows"] += len(minibatch.tokens)
            else:  # nothing to learn from; Adam still moves by its momentum, as it would with the zero rows kept
                for parameter in self._parameters:
                    parameter.grad = torch.zeros_like(parameter)
            sums["grad_norm"] += self._update_policy(sums["loss"])
        return sums

    def _backward(self, rows: Rows, weights: Tensor, sums: dict[str, float]) -> LossOutput:
        """Put the gradients of these rows' loss where the optimizer finds them, and add the loss to `sums`."""
        logits = response_logits(self.policy, rows.prompt_ids, rows.prompt_mask, rows.tokens)
        output = self._policy_loss(logits, rows, weights)
        output.loss.backward()
        sums["loss"] += float(output.loss.detach())
        return output

    def _policy_loss(self, logits: Tensor, rows: Rows, weights: Tensor) -> LossOutput:
        logp = token_logp(logits, rows.tokens, temperature=self.settings.temperature)
        self._spread.add(logp, rows)
        return self.algorithm.loss(logp, Batch(rows.old_logp, rows.advantages, rows.mask, rows.ref_logp, weights))

    def _after_the_updates(self, rollout: Rollout) -> dict[str, Any]:
        """Do what is left to do when a step's updates are done; return further fields of the record."""
        return {}

    def _reset_reference(self) -> None:
        self.reference = self.policy.frozen_copy()

    def _refresh_reward(self, rollout: Rollout) -> None:
        assert self.reward_model is not None
        fresh = pairs_among(self.policy, rollout)
        loss = refresh(self.reward_model, fresh, self.reward_pairs, seed=self.settings.seed + self.step)
        self._reward_loss = self._reward_loss if loss is None else loss
        self.reward_pairs += fresh

    def _numbers(self, rollout: Rollout, sums: dict[str, float]) -> dict[str, Any]:
        settings, samples = self.settings, rollout.samples
        grades = [grade for row in rollout.grades for grade in row]
        used = rollout.selected.unique()
        updates, ratios = settings.updates_per_rollout, max(1.0, sums["ratios"])
        ratio_mean = sums["ratio"] / ratios if sums["ratios"] else 1.0
        variance = sums["ratio_squared"] / ratios - ratio_mean**2 if sums["ratios"] else 0.0
        return {
            "reward": float(rollout.rewards.mean()),
            "accuracy": sum(grade.correct for grade in grades) / len(grades),
            "well_formed": sum(grade.format for grade in grades) / len(grades),
            "truncated": float(samples.truncated.float().mean()),
            "entropy": float(samples.entropy[samples.mask].mean()),
            "response_length": float(samples.lengths.float().mean()),
            "kl": rollout.kl,
            "loss": sums["loss"] / updates,
            "grad_norm": sums["grad_norm"] / updates,
            "ratio_mean": ratio_mean,
            "ratio_std": max(0.0, variance) ** 0.5,
            "clip_fraction_low": sums["low"] / max(1.0, sums["tokens"]),
            "clip_fraction_high": sums["high"] / max(1.0, sums["tokens"]),
            "clip_fraction_dual": sums["dual"] / max(1.0, sums["tokens"]),
            "zero_variance_groups": float(all_equal(rollout.rewards).float().mean())
            if settings.group_size > 1
            else None,
            "rounds": rollout.rounds,
            "responses_sampled": len(grades),
            "responses_used": len(used) * settings.group_size,
            "contributing": float((rollout.advantages[used] * rollout.mask[used]).flatten(2).any(2).sum())
            / len(grades),
            "rows_used": sums["rows"] / (len(grades) * updates / settings.minibatches),
            "repetition": repeated(samples),
            "reward_agreement": rollout.agreement,
            "reward_loss": self._reward_loss,
        }

    def _group_records(self, rollout: Rollout, details: bool) -> tuple[GroupRecord, ...]:
        count = min(self.settings.details_groups, len(rollout.prompts))
        first = take_groups(rollout.samples, torch.arange(count, device=rollout.mask.device))
        lengths, truncated = first.lengths.tolist(), first.truncated.tolist()
        advantages = (rollout.advantages[:count].sum(-1) / rollout.mask[:count].sum(-1).clamp(min=1)).tolist()
        tokens = self._token_records(rollout, first) if details else None

        def response_record(p: int, g: int) -> ResponseRecord:
            return ResponseRecord(
                text=rollout.texts[p][g],
                reward=float(rollout.rewards[p, g]),
                advantage=advantages[p][g],
                length=lengths[p][g],
                correct=rollout.grades[p][g].correct,
                well_formed=rollout.grades[p][g].format,
                truncated=truncated[p][g],
                tokens=() if tokens is None else tokens[p][g],
            )

        return tuple(
            GroupRecord(
                prompt=rollout.prompts[p],
                gold=self.task.gold(rollout.prompts[p]),
                responses=tuple(response_record(p, g) for g in range(len(lengths[p]))),
            )
            for p in range(count)
        )

    def _token_records(self, rollout: Rollout, first: Samples) -> list[list[tuple[TokenRecord, ...]]]:
        """Return the tokens of the first groups as the loss sees them after this step's updates."""
        count = len(first.tokens)
        with torch.no_grad():
            logits = response_logits(self.policy, first.prompt_ids, first.prompt_mask, first.tokens)
            logp = token_logp(logits, first.tokens, temperature=self.settings.temperature)
        batch = Batch(
            old_logp=first.logp,
            advantages=rollout.advantages[:count],
            mask=rollout.mask[:count],
            ref_logp=None if rollout.ref_logp is None else rollout.ref_logp[:count],
            weights=token_weights(self.algorithm, rollout.mask, rollout.selected)[:count],
        )
        values = None if rollout.credit.old_values is None else rollout.credit.old_values[:count]
        return token_records(self.algorithm, logp, batch, first, self.policy.tokenizer, values)


def _check_fit(algorithm: PolicyGradient, settings: TrainSettings, reward_model: RewardModel | None) -> None:
    """Refuse settings and rewards that contradict the algorithm."""
    if settings.group_size < algorithm.min_group_size:
        raise ValueError(
            f"group_size must be at least {algorithm.min_group_size} for {algorithm.name}, which compares a response with "
            f"its group; got {settings.group_size}"
        )
    own_rules = algorithm.asks_for("shape", "correct")
    if own_rules and (settings.reward_correct, settings.reward_format) != (1.0, 0.0):
        raise ValueError(
            f"reward_correct and reward_format: {algorithm.name} weighs the rules itself ({label(algorithm.shape)}); got "
            f"{settings.reward_correct:g} and {settings.reward_format:g}"
        )
    if own_rules and reward_model is not None:
        raise ValueError(
            f"reward_model: {algorithm.name} weighs two rules ({label(algorithm.shape)}) and would not see its scores; "
            "give it shape=None"
        )
    if algorithm.asks_for("advantage", "step_ends"):
        if reward_model is not None:
            raise ValueError(f"reward_model: {algorithm.name} needs rewards of single steps, which only tasks give")
        if algorithm.shape is not None or algorithm.kl_in_reward:
            raise ValueError(
                f"algorithm: {algorithm.name} learns from rewards of single steps, so it takes no shaping of whole "
                "responses' rewards and no KL in the reward"
            )
    if settings.refresh_reward_every and reward_model is None:
        raise ValueError(f"refresh_reward_every needs a reward model; got {settings.refresh_reward_every} without one")
