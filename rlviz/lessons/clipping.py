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
* never clipped: return J → return free
  nothing is clipped: use lower and upper.
* clipped from above only: torch.clamp(ratio, lower, upper) → torch.minimum(ratio, upper)
  you clip from above only: tokens with A < 0 need the lower limit.
* lower width on both sides: lower, upper → lower, 2 - lower
  your upper limit is as far from 1 as the lower one: the widths may differ, so use upper.
* limits taken for widths: lower, upper → 1 - lower, 1 + upper
  lower and upper are limits on the ratio already, such as 0.8 and 1.2: do not add them to 1.
* objective clipped instead of ratio: torch.clamp(ratio, lower, upper) * A → torch.clamp(free, lower, upper)
  you clip r · A: clip the ratio, then multiply by A.
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
* cispo with the log of the clipped: ratio.log() → torch.clamp(ratio, lower, upper).log()
  you take the logarithm of the clipped ratio, so the clip cuts the gradient again: take that of the ratio itself.
* cispo without the clip: torch.clamp(ratio, lower, upper) → ratio
  nothing is clipped: the weight is the ratio between lower and upper.
* cispo clipped from above only: torch.clamp(ratio, lower, upper) → torch.minimum(ratio, upper)
  you clip from above only, as CISPO's authors do: here a ratio below the lower limit is clipped as well.
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
* dual clip at minus c: c * A → -c
  your bound is −c, right for A = −1 alone: it is c · A, the objective at a ratio of c.
* dual clip in place of the surrogate: torch.maximum(J, c * A) → c * A
  every token with A < 0 gets c · A: that is a bound, so take the maximum of it and PPO's surrogate.
* dual clip alone: torch.minimum(free, clipped) → free
  the first clip is missing: take the minimum of r · A and clip(r) · A, then for A < 0 the maximum with c · A.
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
* weights that lose the sign: A * weight → A.abs() * weight
  bad tokens are pushed up: A is below 0 there already, so neither take its absolute value nor turn negative's sign.
* weights in place of advantages: A * weight → torch.where(A < 0, -negative, positive)
  the weight stands in place of A: multiply the two, so that a response far from its group's mean still counts more.
* weights without the clip: return J → return free
  nothing is clipped: use lower and upper, as PPO's surrogate does.
* weights clamped without the minimum: return J → return clipped
  you clip, but the minimum is missing: a token that moved the wrong way has lost the gradient that would bring it back.
""",
)
def sign_weights(ratio: Tensor, A: Tensor, lower: Tensor, upper: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """(ratio, A, lower, upper, positive, negative) → the clipped objective with A times a weight by its sign."""
    weight = torch.where(A < 0, negative, positive)
    A = A * weight
    free, clipped = ratio * A, torch.clamp(ratio, lower, upper) * A
    J = torch.minimum(free, clipped)
    return J
