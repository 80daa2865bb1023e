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
    return _standardized(rewards, rewards.mean(0, keepdim=True), rewards.std(0, keepdim=True))


def std_of_the_batch(rewards: Tensor) -> Tensor:
    return _standardized(rewards, rewards.mean(1, keepdim=True), rewards.std())


def std_forgotten(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean(1, keepdim=True)


def mean_forgotten(rewards: Tensor) -> Tensor:
    return rewards / (rewards.std(1, keepdim=True) + 1e-6)


def variance_for_std(rewards: Tensor) -> Tensor:
    return _standardized(rewards, rewards.mean(1, keepdim=True), rewards.var(1, keepdim=True))


def eps_forgotten(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean(1, keepdim=True)) / rewards.std(1, keepdim=True)


def eps_of_one_in_ten_thousand(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)


def eps_of_one_in_a_hundred_thousand(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-5)


GROUP_ADVANTAGE = (
    Mistake(
        biased_std,
        "your std divides by G: the usual one here divides by G − 1 (torch's default), as in verl and TRL.",
    ),
    Mistake(
        std_above_zero_as_the_test,
        "asking whether std > 0 is not enough: three rewards of 0.1 have a std of 1e-17, and got advantages of −0.8. "
        "Add a small eps to the std, or compare the largest and the smallest reward.",
        "the DCPO authors' code, github.com/lime-RL/DCPO, verl/trainer/ppo/core_algos.py",
    ),
    Mistake(over_the_batch, "you averaged over the batch, not over the group: use dim 1, and keepdim."),
    Mistake(over_the_position_in_the_group, "you averaged over dim 0, the prompts: the group is dim 1."),
    Mistake(std_of_the_batch, "your mean is the group's, but your std the batch's: that is Lite PPO's advantage."),
    Mistake(std_forgotten, "the division by the std is missing: that is Dr.GRPO's advantage."),
    Mistake(
        mean_forgotten, "the group's mean is not subtracted: without the baseline every right answer only pushes up."
    ),
    Mistake(variance_for_std, "you divide by the variance: the std is its square root, .std() in place of .var()."),
    Mistake(
        eps_forgotten,
        "the small number added to the std is missing: where all rewards are equal, 0 or a rounding error is divided by "
        "another. Add 1e-6 to the std.",
    ),
    Mistake(eps_of_one_in_ten_thousand, "your eps is not 1e-6 but 1e-4, as in TRL: add 1e-6 to the std."),
    Mistake(eps_of_one_in_a_hundred_thousand, "your eps is not 1e-6 but 1e-5: add 1e-6 to the std."),
)


def process_rewards_normalised_step_by_step(rewards: Tensor, step_ends: Tensor) -> Tensor:
    count = step_ends.sum(1, keepdim=True)
    mean = (rewards * step_ends).sum(1, keepdim=True) / count.clamp(min=1)
    deviation = (rewards - mean) * step_ends
    std = (deviation.square().sum(1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    return (deviation / (std + 1e-6)).flip(-1).cumsum(-1).flip(-1)


def _over_steps(values: Tensor, step_ends: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and std of the values where steps end, over the last two dimensions, a group's answers and their tokens."""
    count = step_ends.sum((-2, -1), keepdim=True)
    mean = (values * step_ends).sum((-2, -1), keepdim=True) / count
    return mean, (((values - mean) * step_ends).square().sum((-2, -1), keepdim=True) / (count - 1)).sqrt()


def _step_credits(rewards: Tensor, step_ends: Tensor) -> Tensor:
    return _standardized(rewards, *_over_steps(rewards, step_ends)) * step_ends


def _to_come(credits: Tensor) -> Tensor:
    return credits.flip(-1).cumsum(-1).flip(-1)


def process_rewards_of_the_steps_before(rewards: Tensor, step_ends: Tensor) -> Tensor:
    return _step_credits(rewards, step_ends).cumsum(-1)


def process_rewards_not_standardised(rewards: Tensor, step_ends: Tensor) -> Tensor:
    return _to_come(rewards * step_ends)


def process_rewards_without_their_mean(rewards: Tensor, step_ends: Tensor) -> Tensor:
    return _to_come(rewards / (_over_steps(rewards, step_ends)[1] + 1e-6) * step_ends)


def process_rewards_without_their_std(rewards: Tensor, step_ends: Tensor) -> Tensor:
    return _to_come((rewards - _over_steps(rewards, step_ends)[0]) * step_ends)


def process_rewards_by_the_biased_std(rewards: Tensor, step_ends: Tensor) -> Tensor:
    mean, std = _over_steps(rewards, step_ends)
    count = step_ends.sum((-2, -1), keepdim=True)
    return _to_come(_standardized(rewards, mean, std * ((count - 1) / count).sqrt()) * step_ends)


def process_rewards_over_the_batch(rewards: Tensor, step_ends: Tensor) -> Tensor:
    steps = rewards[step_ends]
    return _to_come(_standardized(rewards, steps.mean(), steps.std()) * step_ends)


def process_rewards_answer_by_answer(rewards: Tensor, step_ends: Tensor) -> Tensor:
    credits = _step_credits(rewards.unsqueeze(-2), step_ends.unsqueeze(-2)).squeeze(-2)
    return _to_come(credits.nan_to_num())


def process_rewards_with_padding_in_the_mean(rewards: Tensor, step_ends: Tensor) -> Tensor:
    everywhere = torch.ones_like(step_ends)
    return _to_come(_standardized(rewards, *_over_steps(rewards, everywhere)) * step_ends)


def process_rewards_less_the_mean_of_all_places(rewards: Tensor, step_ends: Tensor) -> Tensor:
    deviation = (rewards - rewards.mean((-2, -1), keepdim=True)) * step_ends
    variance = deviation.square().sum((-2, -1), keepdim=True) / (step_ends.sum((-2, -1), keepdim=True) - 1)
    return _to_come(deviation / (variance.sqrt() + 1e-6))


def process_rewards_by_the_std_of_all_places(rewards: Tensor, step_ends: Tensor) -> Tensor:
    mean, _ = _over_steps(rewards, step_ends)
    return _to_come(_standardized(rewards, mean, rewards.std((-2, -1), keepdim=True)) * step_ends)


def process_rewards_with_padding_in_the_std(rewards: Tensor, step_ends: Tensor) -> Tensor:
    mean, _ = _over_steps(rewards, step_ends)
    count = step_ends.sum((-2, -1), keepdim=True)
    variance = (rewards - mean).square().sum((-2, -1), keepdim=True) / (count - 1)
    return _to_come(_standardized(rewards, mean, variance.sqrt()) * step_ends)


def process_rewards_without_eps(rewards: Tensor, step_ends: Tensor) -> Tensor:
    mean, std = _over_steps(rewards, step_ends)
    return _to_come((rewards - mean) / std * step_ends)


def process_rewards_of_zero_left_out(rewards: Tensor, step_ends: Tensor) -> Tensor:
    return _to_come(_step_credits(rewards, step_ends & (rewards != 0)).nan_to_num())


def process_rewards_where_no_step_ends(rewards: Tensor, step_ends: Tensor) -> Tensor:
    return _to_come(_standardized(rewards, *_over_steps(rewards, step_ends)))


def process_rewards_at_the_ends_only(rewards: Tensor, step_ends: Tensor) -> Tensor:
    return _step_credits(rewards, step_ends)


def process_rewards_without_the_token_s_own_step(rewards: Tensor, step_ends: Tensor) -> Tensor:
    credits = _step_credits(rewards, step_ends)
    return _to_come(credits) - credits


def process_rewards_of_all_steps_on_every_token(rewards: Tensor, step_ends: Tensor) -> Tensor:
    return _step_credits(rewards, step_ends).sum(-1, keepdim=True).expand_as(rewards)


def process_rewards_as_the_mean_of_steps_to_come(rewards: Tensor, step_ends: Tensor) -> Tensor:
    return _to_come(_step_credits(rewards, step_ends)) / _to_come(step_ends.to(rewards.dtype)).clamp(min=1)


PROCESS_ADVANTAGE = (
    Mistake(
        process_rewards_normalised_step_by_step,
        "you normalise each step position by itself: mean and std are over *all* step rewards of the group.",
    ),
    Mistake(
        process_rewards_of_the_steps_before,
        "you add up the steps before a token: it deserves the steps that end at or after it.",
    ),
    Mistake(
        process_rewards_not_standardised,
        "the step rewards are not standardised: take off the mean of the group's step rewards, and divide by their std.",
    ),
    Mistake(
        process_rewards_without_their_mean,
        "the mean is not taken off: without it no step that earned a 0 is blamed.",
    ),
    Mistake(process_rewards_without_their_std, "the division by the std of the group's step rewards is missing."),
    Mistake(
        process_rewards_by_the_biased_std,
        "your std divides by the number of step rewards n: the usual one here divides by n − 1, as torch's default.",
    ),
    Mistake(
        process_rewards_over_the_batch,
        "your mean and std are those of the whole batch: each group, dim 0, has its own. Sum over dims 1 and 2, and keepdim.",
    ),
    Mistake(
        process_rewards_answer_by_answer,
        "you standardise each answer by itself: then no answer is compared with another. Mean and std are the group's.",
    ),
    Mistake(
        process_rewards_with_padding_in_the_mean,
        "your mean and std count every token, as if it had earned a 0: only the ends of steps have a reward.",
    ),
    Mistake(
        process_rewards_less_the_mean_of_all_places,
        "your mean is over all places: divide the sum of the step rewards by the number of steps, step_ends.sum((1, 2)).",
    ),
    Mistake(
        process_rewards_by_the_std_of_all_places,
        "your mean is right, but your std is over all places: only the ends of steps have a reward.",
    ),
    Mistake(
        process_rewards_with_padding_in_the_std,
        "step_ends is missing in the std: where no step ends the deviation is −mean, so multiply by step_ends before you "
        "square.",
    ),
    Mistake(
        process_rewards_without_eps,
        "the small number added to the std is missing: in a group whose steps all earned the same, 0 is divided by 0.",
    ),
    Mistake(
        process_rewards_of_zero_left_out,
        "you take a reward of 0 for no step at all: step_ends says where steps end, a wrong one earns 0.",
    ),
    Mistake(
        process_rewards_where_no_step_ends,
        "tokens at which no step ends get a share of their own, −mean / std: multiply by step_ends before you add up.",
    ),
    Mistake(
        process_rewards_at_the_ends_only,
        "you stop at the ends of the steps: a token is credited with all the steps that end at or after it.",
    ),
    Mistake(
        process_rewards_without_the_token_s_own_step,
        "the step that ends at a token belongs to its credit: the sum starts at the token, not behind it.",
    ),
    Mistake(
        process_rewards_of_all_steps_on_every_token,
        "you give each token the sum of the whole answer: a token has no part in the steps that ended before it.",
    ),
    Mistake(
        process_rewards_as_the_mean_of_steps_to_come,
        'you take the mean of the steps to come: that is the library\'s combine="mean", the paper has their sum.',
    ),
)
