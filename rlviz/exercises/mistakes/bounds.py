"""Wrong variants of DCPO's limits on the ratio. (old_prob [N], eps_low, eps_high, max_ratio) → (lower, upper), [N] each."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rlviz.exercises.mistakes.mistake import Mistake
from rlviz.pieces.bounds import DynamicBounds

Pair = tuple[Tensor, Tensor]


def _right(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    return DynamicBounds(float(eps_low), float(eps_high), float(max_ratio))(old_prob.log())


def _roots(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor) -> Pair:
    return (1 - 4 * eps_low / old_prob).clamp(min=0).sqrt(), (1 + 4 * eps_high / old_prob).sqrt()


def widths_swapped(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    return _right(old_prob, eps_high, eps_low, max_ratio)


def low_width_on_both_sides(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    return _right(old_prob, eps_low, eps_low, max_ratio)


def high_width_on_both_sides(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    return _right(old_prob, eps_high, eps_high, max_ratio)


def old_probability_forgotten(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    return _right(torch.ones_like(old_prob), eps_low, eps_high, max_ratio)


def multiplied_by_the_probability(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    return _right(1 / old_prob, eps_low, eps_high, max_ratio)


def logarithm_taken_for_the_probability(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    low, high = _roots(old_prob.log(), eps_low, eps_high)
    return 0.5 + 0.5 * low, torch.minimum(0.5 + 0.5 * high, max_ratio)


def logarithm_and_both_roots_clamped(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    low, high = (1 + 4 * eps / old_prob.log() for eps in (-eps_low, eps_high))
    return 0.5 + 0.5 * low.clamp(min=0).sqrt(), torch.minimum(0.5 + 0.5 * high.clamp(min=0).sqrt(), max_ratio)


def four_forgotten(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    return _right(old_prob, eps_low / 4, eps_high / 4, max_ratio)


def root_of_a_negative_number(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    upper = _right(old_prob, eps_low, eps_high, max_ratio)[1]
    return 0.5 + 0.5 * (1 - 4 * eps_low / old_prob).sqrt(), upper


def clamp_and_cap_forgotten(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    return root_of_a_negative_number(old_prob, eps_low, eps_high, torch.full_like(max_ratio, float("inf")))


def no_lower_limit_where_there_is_no_root(
    old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor
) -> Pair:
    lower, upper = root_of_a_negative_number(old_prob, eps_low, eps_high, max_ratio)
    return lower.nan_to_num(0.0), upper


def sign_dropped_under_the_root(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    upper = _right(old_prob, eps_low, eps_high, max_ratio)[1]
    return 0.5 + 0.5 * (1 - 4 * eps_low / old_prob).abs().sqrt(), upper


def smaller_root(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    lower, upper = _right(old_prob, eps_low, eps_high, max_ratio)
    return 1 - lower, upper


def plus_under_both_roots(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    upper = _right(old_prob, eps_low, eps_high, max_ratio)[1]
    return 0.5 + 0.5 * (1 + 4 * eps_low / old_prob).sqrt(), upper


def root_forgotten(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    low, high = _roots(old_prob, eps_low, eps_high)
    return 0.5 + 0.5 * low.square(), torch.minimum(0.5 + 0.5 * high.square(), max_ratio)


def half_of_the_root_forgotten(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    low, high = _roots(old_prob, eps_low, eps_high)
    return 0.5 + low, torch.minimum(0.5 + high, max_ratio)


def half_in_front_forgotten(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    low, high = _roots(old_prob, eps_low, eps_high)
    return 0.5 * low, torch.minimum(0.5 * high, max_ratio)


def both_halves_forgotten(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    low, high = _roots(old_prob, eps_low, eps_high)
    return 1 + low, torch.minimum(1 + high, max_ratio)


def cap_forgotten(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    return _right(old_prob, eps_low, eps_high, torch.full_like(max_ratio, float("inf")))


def cap_of_ten_always(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    return _right(old_prob, eps_low, eps_high, torch.full_like(max_ratio, 10.0))


def cap_from_below(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    lower, upper = cap_forgotten(old_prob, eps_low, eps_high, max_ratio)
    return lower, torch.maximum(upper, max_ratio)


def cap_where_the_probability_is_one(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    lower, upper = cap_forgotten(old_prob, eps_low, eps_high, max_ratio)
    return lower, torch.minimum(upper, 1 / old_prob)


def limits_of_the_probability(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    lower, upper = _right(old_prob, eps_low, eps_high, max_ratio)
    return lower * old_prob, upper * old_prob


def widths_in_their_place(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    lower, upper = _right(old_prob, eps_low, eps_high, max_ratio)
    return 1 - lower, upper - 1


def limits_swapped(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    lower, upper = _right(old_prob, eps_low, eps_high, max_ratio)
    return upper, lower


def fixed_limits(old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    return torch.ones_like(old_prob) * (1 - eps_low), torch.ones_like(old_prob) * (1 + eps_high)


def change_weighed_by_the_old_probability(
    old_prob: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor
) -> Pair:
    lower, upper = 1 - eps_low / old_prob, 1 + eps_high / old_prob
    return lower.clamp(min=0), torch.minimum(upper, max_ratio)


_WHOLE = [
    Mistake(
        widths_swapped,
        "eps_low and eps_high are swapped: eps_low belongs under the root of the lower limit, eps_high under the upper one's.",
    ),
    Mistake(
        low_width_on_both_sides, "you use eps_low on both sides: the upper limit has a width of its own, eps_high."
    ),
    Mistake(
        high_width_on_both_sides, "you use eps_high on both sides: the lower limit has a width of its own, eps_low."
    ),
    Mistake(
        old_probability_forgotten,
        "the old probability is missing: eps is divided by q under the root, so that a rare token gets more room.",
    ),
    Mistake(
        multiplied_by_the_probability,
        "you multiply eps by q: it is divided by q. Yours gives a rare token the least room, and it is to get the most.",
    ),
    Mistake(
        logarithm_taken_for_the_probability,
        "you divide by log q, which is negative: the argument holds the probability already, no logarithm is needed.",
    ),
    Mistake(
        logarithm_and_both_roots_clamped,
        "you divide by log q, which is negative: q is the probability already, and with it the upper root needs no clamp.",
    ),
    Mistake(
        four_forgotten, "the 4 is missing: under the root stands 4 · eps / q, from the formula for quadratic equations."
    ),
    Mistake(
        root_of_a_negative_number,
        "nan: for q < 4 · eps_low the number under the lower root is negative. Set it to 0 there, with .clamp(min=0).",
    ),
    Mistake(
        clamp_and_cap_forgotten,
        "nan: for q < 4 · eps_low the number under the lower root is negative. Set it to 0 there, with .clamp(min=0). "
        "And cap the upper limit at max_ratio.",
    ),
    Mistake(
        no_lower_limit_where_there_is_no_root,
        "your lower limit is 0 where q < 4 · eps_low: it is the number under the root that is set to 0, which leaves ½.",
    ),
    Mistake(
        sign_dropped_under_the_root,
        "you take the absolute value under the lower root: where it is negative, set it to 0, with .clamp(min=0). Yours puts "
        "the lower limit of rare tokens above 1.",
    ),
    Mistake(
        smaller_root,
        "that is the other root, ½ − ½ √…: a ratio comes from 1 and falls, so the first one that it meets is ½ + ½ √….",
    ),
    Mistake(
        plus_under_both_roots,
        "there is a plus under the lower root: below 1 the change is 1 − r, which gives a minus there.",
    ),
    Mistake(root_forgotten, "the square root is missing: the quadratic equation has r² in it."),
    Mistake(half_of_the_root_forgotten, "the ½ before the root is missing: it is ½ + ½ √…, which is 1 for eps = 0."),
    Mistake(half_in_front_forgotten, "the ½ in front is missing: it is ½ + ½ √…, which is 1 for eps = 0."),
    Mistake(both_halves_forgotten, "you forgot to halve: it is (1 + √…) / 2, which is 1 for eps = 0."),
    Mistake(
        cap_forgotten,
        "the cap is missing: the upper limit is max_ratio at most, or the rarest tokens have hardly any limit.",
    ),
    Mistake(cap_of_ten_always, "your cap is always 10: use max_ratio."),
    Mistake(
        cap_from_below, "your cap works the wrong way round: max_ratio is the largest upper limit, so take the minimum."
    ),
    Mistake(
        cap_where_the_probability_is_one,
        "you cap at 1 / q, where the new probability would be 1: no token gets there anyway. Cap the upper limit at max_ratio.",
    ),
    Mistake(
        limits_of_the_probability,
        "these are limits on the new probability: the surrogate compares them with the ratio, so do not multiply by q.",
    ),
    Mistake(
        widths_in_their_place,
        "these are the distances from 1: return the limits themselves, which lie below and above 1.",
    ),
    Mistake(limits_swapped, "they are the wrong way round: return the lower limit first, then the upper one."),
    Mistake(fixed_limits, "those are the fixed limits 1 − eps_low and 1 + eps_high: they have to depend on q."),
    Mistake(
        change_weighed_by_the_old_probability,
        "you solved |r − 1| · q ≤ eps: the change is weighed by the new probability r · q, which makes the equation quadratic.",
    ),
]


def _on_one_side(mistake: Mistake, side: int) -> Mistake:
    """Return the mistake with the right limit in the place of its other one. side: of the wrong one, 0 lower, 1 upper."""
    fine, wrong = (("upper", "lower"), ("lower", "upper"))[side]

    def mixed(*given: Tensor) -> Pair:
        limits = list(_right(*given))
        limits[side] = mistake.wrong(*given)[side]
        return limits[0], limits[1]

    mixed.__name__ = f"{mistake.wrong.__name__}_in_the_{wrong}_limit"
    return replace(mistake, wrong=mixed, says=f"the {fine} limit is right. In the {wrong} one {mistake.says}")


_EITHER_SIDE = [
    old_probability_forgotten,
    multiplied_by_the_probability,
    logarithm_taken_for_the_probability,
    four_forgotten,
    root_forgotten,
    half_of_the_root_forgotten,
    half_in_front_forgotten,
    both_halves_forgotten,
    limits_of_the_probability,
    fixed_limits,
    change_weighed_by_the_old_probability,
]
_ONE_SIDED = [_on_one_side(mistake, side) for mistake in _WHOLE if mistake.wrong in _EITHER_SIDE for side in (0, 1)]
DYNAMIC_BOUNDS = (*_WHOLE, *_ONE_SIDED)


def limits_of_the_new_probability(
    ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor, old_logp: Tensor
) -> Tensor:
    """In the place of a surrogate: DCPO's limits, computed from what the token's probability is now."""
    new_prob = ratio * old_logp.exp()
    lower, upper = DynamicBounds()(new_prob.log())
    return torch.minimum(ratio * advantages, torch.clamp(ratio, lower, upper) * advantages)


MOVING_LIMITS = (
    Mistake(
        limits_of_the_new_probability,
        "the limits move with the token and carry a gradient of their own: they belong to the old probability, which is frozen.",
    ),
)
