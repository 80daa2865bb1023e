"""Wrong variants of the punishment of long responses: those here punish from 12 to 16 tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.exercises.mistakes.mistake import Mistake
from rlviz.pieces.shaping import SoftOverlongPunishment

MAX_LENGTH, CACHE = 16, 4
START = MAX_LENGTH - CACHE


def _ramp(lengths: Tensor) -> Tensor:
    """Return 0 at `START` tokens and −1 at `MAX_LENGTH`, straight on both sides."""
    return (START - lengths) / CACHE


def _right(rewards: Tensor, lengths: Tensor) -> Tensor:
    """Return the punishment alone."""
    return SoftOverlongPunishment(max_length=MAX_LENGTH, cache=CACHE)(torch.zeros_like(rewards), lengths)


def overlong_counts_the_prompt(rewards: Tensor, lengths: Tensor) -> Tensor:
    """For a prompt of 6 tokens."""
    return SoftOverlongPunishment(max_length=16, cache=4)(rewards, lengths + 6)


def overlong_without_the_rewards(rewards: Tensor, lengths: Tensor) -> Tensor:
    return _right(rewards, lengths)


def overlong_as_a_bonus(rewards: Tensor, lengths: Tensor) -> Tensor:
    return rewards - _right(rewards, lengths)


def overlong_upside_down(rewards: Tensor, lengths: Tensor) -> Tensor:
    return rewards + ((lengths - MAX_LENGTH) / CACHE).clamp(-1.0, 0.0)


def overlong_from_the_maximum_on(rewards: Tensor, lengths: Tensor) -> Tensor:
    return rewards + ((MAX_LENGTH - lengths) / CACHE).clamp(-1.0, 0.0)


def overlong_without_a_floor(rewards: Tensor, lengths: Tensor) -> Tensor:
    return rewards + _ramp(lengths).clamp(max=0.0)


def overlong_with_a_bonus_for_the_short(rewards: Tensor, lengths: Tensor) -> Tensor:
    return rewards + _ramp(lengths).clamp(min=-1.0)


def overlong_never_clipped(rewards: Tensor, lengths: Tensor) -> Tensor:
    return rewards + _ramp(lengths)


def overlong_from_no_bonus_to_a_bonus(rewards: Tensor, lengths: Tensor) -> Tensor:
    return rewards + _ramp(lengths).clamp(0.0, 1.0)


def overlong_from_a_loss_to_a_bonus(rewards: Tensor, lengths: Tensor) -> Tensor:
    return rewards + _ramp(lengths).clamp(-1.0, 1.0)


def overlong_and_the_sum_clamped(rewards: Tensor, lengths: Tensor) -> Tensor:
    return (rewards + _ramp(lengths)).clamp(-1.0, 1.0)


def overlong_and_the_sum_never_above_zero(rewards: Tensor, lengths: Tensor) -> Tensor:
    return (rewards + _ramp(lengths)).clamp(-1.0, 0.0)


def overlong_for_right_answers_only(rewards: Tensor, lengths: Tensor) -> Tensor:
    return torch.where(rewards > 0, rewards + _right(rewards, lengths), rewards)


def overlong_for_the_reward_beyond_the_maximum(rewards: Tensor, lengths: Tensor) -> Tensor:
    return torch.where(lengths > MAX_LENGTH, -1.0, rewards + _right(rewards, lengths))


def overlong_punished_beyond_the_maximum_no_more(rewards: Tensor, lengths: Tensor) -> Tensor:
    return rewards + torch.where(lengths <= MAX_LENGTH, _right(rewards, lengths), 0.0)


def overlong_as_a_factor(rewards: Tensor, lengths: Tensor) -> Tensor:
    return rewards * (1 + _right(rewards, lengths))


def overlong_times_the_rewards(rewards: Tensor, lengths: Tensor) -> Tensor:
    return rewards * _right(rewards, lengths)


def overlong_in_place_of_the_rewards(rewards: Tensor, lengths: Tensor) -> Tensor:
    return torch.where(lengths > START, _right(rewards, lengths), rewards)


def overlong_over_the_maximum_length(rewards: Tensor, lengths: Tensor) -> Tensor:
    return rewards + ((START - lengths) / MAX_LENGTH).clamp(-1.0, 0.0)


def overlong_over_the_start_of_the_ramp(rewards: Tensor, lengths: Tensor) -> Tensor:
    return rewards + ((START - lengths).to(rewards.dtype) / START).clamp(-1.0, 0.0)


def overlong_in_full_at_once(rewards: Tensor, lengths: Tensor) -> Tensor:
    return rewards + (START - lengths).clamp(-1, 0)


def overlong_by_a_cliff_at_the_maximum(rewards: Tensor, lengths: Tensor) -> Tensor:
    return rewards - (lengths > MAX_LENGTH).to(rewards.dtype)


def overlong_in_whole_numbers(rewards: Tensor, lengths: Tensor) -> Tensor:
    return rewards - ((lengths - START) // CACHE).clamp(0, 1)


OVERLONG = (
    Mistake(
        overlong_counts_the_prompt,
        "the prompt's tokens are counted: only what the policy wrote can be overlong.",
        "the DCPO authors' reward manager, which passes the prompt's length alone",
    ),
    Mistake(
        overlong_without_the_rewards,
        "this is the punishment alone: add it to the rewards.",
    ),
    Mistake(
        overlong_as_a_bonus,
        "the sign is wrong: long responses gain what they should lose.",
    ),
    Mistake(
        overlong_upside_down,
        "upside down: short responses lose 1, and the longest lose nothing. The ramp is 0 at 12 tokens and −1 at 16.",
    ),
    Mistake(
        overlong_from_the_maximum_on,
        "the ramp begins at max_length: no response gets beyond it, so nobody is warned. It begins cache tokens earlier.",
    ),
    Mistake(
        overlong_without_a_floor,
        "beyond max_length the punishment goes on growing: it stops at −1.",
        "verl, whose sampler stops at max_length, so that it does not matter there",
    ),
    Mistake(
        overlong_with_a_bonus_for_the_short,
        "responses of under 12 tokens are paid for being short: up to there the punishment is 0.",
    ),
    Mistake(
        overlong_never_clipped,
        "the ramp has no ends: short responses are paid, very long ones lose more than 1. Clamp it from −1 to 0.",
    ),
    Mistake(
        overlong_from_no_bonus_to_a_bonus,
        "clamp from −1 to 0, not from 0 to 1: short responses are paid, and long ones lose nothing.",
    ),
    Mistake(
        overlong_from_a_loss_to_a_bonus,
        "clamp from −1 to 0, not from −1 to 1: short responses are paid for being short.",
    ),
    Mistake(
        overlong_and_the_sum_clamped,
        "you clamp the sum, from −1 to 1: clamp the punishment alone, from −1 to 0, then add it to the rewards.",
    ),
    Mistake(
        overlong_and_the_sum_never_above_zero,
        "you clamp the sum: clamp the punishment alone, then add it to the rewards, or nobody earns anything.",
    ),
    Mistake(
        overlong_for_right_answers_only,
        "only right answers lose: add the punishment to wrong ones as well, or long wrong answers go free.",
    ),
    Mistake(
        overlong_for_the_reward_beyond_the_maximum,
        "beyond max_length you give −1, whatever the reward: there, too, the punishment is added to it.",
    ),
    Mistake(
        overlong_punished_beyond_the_maximum_no_more,
        "responses beyond max_length go free: they lose 1, like those of just that length.",
    ),
    Mistake(
        overlong_as_a_factor,
        "the rewards are multiplied: a wrong answer, reward 0, loses nothing however long it is. Add the punishment.",
    ),
    Mistake(
        overlong_times_the_rewards,
        "the rewards are multiplied by the punishment: a short right answer earns 0. Add the two.",
    ),
    Mistake(
        overlong_in_place_of_the_rewards,
        "beyond 12 tokens the punishment takes the reward's place: a long right answer earns what a wrong one does. Add it.",
    ),
    Mistake(
        overlong_over_the_maximum_length,
        "divide by cache, the width of the ramp, not by max_length: at 16 tokens the punishment has to be −1.",
    ),
    Mistake(
        overlong_over_the_start_of_the_ramp,
        "divide by cache, 4, the width of the ramp, not by 12, where it begins: at 16 tokens the punishment has to be −1.",
    ),
    Mistake(
        overlong_in_full_at_once,
        "from 13 tokens on the full 1 is lost: divide by cache, with / and not //, so that it grows by a quarter a token.",
    ),
    Mistake(
        overlong_by_a_cliff_at_the_maximum,
        "a cliff: nothing up to max_length, then 1. The soft punishment grows over the last cache tokens.",
    ),
    Mistake(
        overlong_in_whole_numbers,
        "nothing is lost before 16 tokens: divide by /, not by //; where you wrote a step at 16, make it a ramp from 12.",
    ),
)
