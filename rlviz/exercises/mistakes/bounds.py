"""Wrong variants of DCPO's limits on the ratio."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from rlviz.exercises.judge import Mistake, Topic, family
from rlviz.pieces.bounds import DynamicBounds

# --- bounds: (q [N], eps_low, eps_high, max_ratio) → DCPO's limits (lower, upper), [N] each; q: the old probability ---

Pair = tuple[Tensor, Tensor]


def _limits(q: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    """Return the right limits."""
    return DynamicBounds(float(eps_low), float(eps_high), float(max_ratio))(q.log())


def _of_limits(change: Callable[[Tensor, Tensor], Pair]) -> Callable[..., Pair]:
    """Return what makes of the right limits others."""
    return lambda q, eps_low, eps_high, max_ratio: change(*_limits(q, eps_low, eps_high, max_ratio))


def _of_roots(limit: Callable[[Tensor], Tensor]) -> Callable[..., Pair]:
    """Return limits that are made of √(1 − 4 eps_low / q), 0 where there is none, and √(1 + 4 eps_high / q), and capped."""
    return _of_roots_and(lambda root, q: limit(root))


def _of_roots_and(limit: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Pair]:
    """Return the same, made of each root and q."""

    def limits(q: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
        low, high = (1 - 4 * eps_low / q).clamp(min=0).sqrt(), (1 + 4 * eps_high / q).sqrt()
        return limit(low, q), torch.minimum(limit(high, q), max_ratio)

    return limits


def _with_lower(lower: Callable[[Tensor], Tensor]) -> Callable[..., Pair]:
    """Return limits of which the upper one is right, and the lower one is made of 4 eps_low / q."""
    return lambda q, eps_low, *given: (lower(4 * eps_low / q), _limits(q, eps_low, *given)[1])


def _capped(cap: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[..., Pair]:
    """Return the right limits, but for the upper one's cap: it is made of the limit without one, q and max_ratio."""

    def limits(q: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
        lower, upper = _limits(q, eps_low, eps_high, torch.tensor(math.inf))
        return lower, cap(upper, q, max_ratio)

    return limits


def logarithm_and_both_roots_clamped(q: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    low, high = ((1 + 4 * eps / q.log()).clamp(min=0).sqrt() for eps in (-eps_low, eps_high))
    return 0.5 + 0.5 * low, torch.minimum(0.5 + 0.5 * high, max_ratio)


_root_of_a_negative_number = _with_lower(lambda x: 0.5 + 0.5 * (1 - x).sqrt())
_without_cap = _capped(lambda upper, q, max_ratio: upper)
_half_and_half = _of_roots(lambda root: 0.5 + 0.5 * root)
_WHOLE = family(
    widths_swapped=Mistake(
        lambda q, eps_low, eps_high, max_ratio: _limits(q, eps_high, eps_low, max_ratio),
        "eps_low and eps_high are swapped: eps_low belongs under the root of the lower limit, eps_high under the upper one's.",
    ),
    low_width_on_both_sides=Mistake(
        lambda q, eps_low, eps_high, max_ratio: _limits(q, eps_low, eps_low, max_ratio),
        "you use eps_low on both sides: the upper limit has a width of its own, eps_high.",
    ),
    high_width_on_both_sides=Mistake(
        lambda q, eps_low, eps_high, max_ratio: _limits(q, eps_high, eps_high, max_ratio),
        "you use eps_high on both sides: the lower limit has a width of its own, eps_low.",
    ),
    old_probability_forgotten=Mistake(
        lambda q, *given: _limits(torch.ones_like(q), *given),
        "the old probability is missing: eps is divided by q under the root, so that a rare token gets more room.",
    ),
    multiplied_by_the_probability=Mistake(
        lambda q, *given: _limits(1 / q, *given),
        "you multiply eps by q: it is divided by q. Yours gives a rare token the least room, and it is to get the most.",
    ),
    logarithm_taken_for_the_probability=Mistake(
        lambda q, *given: _half_and_half(q.log(), *given),
        "you divide by log q, which is negative: the argument holds the probability already, no logarithm is needed.",
    ),
    logarithm_and_both_roots_clamped=Mistake(
        logarithm_and_both_roots_clamped,
        "you divide by log q, which is negative: q is the probability already, and with it the upper root needs no clamp.",
    ),
    four_forgotten=Mistake(
        lambda q, eps_low, eps_high, max_ratio: _limits(q, eps_low / 4, eps_high / 4, max_ratio),
        "the 4 is missing: under the root stands 4 · eps / q, from the formula for quadratic equations.",
    ),
    root_of_a_negative_number=Mistake(
        _root_of_a_negative_number,
        "nan: for q < 4 · eps_low the number under the lower root is negative. Set it to 0 there, with .clamp(min=0).",
    ),
    clamp_and_cap_forgotten=Mistake(
        lambda *given: (_root_of_a_negative_number(*given)[0], _without_cap(*given)[1]),
        "nan: for q < 4 · eps_low the number under the lower root is negative. Set it to 0 there, with .clamp(min=0). "
        "And cap the upper limit at max_ratio.",
    ),
    no_lower_limit_where_there_is_no_root=Mistake(
        _with_lower(lambda x: (0.5 + 0.5 * (1 - x).sqrt()).nan_to_num(0.0)),
        "your lower limit is 0 where q < 4 · eps_low: it is the number under the root that is set to 0, which leaves ½.",
    ),
    sign_dropped_under_the_root=Mistake(
        _with_lower(lambda x: 0.5 + 0.5 * (1 - x).abs().sqrt()),
        "you take the absolute value under the lower root: where it is negative, set it to 0, with .clamp(min=0). Yours puts "
        "the lower limit of rare tokens above 1.",
    ),
    smaller_root=Mistake(
        _of_limits(lambda lower, upper: (1 - lower, upper)),
        "that is the other root, ½ − ½ √…: a ratio comes from 1 and falls, so the first one that it meets is ½ + ½ √….",
    ),
    plus_under_both_roots=Mistake(
        _with_lower(lambda x: 0.5 + 0.5 * (1 + x).sqrt()),
        "there is a plus under the lower root: below 1 the change is 1 − r, which gives a minus there.",
    ),
    root_forgotten=Mistake(
        _of_roots(lambda root: 0.5 + 0.5 * root.square()),
        "the square root is missing: the quadratic equation has r² in it.",
    ),
    half_of_the_root_forgotten=Mistake(
        _of_roots(lambda root: 0.5 + root), "the ½ before the root is missing: it is ½ + ½ √…, which is 1 for eps = 0."
    ),
    half_in_front_forgotten=Mistake(
        _of_roots(lambda root: 0.5 * root), "the ½ in front is missing: it is ½ + ½ √…, which is 1 for eps = 0."
    ),
    both_halves_forgotten=Mistake(
        _of_roots(lambda root: 1 + root), "you forgot to halve: it is (1 + √…) / 2, which is 1 for eps = 0."
    ),
    cap_forgotten=Mistake(
        _without_cap,
        "the cap is missing: the upper limit is max_ratio at most, or the rarest tokens have hardly any limit.",
    ),
    power_without_brackets=Mistake(
        _of_roots(lambda root: 0.5 + 0.5 * root**2 / 2),
        "you halve where a root is due: x ** 1 / 2 is (x ** 1) / 2 in Python. Write x.sqrt() or x ** 0.5.",
    ),
    cap_under_the_root=Mistake(
        lambda q, eps_low, eps_high, max_ratio: (
            _without_cap(q, eps_low, eps_high, max_ratio)[0],
            0.5 + 0.5 * torch.minimum(1 + 4 * eps_high / q, max_ratio).sqrt(),
        ),
        "your cap stands under the root: it is the limit itself that is at most max_ratio.",
    ),
    cap_of_ten_always=Mistake(
        _capped(lambda upper, q, max_ratio: upper.clamp(max=10.0)),
        "your cap is always 10: use max_ratio.",
    ),
    cap_from_below=Mistake(
        _capped(lambda upper, q, max_ratio: torch.maximum(upper, max_ratio)),
        "your cap works the wrong way round: max_ratio is the largest upper limit, so take the minimum.",
    ),
    cap_where_the_probability_is_one=Mistake(
        _capped(lambda upper, q, max_ratio: torch.minimum(upper, 1 / q)),
        "you cap at 1 / q, where the new probability would be 1: no token gets there anyway. Cap the upper limit at max_ratio.",
    ),
    limits_of_the_probability=Mistake(
        lambda q, *given: tuple(limit * q for limit in _limits(q, *given)),
        "these are limits on the new probability: the surrogate compares them with the ratio, so do not multiply by q.",
    ),
    widths_in_their_place=Mistake(
        _of_limits(lambda lower, upper: (1 - lower, upper - 1)),
        "these are the distances from 1: return the limits themselves, which lie below and above 1.",
    ),
    limits_swapped=Mistake(
        _of_limits(lambda lower, upper: (upper, lower)),
        "they are the wrong way round: return the lower limit first, then the upper one.",
    ),
    fixed_limits=Mistake(
        lambda q, eps_low, eps_high, max_ratio: ((1 - eps_low).expand_as(q), (1 + eps_high).expand_as(q)),
        "those are the fixed limits 1 − eps_low and 1 + eps_high: they have to depend on q.",
    ),
    change_weighed_by_the_old_probability_without_a_cap=Mistake(
        lambda q, eps_low, eps_high, max_ratio: ((1 - eps_low / q).clamp(min=0), 1 + eps_high / q),
        "you solved |r − 1| · q ≤ eps: the change is weighed by the new probability r · q, which makes the equation quadratic. "
        "And cap the upper limit at max_ratio.",
    ),
    change_weighed_by_the_old_probability_without_a_clamp=Mistake(
        lambda q, eps_low, eps_high, max_ratio: (1 - eps_low / q, torch.minimum(1 + eps_high / q, max_ratio)),
        "you solved |r − 1| · q ≤ eps, and below 0 as well: the change is weighed by the new probability r · q, which makes "
        "the equation quadratic.",
    ),
    change_weighed_by_the_old_probability_alone=Mistake(
        lambda q, eps_low, eps_high, max_ratio: (1 - eps_low / q, 1 + eps_high / q),
        "you solved |r − 1| · q ≤ eps: weigh the change by the new probability, |r − 1| · r · q ≤ eps, solve the quadratic "
        "equation, and cap the upper limit at max_ratio.",
    ),
    distances_weighed_by_the_old_probability=Mistake(
        lambda q, eps_low, eps_high, max_ratio: (-eps_low / q, eps_high / q),
        "∓eps / q are distances from 1, not limits, and solve |r − 1| · q ≤ eps: the weight is r · q.",
    ),
    width_times_the_probability=Mistake(
        lambda q, eps_low, eps_high, max_ratio: (1 - eps_low * q, 1 + eps_high * q),
        "1 ∓ eps · q gives a rare token the least room, and it is to get the most. Solve |r − 1| · r · q ≤ eps.",
    ),
    probability_and_width=Mistake(
        lambda q, eps_low, eps_high, max_ratio: (q - eps_low, q + eps_high),
        "q ∓ eps are limits on the probability, of the same width for each: solve |r − 1| · r · q ≤ eps for the ratio r.",
    ),
    square_roots_of_the_width=Mistake(
        lambda q, eps_low, eps_high, max_ratio: (
            (1 - (eps_low / q).sqrt()).clamp(min=0),
            torch.minimum(1 + (eps_high / q).sqrt(), max_ratio),
        ),
        "you solved (r − 1)² · q ≤ eps: the change is weighed by the new probability, |r − 1| · r · q ≤ eps.",
    ),
    divided_by_twice_the_probability=Mistake(
        _of_roots_and(lambda root, q: (1 + root) / (2 * q)),
        "you divide by 2q at the end: q r² − q r ∓ eps = 0 was divided by q already, so it is (1 + √…) / 2.",
    ),
    root_halved_alone=Mistake(
        _of_roots(lambda root: 1 + root / 2),
        "parentheses are missing: 1 is halved too, (1 + √…) / 2, which is 1 for eps = 0.",
    ),
    difference_divided_by_the_probability=Mistake(
        lambda q, eps_low, eps_high, max_ratio: (
            0.5 + 0.5 * ((1 - 4 * eps_low) / q).clamp(min=0).sqrt(),
            torch.minimum(0.5 + 0.5 * ((1 + 4 * eps_high) / q).sqrt(), max_ratio),
        ),
        "parentheses too many: only 4 · eps is divided by q, not the 1 before it.",
    ),
    two_for_four=Mistake(
        lambda q, eps_low, eps_high, max_ratio: _limits(q, eps_low / 2, eps_high / 2, max_ratio),
        "under the root stands 4 · eps / q, not 2 · eps / q: the formula for quadratic equations has b² − 4ac.",
    ),
    probability_squared=Mistake(
        lambda q, *given: _limits(q.square(), *given), "you divide eps by q²: under the root it is divided by q."
    ),
    one_where_there_is_no_root=Mistake(
        _with_lower(lambda x: (0.5 + 0.5 * (1 - x).sqrt()).nan_to_num(1.0)),
        "your lower limit is 1 where q < 4 · eps_low, so a rare token may not fall at all: the number under the root is set "
        "to 0, which leaves ½.",
    ),
    mirrored=Mistake(
        _with_lower(lambda x: 1.5 - 0.5 * (1 + x).sqrt()),
        "your lower limit is as far from 1 as an upper one: the weight r · q falls with r, so solve it anew, with a minus under "
        "the root.",
    ),
    change_weighed_by_the_old_probability=Mistake(
        lambda q, eps_low, eps_high, max_ratio: (
            (1 - eps_low / q).clamp(min=0),
            torch.minimum(1 + eps_high / q, max_ratio),
        ),
        "you solved |r − 1| · q ≤ eps: the change is weighed by the new probability r · q, which makes the equation quadratic.",
    ),
)


def _on_one_side(mistake: Mistake, side: int) -> Mistake:
    """Return the mistake with the right limit in the place of its other one. side: of the wrong one, 0 lower, 1 upper."""
    fine, wrong = _SIDES[1 - side], _SIDES[side]

    def mixed(*given: Tensor) -> Pair:
        limits = list(_limits(*given))
        limits[side] = mistake.wrong(*given)[side]
        return limits[0], limits[1]

    return replace(mistake, wrong=mixed, says=f"the {fine} limit is right. In the {wrong} one {mistake.says}")


_SIDES = ("lower", "upper")
_EITHER_SIDE = {
    "old probability forgotten",
    "multiplied by the probability",
    "logarithm taken for the probability",
    "four forgotten",
    "root forgotten",
    "half of the root forgotten",
    "half in front forgotten",
    "both halves forgotten",
    "limits of the probability",
    "fixed limits",
    "change weighed by the old probability",
}
DYNAMIC_BOUNDS = _WHOLE + family(
    **{
        f"{mistake.name} in the {name} limit": _on_one_side(mistake, side)
        for mistake in _WHOLE
        if mistake.name in _EITHER_SIDE
        for side, name in enumerate(_SIDES)
    }
)


def limits_of_the_new_probability(
    ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor, old_logp: Tensor
) -> Tensor:
    """A surrogate with DCPO's limits in it."""
    new_prob = ratio * old_logp.exp()
    lower, upper = DynamicBounds()(new_prob.log())
    return torch.minimum(ratio * advantages, torch.clamp(ratio, lower, upper) * advantages)


MOVING_LIMITS = family(
    limits_of_the_new_probability=Mistake(
        limits_of_the_new_probability,
        "the limits move with the token and carry a gradient of their own: they belong to the old probability, which is frozen.",
    ),
)


def fixed(eps_low: float, eps_high: float) -> tuple[Mistake, ...]:
    """Return the mistakes at fixed limits of these widths: old_logp → (lower, upper)."""

    def limits(lower: float, upper: float) -> Callable[[Tensor], Pair]:
        return lambda old_logp: (torch.full_like(old_logp, lower), torch.full_like(old_logp, upper))

    shown = f"{1 - eps_low:g} and {1 + eps_high:g}"
    usual = family(
        fixed_at_the_usual_widths=Mistake(
            limits(0.8, 1.2), f"you clip at 0.8 and 1.2, as PPO and GRPO do: here the ratio is clipped at {shown}."
        )
    )
    return (usual if eps_low != 0.2 else ()) + family(
        fixed_at_the_exponential_of_the_widths=Mistake(
            limits(math.exp(-eps_low), math.exp(eps_high)),
            f"you clamp log r, so the ratio is clipped at e^−{eps_low:g} and e^{eps_high:g}: clip the ratio itself, at {shown}.",
        ),
        fixed_with_widths_swapped=Mistake(
            limits(1 - eps_high, 1 + eps_low), f"the widths of your limits are swapped: clip the ratio at {shown}."
        ),
        fixed_at_the_low_width=Mistake(
            limits(1 - eps_low, 1 + eps_low), f"your upper limit has the lower one's width: clip the ratio at {shown}."
        ),
        fixed_at_the_high_width=Mistake(
            limits(1 - eps_high, 1 + eps_high),
            f"your lower limit has the upper one's width: clip the ratio at {shown}.",
        ),
        fixed_at_the_width_below=Mistake(
            limits(eps_low, 1 + eps_high),
            f"your lower limit is the width itself: it is 1 less the width. Clip at {shown}.",
        ),
    )


bounds = Topic(DYNAMIC_BOUNDS=DYNAMIC_BOUNDS, MOVING_LIMITS=MOVING_LIMITS, fixed=fixed)
