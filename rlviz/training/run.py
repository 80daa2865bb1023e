"""The training loop, as an iterator: rollout → reward → shape → select → advantages → loss → update, a record a step."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

import rlviz
from rlviz.algorithms.base import GroupPolicyGradient, label
from rlviz.algorithms.describe import describe, rebuild
from rlviz.algorithms.family import Algorithm
from rlviz.names import closest
from rlviz.pieces.advantages import PromptHistory, all_equal
from rlviz.pieces.kl import k3
from rlviz.training.details import token_records, token_weights
from rlviz.training.rows import Rows, first_of_each_group, take_groups
from rlviz.training.run_folder import RunFolder, write_json
from rlviz.training.settings import TrainSettings
from rlviz.types import Batch, GroupRecord, LossOutput, ResponseRecord, StepRecord, TokenRecord
from small_models.evaluation import evaluate
from small_models.policies import Policy, one_thread_if_small
from small_models.sampling import Samples, response_logits, sample, token_logp
from small_models.tasks import TASKS, Grade, Task


@dataclass(frozen=True)
class _Rollout:
    """A graded rollout. rewards [P, G] after shaping; mask: the tokens that the loss sees, advantages, ref_logp where the
    algorithm needs it: [P, G, T]; selected: indices of the groups to update on."""

    prompts: list[str]
    samples: Samples
    texts: list[list[str]]
    grades: list[list[Grade]]
    rewards: Tensor
    mask: Tensor
    advantages: Tensor
    ref_logp: Tensor | None
    kl: float
    selected: Tensor


class TrainingRun(Iterator[StepRecord]):
    """A run in progress: pull a record and one step is done; stop pulling and it waits; pull again and it goes on.

    policy (changed in place), task, algorithm, settings, folder (None without `out`), step: steps done so far,
    train_seconds: seconds in those steps, tokens_sampled. Made by `train` and `resume`.
    """

    def __init__(
        self,
        policy: Policy,
        reference: Policy,
        task: Task,
        algorithm: GroupPolicyGradient,
        settings: TrainSettings,
        folder: RunFolder | None,
    ) -> None:
        if settings.num_prompts > len(task.train_prompts):
            raise ValueError(
                f"num_prompts must be at most {len(task.train_prompts)}, the training prompts of {task.name}; "
                f"got {settings.num_prompts}"
            )
        _check_fit(algorithm, settings)
        self.policy, self.reference, self.task = policy, reference, task
        self.algorithm, self.settings, self.folder = algorithm, settings, folder
        self.step, self.train_seconds, self.tokens_sampled = 0, 0.0, 0
        self._parameters = [p for p in policy.model.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(self._parameters, lr=settings.lr, weight_decay=0.0, fused=True)
        self._generator = torch.Generator().manual_seed(settings.seed)
        self._can_drop_rows = algorithm.ignores_zero_advantages()
        self._history = None
        if algorithm.asks_for("advantage", "history"):
            self._history = PromptHistory.empty(len(task.train_prompts), policy.device)

    def __next__(self) -> StepRecord:
        if self.step >= self.settings.steps:
            raise StopIteration
        start = time.perf_counter()
        with one_thread_if_small(self.policy):
            rollout = self._roll_out()
            sums = self._update(rollout)
            details = bool(self.settings.details_every) and (self.step + 1) % self.settings.details_every == 0
            groups = self._group_records(rollout, details)
        seconds = time.perf_counter() - start
        self.step += 1
        self.train_seconds += seconds
        record = self._record(rollout, sums, groups, seconds)
        if self.folder is not None:
            self.folder.append(record)
            every = self.settings.checkpoint_every
            if self.step == self.settings.steps or (every and self.step % every == 0):
                self.save()
        return record

    def save(self) -> None:
        """Write the state to the run folder, so that `resume` goes on from this step. Does nothing without a folder."""
        if self.folder is None:
            return
        tensors = {
            f"{index}.{name}": value
            for index, parameter in enumerate(self._parameters)
            for name, value in self._optimizer.state[parameter].items()
        }
        tensors["generator"] = self._generator.get_state()
        if self._history is not None:
            visited = self._history.visits.nonzero().squeeze(1)
            tensors |= {f"history.{name}": value for name, value in vars(self._history.take(visited)).items()}
            tensors["history.prompts"] = visited
        state = {"step": self.step, "train_seconds": self.train_seconds, "tokens_sampled": self.tokens_sampled}
        self.folder.save_state(self.policy, tensors, state)

    def _restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        self.step, self.train_seconds = state["step"], state["train_seconds"]
        self.tokens_sampled = state["tokens_sampled"]
        self._generator.set_state(tensors.pop("generator"))
        saved = {name: tensors.pop(name) for name in list(tensors) if name.startswith("history.")}
        if self._history is not None:
            values = {name.split(".")[1]: value.to(self.policy.device) for name, value in saved.items()}
            self._history = self._history.put(values.pop("prompts"), PromptHistory(**values))
        for name, value in tensors.items():
            index, key = name.split(".", 1)
            parameter = self._parameters[int(index)]
            self._optimizer.state[parameter][key] = value.to(parameter.device)

    def _roll_out(self) -> _Rollout:
        settings, task = self.settings, self.task
        chosen = torch.randperm(len(task.train_prompts), generator=self._generator)[: settings.num_prompts]
        prompts = [task.train_prompts[index] for index in chosen.tolist()]
        samples = sample(
            self.policy,
            prompts,
            group_size=settings.group_size,
            max_new_tokens=settings.max_new_tokens or task.max_new_tokens,
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            generator=self._generator,
        )
        self.tokens_sampled += int(samples.mask.sum())
        texts = samples.texts(self.policy)
        grades = [[task.grade(prompt, text) for text in row] for prompt, row in zip(prompts, texts, strict=True)]
        correct, well_formed = (
            torch.tensor([[float(getattr(g, name)) for g in row] for row in grades], device=self.policy.device)
            for name in ("correct", "format")
        )
        rewards = self.algorithm.shaped(
            settings.reward_correct * correct + settings.reward_format * well_formed,
            samples.lengths,
            truncated=samples.truncated,
            correct=correct,
            well_formed=well_formed,
        )
        mask = self.algorithm.loss_mask(samples.mask, samples.truncated)
        ref_logp, kl = self._reference(samples)
        history = None if self._history is None else self._history.take(chosen.to(self.policy.device))
        advantages = self.algorithm.advantages(rewards, mask, old_logp=samples.logp, ref_logp=ref_logp, history=history)
        if self._history is not None:
            after = self.algorithm.advantage.remember(rewards, history)  # type: ignore[attr-defined]
            self._history = self._history.put(chosen.to(self.policy.device), after)
        selected = self.algorithm.selected(correct, self._generator)
        return _Rollout(prompts, samples, texts, grades, rewards, mask, advantages, ref_logp, kl, selected)

    @torch.no_grad()
    def _reference(self, samples: Samples) -> tuple[Tensor | None, float]:
        """Return log π_ref where it is needed, and the KL to the reference; one response a prompt is enough for that."""
        needed = self.algorithm.needs_reference
        part = samples if needed else first_of_each_group(samples)
        logits = response_logits(self.reference, part.prompt_ids, part.prompt_mask, part.tokens)
        ref_logp = token_logp(logits, part.tokens, temperature=self.settings.temperature)
        kl = k3(part.logp, ref_logp)[part.mask].mean()
        return (ref_logp if needed else None), float(kl)

    def _update(self, rollout: _Rollout) -> dict[str, float]:
        """Make the step's optimizer steps and return sums over them (token counts, losses, ratios)."""
        settings = self.settings
        rows = Rows.of(rollout.samples, rollout.mask, rollout.advantages, rollout.ref_logp, rollout.selected)
        for group in self._optimizer.param_groups:
            group["lr"] = settings.lr * min(1.0, (self.step + 1) / max(1, settings.lr_warmup_steps))
        sums = dict.fromkeys(
            ("loss", "grad_norm", "tokens", "low", "high", "dual", "ratios", "ratio", "ratio_squared", "rows"), 0.0
        )
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
                output = self._loss(minibatch, weights)
                output.loss.backward()
                ratio = output.ratio[minibatch.mask].double()
                sums["loss"] += float(output.loss.detach())
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
            norm = torch.nn.utils.clip_grad_norm_(self._parameters, settings.max_grad_norm)
            sums["grad_norm"] += float(norm)
            self._optimizer.step()
        return sums

    def _loss(self, rows: Rows, weights: Tensor) -> LossOutput:
        logits = response_logits(self.policy, rows.prompt_ids, rows.prompt_mask, rows.tokens)
        logp = token_logp(logits, rows.tokens, temperature=self.settings.temperature)
        return self.algorithm.loss(logp, Batch(rows.old_logp, rows.advantages, rows.mask, rows.ref_logp, weights))

    def _record(
        self, rollout: _Rollout, sums: dict[str, float], groups: tuple[GroupRecord, ...], seconds: float
    ) -> StepRecord:
        settings, samples = self.settings, rollout.samples
        grades = [grade for row in rollout.grades for grade in row]
        evaluated = settings.evaluate_every and (
            self.step % settings.evaluate_every == 0 or self.step == settings.steps
        )
        updates, ratios = settings.updates_per_rollout, max(1.0, sums["ratios"])
        ratio_mean = sums["ratio"] / ratios if sums["ratios"] else 1.0
        variance = sums["ratio_squared"] / ratios - ratio_mean**2 if sums["ratios"] else 0.0
        return StepRecord(
            step=self.step,
            seconds=seconds,
            reward=float(rollout.rewards.mean()),
            accuracy=sum(grade.correct for grade in grades) / len(grades),
            well_formed=sum(grade.format for grade in grades) / len(grades),
            truncated=float(samples.truncated.float().mean()),
            held_out_accuracy=evaluate(self.policy, self.task, max_new_tokens=settings.max_new_tokens).accuracy
            if evaluated
            else None,
            entropy=float(samples.entropy[samples.mask].mean()),
            response_length=float(samples.lengths.float().mean()),
            kl=rollout.kl,
            loss=sums["loss"] / updates,
            grad_norm=sums["grad_norm"] / updates,
            ratio_mean=ratio_mean,
            ratio_std=max(0.0, variance) ** 0.5,
            clip_fraction_low=sums["low"] / max(1.0, sums["tokens"]),
            clip_fraction_high=sums["high"] / max(1.0, sums["tokens"]),
            clip_fraction_dual=sums["dual"] / max(1.0, sums["tokens"]),
            zero_variance_groups=float(all_equal(rollout.rewards).float().mean()),
            rows_used=sums["rows"] / (len(grades) * updates / settings.minibatches),
            lr=self._optimizer.param_groups[0]["lr"],
            tokens_sampled=self.tokens_sampled,
            groups=groups,
        )

    def _group_records(self, rollout: _Rollout, details: bool) -> tuple[GroupRecord, ...]:
        count = min(self.settings.details_groups, len(rollout.prompts))
        first = take_groups(rollout.samples, torch.arange(count, device=rollout.mask.device))
        lengths, truncated = first.lengths.tolist(), first.truncated.tolist()
        tokens = self._token_records(rollout, first) if details else None

        def response_record(p: int, g: int) -> ResponseRecord:
            return ResponseRecord(
                text=rollout.texts[p][g],
                reward=float(rollout.rewards[p, g]),
                advantage=float(rollout.advantages[p, g, 0]),
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

    def _token_records(self, rollout: _Rollout, first: Samples) -> list[list[tuple[TokenRecord, ...]]]:
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
        return token_records(self.algorithm, logp, batch, first, self.policy.tokenizer)


def trainable(algorithm: Algorithm) -> GroupPolicyGradient:
    """Return the algorithm if `train` can train it; raises ValueError that says what is missing."""
    if not isinstance(algorithm, GroupPolicyGradient):
        needs = "a critic and a reward model" if "critic" in algorithm.models else "preference pairs"
        raise ValueError(
            f"algorithm: {algorithm.name} needs {needs}, which training does not have yet; "
            "it trains algorithms that learn from groups of responses, such as GRPO"
        )
    return algorithm


def _check_fit(algorithm: GroupPolicyGradient, settings: TrainSettings) -> None:
    """Refuse an algorithm that this loop cannot train, and settings that contradict it."""
    trainable(algorithm)
    if algorithm.asks_for("advantage", "step_ends"):
        raise ValueError(f"algorithm: {algorithm.name} needs rewards of single steps, which no task gives yet")
    if settings.group_size < algorithm.min_group_size:
        raise ValueError(
            f"group_size must be at least {algorithm.min_group_size} for {algorithm.name}, which compares a response with "
            f"its group; got {settings.group_size}"
        )
    if algorithm.asks_for("shape", "correct") and (settings.reward_correct, settings.reward_format) != (1.0, 0.0):
        raise ValueError(
            f"reward_correct and reward_format: {algorithm.name} weighs the rules itself ({label(algorithm.shape)}); got "
            f"{settings.reward_correct:g} and {settings.reward_format:g}"
        )


def train(
    policy: Policy,
    task: Task,
    algorithm: GroupPolicyGradient,
    settings: TrainSettings | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
) -> TrainingRun:
    """Return a run to iterate over: `for record in train(policy, task, algorithm): …`. The policy changes in place.

    With `out`, the run is kept in that folder and can be resumed. The same seed on the same machine's CPU gives the
    same curve. Raises ValueError for settings out of range, FileExistsError when `out` is not empty.
    """
    settings = settings or TrainSettings()
    run = TrainingRun(policy, policy.frozen_copy(), task, algorithm, settings, None)
    if out is not None:
        config = {
            "rlviz": rlviz.__version__,
            "task": task.name,
            "policy": policy.source,
            "algorithm": describe(algorithm),
            "settings": asdict(settings),
        }
        run.folder = RunFolder.create(out, config)
        run.folder.save_reference(run.reference)
    return run


def find_task(name: str) -> Task:
    """Return the shipped task with this name; raises ValueError that offers the nearest names."""
    known = {task.name: task for task in TASKS}
    return known[closest("task", name, list(known))]


def resume(
    out: str | os.PathLike[str],
    *,
    steps: int | None = None,
    device: str = "auto",
    task: Task | None = None,
    algorithm: GroupPolicyGradient | None = None,
) -> TrainingRun:
    """Return the run kept in `out`, to go on where its last checkpoint stands: the same curve as without the stop.

    `steps` sets a new total. A run with a task or pieces of your own needs them again as `task` and `algorithm`.
    Raises FileNotFoundError when there is no run, ValueError when it is damaged, done, or of another algorithm.
    """
    folder = RunFolder.open(out)
    try:
        config = folder.config
        settings = TrainSettings(**{**config["settings"], **({} if steps is None else {"steps": steps})})
        described, task_name = config["algorithm"], config["task"]
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"the config.json in {out} is not one of this version ({error})") from error
    if algorithm is None:
        algorithm = rebuild(described)
    elif describe(algorithm) != described:
        raise ValueError(f"algorithm: the run in {out} was trained with another one: {described}")
    if task is not None and task.name != task_name:
        raise ValueError(f"task: the run in {out} is one of {task_name!r}; got {task.name!r}")
    policy, tensors, state = folder.load_state(device)
    if state["step"] >= settings.steps:
        raise ValueError(f"steps: the run in {out} has done its {state['step']}; give a higher total to go on")
    run = TrainingRun(policy, folder.load_reference(device), task or find_task(task_name), algorithm, settings, folder)
    run._restore(tensors, state)
    folder.forget_after(run.step)
    write_json(folder.path / "config.json", {**config, "settings": asdict(settings)})
    return run
