"""Training runs and warm starts that experiments share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
from torch import Tensor

from rlviz.algorithms import GRPO
from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.pieces.bounds import DynamicBounds, FixedBounds
from rlviz.training import TrainSettings, train
from rlviz.types import StepRecord
from small_models.policies import Policy, build_policy, load_policy
from small_models.tasks import Chain, Task
from small_models.warm_start import warm_start

FREE = replace(GRPO, kl=None)  # nothing pulls back to the start
UPPER_LIMITS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "0.2": FixedBounds(eps_low=0.2, eps_high=0.2),
    "0.28": FixedBounds(eps_low=0.2, eps_high=0.28),
    "1.0": FixedBounds(eps_low=0.2, eps_high=1.0),
    "DCPO's": DynamicBounds(),
    "none above": FixedBounds(eps_low=0.2, eps_high=1e9),
}


class Graded(Chain):
    """`a35271=`: chain with a letter that says how often the warm-up shows the running sums, so how hard the prompt is."""

    name = "graded"
    description = "sum of five digits modulo 10, from easy prompts (a) to hard ones (e)"
    shown: Mapping[str, float] = {"a": 0.9, "b": 0.7, "c": 0.4, "d": 0.1, "e": 0.03}

    def all_prompts(self) -> list[str]:
        letters = random.Random(0).choices("".join(self.shown), k=10**self.digits)
        return [letter + prompt for letter, prompt in zip(letters, super().all_prompts(), strict=True)]

    def running_sums(self, prompt: str) -> str:
        return super().running_sums(prompt[1:])

    def demonstrate(self, prompt: str, rng: random.Random) -> str:
        sums = self.running_sums(prompt) if rng.random() < self.shown[prompt[0]] else ""
        return f"{sums}#{self.gold(prompt)}"


def warmed_up(task: Task, seed: int, scale: float, *, target_accuracy: float = 0.35, max_steps: int = 400) -> Policy:
    """Return a small policy that imitated demonstrations until it was so accurate, or for max_steps · scale updates."""
    policy, last = build_policy(seed=seed, device="cpu"), max(1, round(max_steps * scale))
    looks = warm_start(policy, task, target_accuracy=target_accuracy, evaluate_every=min(20, last), seed=seed)
    for record in looks:
        if record.step >= last:
            break
    return policy


def copy_of(policy: Policy) -> Policy:
    """Return a policy with weights of its own, to train."""
    copied = policy.frozen_copy()
    copied.model.requires_grad_(True)
    return copied


def shipped(name: str) -> Policy:
    """Return a shipped policy on the CPU, where the same seed gives the same curve."""
    return load_policy(name, device="cpu")


def run(
    policy: Policy, task: Task, algorithm: GroupPolicyGradient, settings: TrainSettings, **given: Any
) -> Iterator[StepRecord]:
    """Train a copy of a policy and yield each record; nothing is recorded token by token."""
    yield from train(copy_of(policy), task, algorithm, replace(settings, details_every=0), **given)


def rows(records: Iterable[StepRecord], *columns: str, **same: object) -> pd.DataFrame:
    """Return these fields of the records, a row a step, and beside them what is the same in all rows."""
    return pd.DataFrame([{"step": r.step} | {name: getattr(r, name) for name in columns} for r in records]).assign(
        **same
    )
