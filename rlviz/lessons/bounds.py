"""Limits on the ratio: DCPO's, which depend on a token's old probability, and those of fixed widths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlviz.lessons.cases import PROBABILITIES
from rlviz.lessons.exercise import Exercise, Function, exercise
from rlviz.lessons.judge import Unusable, judge
from rlviz.lessons.verdict import Verdict
from rlviz.pieces.bounds import DynamicBounds, FixedBounds

Pair = tuple[Tensor, Tensor]


def stacked(limits: Function) -> Function:
    """Return `limits` with both of its results in one tensor, [2, N], a number standing for every token."""

    def both(q: Tensor, *given: Tensor) -> Any:
        result = limits(q, *given)
        if result is None:
            return None
        if not (isinstance(result, tuple | list) and len(result) == 2 and all(isinstance(x, Tensor) for x in result)):
            raise Unusable("return two tensors, the lower limit and the upper one: return lower, upper.")
        for name, limit in zip(("lower", "upper"), result, strict=True):
            if limit.shape not in (q.shape, ()):
                raise Unusable(f"your {name} limit has shape {list(limit.shape)}; it has to be {list(q.shape)}, as q.")
        return torch.stack([limit.expand_as(q) for limit in result])

    return both


def _of_side(side: int) -> Callable[[Function], Function]:
    """Return what makes of limits one of them: side 0 the lower limit, 1 the upper one."""
    return lambda limits: lambda *given: stacked(limits)(*given)[side]


def _which_limit(exercise: Exercise, student: Function, verdict: Verdict) -> Verdict:
    """Return the verdict, where it only shows a number in words: which limit, and of which probability."""
    if not verdict.says.startswith("at ["):
        return verdict
    for side, name in enumerate(("lower", "upper")):
        alone = judge(student, exercise.like, exercise.cases, through=_of_side(side))
        if not alone.passed:
            says = alone.says.replace("as from 0 / 0 or ln(−1)", "as the root of a negative number is none")
            return Verdict(False, f"{name} limit, {says}")
    return verdict


def dynamic_bounds_piece(q: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    """Return the piece's limits, with its parameters as arguments."""
    return DynamicBounds(float(eps_low), float(eps_high), float(max_ratio))(q.log())


@exercise(
    "both limits, for rare and for likely tokens, at two settings of the widths and the cap.",
    like=dynamic_bounds_piece,
    cases=PROBABILITIES,
    through=stacked,
    then=_which_limit,
    slips="""
* widths swapped: eps_low / q, 1 + 4 * eps_high → eps_high / q, 1 + 4 * eps_low
  eps_low and eps_high are swapped: eps_low belongs under the root of the lower limit, eps_high under the upper one's.
* low width on both sides: eps_high → eps_low
  you use eps_low on both sides: the upper limit has a width of its own, eps_high.
* high width on both sides: eps_low → eps_high
  you use eps_high on both sides: the lower limit has a width of its own, eps_low.
* old probability forgotten: / q →
  the old probability is missing: eps is divided by q under the root, so that a rare token gets more room.
* multiplied by the probability: / q → * q
  you multiply eps by q: it is divided by q. Yours gives a rare token the least room, and it is to get the most.
* logarithm taken for the probability: / q → / q.log()
  you divide by log q, which is negative: the argument holds the probability already, no logarithm is needed.
* logarithm and both roots clamped: / q → / q.log()
  high.sqrt() → high.clamp(min=0).sqrt()
  you divide by log q, which is negative: q is the probability already, and with it the upper root needs no clamp.
* four forgotten: 4 * →
  the 4 is missing: under the root stands 4 · eps / q, from the formula for quadratic equations.
* root of a negative number: .clamp(min=0) →
  nan: for q < 4 · eps_low the number under the lower root is negative. Set it to 0 there, with .clamp(min=0).
* clamp and cap forgotten: .clamp(min=0) →
  torch.minimum(upper, max_ratio) → upper
  nan: for q < 4 · eps_low the number under the lower root is negative. Set it to 0 there, with .clamp(min=0). And cap the
  upper limit at max_ratio.
* no lower limit where there is no root:
  0.5 + 0.5 * low.clamp(min=0).sqrt() → (0.5 + 0.5 * low.sqrt()).nan_to_num(0.0)
  your lower limit is 0 where q < 4 · eps_low: it is the number under the root that is set to 0, which leaves ½.
* sign dropped under the root: .clamp(min=0) → .abs()
  you take the absolute value under the lower root: where it is negative, set it to 0, with .clamp(min=0). Yours puts the
  lower limit of rare tokens above 1.
* smaller root: return lower → return 1 - lower
  that is the other root, ½ − ½ √…: a ratio comes from 1 and falls, so the first one that it meets is ½ + ½ √….
* plus under both roots: 1 - 4 → 1 + 4
  there is a plus under the lower root: below 1 the change is 1 − r, which gives a minus there.
* root forgotten: .sqrt() →
  the square root is missing: the quadratic equation has r² in it.
* half of the root forgotten: 0.5 * →
  the ½ before the root is missing: it is ½ + ½ √…, which is 1 for eps = 0.
* half in front forgotten: 0.5 + →
  the ½ in front is missing: it is ½ + ½ √…, which is 1 for eps = 0.
* both halves forgotten: 0.5 + 0.5 * → 1 +
  you forgot to halve: it is (1 + √…) / 2, which is 1 for eps = 0.
* cap forgotten: torch.minimum(upper, max_ratio) → upper
  the cap is missing: the upper limit is max_ratio at most, or the rarest tokens have hardly any limit.
* power without brackets: .sqrt() → ** 1 / 2
  you halve where a root is due: x ** 1 / 2 is (x ** 1) / 2 in Python. Write x.sqrt() or x ** 0.5.
* cap under the root: high.sqrt() → torch.minimum(high, max_ratio).sqrt()
  torch.minimum(upper, max_ratio) → upper
  your cap stands under the root: it is the limit itself that is at most max_ratio.
* cap of ten always: torch.minimum(upper, max_ratio) → upper.clamp(max=10.0)
  your cap is always 10: use max_ratio.
* cap from below: torch.minimum → torch.maximum
  your cap works the wrong way round: max_ratio is the largest upper limit, so take the minimum.
* cap where the probability is one: max_ratio → 1 / q
  you cap at 1 / q, where the new probability would be 1: no token gets there anyway. Cap the upper limit at max_ratio.
* limits of the probability: → return lower * q, torch.minimum(upper, max_ratio) * q
  these are limits on the new probability: the surrogate compares them with the ratio, so do not multiply by q.
* widths in their place: → return 1 - lower, torch.minimum(upper, max_ratio) - 1
  these are the distances from 1: return the limits themselves, which lie below and above 1.
* limits swapped: → return torch.minimum(upper, max_ratio), lower
  they are the wrong way round: return the lower limit first, then the upper one.
* fixed limits: → return 1 - eps_low, 1 + eps_high
  those are the fixed limits 1 − eps_low and 1 + eps_high: they have to depend on q.
* change weighed by the old probability without a cap: → return (1 - eps_low / q).clamp(min=0), 1 + eps_high / q
  you solved |r − 1| · q ≤ eps: the change is weighed by the new probability r · q, which makes the equation quadratic. And
  cap the upper limit at max_ratio.
* change weighed by the old probability without a clamp:
  → return 1 - eps_low / q, torch.minimum(1 + eps_high / q, max_ratio)
  you solved |r − 1| · q ≤ eps, and below 0 as well: the change is weighed by the new probability r · q, which makes the
  equation quadratic.
* change weighed by the old probability alone: → return 1 - eps_low / q, 1 + eps_high / q
  you solved |r − 1| · q ≤ eps: weigh the change by the new probability, |r − 1| · r · q ≤ eps, solve the quadratic
  equation, and cap the upper limit at max_ratio.
* distances weighed by the old probability: → return -eps_low / q, eps_high / q
  ∓eps / q are distances from 1, not limits, and solve |r − 1| · q ≤ eps: the weight is r · q.
* width times the probability: → return 1 - eps_low * q, 1 + eps_high * q
  1 ∓ eps · q gives a rare token the least room, and it is to get the most. Solve |r − 1| · r · q ≤ eps.
* probability and width: → return q - eps_low, q + eps_high
  q ∓ eps are limits on the probability, of the same width for each: solve |r − 1| · r · q ≤ eps for the ratio r.
* square roots of the width:
  → return (1 - (eps_low / q).sqrt()).clamp(min=0), torch.minimum(1 + (eps_high / q).sqrt(), max_ratio)
  you solved (r − 1)² · q ≤ eps: the change is weighed by the new probability, |r − 1| · r · q ≤ eps.
* divided by twice the probability: → return lower / q, torch.minimum(upper / q, max_ratio)
  you divide by 2q at the end: q r² − q r ∓ eps = 0 was divided by q already, so it is (1 + √…) / 2.
* root halved alone: 0.5 + → 1 +
  parentheses are missing: 1 is halved too, (1 + √…) / 2, which is 1 for eps = 0.
* difference divided by the probability:
  1 - 4 * eps_low / q, 1 + 4 * eps_high / q → (1 - 4 * eps_low) / q, (1 + 4 * eps_high) / q
  parentheses too many: only 4 · eps is divided by q, not the 1 before it.
* two for four: 4 * → 2 *
  under the root stands 4 · eps / q, not 2 · eps / q: the formula for quadratic equations has b² − 4ac.
* probability squared: / q → / q.square()
  you divide eps by q²: under the root it is divided by q.
* one where there is no root: 0.5 + 0.5 * low.clamp(min=0).sqrt() → (0.5 + 0.5 * low.sqrt()).nan_to_num(1.0)
  your lower limit is 1 where q < 4 · eps_low, so a rare token may not fall at all: the number under the root is set to 0,
  which leaves ½.
* mirrored: 1 - 4 → 1 + 4
  lower = 0.5 + → lower = 1.5 -
  your lower limit is as far from 1 as an upper one: the weight r · q falls with r, so solve it anew, with a minus under the
  root.
* change weighed by the old probability:
  → return (1 - eps_low / q).clamp(min=0), torch.minimum(1 + eps_high / q, max_ratio)
  you solved |r − 1| · q ≤ eps: the change is weighed by the new probability r · q, which makes the equation quadratic.
* old probability forgotten in the lower limit: eps_low / q → eps_low
  the upper limit is right. In the lower one ⟨old probability forgotten⟩
* old probability forgotten in the upper limit: eps_high / q → eps_high
  the lower limit is right. In the upper one ⟨old probability forgotten⟩
* multiplied by the probability in the lower limit: eps_low / q → eps_low * q
  the upper limit is right. In the lower one ⟨multiplied by the probability⟩
* multiplied by the probability in the upper limit: eps_high / q → eps_high * q
  the lower limit is right. In the upper one ⟨multiplied by the probability⟩
* logarithm taken for the probability in the lower limit: eps_low / q → eps_low / q.log()
  the upper limit is right. In the lower one ⟨logarithm taken for the probability⟩
* logarithm taken for the probability in the upper limit: eps_high / q → eps_high / q.log()
  the lower limit is right. In the upper one ⟨logarithm taken for the probability⟩
* four forgotten in the lower limit: 4 * eps_low → eps_low
  the upper limit is right. In the lower one ⟨four forgotten⟩
* four forgotten in the upper limit: 4 * eps_high → eps_high
  the lower limit is right. In the upper one ⟨four forgotten⟩
* root forgotten in the lower limit: .clamp(min=0).sqrt() → .clamp(min=0)
  the upper limit is right. In the lower one ⟨root forgotten⟩
* root forgotten in the upper limit: high.sqrt() → high
  the lower limit is right. In the upper one ⟨root forgotten⟩
* half of the root forgotten in the lower limit: 0.5 * low → low
  the upper limit is right. In the lower one ⟨half of the root forgotten⟩
* half of the root forgotten in the upper limit: 0.5 * high → high
  the lower limit is right. In the upper one ⟨half of the root forgotten⟩
* half in front forgotten in the lower limit: 0.5 + 0.5 * low → 0.5 * low
  the upper limit is right. In the lower one ⟨half in front forgotten⟩
* half in front forgotten in the upper limit: 0.5 + 0.5 * high → 0.5 * high
  the lower limit is right. In the upper one ⟨half in front forgotten⟩
* both halves forgotten in the lower limit: 0.5 + 0.5 * low → 1 + low
  the upper limit is right. In the lower one ⟨both halves forgotten⟩
* both halves forgotten in the upper limit: 0.5 + 0.5 * high → 1 + high
  the lower limit is right. In the upper one ⟨both halves forgotten⟩
* limits of the probability in the lower limit: return lower → return lower * q
  the upper limit is right. In the lower one ⟨limits of the probability⟩
* limits of the probability in the upper limit: max_ratio) → max_ratio) * q
  the lower limit is right. In the upper one ⟨limits of the probability⟩
* fixed limits in the lower limit: return lower → return 1 - eps_low
  the upper limit is right. In the lower one ⟨fixed limits⟩
* fixed limits in the upper limit: torch.minimum(upper, max_ratio) → 1 + eps_high
  the lower limit is right. In the upper one ⟨fixed limits⟩
* change weighed by the old probability in the lower limit: return lower → return (1 - eps_low / q).clamp(min=0)
  the upper limit is right. In the lower one ⟨change weighed by the old probability⟩
* change weighed by the old probability in the upper limit: minimum(upper → minimum(1 + eps_high / q
  the lower limit is right. In the upper one ⟨change weighed by the old probability⟩
""",
)
def dynamic_bounds(q: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    """(q, eps_low, eps_high, max_ratio) → DCPO's limits (lower, upper) on the ratio of tokens of old probability q: [N]."""
    low, high = 1 - 4 * eps_low / q, 1 + 4 * eps_high / q
    lower = 0.5 + 0.5 * low.clamp(min=0).sqrt()
    upper = 0.5 + 0.5 * high.sqrt()
    return lower, torch.minimum(upper, max_ratio)


def fixed_bounds(eps_low: float, eps_high: float) -> Exercise:
    """Return the exercise of limits of these widths, as it stands in a whole loss."""
    shown = f"{1 - eps_low:g} and {1 + eps_high:g}"

    @exercise(
        like=FixedBounds(eps_low, eps_high),
        cases=[{"old_logp": case["q"].log()} for case in PROBABILITIES],
        through=stacked,
        but="fixed at the usual widths" if eps_low == 0.2 else "",
        slips=f"""
* fixed at the usual widths: → return torch.full_like(old_logp, 0.8), torch.full_like(old_logp, 1.2)
  you clip at 0.8 and 1.2, as PPO and GRPO do: here the ratio is clipped at {shown}.
* fixed at the exponential of the widths: 1 - eps_low → math.exp(-eps_low)
  1 + eps_high → math.exp(eps_high)
  you clamp log r, so the ratio is clipped at e^−{eps_low:g} and e^{eps_high:g}: clip the ratio itself, at {shown}.
* fixed with widths swapped: 1 - eps_low → 1 - eps_high
  1 + eps_high → 1 + eps_low
  the widths of your limits are swapped: clip the ratio at {shown}.
* fixed at the low width: eps_high → eps_low
  your upper limit has the lower one's width: clip the ratio at {shown}.
* fixed at the high width: eps_low → eps_high
  your lower limit has the upper one's width: clip the ratio at {shown}.
* fixed at the width below: 1 - eps_low → eps_low
  your lower limit is the width itself: it is 1 less the width. Clip at {shown}.
""",
    )
    def limits(old_logp: Tensor) -> Pair:
        """old_logp → (lower, upper), the same for every token."""
        return torch.full_like(old_logp, 1 - eps_low), torch.full_like(old_logp, 1 + eps_high)

    return limits
