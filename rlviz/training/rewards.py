"""Rewards of a rollout: checks of their source, rewards of single steps, and pairs and agreement for a reward model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, product

import torch
from torch import Tensor

from rlviz.algorithms.base import PolicyGradient
from rlviz.pieces.words import label
from rlviz.settings import TrainSettings
from rlviz.training.rollout import Sampled
from small_models.pairs import Pair, is_writable
from small_models.policies import Policy
from small_models.sampling import Samples
from small_models.scorers import RewardModel
from small_models.tasks import Task

PAIRS_A_PROMPT = 2


def check_rewards(algorithm: PolicyGradient, settings: TrainSettings, model: RewardModel | None, task: Task) -> None:
    """Raise ValueError for settings and a reward model that contradict the algorithm or the task."""
    if settings.filter_solved:
        check_accuracy("filter_solved", task)
    weighing = next((slot for slot in ("shape", "advantage") if algorithm.asks_for(slot, "correct")), None)
    own_rules = None if weighing is None else label(algorithm.slots()[weighing])
    if own_rules and (settings.reward_correct, settings.reward_format) != (1.0, 0.0):
        raise ValueError(
            f"reward_correct and reward_format: {algorithm.name} weighs the rules itself ({own_rules}); got "
            f"{settings.reward_correct:g} and {settings.reward_format:g}"
        )
    if own_rules and model is not None:
        raise ValueError(
            f"reward_model: {algorithm.name} weighs two rules ({own_rules}) and would not see its scores; "
            f"give it another {weighing}"
        )
    if algorithm.asks_for("advantage", "step_ends"):
        if model is not None:
            raise ValueError(f"reward_model: {algorithm.name} needs rewards of single steps, which only tasks give")
        if algorithm.shape is not None or algorithm.kl_in_reward:
            raise ValueError(
                f"algorithm: {algorithm.name} learns from rewards of single steps, so it takes no shaping of whole "
                "responses' rewards and no KL in the reward"
            )
    if settings.refresh_reward_every and model is None:
        raise ValueError(f"refresh_reward_every needs a reward model; got {settings.refresh_reward_every} without one")


def check_accuracy(name: str, task: Task) -> None:
    """Raise ValueError, for what counts right answers and goes by this name, where the task has none."""
    if not task.has_accuracy:
        raise ValueError(
            f"{name} counts right answers, and {task.name} has none: it needs a task that grades them, or one with solved_at, "
            "the reward from which on a response counts as right"
        )


def step_rewards(
    policy: Policy, task: Task, prompts: Sequence[str], texts: Sequence[Sequence[str]], samples: Samples
) -> tuple[Tensor, Tensor]:
    """Return the reward at the end of each step, 0 elsewhere, and where steps end: [P, G, T] each.

    A step ends with the token that brings its last character, the last step of a response with the last token that the policy
    wrote; of several steps that end with one token the last one's reward stands.
    """
    rewards = torch.zeros(samples.tokens.shape)
    ends = torch.zeros(samples.tokens.shape, dtype=torch.bool)
    lasts, tokens = samples.last_positions.tolist(), samples.tokens.tolist()
    pieces = {
        token: policy.vocabulary.decode([token]) for token in set(samples.tokens[samples.attention_mask].tolist())
    }
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


def agreement(scores: Tensor, rewards: Tensor) -> float | None:
    """Return how often a response of higher reward scores above one of lower reward in its group, a tie counting half.

    scores, rewards: [P, G]. None where no group has both.
    """
    both = rewards.unsqueeze(2) > rewards.unsqueeze(1)  # [P, G, G]
    if not both.any():
        return None
    ahead = scores.unsqueeze(2) - scores.unsqueeze(1)
    return float(((ahead > 0).double() + (ahead == 0).double() / 2)[both].mean())


def pairs_among(policy: Policy, groups: Sampled) -> list[Pair]:
    """Return pairs of a response of higher and one of lower reward to one prompt, at most two a prompt, of different texts."""
    writable = is_writable(policy, groups.samples).tolist()
    pairs = []
    for prompt, texts, grades, usable in zip(groups.prompts, groups.texts, groups.grades, writable, strict=True):
        rewards = {text: grade.reward for text, grade in compress(zip(texts, grades, strict=True), usable)}
        ordered = [(high, low) for high, low in product(rewards, rewards) if rewards[high] > rewards[low]]
        pairs += [Pair(prompt, *both) for both in ordered[:PAIRS_A_PROMPT]]
    return pairs
