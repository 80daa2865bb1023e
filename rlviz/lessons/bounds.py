"""Limits on the ratio: DCPO's, which depend on a token's old probability, and those of fixed widths."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlviz.lessons.cases import PROBABILITIES
from rlviz.lessons.exercise import Exercise, Function, exercise
from rlviz.lessons.judge import Unusable
from rlviz.pieces.bounds import DynamicBounds, FixedBounds

Pair = tuple[Tensor, Tensor]


def stacked(limits: Function) -> Function:
    """Return `limits` with both of its results in one tensor, [2, N], a number standing for every token."""

    def stack(q: Tensor, *others: Tensor) -> Any:
        result = limits(q, *others)
        if result is None:
            return None
        if not (isinstance(result, tuple | list) and len(result) == 2 and all(isinstance(x, Tensor) for x in result)):
            raise Unusable("return two tensors, the lower limit and the upper one: return lower, upper.")
        for name, limit in zip(("lower", "upper"), result, strict=True):
            if limit.shape not in (q.shape, ()):
                raise Unusable(f"your {name} limit has shape {list(limit.shape)}; it has to be {list(q.shape)}, as q.")
        return torch.stack([limit.expand_as(q) for limit in result])

    return stack


def dynamic_bounds_piece(q: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
    """Return the piece's limits, with its parameters as arguments."""
    return DynamicBounds(float(eps_low), float(eps_high), float(max_ratio))(q.log())


@exercise(
    "both limits, for rare and for likely tokens, at two settings of the widths and the cap.",
    like=dynamic_bounds_piece,
    cases=PROBABILITIES,
    adapter=stacked,
    slips="""
* widths swapped: eps_low / q, 1 + 4 * eps_high → eps_high / q, 1 + 4 * eps_low
  eps_low and eps_high are swapped: eps_low belongs under the root of the lower limit, eps_high under the upper one's.
* old probability forgotten: / q →
  the old probability is missing: eps is divided by q under the root, so that a rare token gets more room.
* logarithm taken for the probability: / q → / q.log()
  you divide by log q, which is negative: the argument holds the probability already, no logarithm is needed.
* four forgotten: 4 * →
  the 4 is missing: under the root stands 4 · eps / q, from the formula for quadratic equations.
* root of a negative number: .clamp(min=0) →
  nan: for q < 4 · eps_low the number under the lower root is negative. Set it to 0 there, with .clamp(min=0).
* smaller root: return lower → return 1 - lower
  that is the other root, ½ − ½ √…: a ratio comes from 1 and falls, so the first one that it meets is ½ + ½ √….
* cap forgotten: torch.minimum(upper, max_ratio) → upper
  the cap is missing: the upper limit is max_ratio at most, or the rarest tokens have hardly any limit.
* fixed limits: → return 1 - eps_low, 1 + eps_high
  those are the fixed limits 1 − eps_low and 1 + eps_high: they have to depend on q.
* change weighed by the old probability:
  → return (1 - eps_low / q).clamp(min=0), torch.minimum(1 + eps_high / q, max_ratio)
  you solved |r − 1| · q ≤ eps: the change is weighed by the new probability r · q, which makes the equation quadratic.
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
    limits_text = f"{1 - eps_low:g} and {1 + eps_high:g}"

    @exercise(
        like=FixedBounds(eps_low, eps_high),
        cases=[{"old_logp": case["q"].log()} for case in PROBABILITIES],
        adapter=stacked,
        slips=f"""
* fixed at the exponential of the widths: 1 - eps_low → math.exp(-eps_low)
  1 + eps_high → math.exp(eps_high)
  you clamp log r, so the ratio is clipped at e^−{eps_low:g} and e^{eps_high:g}: clip the ratio itself, at {limits_text}.
* fixed with widths swapped: 1 - eps_low → 1 - eps_high
  1 + eps_high → 1 + eps_low
  the widths of your limits are swapped: clip the ratio at {limits_text}.
* fixed at the low width: eps_high → eps_low
  your upper limit has the lower one's width: clip the ratio at {limits_text}.
* fixed at the high width: eps_low → eps_high
  your lower limit has the upper one's width: clip the ratio at {limits_text}.
* fixed at the usual widths: → return torch.full_like(old_logp, 0.8), torch.full_like(old_logp, 1.2)
  you clip at 0.8 and 1.2, as PPO and GRPO do: here the ratio is clipped at {limits_text}.
""",
    )
    def limits(old_logp: Tensor) -> Pair:
        """old_logp → (lower, upper), the same for every token."""
        return torch.full_like(old_logp, 1 - eps_low), torch.full_like(old_logp, 1 + eps_high)

    return limits
