"""Wrong variants of clipping surrogates."""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.exercises.mistakes.mistake import Mistake


def inverted_for_bad_tokens(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    free, clipped = ratio * advantages, torch.clamp(ratio, lower, upper) * advantages
    return torch.where(advantages >= 0, torch.minimum(free, clipped), torch.maximum(free, clipped))


def clamp_without_the_minimum(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.clamp(ratio, lower, upper) * advantages


def maximum_for_the_minimum(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.maximum(ratio * advantages, torch.clamp(ratio, lower, upper) * advantages)


def never_clipped(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return ratio * advantages


def clipped_from_above_only(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.minimum(ratio * advantages, torch.minimum(ratio, upper) * advantages)


def limits_taken_for_widths(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.minimum(ratio * advantages, torch.clamp(ratio, 1 - lower, 1 + upper) * advantages)


def limits_swapped(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.minimum(ratio * advantages, torch.clamp(ratio, upper, lower) * advantages)


def objective_clipped_instead_of_ratio(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.minimum(ratio * advantages, torch.clamp(ratio * advantages, lower, upper))


def constant_limits(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.minimum(ratio * advantages, torch.clamp(ratio, 0.8, 1.2) * advantages)


def limits_of_the_first_token(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    first = torch.clamp(ratio, lower.flatten()[0], upper.flatten()[0])
    return torch.minimum(ratio * advantages, first * advantages)


def ratio_and_advantage_swapped(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.minimum(ratio * advantages, torch.clamp(advantages, lower, upper) * ratio)


def zero_outside_the_limits(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.where((ratio < lower) | (ratio > upper), 0 * ratio, ratio * advantages)


def dual_clipped(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    objective = torch.minimum(ratio * advantages, torch.clamp(ratio, lower, upper) * advantages)
    return torch.where(advantages < 0, torch.maximum(objective, 3 * advantages), objective)


SURROGATE = (
    Mistake(
        inverted_for_bad_tokens,
        "your A < 0 branch is inverted: the minimum of r·A and clip(r)·A holds for both signs (the minimum of the ratios, times "
        "A, is a maximum for A < 0). So a bad token loses its gradient when its probability has run up, where it needs it most.",
        "a notebook of reasoning-from-scratch until May 2026: github.com/rasbt/reasoning-from-scratch/pull/240",
    ),
    Mistake(
        clamp_without_the_minimum,
        "you clip, but the minimum is missing: a token that moved the wrong way (A > 0 and r < lower, A < 0 and r > upper) has "
        "lost the gradient that would bring it back.",
    ),
    Mistake(maximum_for_the_minimum, "you take the maximum of the two branches: the objective is to be pessimistic."),
    Mistake(never_clipped, "nothing is clipped: use lower and upper."),
    Mistake(clipped_from_above_only, "you clip from above only: tokens with A < 0 need the lower limit."),
    Mistake(
        limits_taken_for_widths,
        "lower and upper are limits on the ratio already, such as 0.8 and 1.2: do not add them to 1.",
    ),
    Mistake(limits_swapped, "your limits are the wrong way round: torch.clamp takes the lower one first."),
    Mistake(objective_clipped_instead_of_ratio, "you clip r · A: clip the ratio, then multiply by A."),
    Mistake(constant_limits, "you clip at 0.8 and 1.2 whatever the limits are: use lower and upper."),
    Mistake(
        limits_of_the_first_token,
        "you clip every token at the first one's limits: lower and upper hold a limit for each token, so use them whole.",
    ),
    Mistake(ratio_and_advantage_swapped, "you clip A: the ratio is the first argument, A the second."),
    Mistake(
        zero_outside_the_limits,
        "you set J to 0 outside the limits, on both sides: there the clipped ratio counts, and only where it is the worse one.",
    ),
    Mistake(dual_clipped, "that is the dual clip: its further bound at 3 · A for A < 0 is not asked for here."),
)


def cispo_with_its_ratio_inverted(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.clamp(1 / ratio, lower, upper).detach() * advantages * ratio.log()


CISPO = (Mistake(cispo_with_its_ratio_inverted, "your weight is old over new: it is the clipped ratio, new over old."),)
