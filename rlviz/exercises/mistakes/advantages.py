"""Wrong variants of advantages of groups and of steps."""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.exercises.mistakes.mistake import Mistake


def _standardized(rewards: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return (rewards - mean) / (std + 1e-6)


def biased_std(rewards: Tensor) -> Tensor:
    return _standardized(rewards, rewards.mean(1, keepdim=True), rewards.std(1, keepdim=True, correction=0))


def std_above_zero_as_the_test(rewards: Tensor) -> Tensor:
    std = rewards.std(1, keepdim=True)
    return torch.where(std > 0, (rewards - rewards.mean(1, keepdim=True)) / std, 0.0)


def over_the_batch(rewards: Tensor) -> Tensor:
    return _standardized(rewards, rewards.mean(), rewards.std())


def over_the_position_in_the_group(rewards: Tensor) -> Tensor:
    return _standardized(rewards, rewards.mean(0, keepdim=True), rewards.std(0, keepdim=True, correction=0))


def std_of_the_batch(rewards: Tensor) -> Tensor:
    return _standardized(rewards, rewards.mean(1, keepdim=True), rewards.std())


def std_forgotten(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean(1, keepdim=True)


def mean_forgotten(rewards: Tensor) -> Tensor:
    return rewards / (rewards.std(1, keepdim=True) + 1e-6)


GROUP_ADVANTAGE = (
    Mistake(
        biased_std,
        "your std divides by G: the usual one here divides by G − 1 (torch's default), as in verl and TRL.",
        "implementations in numpy, whose std is the biased one",
    ),
    Mistake(
        std_above_zero_as_the_test,
        "asking whether std > 0 is not enough: three rewards of 0.1 have a std of 1e-17, and got advantages of −0.8. "
        "Add a small eps to the std, or compare the largest and the smallest reward.",
        "the DCPO authors' code",
    ),
    Mistake(over_the_batch, "you averaged over the batch, not over the group: use dim 1, and keepdim."),
    Mistake(over_the_position_in_the_group, "you averaged over dim 0, the prompts: the group is dim 1."),
    Mistake(std_of_the_batch, "your mean is the group's, but your std the batch's: that is Lite PPO's advantage."),
    Mistake(std_forgotten, "the division by the std is missing: that is Dr.GRPO's advantage."),
    Mistake(
        mean_forgotten, "the group's mean is not subtracted: without the baseline every right answer only pushes up."
    ),
)


def process_rewards_normalised_step_by_step(rewards: Tensor, step_ends: Tensor) -> Tensor:
    count = step_ends.sum(1, keepdim=True)
    mean = (rewards * step_ends).sum(1, keepdim=True) / count.clamp(min=1)
    deviation = (rewards - mean) * step_ends
    std = (deviation.square().sum(1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    return (deviation / (std + 1e-6)).flip(-1).cumsum(-1).flip(-1)


def process_rewards_of_the_steps_before(rewards: Tensor, step_ends: Tensor) -> Tensor:
    steps = rewards[step_ends]
    return ((rewards - steps.mean()) / (steps.std() + 1e-6) * step_ends).cumsum(-1)


PROCESS_ADVANTAGE = (
    Mistake(
        process_rewards_normalised_step_by_step,
        "you normalise each step position by itself: mean and std are over *all* step rewards of the group.",
        "readings of GRPO's §4.1.3",
    ),
    Mistake(
        process_rewards_of_the_steps_before,
        "you add up the steps before a token: it deserves the steps that end at or after it.",
    ),
)
