"""Rewards that no rule gives to whole responses: of single steps, and learned ones that are kept up to date."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, product
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rlviz.training.reward_model import check_updates, pair_accuracy, train_reward_model
from small_models.checks import check_kind, check_list
from small_models.pairs import Pair, make_pairs, writable
from small_models.policies import Policy
from small_models.sampling import Samples
from small_models.scorers import Reads, RewardModel
from small_models.tasks import Task

if TYPE_CHECKING:
    from rlviz.training.rollouts import Rollout

REPLAYED = 0.1  # of the pairs in a refresh (GRPO, arXiv 2402.03300, Algorithm 1)
PAIRS_A_PROMPT = 2
REFRESH_STEPS, REFRESH_BATCH = 20, 64
NUM_PAIRS, HELD_OUT_PAIRS = 1200, 300


def step_rewards(
    policy: Policy, task: Task, prompts: Sequence[str], texts: Sequence[Sequence[str]], samples: Samples
) -> tuple[Tensor, Tensor]:
    """Return the reward at the end of each step, 0 elsewhere, and where steps end: [P, G, T] each.

    A step ends with the token that brings its last character, the last step of a response with the last token that the policy
    wrote; of several steps that end with one token the last one's reward stands.
    """
    rewards = torch.zeros(samples.tokens.shape)
    ends = torch.zeros(samples.tokens.shape, dtype=torch.bool)
    lasts, tokens = samples.last.tolist(), samples.tokens.tolist()
    pieces = {token: policy.tokenizer.decode([token]) for token in set(samples.tokens[samples.there].tolist())}
    for p, (prompt, row) in enumerate(zip(prompts, texts, strict=True)):
        for g, text in enumerate(row):
            *before, last = task.steps(prompt, text)
            written = at = 0
            for step in before:
                while written < step.end:
                    written += len(pieces[tokens[p][g][at]])
                    at += 1
                rewards[p, g, at - 1], ends[p, g, at - 1] = step.reward, True
            rewards[p, g, lasts[p][g]], ends[p, g, lasts[p][g]] = last.reward, True
    return rewards.to(samples.tokens.device), ends.to(samples.tokens.device)


@dataclass(frozen=True)
class LearnedReward:
    """A reward model, the pairs that it learned from, the loss of each update, and its accuracy on held-out, honest pairs."""

    model: RewardModel
    pairs: list[Pair]
    losses: list[float]
    held_out_accuracy: float


def learn_reward(
    policy: Policy,
    task: Task,
    pairs: Sequence[Pair] | None = None,
    *,
    reads: Reads = "last",
    steps: int = 60,
    seed: int = 0,
) -> LearnedReward:
    """Return a reward model that starts from the policy's trunk and learned from pairs.

    pairs: None for 1,200 of a right and a wrong response of the policy. Held-out pairs are such ones too, on prompts
    that training never shows. Raises ValueError as `make_pairs` and `train_reward_model` do.
    """
    check_updates(steps, seed=seed)
    check_kind("task", task, Task, "a Task of small_models.tasks")
    if pairs is not None:
        check_list("pairs", pairs, Pair, "Pairs")
    model = RewardModel.of(policy, reads=reads)
    pairs = make_pairs(policy, task, NUM_PAIRS, seed=seed) if pairs is None else list(pairs)
    held_out = make_pairs(policy, task, HELD_OUT_PAIRS, held_out=True, seed=seed)
    losses = [record.loss for record in train_reward_model(model, pairs, steps=steps, seed=seed)]
    return LearnedReward(model, pairs, losses, pair_accuracy(model, held_out))


def agreement(scores: Tensor, correct: Tensor) -> float | None:
    """Return how often a right response scores above a wrong one of its group, a tie counting half; [P, G] both.

    None where no group has both.
    """
    right, wrong = (correct > 0).unsqueeze(2), (correct <= 0).unsqueeze(1)
    both = right & wrong  # [P, G, G]
    if not both.any():
        return None
    ahead = scores.unsqueeze(2) - scores.unsqueeze(1)
    return float(((ahead > 0).double() + (ahead == 0).double() / 2)[both].mean())


def pairs_among(policy: Policy, rollout: Rollout) -> list[Pair]:
    """Return pairs of a right and a wrong response to one prompt, at most two a prompt, of different texts."""
    kept = writable(policy, rollout.samples).tolist()
    pairs = []
    for prompt, texts, grades, whole in zip(rollout.prompts, rollout.texts, rollout.grades, kept, strict=True):
        correct = {text: grade.correct for text, grade in compress(zip(texts, grades, strict=True), whole)}
        right, wrong = ([text for text, is_right in correct.items() if is_right is side] for side in (True, False))
        pairs += [Pair(prompt, *both) for both in list(product(right, wrong))[:PAIRS_A_PROMPT]]
    return pairs


def refresh(model: RewardModel, fresh: Sequence[Pair], older: Sequence[Pair], *, seed: int) -> float | None:
    """Train a reward model on fresh pairs and a tenth of older ones, in place; return the last loss, None without pairs."""
    if not fresh:
        return None
    count = min(len(older), round(len(fresh) * REPLAYED / (1 - REPLAYED)))
    pairs = [*fresh, *random.Random(seed).sample(list(older), count)]
    records = list(
        train_reward_model(model, pairs, steps=REFRESH_STEPS, batch_size=min(REFRESH_BATCH, len(pairs)), seed=seed)
    )
    return records[-1].loss
