"""Wrong ways to write an algorithm of one's own: CISPO's surrogate, sg[clip(r)] · A · log r."""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.exercises.mistakes.clipping import CISPO, clamp_without_the_minimum
from rlviz.exercises.mistakes.mistake import Mistake
from rlviz.pieces.surrogate import pessimistic


def cispo_with_a_weight_that_moves(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.clamp(ratio, lower, upper) * advantages * ratio.log()


def cispo_all_frozen(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return (torch.clamp(ratio, lower, upper) * advantages * ratio.log()).detach()


def cispo_with_its_log_frozen(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.clamp(ratio, lower, upper) * advantages * ratio.detach().log()


def cispo_with_the_ratio_for_its_log(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.clamp(ratio, lower, upper).detach() * advantages * ratio


def cispo_with_the_log_of_the_clipped(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    clipped = torch.clamp(ratio, lower, upper)
    return clipped.detach() * advantages * clipped.log()


def cispo_without_the_clip(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return ratio.detach() * advantages * ratio.log()


def cispo_without_the_weight(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return advantages * ratio.log()


def cispo_without_the_advantages(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.clamp(ratio, lower, upper).detach() * ratio.log()


def cispo_without_the_log(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.clamp(ratio, lower, upper).detach() * advantages


def cispo_clipped_from_above_only(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.minimum(ratio, upper).detach() * advantages * ratio.log()


def cispo_with_limits_for_widths(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.clamp(ratio, 1 - lower, 1 + upper).detach() * advantages * ratio.log()


def cispo_silent_outside_the_limits(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    inside = (ratio >= lower) & (ratio <= upper)
    return torch.where(inside, ratio.detach() * advantages * ratio.log(), 0 * ratio)


CISPO_SURROGATE = (
    *CISPO,
    Mistake(
        cispo_with_a_weight_that_moves,
        "the values are right, but the weight has a gradient too: freeze it, .detach() behind the clamp.",
    ),
    Mistake(
        cispo_all_frozen, "everything is frozen, so nothing is learnt: .detach() belongs to the clipped ratio alone."
    ),
    Mistake(
        cispo_with_its_log_frozen,
        "you froze the ratio under the logarithm: that one carries the gradient. Freeze the clipped ratio in front.",
    ),
    Mistake(
        cispo_with_the_ratio_for_its_log,
        "you multiply by the ratio: take its logarithm, whose slope is that of the log-probability.",
    ),
    Mistake(
        cispo_with_the_log_of_the_clipped,
        "you take the logarithm of the clipped ratio, so the clip cuts the gradient again: take that of the ratio itself.",
    ),
    Mistake(cispo_without_the_clip, "nothing is clipped: the weight is the ratio between lower and upper."),
    Mistake(cispo_without_the_weight, "the weight is missing: multiply by the clipped and frozen ratio."),
    Mistake(cispo_without_the_advantages, "A is missing: good tokens and bad ones are pushed the same way."),
    Mistake(
        cispo_without_the_log,
        "the logarithm of the ratio is missing: a frozen weight times A has no gradient at all.",
    ),
    Mistake(
        cispo_clipped_from_above_only,
        "you clip from above only, as CISPO's authors do: here a ratio below the lower limit is clipped as well.",
    ),
    Mistake(
        cispo_with_limits_for_widths,
        "lower and upper are limits on the ratio already, such as 0.8 and 1.2: do not add them to 1.",
    ),
    Mistake(
        cispo_silent_outside_the_limits,
        "outside the limits you return 0, which cuts the gradient: the clipped ratio is a weight, and no token is left out.",
    ),
    Mistake(
        clamp_without_the_minimum,
        "that is a clip alone, which cuts gradients: freeze the clipped ratio, and let A · log r carry the gradient.",
    ),
    Mistake(
        pessimistic,
        "that is PPO's surrogate, with the minimum: here the clipped ratio is a frozen weight in front of A · log r.",
    ),
)
