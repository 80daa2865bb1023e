"""The objective of one token: PPO's clip, CISPO's frozen weight, the dual clip, weights by the advantage's sign."""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.lessons.cases import DUAL_CLIPS, SIGN_WEIGHTS, SURROGATES
from rlviz.lessons.exercise import exercise
from rlviz.pieces import surrogate


@exercise(
    "all four quadrants, in value and slope, at two widths and at one that never clips.",
    like=surrogate.pessimistic,
    cases=SURROGATES,
    by="ratio",
    slips="""
* inverted for bad tokens: return J → return torch.where(A < 0, torch.maximum(free, clipped), J)
  your A < 0 branch is inverted: the minimum of r·A and clip(r)·A holds for both signs (the minimum of the ratios, times A,
  is a maximum for A < 0). So a bad token loses its gradient when its probability has run up, where it needs it most.
  Seen in a notebook of reasoning-from-scratch until May 2026: github.com/rasbt/reasoning-from-scratch/pull/240
* clamp without the minimum: return J → return clipped
  you clip, but the minimum is missing: a token that moved the wrong way (A > 0 and r < lower, A < 0 and r > upper) has lost
  the gradient that would bring it back.
* maximum for the minimum: minimum → maximum
  you take the maximum of the two branches: the objective is to be pessimistic.
* inverted for good tokens: return J → return torch.where(A < 0, J, torch.maximum(free, clipped))
  your A > 0 branch is inverted: the minimum of r·A and clip(r)·A holds for both signs.
* never clipped: return J → return free
  nothing is clipped: use lower and upper.
* clipped from above only: torch.clamp(ratio, lower, upper) → torch.minimum(ratio, upper)
  you clip from above only: tokens with A < 0 need the lower limit.
* clipped from below only: torch.clamp(ratio, lower, upper) → torch.maximum(ratio, lower)
  you clip from below only: tokens with A > 0 need the upper limit.
* log ratio clamped at the widths: torch.clamp(ratio, lower, upper) → ratio.log().clamp(lower - 1, upper - 1).exp()
  you clamp log r at the widths, −.2 and .2 say, so r is clipped at e^−.2 = .82 and e^.2 = 1.22: clamp r itself at lower and
  upper.
* log ratio clamped at the limits: torch.clamp(ratio, lower, upper) → torch.clamp(ratio.log(), lower, upper).exp()
  you clamp log r at lower and upper, which are limits on r itself: clamp the ratio.
* lower width on both sides: lower, upper → lower, 2 - lower
  your upper limit is as far from 1 as the lower one: the widths may differ, so use upper.
* upper width on both sides: lower, upper → 2 - upper, upper
  your lower limit is as far from 1 as the upper one: the widths may differ, so use lower.
* inverse of the lower limit: lower, upper → lower, 1 / lower
  your upper limit is 1 / lower: use upper, which is given.
* limits taken for widths: lower, upper → 1 - lower, 1 + upper
  lower and upper are limits on the ratio already, such as 0.8 and 1.2: do not add them to 1.
* limits swapped: lower, upper → upper, lower
  your limits are the wrong way round: torch.clamp takes the lower one first.
* objective clipped instead of ratio: torch.clamp(ratio, lower, upper) * A → torch.clamp(free, lower, upper)
  you clip r · A: clip the ratio, then multiply by A.
* constant limits: lower, upper → 0.8, 1.2
  you clip at 0.8 and 1.2 whatever the limits are: use lower and upper.
* limits of the first token: lower, upper → lower.flatten()[0], upper.flatten()[0]
  you clip every token at the first one's limits: lower and upper hold a limit for each token, so use them whole.
* ratio and advantage swapped: torch.clamp(ratio, lower, upper) * A → torch.clamp(A, lower, upper) * ratio
  you clip A: the ratio is the first argument, A the second.
* zero outside the limits: return J → return torch.where((ratio < lower) | (ratio > upper), 0 * ratio, free)
  you set J to 0 outside the limits, on both sides: there the clipped ratio counts, and only where it is the worse one.
* zero where it is clipped: return J → return torch.where(clipped < free, 0 * ratio, free)
  the gradients are right, but where the clip binds J is the limit times A, not 0.
* bad tokens left out: return J → return torch.where(A > 0, J, 0 * ratio)
  tokens with A < 0 get 0: they have an objective too, the minimum of r·A and clip(r)·A as for the others.
* advantage left out: * A →
  A is missing: good tokens and bad ones are pushed the same way.
* advantage left out of the clipped branch: upper) * A → upper)
  A is missing behind the clipped ratio: the minimum is of r · A and clip(r) · A.
* advantage left out of the free branch: ratio * A → ratio
  A is missing behind the free ratio: the minimum is of r · A and clip(r) · A.
* advantage s sign lost: * A → * A.abs()
  you take the absolute value of A: bad tokens are pushed up, as good ones are.
* dual clipped: return J → return torch.where(A < 0, torch.maximum(J, 3 * A), J)
  that is the dual clip: its further bound at 3 · A for A < 0 is not asked for here.
""",
)
def pessimistic(ratio: Tensor, A: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """(ratio, A, lower, upper) → the clipped objective of each token."""
    free = ratio * A
    clipped = torch.clamp(ratio, lower, upper) * A
    J = torch.minimum(free, clipped)
    return J


@exercise(
    "the objective and its slope, within the limits and beyond them: no token loses its gradient.",
    like=surrogate.clipped_weight,
    cases=SURROGATES,
    by="ratio",
    slips="""
* cispo with its ratio inverted: torch.clamp(ratio → torch.clamp(1 / ratio
  your weight is old over new: it is the clipped ratio, new over old.
* cispo with a weight that moves: .detach() →
  the values are right, but the weight has a gradient too: freeze it, .detach() behind the clamp.
* cispo all frozen: ratio.log() → ratio.detach().log()
  everything is frozen, so nothing is learnt: .detach() belongs to the clipped ratio alone.
* cispo with its log frozen: upper).detach() → upper)
  ratio.log() → ratio.detach().log()
  you froze the ratio under the logarithm: that one carries the gradient. Freeze the clipped ratio in front.
* cispo with the ratio for its log: ratio.log() → ratio
  you multiply by the ratio: take its logarithm, whose slope is that of the log-probability.
* cispo with the log of the clipped: ratio.log() → torch.clamp(ratio, lower, upper).log()
  you take the logarithm of the clipped ratio, so the clip cuts the gradient again: take that of the ratio itself.
* cispo without the clip: torch.clamp(ratio, lower, upper) → ratio
  nothing is clipped: the weight is the ratio between lower and upper.
* cispo without the weight: weight * A → A
  the weight is missing: multiply by the clipped and frozen ratio.
* cispo without the advantages: * A →
  A is missing: good tokens and bad ones are pushed the same way.
* cispo without the log: * ratio.log() →
  the logarithm of the ratio is missing: a frozen weight times A has no gradient at all.
* cispo clipped from above only: torch.clamp(ratio, lower, upper) → torch.minimum(ratio, upper)
  you clip from above only, as CISPO's authors do: here a ratio below the lower limit is clipped as well.
* cispo clipped at the widths of its log: lower, upper → (lower - 1).exp(), (upper - 1).exp()
  you clamp log r at the widths, so the weight is clipped at e^−.2 and e^.2, say: clamp r itself at lower and upper.
* cispo with limits swapped: lower, upper → upper, lower
  your limits are the wrong way round: torch.clamp takes the lower one first.
* cispo with constant limits: lower, upper → 0.8, 1.2
  you clip at 0.8 and 1.2 whatever the limits are: take those that are asked for.
* cispo with the sign of advantages lost: * A → * A.abs()
  you take the absolute value of A: bad tokens are pushed up, as good ones are.
* cispo with limits for widths: lower, upper → 1 - lower, 1 + upper
  lower and upper are limits on the ratio already, such as 0.8 and 1.2: do not add them to 1.
* cispo silent outside the limits: torch.clamp(ratio, lower, upper) → (ratio * ((ratio >= lower) & (ratio <= upper)))
  outside the limits you return 0, which cuts the gradient: the clipped ratio is a weight, and no token is left out.
* clamp without the minimum: return weight * A * ratio.log() → return torch.clamp(ratio, lower, upper) * A
  that is a clip alone, which cuts gradients: freeze the clipped ratio, and let A · log r carry the gradient.
* pessimistic: return weight * A * ratio.log() → return torch.minimum(ratio * A, torch.clamp(ratio, lower, upper) * A)
  that is PPO's surrogate, with the minimum: here the clipped ratio is a frozen weight in front of A · log r.
""",
)
def clipped_weight(ratio: Tensor, A: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """(ratio, A, lower, upper) → CISPO's objective of each token: the clipped ratio is a weight, frozen."""
    weight = torch.clamp(ratio, lower, upper).detach()
    return weight * A * ratio.log()


def dual_clip_piece(ratio: Tensor, A: Tensor, lower: Tensor, upper: Tensor, c: Tensor) -> Tensor:
    """Return the piece with its floor as an argument."""
    return surrogate.DualClip(float(c))(ratio, A, lower, upper)


@exercise(
    "value and slope for both signs, with c below the upper limit and above it.",
    like=dual_clip_piece,
    cases=DUAL_CLIPS,
    by="ratio",
    slips="""
* dual clip left out: return torch.where(A < 0, torch.maximum(J, c * A), J) → return J
  these are the values of PPO's surrogate, so c changes nothing: for A < 0, J must be no less than c · A.
* dual clip for every sign: torch.where(A < 0, torch.maximum(J, c * A), J) → torch.maximum(J, c * A)
  you apply c · A for A > 0 too, where it lies above what the clip allows: this bound is for A < 0 alone.
* dual clip for good tokens: A < 0 → A > 0
  the sign is the wrong one: the bound c · A is for A < 0.
* dual clip from above: torch.maximum(J → torch.minimum(J
  you take the minimum with c · A: it is a bound from below, so take the maximum.
* dual clip from above for every sign: torch.where(A < 0, torch.maximum(J, c * A), J) → torch.minimum(J, c * A)
  you take the minimum with c · A for both signs: it is a bound from below, the maximum, and for A < 0 alone.
* dual clip of every ratio: return torch.where(A < 0, torch.maximum(J, c * A), J) → return J
  ratio * A → ratio.clamp(max=c) * A
  torch.clamp(ratio → torch.clamp(ratio.clamp(max=c)
  you cut the ratio at c for both signs, as TRL's delta does: a good token whose upper limit is above c loses its gradient.
* dual clip with a width: c * A → (1 + c) * A
  c is the ratio itself, not a width: do not add it to 1.
* dual clip at c: c * A → c
  A is missing in the bound: J must be no less than c · A, the objective at a ratio of c.
* dual clip at minus c: c * A → -c
  your bound is −c, right for A = −1 alone: it is c · A, the objective at a ratio of c.
* dual clip above zero: c * A → -c * A
  your bound has the wrong sign: c · A is below 0 for A < 0, as J is, and −c · A above it.
* dual clip in place of the surrogate: torch.maximum(J, c * A) → c * A
  every token with A < 0 gets c · A: that is a bound, so take the maximum of it and PPO's surrogate.
* dual clip zero beyond it: torch.maximum(J, c * A) → torch.where(c * A > J, 0 * J, J)
  beyond c you set J to 0: the gradient is 0 there, but J stays at c · A.
* dual clip without the lower limit: torch.maximum(J → torch.maximum(free
  the lower limit is lost: for A < 0, take the minimum of r · A and clip(r) · A first, then the maximum with c · A.
* dual clip alone: torch.minimum(free, clipped) → free
  the first clip is missing: take the minimum of r · A and clip(r) · A, then for A < 0 the maximum with c · A.
* dual clip without the minimum: torch.minimum(free, clipped) → clipped
  the minimum of r · A and clip(r) · A is missing: with a clip alone r never gets as far as c.
* dual clip without the minimum for bad tokens: torch.maximum(J → torch.maximum(clipped
  for A < 0 the minimum of r · A and clip(r) · A is missing: with a clip alone r never gets as far as c.
* dual clip of the maximum: torch.minimum → torch.maximum
  of r · A and clip(r) · A you take the maximum: that is the minimum, and the maximum is with c · A.
* dual clip at three: c * A → 3 * A
  you clip at 3 whatever c is: use c.
""",
)
def dual_clip(ratio: Tensor, A: Tensor, lower: Tensor, upper: Tensor, c: Tensor) -> Tensor:
    """(ratio, A, lower, upper, c) → the clipped objective of each token, for A < 0 no less than c · A."""
    free, clipped = ratio * A, torch.clamp(ratio, lower, upper) * A
    J = torch.minimum(free, clipped)
    return torch.where(A < 0, torch.maximum(J, c * A), J)


@exercise(
    "value and slope of good and bad tokens, within the limits and beyond them.",
    like=surrogate.sign_weighted,
    cases=SIGN_WEIGHTS,
    by="ratio",
    slips="""
* weights of signs swapped: negative, positive → positive, negative
  your weights are swapped: positive is for A > 0.
* weights left out: A = A * weight → A = A
  that is PPO's surrogate: the weights are not used.
* weights on the ratio: A = A * weight → ratio = ratio * weight
  you multiply the ratio, so the clip sees another ratio than the one that moved: multiply A.
* weights on the limits: A = A * weight → lower, upper = lower * weight, upper * weight
  you multiply the limits, so tokens are clipped elsewhere: multiply A.
* weights on the free branch alone: A = A * weight → A = A
  ratio * A → ratio * A * weight
  only the branch without the clip has its weight, so the minimum compares two different things: weigh A in both.
* weights on the clipped branch alone: A = A * weight → A = A
  upper) * A → upper) * A * weight
  only the clipped branch has its weight, so the minimum compares two different things: weigh A in both.
* weights that lose the sign: A * weight → A.abs() * weight
  bad tokens are pushed up: A is below 0 there already, so neither take its absolute value nor turn negative's sign.
* weights in place of advantages: A * weight → torch.where(A < 0, -negative, positive)
  the weight stands in place of A: multiply the two, so that a response far from its group's mean still counts more.
* weights added: A * weight → A + weight
  you add the weight to A, which may turn its sign: multiply the two.
* weights divided by: A * weight → A / weight
  you divide A by its weight: multiply the two, so that a weight above 1 makes a token count more.
* both weights on every token: A * weight → A * positive * negative
  every token has both weights: positive is for A > 0, negative for A < 0.
* positive weight on every token: A * weight → A * positive
  every token has the weight positive: tokens with A < 0 have negative.
* weights of four thirds and two thirds: negative, positive → 2 / 3, 4 / 3
  you weigh with 4/3 and 2/3 whatever is asked for: use positive and negative.
* weight for good tokens alone: negative, positive → torch.ones_like(A), positive
  negative is not used: tokens with A < 0 have a weight too.
* weight for bad tokens alone: negative, positive → negative, torch.ones_like(A)
  positive is not used: tokens with A > 0 have a weight too.
* weights without the clip: return J → return free
  nothing is clipped: use lower and upper, as PPO's surrogate does.
* weights clamped without the minimum: return J → return clipped
  you clip, but the minimum is missing: a token that moved the wrong way has lost the gradient that would bring it back.
* weights with the maximum: torch.minimum → torch.maximum
  you take the maximum of the two branches: the objective is to be pessimistic.
* weights inverted for bad tokens: return J → return torch.where(A < 0, torch.maximum(free, clipped), J)
  your A < 0 branch takes the maximum: the minimum of the two branches holds for both signs.
""",
)
def sign_weights(ratio: Tensor, A: Tensor, lower: Tensor, upper: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """(ratio, A, lower, upper, positive, negative) → the clipped objective with A times a weight by its sign."""
    weight = torch.where(A < 0, negative, positive)
    A = A * weight
    free, clipped = ratio * A, torch.clamp(ratio, lower, upper) * A
    J = torch.minimum(free, clipped)
    return J
