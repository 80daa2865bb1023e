"""Training from sampled responses: sample → reward → shape → select → advantages → updates → a record a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.base import PolicyGradient
from rlviz.pieces.kl import k3
from rlviz.settings import TrainSettings
from rlviz.training.baselines import Baseline, CriticBaseline, GroupBaseline
from rlviz.training.records import ROUTING_EVERY, Routing, group_records, rollout_numbers, watched_group
from rlviz.training.rewards import source_of_rewards, step_rewards
from rlviz.training.rollouts import Groups, Rewarded, Rollout, Rows, first_of_each_group, logp_under
from rlviz.training.run import Part, TrainingRun, put_weights
from rlviz.training.run_folder import RunFolder
from rlviz.training.sampler import GroupSampler
from rlviz.training.updates import Updates
from rlviz.types import GroupRecord, StepRecord
from small_models.host import all_on_host, on_host
from small_models.pairs import Pair
from small_models.policies import Policy
from small_models.sampling import Samples
from small_models.scorers import RewardModel
from small_models.tasks import Task


class Reference(Part):
    """π_ref, `policy`: the start of the run, unless another was given or the settings reset it.

    needed: whether the algorithm needs it.
    """

    def __init__(self, current: Policy, start: Policy, settings: TrainSettings, *, needed: bool) -> None:
        self.current, self.policy, self.settings, self.needed = current, start, settings, needed

    @property
    def models(self) -> Mapping[str, nn.Module]:
        return {"reference": self.policy.weights} if self.needed else {}

    @torch.no_grad()
    def logp_and_kl(self, samples: Samples) -> tuple[Tensor | None, float]:
        """Return log π_ref where it is needed, and the KL to the reference; one response a prompt is enough for that."""
        part = samples if self.needed else first_of_each_group(samples)
        ref_logp = logp_under(self.policy, part, self.settings)
        return (ref_logp if self.needed else None), _mean_over(k3(part.logp, ref_logp), part.mask)

    def after_step(self, step: int, rollout: Rollout) -> None:
        every = self.settings.reset_reference_every
        if every and step % every == 0:
            self.policy = self.current.frozen_copy()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        if not self.settings.reset_reference_every:
            return {}, {}
        return {f"reference.{name}": value for name, value in self.policy.weights.state_dict().items()}, {}

    def restore(self, tensors: dict[str, Tensor], counters: dict[str, Any]) -> None:
        if self.settings.reset_reference_every:
            self.policy = self.current.frozen_copy()
            put_weights(self.policy.weights, "reference.", tensors)


class RolloutRun(TrainingRun[StepRecord]):
    """A run of an algorithm that samples.

    It has a `rewards` source, a `sampler` of groups, a `baseline` (the group, or a critic) and a `reference`; the algorithm's
    pieces say what is done with what they give. An adapted KL weight (PPO-Penalty's) is that of `algorithm`.
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
        reference: Policy | None = None,
    ) -> None:
        if settings.group_size < algorithm.min_group_size:
            raise ValueError(
                f"group_size must be at least {algorithm.min_group_size} for {algorithm.name}, which compares a response with "
                f"its group; got {settings.group_size}"
            )
        self.baseline: Baseline = (
            CriticBaseline(policy, settings)
            if isinstance(algorithm, ActorCritic)
            else GroupBaseline(policy, algorithm, settings, len(task.train_prompts))
        )
        self.reference = Reference(policy, reference or start, settings, needed=algorithm.needs_reference)
        self.rewards = source_of_rewards(policy, algorithm, settings, reward_model, reward_pairs)
        self.sampler = GroupSampler(policy, task, algorithm, settings, self.rewards.outcomes)
        super().__init__(
            policy,
            start,
            task,
            algorithm,
            settings,
            folder,
            parts=(self.sampler, self.baseline, self.reference, self.rewards),
            optimizers=self.baseline.optimizers(),
        )

    def _learn(self) -> partial[StepRecord]:
        filters = self.settings.filter_solved and self.step == 0
        solved, tokens = self.sampler.filter_solved(self.generator) if filters else (0, 0)
        self.tokens_sampled += tokens
        rollout = self.collect()
        counts_flips = self.step % ROUTING_EVERY == ROUTING_EVERY // 2
        routing = Routing(self.policy, rollout.samples) if counts_flips else None
        updates = self.update(rollout)
        kl_to_old = self._kl_to_old(rollout)
        told = all_on_host(rollout)
        fields = rollout_numbers(told) | updates.numbers()
        fields["responses_sampled"] += solved
        for part in self.parts:
            fields |= part.numbers(told, updates)
        record = partial(
            StepRecord,
            **fields,
            beta=self.algorithm.beta,
            rows_used=updates.rows / (rollout.rewards.numel() * updates.count / self.settings.minibatches),
            routing_flips=None if routing is None else routing.flips(self.policy),
            kl_to_old=kl_to_old,
            groups=self._group_records(told),
        )
        if self.step >= self.settings.critic_only_steps:
            kl = rollout.kl if kl_to_old is None else kl_to_old
            self.algorithm = self.algorithm.adapted(kl, rollout.rewards.numel())
        for part in self.parts:
            part.after_step(self.step + 1, rollout)
        return record

    def collect(self) -> Rollout:
        """Return groups of sampled responses with their rewards and what each token earned."""
        groups = self.sampler.sample(self.generator)
        if not self.settings.own_sampler:
            groups = replace(groups, samples=self._seen_by_trainer(groups.samples))
        mask = groups.samples.mask
        count, finite = on_host(mask.sum(), (groups.samples.logp.isfinite() | ~mask).all())
        self.tokens_sampled += int(count)
        if not finite:  # with equal rewards no loss would show it
            raise FloatingPointError(self._diverged("log-probability of a sampled token"))
        rewarded = self._reward(groups)
        (finite,) = on_host(rewarded.rewards.isfinite().all())
        if not finite:
            raise FloatingPointError(self._diverged("mean reward", "a reward model or a piece of your own gave that"))
        return Rollout(**vars(rewarded), credit=self.baseline.credit(self.algorithm, rewarded, self.step))

    @torch.no_grad()
    def _seen_by_trainer(self, samples: Samples) -> Samples:
        """Return what another engine sampled with log π_old, the trainer's, beside the log-probabilities of the sampler."""
        logp = logp_under(self.policy, samples, self.settings).masked_fill(~samples.there, 0.0)
        own = samples.logp if samples.sampler_logp is None else samples.sampler_logp
        return replace(samples, logp=logp, sampler_logp=own)

    def _reward(self, groups: Groups) -> Rewarded:
        samples = groups.samples
        of_steps, ends = None, None
        if self.algorithm.asks_for("advantage", "step_ends"):
            of_steps, ends = step_rewards(self.policy, self.task, groups.prompts, groups.texts, samples)
            rewards = of_steps.sum(-1) / ends.sum(-1)
        else:
            rewards = self.algorithm.shaped(
                self.rewards.of_responses(groups),
                samples.lengths,
                truncated=samples.truncated,
                correct=groups.correct,
                well_formed=groups.well_formed,
            )
        mask = self.algorithm.loss_mask(samples.mask, samples.truncated)
        if self.settings.min_old_prob:
            least = samples.logp.masked_fill(~samples.mask, 0.0).amin(-1, keepdim=True)
            mask = mask & (least.exp() >= self.settings.min_old_prob)
        ref_logp, kl = self.reference.logp_and_kl(samples)
        return Rewarded(
            **vars(groups), rewards=rewards, step_rewards=of_steps, step_ends=ends, mask=mask, ref_logp=ref_logp, kl=kl
        )

    def update(self, collected: Rollout) -> Updates:
        """Take the updates of a step; return what happened in all of them together."""
        self._warm_up_lr()
        updates = all_on_host(
            sum((self._update_once(rows) for rows in self._minibatches(Rows.of(collected))), Updates())
        )
        self._check_finite(updates.losses[0], *updates.grad_norms)
        return updates

    def _minibatches(self, rows: Rows) -> Iterator[Rows]:
        """Give the rows of each update: all of them, or a part, in another order at each pass."""
        settings, count = self.settings, len(rows.tokens)
        for _ in range(settings.updates_per_rollout // settings.minibatches):
            if settings.minibatches == 1:
                yield rows
                continue
            order = torch.randperm(count, generator=self.generator)
            for part in reversed(order.tensor_split(settings.minibatches)):
                yield rows.take(part)

    def _update_once(self, rows: Rows) -> Updates:
        tokens = int(rows.known.seen.sum())
        chosen = self.algorithm.chosen(rows.advantages, rows.old_logp, rows.mask)
        rows = replace(rows, weights=self.algorithm.aggregate(rows.mask), chosen=chosen)
        if self.baseline.can_drop_rows:
            rows = rows.take(rows.known.teaches.nonzero().squeeze(1))
            rows = rows.cut(rows.longest)  # the rows that left may have been the long ones
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        if not len(rows.tokens):  # nothing to learn from; Adam still moves by its momentum, as with the zero rows kept
            for parameter in (p for optimizer in self.optimizers for p in optimizer.param_groups[0]["params"]):
                parameter.grad = torch.zeros_like(parameter)
            return Updates(count=1, tokens=tokens, grad_norms=self._take_optimizer_step(rows.mask.sum()))
        done = Updates()
        for part in rows.split(self.settings.micro_batch_tokens):
            assert part.weights is not None
            loss = self.baseline.loss(self.algorithm, part, part.weights, self.step)
            loss.total.backward()
            done += Updates.one(loss, part)
        return replace(done, count=1, tokens=tokens, grad_norms=self._take_optimizer_step(done.losses[0]))

    @torch.no_grad()
    def _kl_to_old(self, rollout: Rollout) -> float | None:
        """Return KL(π_old‖π_θ) after the updates by the KL term's own estimator, None where that term is of another kind."""
        if not self.algorithm.asks_for("kl", "old_logp"):
            return None
        estimator = self.algorithm.can.estimator or k3  # a term of one's own may be none of an estimator
        logp = logp_under(self.policy, rollout.samples, self.settings)
        return _mean_over(estimator(rollout.samples.logp, logp), rollout.mask)

    def _group_records(self, rollout: Rollout) -> tuple[GroupRecord, ...]:
        """Return the first groups of a rollout: in steps with details with their tokens, in watched ones with those of one."""
        settings, step = self.settings, self.step + 1
        count = min(settings.details_groups, len(rollout.prompts))
        tokens: Sequence[int] = ()
        if settings.details_every and step % settings.details_every == 0:
            tokens = range(count)
        elif settings.details_every and settings.watch_every and step % settings.watch_every == 0:
            tokens = [watched_group(rollout.rewards[:count])]
        return group_records(self.algorithm, self.policy, self.task, rollout, count, settings, tokens=tokens)

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, counters = super()._state()
        return tensors, counters | ({"beta": self.algorithm.beta} if "critic" in self.algorithm.models else {})

    def restore(self, tensors: dict[str, Tensor], counters: dict[str, Any]) -> None:
        super().restore(tensors, counters)
        if counters.get("beta") is not None:
            self.algorithm = self.algorithm.with_parameters(beta=counters["beta"])


def _mean_over(values: Tensor, mask: Tensor) -> float:
    """Return the mean of the values at which the mask is true."""
    values, mask = on_host(values, mask)
    return float(values[mask].mean())
