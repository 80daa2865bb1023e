"""A run as an iterator of records: what every kind of training shares."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from rlviz.algorithms.family import Algorithm
from rlviz.training.run_folder import RunFolder
from rlviz.training.settings import Settings
from rlviz.types import PairRecord, StepRecord
from small_models.evaluation import evaluate
from small_models.policies import Policy, one_thread_if_small
from small_models.tasks import Task

R = TypeVar("R", StepRecord, PairRecord)


class TrainingRun(ABC, Iterator[R], Generic[R]):
    """A run in progress: pull a record and one step is done; stop pulling and it waits; pull again and it goes on.

    policy (changed in place), start: the policy that the run began with, task, algorithm, settings, folder (None without
    `out`), step: steps done so far, train_seconds: seconds in those steps, tokens_sampled. Made by `train` and `resume`.
    """

    def __init__(
        self,
        policy: Policy,
        start: Policy,
        task: Task,
        algorithm: Algorithm,
        settings: Settings,
        folder: RunFolder | None,
    ) -> None:
        self.policy, self.start, self.task = policy, start, task
        self.algorithm: Any = algorithm
        self.settings: Any = settings
        self.folder = folder
        self.step, self.train_seconds, self.tokens_sampled = 0, 0.0, 0
        self._generator = torch.Generator().manual_seed(settings.seed)
        self._parameters = [p for p in policy.model.parameters() if p.requires_grad]
        self._optimizer = new_optimizer(self._parameters, settings.lr)

    @abstractmethod
    def _learn(self) -> dict[str, Any]:
        """Do a step, and return the record's fields but for those that every record has."""

    @abstractmethod
    def _record(self, **fields: Any) -> R:
        """Return the record with these fields."""

    def __next__(self) -> R:
        if self.step >= self.settings.steps:
            raise StopIteration
        start = time.perf_counter()
        with one_thread_if_small(self.policy):
            fields = self._learn()
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
        record = self._record(
            step=self.step,
            seconds=seconds,
            held_out_accuracy=accuracy,
            lr=self._optimizer.param_groups[0]["lr"],
            tokens_sampled=self.tokens_sampled,
            **fields,
        )
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
        tensors, counters = self._state()
        self.folder.save_state(self.policy, tensors, counters)

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return all that the next step depends on beside the policy: tensors by name, and values for JSON."""
        tensors = {**optimizer_tensors(self._optimizer, "policy."), "generator": self._generator.get_state()}
        counters = ("step", "train_seconds", "tokens_sampled")
        return tensors, {name: getattr(self, name) for name in counters}

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Put back what `_state` returned."""
        self.step, self.train_seconds = state["step"], state["train_seconds"]
        self.tokens_sampled = state["tokens_sampled"]
        self._generator.set_state(tensors["generator"])
        put_optimizer_tensors(self._optimizer, named_under("policy.", tensors))

    def _warm_up_lr(self) -> float:
        """Set this step's learning rate, which rises linearly to its peak, and return its share of the peak."""
        share = min(1.0, (self.step + 1) / max(1, self.settings.lr_warmup_steps))
        for group in self._optimizer.param_groups:
            group["lr"] = self.settings.lr * share
        return share

    def _update_policy(self) -> float:
        """Make an optimizer step with the gradients that are there; return their norm before it was cut."""
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, self.settings.max_grad_norm)
        self._optimizer.step()
        return float(norm)


def new_optimizer(parameters: list[torch.nn.Parameter], lr: float) -> Optimizer:
    """Return AdamW without weight decay."""
    return torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0, fused=True)


def named_under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def optimizer_tensors(optimizer: Optimizer, prefix: str) -> dict[str, Tensor]:
    """Return an optimizer's state: prefix, place of the parameter, name → tensor."""
    parameters = optimizer.param_groups[0]["params"]
    return {
        f"{prefix}{place}.{name}": value
        for place, parameter in enumerate(parameters)
        for name, value in optimizer.state[parameter].items()
    }


def put_optimizer_tensors(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` returned, its prefix taken off."""
    parameters = optimizer.param_groups[0]["params"]
    for name, value in tensors.items():
        place, key = name.split(".", 1)
        parameter = parameters[int(place)]
        optimizer.state[parameter][key] = value.to(parameter.device)
