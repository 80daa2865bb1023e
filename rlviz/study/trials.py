"""Warm starts, training runs and sampled responses that experiments share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from rlviz.algorithms import GRPO
from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.pieces.bounds import DynamicBounds, FixedBounds
from rlviz.study.frames import scaled
from rlviz.training import TrainSettings, history, train
from rlviz.types import StepRecord
from small_models.policies import Policy, build_policy, load_policy
from small_models.sampling import Samples, response_logits, sample, token_logp
from small_models.tasks import Chain, Task
from small_models.warm_start import warm_start

FREE = replace(GRPO, kl=None)  # nothing pulls back to the start
SMALL = TrainSettings(num_prompts=16, evaluate_every=0, details_every=0, details_groups=1)
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
    shares: Mapping[str, float] = {"a": 0.9, "b": 0.7, "c": 0.4, "d": 0.1, "e": 0.03}

    def all_prompts(self) -> list[str]:
        letters = random.Random(0).choices("".join(self.shares), k=10**self.digits)
        return [letter + prompt for letter, prompt in zip(letters, super().all_prompts(), strict=True)]

    def running_sums(self, prompt: str) -> str:
        return super().running_sums(prompt[1:])

    def demonstrate(self, prompt: str, rng: random.Random) -> str:
        sums = self.running_sums(prompt) if rng.random() < self.shares[prompt[0]] else ""
        return f"{sums}#{self.gold(prompt)}"


def warm_start_policy(
    task: Task, seed: int, scale: float, *, target_accuracy: float = 0.35, look_every: int = 20
) -> Policy:
    """Return a small policy that imitated demonstrations until it was so accurate at a look, or for 400 · scale updates (≥ 8)."""
    policy, last = build_policy(seed=seed, device="cpu"), scaled(400, scale, 8)
    looks = warm_start(policy, task, target_accuracy=target_accuracy, evaluate_every=min(look_every, last), seed=seed)
    for record in looks:
        if record.step >= last:
            break
    return policy


def load_shipped(name: str) -> Policy:
    """Return a shipped policy on the CPU, where the same seed gives the same curve."""
    return load_policy(name, device="cpu")


def train_copy(
    policy: Policy, task: Task, algorithm: GroupPolicyGradient, settings: TrainSettings, **options: Any
) -> Iterator[StepRecord]:
    """Train a copy of a policy and yield each record."""
    learner = policy.frozen_copy()
    learner.model.requires_grad_(True)
    yield from train(learner, task, algorithm, settings, **options)


def rows(records: Iterable[StepRecord], *columns: str, **same: object) -> pd.DataFrame:
    """Return these fields of the records, a row a step, and beside them what is the same in all rows."""
    return history(list(records))[["step", *columns]].assign(**same)


def train_arms(
    policy: Policy, task: Task, arms: Mapping[str, GroupPolicyGradient], settings: TrainSettings, *columns: str
) -> pd.DataFrame:
    """Train a copy of a policy with the algorithm of each arm; return these fields of the records, a row a step and arm."""
    frames = [
        rows(train_copy(policy, task, algorithm, settings), *columns, arm=name) for name, algorithm in arms.items()
    ]
    return pd.concat(frames, ignore_index=True)


def sample_and_grade(
    policy: Policy, task: Task, prompts: Sequence[str], *, group_size: int, seed: int
) -> tuple[Samples, Tensor]:
    """Return `group_size` responses to each prompt, and [P, G], 1 for those that are right and 0 for the others."""
    longest, generator = task.max_new_tokens, torch.Generator().manual_seed(seed)
    samples = sample(policy, prompts, task=task, group_size=group_size, max_new_tokens=longest, generator=generator)
    texts = samples.texts(policy)
    right = [[task.grade(prompt, text).correct for text in row] for prompt, row in zip(prompts, texts, strict=True)]
    return samples, torch.tensor(right).double()


def score_samples(policy: Policy, samples: Samples) -> Tensor:
    """Return the log-probability [P, G, T] that this policy gives each token of responses, whichever policy sampled them."""
    with torch.no_grad():
        logits = response_logits(policy, samples.prompt_ids, samples.prompt_mask, samples.tokens)
        return token_logp(logits, samples.tokens)
