"""A run as an iterator of records, the parts that it has, and what it did to the policy."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from statistics import median
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from rlviz.algorithms.family import Algorithm
from rlviz.settings import Settings
from rlviz.training.adamw import AdamW
from rlviz.training.files import write_json
from rlviz.training.rollouts import Rollout
from rlviz.training.run_folder import RunFolder, finite_weights
from rlviz.training.settings import default_settings
from rlviz.training.updates import Updates
from rlviz.types import PairRecord, StepRecord
from small_models import paths
from small_models.checks import checked
from small_models.evaluation import evaluate
from small_models.policies import Policy, one_thread_if_small
from small_models.precision import in_bfloat16
from small_models.tasks import Task

R = TypeVar("R", StepRecord, PairRecord)
SAVE_SECONDS = 2.0  # of work that a kill may cost
SAVE_SHARE = 0.02  # of that work that a save may cost
FAR = 3.0  # a setting this many times its default is suspected where a run diverges
OPTIMIZERS = "policy", "critic_optimizer"  # their names in a checkpoint


class Part:
    """A part that a run has, such as a sampler or a critic; this one needs, adds and keeps nothing."""

    @property
    def models(self) -> Mapping[str, nn.Module]:
        """The models that it needs beside the policy: role → model."""
        return {}

    def numbers(self, rollout: Rollout, updates: Updates) -> dict[str, Any]:
        """Return what it adds to the step's record: field → value."""
        return {}

    def after_step(self, step: int, rollout: Rollout) -> None:
        """Do what is due once this step, from 1, is done."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return all that it carries from step to step: tensors by name, and values for JSON."""
        return {}, {}

    def restore(self, tensors: dict[str, Tensor], counters: dict[str, Any]) -> None:
        """Put back what `state` returned, among what other parts did. Raises KeyError for what is missing."""


class TrainingRun(ABC, Iterator[R], Generic[R]):
    """A run in progress: pull a record and one step is done; stop pulling and it waits; pull again and it goes on.

    policy (changed in place), start: the policy that the run began with, task, algorithm, settings, folder (None without
    `out`), step: steps done so far, train_seconds: seconds in those steps, tokens_sampled. parts: what it has beside them;
    optimizers: all that learn, the policy's first; path: how its steps compute the policy, "plain" where that is possible
    (`small_models.paths`), else "transformers", from beginning to end. Made by `train` and `resume`.
    """

    def __init__(
        self,
        policy: Policy,
        start: Policy,
        task: Task,
        algorithm: Algorithm,
        settings: Settings,
        folder: RunFolder | None,
        *,
        parts: Sequence[Part],
        optimizers: Sequence[AdamW],
    ) -> None:
        self.policy, self.start, self.task = policy, start, task
        self.algorithm: Any = algorithm
        self.settings: Any = settings
        self.folder, self.parts, self.optimizers = folder, parts, optimizers
        self.path = paths.path_of(policy.weights)
        self.step, self.train_seconds, self.tokens_sampled = 0, 0.0, 0
        self._saved: int | None = None  # the step of the last checkpoint
        self._whole = True  # between two steps
        self._unsaved_seconds = 0.0  # of work since the last checkpoint
        self._save_seconds: list[float] = []  # of the last few checkpoints
        self.generator = torch.Generator().manual_seed(settings.seed)

    @abstractmethod
    def collect(self) -> Any:
        """Return what the updates of a step learn from."""

    @abstractmethod
    def update(self, collected: Any) -> Any:
        """Take the updates of a step; return what happened in them."""

    @abstractmethod
    def _learn(self) -> partial[R]:
        """Do a step, and return its record, which lacks only the fields that every kind of record has."""

    @property
    def models(self) -> dict[str, nn.Module]:
        """The models that the run needs, the policy first: role → model."""
        return {"actor": self.policy.weights} | {
            role: model for part in self.parts for role, model in part.models.items()
        }

    @property
    def totals(self) -> dict[str, Any]:
        """What the run has used up to now, as summary.json tells it."""
        return {"train_seconds": self.train_seconds, "tokens_sampled": self.tokens_sampled, "steps": self.step}

    def __next__(self) -> R:
        if self.step >= self.settings.steps:
            raise StopIteration
        with paths.computing(self.path), computing_as(self.settings, self.policy):
            return self._next()

    def _next(self) -> R:
        if self.folder is not None:
            self.folder.check_lock()
        self._whole = False
        start = time.perf_counter()
        with one_thread_if_small(self.policy):
            learned = self._learn()
        seconds = time.perf_counter() - start
        self.step += 1
        self.train_seconds += seconds
        every = self.settings.evaluate_every
        evaluated = every and (self.step % every == 0 or self.step == self.settings.steps)
        accuracy = (
            evaluate(self.policy, self.task, max_new_tokens=self.settings.max_new_tokens).accuracy
            if evaluated
            else None
        )
        record = learned(
            step=self.step,
            seconds=seconds,
            held_out_accuracy=accuracy,
            lr=self.optimizers[0].param_groups[0]["lr"],
            tokens_sampled=self.tokens_sampled,
        )
        self._whole = True
        if self.folder is not None:
            self.folder.append(record)
            work = time.perf_counter() - start
            self._unsaved_seconds += work
            if self._save_is_due(work):
                self.save()
            if self.step == self.settings.steps:
                self.folder.release("has done its steps")
        return record

    def _save_is_due(self, next_seconds: float) -> bool:
        """Return whether to save before a next step, which takes about so many seconds."""
        every = self.settings.checkpoint_every
        if self.step == self.settings.steps or (every and self.step % every == 0):
            return True
        cost = median(self._save_seconds) if self._save_seconds else 0.0  # a disk that was busy once is not slow
        return cost < SAVE_SHARE * self._unsaved_seconds and self._unsaved_seconds + next_seconds > SAVE_SECONDS

    def save(self) -> None:
        """Write the state to the run folder, so that `resume` goes on from this step.

        A run does it itself at the beginning, at the end, every `checkpoint_every` steps, and before more than 2 s of work would
        be unsaved; where a save takes more than 2 % of that time, as much less often. Does nothing without a folder, when this
        step is saved, and in the middle of a step, which `resume` does again.
        Raises FloatingPointError in place of saving weights that are not finite, OSError in one sentence when the disk is full.
        """
        if self.folder is None or self._saved == self.step or not self._whole:
            return
        if not finite_weights(self.policy):
            raise FloatingPointError(self._diverged("largest weight"))
        start = time.perf_counter()
        tensors, counters = self._state()
        self.folder.save_state(self.policy, tensors, counters)
        self._save_seconds = [*self._save_seconds[-4:], time.perf_counter() - start]
        self._saved, self._unsaved_seconds = self.step, 0.0

    def close(self) -> None:
        """Save, and let others have the folder; the run then ends. Does nothing without a folder, or when that is done."""
        if self.folder is not None and self.folder.lock is not None and self.folder.lock.why_not is None:
            self.save()
            self.folder.release("was closed")

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return all that the next step depends on beside the policy: tensors by name, and values for JSON."""
        tensors = {"generator": self.generator.get_state()}
        counters = {name: getattr(self, name) for name in ("step", "train_seconds", "tokens_sampled")}
        for name, optimizer in zip(OPTIMIZERS, self.optimizers, strict=False):
            tensors |= optimizer_tensors(optimizer, f"{name}.")
        for part in self.parts:
            own, counted = part.state()
            tensors, counters = tensors | own, counters | counted
        return tensors, counters

    def restore(self, tensors: dict[str, Tensor], counters: dict[str, Any]) -> None:
        """Put back what `_state` returned. Raises KeyError, ValueError, TypeError or RuntimeError where it is something else."""
        self.step, self.train_seconds = counters["step"], counters["train_seconds"]
        self._saved = self.step
        self.tokens_sampled = counters["tokens_sampled"]
        self.generator.set_state(like(tensors, "generator", self.generator.get_state()))
        for name, optimizer in zip(OPTIMIZERS, self.optimizers, strict=False):
            put_optimizer_tensors(optimizer, f"{name}.", tensors)
        for part in self.parts:
            part.restore(tensors, counters)
        unknown = tensors.keys() - self._state()[0].keys()
        if unknown:
            raise ValueError(f"training.safetensors: the run has no place for {min(unknown)}")
        count = counters.get("tensors") or len(tensors)
        if len(tensors) != count:
            raise ValueError(f"training.safetensors must hold {count} tensors; it holds {len(tensors)}")

    def _warm_up_lr(self) -> None:
        """Set this step's learning rates, which rise linearly to their peaks."""
        share = min(1.0, (self.step + 1) / max(1, self.settings.lr_warmup_steps))
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = optimizer.defaults["lr"] * share

    def _take_optimizer_step(self, loss: Tensor) -> Tensor:
        """Make a step of every optimizer with the gradients of this loss; return their norms before they were cut, [2].

        The second is that of a critic of its own, 0 where there is none. When the loss or a norm is not finite, nothing is
        changed: the optimizers see that on their device, and `_check_finite` tells the host, once a step.
        """
        learners = [optimizer.param_groups[0]["params"] for optimizer in self.optimizers]
        limit = self.settings.max_grad_norm
        parts: list[Tensor] = [torch.nn.utils.clip_grad_norm_(part, limit).to(loss.device) for part in learners]
        norms = torch.stack([*parts, *[torch.zeros_like(parts[0])] * (2 - len(parts))]).double()
        unsafe = (~(norms.isfinite().all() & loss.detach().isfinite())).float()
        for optimizer in self.optimizers:
            optimizer.found_inf = unsafe
            optimizer.step()
        return norms

    def _check_finite(self, loss: Tensor, *norms: Tensor) -> None:
        """Raise FloatingPointError when a loss or a gradient's norm was not finite in an update of this step; on the CPU all."""
        for what, number in zip(("loss", "gradient", "critic's gradient"), (loss, *norms), strict=True):
            if not number.isfinite():
                raise FloatingPointError(self._diverged(what))

    def _diverged(self, what: str, cause: str = "") -> str:
        """Return a sentence: what is not finite in the step that is being made, the likeliest cause, and what is safe."""
        safe = "" if self._saved is None else f"; the last checkpoint, of step {self._saved}, is as it was"
        return (
            f"the {what} of step {self.step + (not self._whole)} is not a finite number, so the run stops: "
            f"{cause or self._likeliest_cause()}{safe}"
        )

    def _likeliest_cause(self) -> str:
        """Return the setting that is furthest from its default, of those that can have made a number not finite by now."""
        updated: bool = any(bool(state["step"]) for state in self.optimizers[0].state.values())
        if not updated and not finite_weights(self.policy):
            return "the policy that it began with has weights that are not finite, begin with another one"
        suspects = ["temperature", "reward_correct", "reward_format", *(["lr"] if updated else [])]
        suspects += ["critic_lr"] if updated and len(self.optimizers) > 1 else []
        default, far = default_settings(self.algorithm), {}
        for name in (name for name in suspects if hasattr(default, name)):
            factor = abs(getattr(self.settings, name)) / (abs(getattr(default, name)) or 1.0)
            far[name] = 1 / factor if name == "temperature" else factor  # the only one that divides
        worst = max(far, key=far.__getitem__, default="")
        if far.get(worst, 0.0) < FAR:
            return (
                f"its settings are near their defaults, look at the pieces of {self.algorithm.name} (limits, KL term) first, "
                f"and then at lr ({self.settings.lr:g})"
            )
        wrong, better = ("low", "larger") if worst == "temperature" else ("high", "smaller")
        return (
            f"most likely {worst} is too {wrong} ({getattr(self.settings, worst):g}; default {getattr(default, worst):g}), "
            f"begin again with a {better} one"
        )


def computing_as(settings: Settings, policy: Policy) -> AbstractContextManager[Any]:
    """Within it, models compute in the precision that the settings ask for."""
    return in_bfloat16(policy.device) if settings.precision == "bfloat16" else nullcontext()


def new_optimizer(models: Sequence[nn.Module], lr: float) -> AdamW:
    """Return AdamW of all that can learn in the models."""
    parameters = [p for model in models for p in model.parameters() if p.requires_grad]
    return AdamW(parameters, lr)


def optimizer_tensors(optimizer: AdamW, prefix: str) -> dict[str, Tensor]:
    """Return an optimizer's state: prefix, place of the parameter, name → tensor."""
    parameters = optimizer.param_groups[0]["params"]
    return {
        f"{prefix}{place}.{name}": value
        for place, parameter in enumerate(parameters)
        for name, value in optimizer.state.get(parameter, {}).items()
    }


def put_optimizer_tensors(optimizer: AdamW, prefix: str, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` returned. Raises as `like` does where a parameter's state is not whole."""
    begun = {name.removeprefix(prefix).partition(".")[0] for name in tensors if name.startswith(prefix)}
    for place, parameter in enumerate(optimizer.param_groups[0]["params"]):
        if str(place) in begun:
            fresh = optimizer.begin(parameter)
            state = {name: like(tensors, f"{prefix}{place}.{name}", value) for name, value in fresh.items()}
            optimizer.state[parameter] = {name: value.to(parameter.device) for name, value in state.items()}


def put_weights(model: nn.Module, prefix: str, tensors: dict[str, Tensor]) -> None:
    """Load the weights that were kept under `prefix`. Raises as `like` does."""
    model.load_state_dict({name: like(tensors, f"{prefix}{name}", own) for name, own in model.state_dict().items()})


def like(tensors: dict[str, Tensor], name: str, own: Tensor) -> Tensor:
    """Return the tensor of this name. Raises KeyError without it, ValueError unless it is finite, of `own`'s shape and dtype."""
    kept = tensors[name]
    if (kept.shape, kept.dtype) != (own.shape, own.dtype):
        raise ValueError(f"training.safetensors: {name} must be {_kind(own)}; got {_kind(kept)}")
    if not kept.isfinite().all():
        raise ValueError(f"training.safetensors: {name} must be finite numbers")
    return kept


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


@checked
def summarize(run: TrainingRun[Any]) -> dict[str, Any]:
    """Return held-out accuracy before and after, steps, seconds and tokens of a run, and write summary.json into its folder.

    Accuracy is sampled at temperature 1, greedy_accuracy is not sampled; before is that of the policy from which the run
    started, on the same prompts and random numbers.
    """
    longest = run.settings.max_new_tokens
    accuracies = {
        f"{kind}_{when}": evaluate(policy, run.task, max_new_tokens=longest, temperature=temperature).accuracy
        for when, policy in (("before", run.start), ("after", run.policy))
        for kind, temperature in (("accuracy", 1.0), ("greedy_accuracy", 0.0))
    }
    summary = accuracies | run.totals | {"finished": run.step >= run.settings.steps, "seed": run.settings.seed}
    if run.folder is not None:
        with run.folder.writing():
            write_json(run.folder.path / "summary.json", summary)
    return summary
