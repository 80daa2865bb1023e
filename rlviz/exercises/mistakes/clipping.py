"""Wrong variants of a token's objective: PPO's clip and CISPO's, the dual clip, weights by the advantage's sign."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from rlviz.exercises.judge import Mistake, Topic, family
from rlviz.pieces.surrogate import DualClip, pessimistic, unclipped

# --- clipping: (ratio, advantages, lower, upper) → the objective of each token ---


def inverted_for_bad_tokens(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    free, clipped = ratio * advantages, torch.clamp(ratio, lower, upper) * advantages
    return torch.where(advantages >= 0, torch.minimum(free, clipped), torch.maximum(free, clipped))


def clamp_without_the_minimum(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.clamp(ratio, lower, upper) * advantages


def _optimistic(ratio: Tensor, A: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.maximum(ratio * A, clamp_without_the_minimum(ratio, A, lower, upper))


SURROGATE = family(
    inverted_for_bad_tokens=Mistake(
        inverted_for_bad_tokens,
        "your A < 0 branch is inverted: the minimum of r·A and clip(r)·A holds for both signs (the minimum of the ratios, times "
        "A, is a maximum for A < 0). So a bad token loses its gradient when its probability has run up, where it needs it most.",
        "a notebook of reasoning-from-scratch until May 2026: github.com/rasbt/reasoning-from-scratch/pull/240",
    ),
    clamp_without_the_minimum=Mistake(
        clamp_without_the_minimum,
        "you clip, but the minimum is missing: a token that moved the wrong way (A > 0 and r < lower, A < 0 and r > upper) has "
        "lost the gradient that would bring it back.",
    ),
    maximum_for_the_minimum=Mistake(
        _optimistic, "you take the maximum of the two branches: the objective is to be pessimistic."
    ),
    inverted_for_good_tokens=Mistake(
        lambda ratio, A, *limits: torch.where(A < 0, pessimistic(ratio, A, *limits), _optimistic(ratio, A, *limits)),
        "your A > 0 branch is inverted: the minimum of r·A and clip(r)·A holds for both signs.",
    ),
    never_clipped=Mistake(lambda ratio, A, lower, upper: ratio * A, "nothing is clipped: use lower and upper."),
    clipped_from_above_only=Mistake(
        lambda ratio, A, lower, upper: torch.minimum(ratio * A, torch.minimum(ratio, upper) * A),
        "you clip from above only: tokens with A < 0 need the lower limit.",
    ),
    clipped_from_below_only=Mistake(
        lambda ratio, A, lower, upper: pessimistic(ratio, A, lower, torch.full_like(upper, math.inf)),
        "you clip from below only: tokens with A > 0 need the upper limit.",
    ),
    log_ratio_clamped_at_the_widths=Mistake(
        lambda ratio, A, lower, upper: pessimistic(ratio, A, (lower - 1).exp(), (upper - 1).exp()),
        "you clamp log r at the widths, −.2 and .2 say, so r is clipped at e^−.2 = .82 and e^.2 = 1.22: clamp r itself at "
        "lower and upper.",
    ),
    log_ratio_clamped_at_the_limits=Mistake(
        lambda ratio, A, lower, upper: pessimistic(ratio, A, lower.exp(), upper.exp()),
        "you clamp log r at lower and upper, which are limits on r itself: clamp the ratio.",
    ),
    lower_width_on_both_sides=Mistake(
        lambda ratio, A, lower, upper: pessimistic(ratio, A, lower, 2 - lower),
        "your upper limit is as far from 1 as the lower one: the widths may differ, so use upper.",
    ),
    upper_width_on_both_sides=Mistake(
        lambda ratio, A, lower, upper: pessimistic(ratio, A, 2 - upper, upper),
        "your lower limit is as far from 1 as the upper one: the widths may differ, so use lower.",
    ),
    inverse_of_the_lower_limit=Mistake(
        lambda ratio, A, lower, upper: pessimistic(ratio, A, lower, 1 / lower),
        "your upper limit is 1 / lower: use upper, which is given.",
    ),
    limits_taken_for_widths=Mistake(
        lambda ratio, A, lower, upper: pessimistic(ratio, A, 1 - lower, 1 + upper),
        "lower and upper are limits on the ratio already, such as 0.8 and 1.2: do not add them to 1.",
    ),
    limits_swapped=Mistake(
        lambda ratio, A, lower, upper: pessimistic(ratio, A, upper, lower),
        "your limits are the wrong way round: torch.clamp takes the lower one first.",
    ),
    objective_clipped_instead_of_ratio=Mistake(
        lambda ratio, A, lower, upper: torch.minimum(ratio * A, torch.clamp(ratio * A, lower, upper)),
        "you clip r · A: clip the ratio, then multiply by A.",
    ),
    constant_limits=Mistake(
        lambda ratio, A, lower, upper: torch.minimum(ratio * A, torch.clamp(ratio, 0.8, 1.2) * A),
        "you clip at 0.8 and 1.2 whatever the limits are: use lower and upper.",
    ),
    limits_of_the_first_token=Mistake(
        lambda ratio, A, lower, upper: torch.minimum(
            ratio * A, torch.clamp(ratio, lower.flatten()[0], upper.flatten()[0]) * A
        ),
        "you clip every token at the first one's limits: lower and upper hold a limit for each token, so use them whole.",
    ),
    ratio_and_advantage_swapped=Mistake(
        lambda ratio, A, lower, upper: pessimistic(A, ratio, lower, upper),
        "you clip A: the ratio is the first argument, A the second.",
    ),
    zero_outside_the_limits=Mistake(
        lambda ratio, A, lower, upper: torch.where((ratio < lower) | (ratio > upper), 0 * ratio, ratio * A),
        "you set J to 0 outside the limits, on both sides: there the clipped ratio counts, and only where it is the worse one.",
    ),
    zero_where_it_is_clipped=Mistake(
        lambda ratio, A, lower, upper: torch.where(
            ((A > 0) & (ratio > upper)) | ((A < 0) & (ratio < lower)), 0 * ratio, ratio * A
        ),
        "the gradients are right, but where the clip binds J is the limit times A, not 0.",
    ),
    bad_tokens_left_out=Mistake(
        lambda ratio, A, lower, upper: torch.where(A > 0, pessimistic(ratio, A, lower, upper), 0 * ratio),
        "tokens with A < 0 get 0: they have an objective too, the minimum of r·A and clip(r)·A as for the others.",
    ),
    advantage_left_out=Mistake(
        lambda ratio, A, lower, upper: torch.minimum(ratio, torch.clamp(ratio, lower, upper)),
        "A is missing: good tokens and bad ones are pushed the same way.",
    ),
    advantage_left_out_of_the_clipped_branch=Mistake(
        lambda ratio, A, lower, upper: torch.minimum(ratio * A, torch.clamp(ratio, lower, upper)),
        "A is missing behind the clipped ratio: the minimum is of r · A and clip(r) · A.",
    ),
    advantage_left_out_of_the_free_branch=Mistake(
        lambda ratio, A, lower, upper: torch.minimum(ratio, torch.clamp(ratio, lower, upper) * A),
        "A is missing behind the free ratio: the minimum is of r · A and clip(r) · A.",
    ),
    advantage_s_sign_lost=Mistake(
        lambda ratio, A, lower, upper: pessimistic(ratio, A.abs(), lower, upper),
        "you take the absolute value of A: bad tokens are pushed up, as good ones are.",
    ),
    dual_clipped=Mistake(
        DualClip(c=3.0),
        "that is the dual clip: its further bound at 3 · A for A < 0 is not asked for here.",
    ),
)


# CISPO's surrogate is sg[clip(ratio)] · A · log ratio


def _weight(ratio: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.clamp(ratio, lower, upper).detach()


CISPO_SURROGATE = family(
    cispo_with_its_ratio_inverted=Mistake(
        lambda ratio, A, lower, upper: _weight(1 / ratio, lower, upper) * A * ratio.log(),
        "your weight is old over new: it is the clipped ratio, new over old.",
    ),
    cispo_with_a_weight_that_moves=Mistake(
        lambda ratio, A, lower, upper: torch.clamp(ratio, lower, upper) * A * ratio.log(),
        "the values are right, but the weight has a gradient too: freeze it, .detach() behind the clamp.",
    ),
    cispo_all_frozen=Mistake(
        lambda ratio, A, lower, upper: _weight(ratio, lower, upper) * A * ratio.detach().log(),
        "everything is frozen, so nothing is learnt: .detach() belongs to the clipped ratio alone.",
    ),
    cispo_with_its_log_frozen=Mistake(
        lambda ratio, A, lower, upper: torch.clamp(ratio, lower, upper) * A * ratio.detach().log(),
        "you froze the ratio under the logarithm: that one carries the gradient. Freeze the clipped ratio in front.",
    ),
    cispo_with_the_ratio_for_its_log=Mistake(
        lambda ratio, A, lower, upper: _weight(ratio, lower, upper) * A * ratio,
        "you multiply by the ratio: take its logarithm, whose slope is that of the log-probability.",
    ),
    cispo_with_the_log_of_the_clipped=Mistake(
        lambda ratio, A, lower, upper: _weight(ratio, lower, upper) * A * torch.clamp(ratio, lower, upper).log(),
        "you take the logarithm of the clipped ratio, so the clip cuts the gradient again: take that of the ratio itself.",
    ),
    cispo_without_the_clip=Mistake(
        lambda ratio, A, lower, upper: ratio.detach() * A * ratio.log(),
        "nothing is clipped: the weight is the ratio between lower and upper.",
    ),
    cispo_without_the_weight=Mistake(
        lambda ratio, A, lower, upper: A * ratio.log(),
        "the weight is missing: multiply by the clipped and frozen ratio.",
    ),
    cispo_without_the_advantages=Mistake(
        lambda ratio, A, lower, upper: _weight(ratio, lower, upper) * ratio.log(),
        "A is missing: good tokens and bad ones are pushed the same way.",
    ),
    cispo_without_the_log=Mistake(
        lambda ratio, A, lower, upper: _weight(ratio, lower, upper) * A,
        "the logarithm of the ratio is missing: a frozen weight times A has no gradient at all.",
    ),
    cispo_clipped_from_above_only=Mistake(
        lambda ratio, A, lower, upper: torch.minimum(ratio, upper).detach() * A * ratio.log(),
        "you clip from above only, as CISPO's authors do: here a ratio below the lower limit is clipped as well.",
    ),
    cispo_clipped_at_the_widths_of_its_log=Mistake(
        lambda ratio, A, lower, upper: _weight(ratio, (lower - 1).exp(), (upper - 1).exp()) * A * ratio.log(),
        "you clamp log r at the widths, so the weight is clipped at e^−.2 and e^.2, say: clamp r itself at lower and upper.",
    ),
    cispo_with_limits_swapped=Mistake(
        lambda ratio, A, lower, upper: _weight(ratio, upper, lower) * A * ratio.log(),
        "your limits are the wrong way round: torch.clamp takes the lower one first.",
    ),
    cispo_with_constant_limits=Mistake(
        lambda ratio, A, lower, upper: ratio.clamp(0.8, 1.2).detach() * A * ratio.log(),
        "you clip at 0.8 and 1.2 whatever the limits are: take those that are asked for.",
    ),
    cispo_with_the_sign_of_advantages_lost=Mistake(
        lambda ratio, A, lower, upper: _weight(ratio, lower, upper) * A.abs() * ratio.log(),
        "you take the absolute value of A: bad tokens are pushed up, as good ones are.",
    ),
    cispo_with_limits_for_widths=Mistake(
        lambda ratio, A, lower, upper: _weight(ratio, 1 - lower, 1 + upper) * A * ratio.log(),
        "lower and upper are limits on the ratio already, such as 0.8 and 1.2: do not add them to 1.",
    ),
    cispo_silent_outside_the_limits=Mistake(
        lambda ratio, A, lower, upper: ((ratio >= lower) & (ratio <= upper)) * ratio.detach() * A * ratio.log(),
        "outside the limits you return 0, which cuts the gradient: the clipped ratio is a weight, and no token is left out.",
    ),
    clamp_without_the_minimum=Mistake(
        clamp_without_the_minimum,
        "that is a clip alone, which cuts gradients: freeze the clipped ratio, and let A · log r carry the gradient.",
    ),
    pessimistic=Mistake(
        pessimistic,
        "that is PPO's surrogate, with the minimum: here the clipped ratio is a frozen weight in front of A · log r.",
    ),
)


# dual clip: (ratio, advantages, lower, upper, c) → pessimistic, and for A < 0 no less than c · A


def _dual(
    surrogate: Callable[..., Tensor] = pessimistic,
    bound: Callable[[Tensor, Tensor], Tensor] = lambda A, c: c * A,
    pick: Callable[[Tensor, Tensor], Tensor] = torch.maximum,
    of: Callable[[Tensor], Tensor] = lambda A: A < 0,
) -> Callable[..., Tensor]:
    """Return what picks one of a surrogate and a bound made of A and c, for the tokens of which A is so."""

    def objective(ratio: Tensor, A: Tensor, lower: Tensor, upper: Tensor, c: Tensor) -> Tensor:
        J = surrogate(ratio, A, lower, upper)
        return torch.where(of(A), pick(J, bound(A, c).expand_as(J)), J)

    return objective


DUAL_CLIP = family(
    dual_clip_left_out=Mistake(
        lambda ratio, A, lower, upper, c: pessimistic(ratio, A, lower, upper),
        "these are the values of PPO's surrogate, so c changes nothing: for A < 0, J must be no less than c · A.",
    ),
    dual_clip_for_every_sign=Mistake(
        _dual(of=torch.isfinite),
        "you apply c · A for A > 0 too, where it lies above what the clip allows: this bound is for A < 0 alone.",
    ),
    dual_clip_for_good_tokens=Mistake(
        _dual(of=lambda A: A > 0), "the sign is the wrong one: the bound c · A is for A < 0."
    ),
    dual_clip_from_above=Mistake(
        _dual(pick=torch.minimum),
        "you take the minimum with c · A: it is a bound from below, so take the maximum.",
    ),
    dual_clip_from_above_for_every_sign=Mistake(
        _dual(pick=torch.minimum, of=torch.isfinite),
        "you take the minimum with c · A for both signs: it is a bound from below, the maximum, and for A < 0 alone.",
    ),
    dual_clip_of_every_ratio=Mistake(
        lambda ratio, A, lower, upper, c: pessimistic(ratio.clamp(max=c), A, lower, upper),
        "you cut the ratio at c for both signs, as TRL's delta does: a good token whose upper limit is above c loses its "
        "gradient.",
    ),
    dual_clip_with_a_width=Mistake(
        _dual(bound=lambda A, c: (1 + c) * A), "c is the ratio itself, not a width: do not add it to 1."
    ),
    dual_clip_at_c=Mistake(
        _dual(bound=lambda A, c: c),
        "A is missing in the bound: J must be no less than c · A, the objective at a ratio of c.",
    ),
    dual_clip_at_minus_c=Mistake(
        _dual(bound=lambda A, c: -c),
        "your bound is −c, right for A = −1 alone: it is c · A, the objective at a ratio of c.",
    ),
    dual_clip_above_zero=Mistake(
        _dual(bound=lambda A, c: -c * A),
        "your bound has the wrong sign: c · A is below 0 for A < 0, as J is, and −c · A above it.",
    ),
    dual_clip_in_place_of_the_surrogate=Mistake(
        _dual(pick=lambda J, bound: bound),
        "every token with A < 0 gets c · A: that is a bound, so take the maximum of it and PPO's surrogate.",
    ),
    dual_clip_zero_beyond_it=Mistake(
        _dual(pick=lambda J, bound: torch.where(bound > J, 0 * J, J)),
        "beyond c you set J to 0: the gradient is 0 there, but J stays at c · A.",
    ),
    dual_clip_without_the_lower_limit=Mistake(
        lambda ratio, A, lower, upper, c: _dual(unclipped)(ratio, A, lower, upper, c).where(
            A < 0, pessimistic(ratio, A, lower, upper)
        ),
        "the lower limit is lost: for A < 0, take the minimum of r · A and clip(r) · A first, then the maximum with c · A.",
    ),
    dual_clip_alone=Mistake(
        _dual(unclipped),
        "the first clip is missing: take the minimum of r · A and clip(r) · A, then for A < 0 the maximum with c · A.",
    ),
    dual_clip_without_the_minimum=Mistake(
        _dual(clamp_without_the_minimum),
        "the minimum of r · A and clip(r) · A is missing: with a clip alone r never gets as far as c.",
    ),
    dual_clip_without_the_minimum_for_bad_tokens=Mistake(
        lambda ratio, A, lower, upper, c: _dual(clamp_without_the_minimum)(ratio, A, lower, upper, c).where(
            A < 0, pessimistic(ratio, A, lower, upper)
        ),
        "for A < 0 the minimum of r · A and clip(r) · A is missing: with a clip alone r never gets as far as c.",
    ),
    dual_clip_of_the_maximum=Mistake(
        _dual(_optimistic),
        "of r · A and clip(r) · A you take the maximum: that is the minimum, and the maximum is with c · A.",
    ),
    dual_clip_at_three=Mistake(_dual(bound=lambda A, c: 3 * A), "you clip at 3 whatever c is: use c."),
)


# weights by sign: (ratio, advantages, lower, upper, positive, negative) → pessimistic, with A times a weight by its sign


def _of_sign(A: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    return torch.where(A < 0, negative, positive)


def _weighed(
    weigh: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda A, positive, negative: (
        A * _of_sign(A, positive, negative)
    ),
    surrogate: Callable[..., Tensor] = pessimistic,
) -> Callable[..., Tensor]:
    """Return a surrogate of what is made of (A, positive, negative)."""
    return lambda ratio, A, lower, upper, positive, negative: surrogate(
        ratio, weigh(A, positive, negative), lower, upper
    )


SIGN_WEIGHTS = family(
    weights_of_signs_swapped=Mistake(
        _weighed(lambda A, positive, negative: A * _of_sign(A, negative, positive)),
        "your weights are swapped: positive is for A > 0.",
    ),
    weights_left_out=Mistake(_weighed(lambda A, *weights: A), "that is PPO's surrogate: the weights are not used."),
    weights_on_the_ratio=Mistake(
        lambda ratio, A, lower, upper, *weights: pessimistic(ratio * _of_sign(A, *weights), A, lower, upper),
        "you multiply the ratio, so the clip sees another ratio than the one that moved: multiply A.",
    ),
    weights_on_the_limits=Mistake(
        lambda ratio, A, lower, upper, *weights: pessimistic(
            ratio, A, lower * _of_sign(A, *weights), upper * _of_sign(A, *weights)
        ),
        "you multiply the limits, so tokens are clipped elsewhere: multiply A.",
    ),
    weights_on_the_free_branch_alone=Mistake(
        lambda ratio, A, lower, upper, *weights: torch.minimum(
            ratio * A * _of_sign(A, *weights), torch.clamp(ratio, lower, upper) * A
        ),
        "only the branch without the clip has its weight, so the minimum compares two different things: weigh A in both.",
    ),
    weights_on_the_clipped_branch_alone=Mistake(
        lambda ratio, A, lower, upper, *weights: torch.minimum(
            ratio * A, torch.clamp(ratio, lower, upper) * A * _of_sign(A, *weights)
        ),
        "only the clipped branch has its weight, so the minimum compares two different things: weigh A in both.",
    ),
    weights_that_lose_the_sign=Mistake(
        _weighed(lambda A, *weights: A.abs() * _of_sign(A, *weights)),
        "bad tokens are pushed up: A is below 0 there already, so neither take its absolute value nor turn negative's sign.",
    ),
    weights_in_place_of_advantages=Mistake(
        _weighed(lambda A, positive, negative: _of_sign(A, positive, -negative)),
        "the weight stands in place of A: multiply the two, so that a response far from its group's mean still counts more.",
    ),
    weights_added=Mistake(
        _weighed(lambda A, *weights: A + _of_sign(A, *weights)),
        "you add the weight to A, which may turn its sign: multiply the two.",
    ),
    weights_divided_by=Mistake(
        _weighed(lambda A, *weights: A / _of_sign(A, *weights)),
        "you divide A by its weight: multiply the two, so that a weight above 1 makes a token count more.",
    ),
    both_weights_on_every_token=Mistake(
        _weighed(lambda A, positive, negative: A * positive * negative),
        "every token has both weights: positive is for A > 0, negative for A < 0.",
    ),
    positive_weight_on_every_token=Mistake(
        _weighed(lambda A, positive, negative: A * positive),
        "every token has the weight positive: tokens with A < 0 have negative.",
    ),
    weights_of_four_thirds_and_two_thirds=Mistake(
        _weighed(lambda A, *weights: A * torch.where(A < 0, 2 / 3, 4 / 3)),
        "you weigh with 4/3 and 2/3 whatever is asked for: use positive and negative.",
    ),
    weight_for_good_tokens_alone=Mistake(
        _weighed(lambda A, positive, negative: A * _of_sign(A, positive, torch.ones_like(negative))),
        "negative is not used: tokens with A < 0 have a weight too.",
    ),
    weight_for_bad_tokens_alone=Mistake(
        _weighed(lambda A, positive, negative: A * _of_sign(A, torch.ones_like(positive), negative)),
        "positive is not used: tokens with A > 0 have a weight too.",
    ),
    weights_without_the_clip=Mistake(
        _weighed(surrogate=unclipped), "nothing is clipped: use lower and upper, as PPO's surrogate does."
    ),
    weights_clamped_without_the_minimum=Mistake(
        _weighed(surrogate=clamp_without_the_minimum),
        "you clip, but the minimum is missing: a token that moved the wrong way has lost the gradient that would bring it back.",
    ),
    weights_with_the_maximum=Mistake(
        _weighed(surrogate=_optimistic), "you take the maximum of the two branches: the objective is to be pessimistic."
    ),
    weights_inverted_for_bad_tokens=Mistake(
        _weighed(surrogate=inverted_for_bad_tokens),
        "your A < 0 branch takes the maximum: the minimum of the two branches holds for both signs.",
    ),
)
clipping = Topic(SURROGATE=SURROGATE, CISPO_SURROGATE=CISPO_SURROGATE, DUAL_CLIP=DUAL_CLIP, SIGN_WEIGHTS=SIGN_WEIGHTS)
