"""Wrong variants of what makes a token's objective: the surrogate, the ratio, its limits, the KL estimate, the entropy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from rlviz.exercises.judge import Mistake, Topic, family
from rlviz.pieces import values
from rlviz.pieces.bounds import DynamicBounds
from rlviz.pieces.kl import k2, k3
from rlviz.pieces.mismatch import capped_weight, sequence_weight
from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.pieces.surrogate import DualClip, pessimistic, sign_weighted

# --- clipping: (ratio, advantages, lower, upper) → the objective of each token ---


def inverted_for_bad_tokens(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    free, clipped = ratio * advantages, torch.clamp(ratio, lower, upper) * advantages
    return torch.where(advantages >= 0, torch.minimum(free, clipped), torch.maximum(free, clipped))


def clamp_without_the_minimum(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.clamp(ratio, lower, upper) * advantages


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
        lambda ratio, A, lower, upper: torch.maximum(ratio * A, torch.clamp(ratio, lower, upper) * A),
        "you take the maximum of the two branches: the objective is to be pessimistic.",
    ),
    never_clipped=Mistake(lambda ratio, A, lower, upper: ratio * A, "nothing is clipped: use lower and upper."),
    clipped_from_above_only=Mistake(
        lambda ratio, A, lower, upper: torch.minimum(ratio * A, torch.minimum(ratio, upper) * A),
        "you clip from above only: tokens with A < 0 need the lower limit.",
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

DUAL_CLIP = family(
    dual_clip_left_out=Mistake(
        lambda ratio, A, lower, upper, c: pessimistic(ratio, A, lower, upper),
        "that is PPO's surrogate, and c is not used: for A < 0, J must be no less than c · A.",
    ),
    dual_clip_for_every_sign=Mistake(
        lambda ratio, A, lower, upper, c: torch.maximum(pessimistic(ratio, A, lower, upper), c * A),
        "you apply c · A for A > 0 too, where it lies above what the clip allows: this bound is for A < 0 alone.",
    ),
    dual_clip_for_good_tokens=Mistake(
        lambda ratio, A, lower, upper, c: torch.where(
            A > 0, torch.maximum(pessimistic(ratio, A, lower, upper), c * A), pessimistic(ratio, A, lower, upper)
        ),
        "the sign is the wrong one: the bound c · A is for A < 0.",
    ),
    dual_clip_from_above=Mistake(
        lambda ratio, A, lower, upper, c: torch.where(
            A < 0, torch.minimum(pessimistic(ratio, A, lower, upper), c * A), pessimistic(ratio, A, lower, upper)
        ),
        "you take the minimum with c · A: it is a bound from below, so take the maximum.",
    ),
    dual_clip_of_every_ratio=Mistake(
        lambda ratio, A, lower, upper, c: pessimistic(ratio.clamp(max=c), A, lower, upper),
        "you cut the ratio at c for both signs, as TRL's delta does: a good token whose upper limit is above c loses its "
        "gradient.",
    ),
    dual_clip_with_a_width=Mistake(
        lambda ratio, A, lower, upper, c: torch.where(
            A < 0, torch.maximum(pessimistic(ratio, A, lower, upper), (1 + c) * A), pessimistic(ratio, A, lower, upper)
        ),
        "c is the ratio itself, not a width: do not add it to 1.",
    ),
    dual_clip_without_the_lower_limit=Mistake(
        lambda ratio, A, lower, upper, c: torch.where(
            A < 0, torch.maximum(ratio * A, c * A), pessimistic(ratio, A, lower, upper)
        ),
        "the lower limit is lost: for A < 0, take the minimum of r · A and clip(r) · A first, then the maximum with c · A.",
    ),
    dual_clip_at_three=Mistake(
        lambda ratio, A, lower, upper, c: DualClip(3.0)(ratio, A, lower, upper),
        "you clip at 3 whatever c is: use c.",
    ),
)


# weights by sign: (ratio, advantages, lower, upper, positive, negative) → pessimistic, with A times a weight by its sign


def _of_sign(A: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    return torch.where(A < 0, negative, positive)


SIGN_WEIGHTS = family(
    weights_of_signs_swapped=Mistake(
        lambda ratio, A, lower, upper, positive, negative: sign_weighted(ratio, A, lower, upper, negative, positive),
        "your weights are swapped: positive is for A > 0.",
    ),
    weights_left_out=Mistake(
        lambda ratio, A, lower, upper, positive, negative: pessimistic(ratio, A, lower, upper),
        "that is PPO's surrogate: the weights are not used.",
    ),
    weights_on_the_ratio=Mistake(
        lambda ratio, A, lower, upper, positive, negative: pessimistic(
            ratio * _of_sign(A, positive, negative), A, lower, upper
        ),
        "you multiply the ratio, so the clip sees another ratio than the one that moved: multiply A.",
    ),
    weights_on_the_free_branch_alone=Mistake(
        lambda ratio, A, lower, upper, positive, negative: torch.minimum(
            ratio * A * _of_sign(A, positive, negative), torch.clamp(ratio, lower, upper) * A
        ),
        "only the branch without the clip has its weight, so the minimum compares two different things: weigh A in both.",
    ),
    weights_on_the_clipped_branch_alone=Mistake(
        lambda ratio, A, lower, upper, positive, negative: torch.minimum(
            ratio * A, torch.clamp(ratio, lower, upper) * A * _of_sign(A, positive, negative)
        ),
        "only the clipped branch has its weight, so the minimum compares two different things: weigh A in both.",
    ),
    weights_that_lose_the_sign=Mistake(
        lambda ratio, A, lower, upper, positive, negative: pessimistic(
            ratio, A.abs() * _of_sign(A, positive, negative), lower, upper
        ),
        "bad tokens are pushed up: A is below 0 there already, so neither take its absolute value nor turn negative's sign.",
    ),
    weights_in_place_of_advantages=Mistake(
        lambda ratio, A, lower, upper, positive, negative: pessimistic(
            ratio, torch.where(A < 0, -negative, positive), lower, upper
        ),
        "the weight stands in place of A: multiply the two, so that a response far from its group's mean still counts more.",
    ),
    weight_for_good_tokens_alone=Mistake(
        lambda ratio, A, lower, upper, positive, negative: sign_weighted(ratio, A, lower, upper, positive, 1.0),
        "negative is not used: tokens with A < 0 have a weight too.",
    ),
    weight_for_bad_tokens_alone=Mistake(
        lambda ratio, A, lower, upper, positive, negative: sign_weighted(ratio, A, lower, upper, 1.0, negative),
        "positive is not used: tokens with A > 0 have a weight too.",
    ),
    weights_without_the_clip=Mistake(
        lambda ratio, A, lower, upper, positive, negative: ratio * A * _of_sign(A, positive, negative),
        "nothing is clipped: use lower and upper, as PPO's surrogate does.",
    ),
    weights_clamped_without_the_minimum=Mistake(
        lambda ratio, A, lower, upper, positive, negative: (
            torch.clamp(ratio, lower, upper) * A * _of_sign(A, positive, negative)
        ),
        "you clip, but the minimum is missing: a token that moved the wrong way has lost the gradient that would bring it back.",
    ),
)
clipping = Topic(SURROGATE=SURROGATE, CISPO_SURROGATE=CISPO_SURROGATE, DUAL_CLIP=DUAL_CLIP, SIGN_WEIGHTS=SIGN_WEIGHTS)


# --- ratios: (logp, old_logp, mask [P, G, T]) → the ratio of each token, 1 on padding ---


def _log_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return (logp - old_logp).masked_fill(~mask, 0.0)


def _on_every_token(of_response: Tensor, mask: Tensor) -> Tensor:
    return of_response.unsqueeze(-1).expand(mask.shape).masked_fill(~mask, 1.0)


def old_recomputed_before_every_update(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return (logp - logp.detach()).masked_fill(~mask, 0.0).exp()


TOKEN_RATIO = family(
    ratio_upside_down=Mistake(
        lambda logp, old_logp, mask: token_ratio(old_logp, logp, mask),
        "your ratio is upside down: it is new over old, so the difference is logp − old_logp.",
    ),
    ratio_left_in_logs=Mistake(
        _log_ratio,
        "that is the log of the ratio: exp is missing.",
    ),
    old_recomputed_before_every_update=Mistake(
        old_recomputed_before_every_update,
        "your ratio is always 1: old_logp has to stay frozen from the moment of sampling. If it is computed anew before each "
        "update, every bound gives the same run.",
        "github.com/huggingface/open-r1/issues/227 and github.com/tulerfeng/Video-R1/issues/87",
    ),
    ratio_without_gradient=Mistake(
        lambda logp, old_logp, mask: token_ratio(logp.detach(), old_logp, mask),
        "your ratio has no gradient: logp must not be detached.",
    ),
)
SEQUENCE_RATIO = family(
    sequence_ratio_without_the_root=Mistake(
        lambda logp, old_logp, mask: _on_every_token(_log_ratio(logp, old_logp, mask).sum(-1).exp(), mask),
        "the root 1/|o_i| is missing: the plain product of token ratios explodes with length.",
    ),
    sequence_ratio_as_arithmetic_mean=Mistake(
        lambda logp, old_logp, mask: _on_every_token(
            (_log_ratio(logp, old_logp, mask).exp() * mask).sum(-1) / mask.sum(-1).clamp(min=1), mask
        ),
        "you average the ratios: average their logarithms, which gives the geometric mean.",
    ),
    sequence_ratio_with_padding_in_the_mean=Mistake(
        lambda logp, old_logp, mask: _on_every_token(_log_ratio(logp, old_logp, mask).mean(-1).exp(), mask),
        "padding leaks into the mean: divide by the response's own number of tokens, mask.sum(-1), not by the width.",
    ),
)
ratios = Topic(TOKEN_RATIO=TOKEN_RATIO, SEQUENCE_RATIO=SEQUENCE_RATIO)


# --- mismatch: (old_logp, sampler_logp, mask [P, G, T], cap) → min(w, cap) of each token, w = π_old / π_sampler ---


def _capped_weight(change: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return what makes of w and the cap another weight."""
    return lambda old_logp, sampler_logp, mask, cap: change(token_ratio(old_logp, sampler_logp, mask), cap)


def _of_mean_one(weight: Tensor, mask: Tensor) -> Tensor:
    return weight / weight[mask].mean()


def weight_upside_down(old_logp: Tensor, sampler_logp: Tensor, mask: Tensor, cap: Tensor) -> Tensor:
    return capped_weight(sampler_logp, old_logp, mask, cap)


TRUNCATED_WEIGHT = family(
    weight_upside_down=Mistake(
        weight_upside_down,
        "your weight is upside down: what the sampler draws too seldom has to count more, so it is trainer over sampler.",
    ),
    weight_left_in_logs=Mistake(
        lambda old_logp, sampler_logp, mask, cap: (old_logp - sampler_logp).clamp(max=cap),
        "that is the log of the weight: exp is missing, before the cap.",
    ),
    weight_with_the_cap_on_its_log=Mistake(
        lambda old_logp, sampler_logp, mask, cap: (old_logp - sampler_logp).clamp(max=cap).exp(),
        "you cap the logarithm, so the weight goes up to e to the cap: take exp first.",
    ),
    weight_with_a_floor=Mistake(
        _capped_weight(torch.maximum),
        "your cap is a floor: clamp(max=cap), or the minimum of w and the cap.",
    ),
    weight_cut_on_both_sides=Mistake(
        _capped_weight(lambda w, cap: torch.minimum(w, cap).maximum(1 / cap)),
        "you cut w from below as well, at 1 / cap: a token that the sampler draws too often has to count less, however little.",
    ),
    weight_zero_above_the_cap=Mistake(
        _capped_weight(lambda w, cap: torch.where(w <= cap, w, 0 * w)),
        "beyond the cap you leave the token out, as IcePop does: here it counts as much as the cap.",
    ),
    weight_one_above_the_cap=Mistake(
        _capped_weight(lambda w, cap: torch.where(w <= cap, w, torch.ones_like(w))),
        "beyond the cap you give a weight of 1: give the cap.",
    ),
    weight_without_the_cap=Mistake(
        _capped_weight(lambda w, cap: w),
        "nothing is truncated: that is the whole weight, as in decoupled PPO. Use cap.",
    ),
    weight_with_a_width=Mistake(
        _capped_weight(lambda w, cap: torch.minimum(w, 1 + cap)),
        "the cap is the largest weight itself, not a width: do not add it to 1.",
    ),
    weight_of_the_response=Mistake(
        lambda old_logp, sampler_logp, mask, cap: capped_weight(old_logp, sampler_logp, mask, cap, sequence_weight),
        "you multiply the weights of a response's tokens: here each token has its own, so do not sum the log-probabilities.",
    ),
    weight_as_mean_of_the_response=Mistake(
        lambda old_logp, sampler_logp, mask, cap: capped_weight(old_logp, sampler_logp, mask, cap, sequence_ratio),
        "you take the geometric mean over the response: here each token has its own weight, so do not average.",
    ),
    weight_scaled_to_a_mean_of_one=Mistake(
        lambda old_logp, sampler_logp, mask, cap: _of_mean_one(capped_weight(old_logp, sampler_logp, mask, cap), mask),
        "you divide by the mean weight of the batch: a token's weight is its own, whatever the others are.",
    ),
    weight_capped_at_two=Mistake(
        _capped_weight(lambda w, cap: w.clamp(max=2.0)),
        "you cut at 2 whatever the cap is: use cap.",
    ),
)
mismatch = Topic(TRUNCATED_WEIGHT=TRUNCATED_WEIGHT)


def weighed_by_the_policy_now(
    logp: Tensor, old_logp: Tensor, sampler_logp: Tensor, advantages: Tensor, mask: Tensor
) -> Tensor:
    ratio = (logp - old_logp).exp()
    weight = (logp - sampler_logp).exp().clamp(max=2.0)
    clipped = ratio.clamp(0.8, 1.2)
    objective = weight * torch.minimum(ratio * advantages, clipped * advantages)
    return -(objective * mask).sum() / mask.sum()


# --- gspo: (logp, old_logp, mask [N, T], A [N]) → GSPO's objective without its clip, the mean of s · A: one number ---


def _sequence_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """Return the right ratio s, one a response: [N]."""
    return sequence_ratio(logp[None], old_logp[None], mask[None])[0, :, 0]


def _on_tokens(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    """Return s · A on every token of its response, 0 on padding: [N, T]."""
    return (_sequence_ratio(logp, old_logp, mask) * A).unsqueeze(-1) * mask


def gspo_summed_over_tokens(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    log_ratio = (logp - old_logp).masked_fill(~mask, 0.0)
    s = (log_ratio.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)).exp()  # [N, 1]
    return (s * A.unsqueeze(-1) * mask).sum(-1).mean()


_LONG_COUNT_MORE = "s has one value a response, and you add it up on every token of it:"

SEQUENCE_OBJECTIVE = family(
    gspo_with_the_product_of_ratios=Mistake(
        lambda logp, old_logp, mask, A: (_log_ratio(logp, old_logp, mask).sum(-1).exp() * A).mean(),
        "1/|y| is missing: exp of the plain sum is the product of all token ratios, and it runs away with length.",
    ),
    gspo_with_the_mean_of_ratios=Mistake(
        lambda logp, old_logp, mask, A: (
            (_log_ratio(logp, old_logp, mask).exp() * mask).sum(-1) / mask.sum(-1) * A
        ).mean(),
        "you average the ratios, which is GRPO's objective: average their logarithms, then take exp.",
    ),
    gspo_with_token_ratios_and_token_mean=Mistake(
        lambda logp, old_logp, mask, A: (_log_ratio(logp, old_logp, mask).exp() * A.unsqueeze(-1))[mask].mean(),
        "each token has its own ratio, averaged over all tokens of the batch: that is DAPO's. A response has one s.",
    ),
    gspo_divided_by_the_width=Mistake(
        lambda logp, old_logp, mask, A: (_log_ratio(logp, old_logp, mask).mean(-1).exp() * A).mean(),
        "padding leaks into the mean: divide by the response's own number of tokens, mask.sum(-1), not by the width.",
    ),
    gspo_with_padding_in_the_sum=Mistake(
        lambda logp, old_logp, mask, A: (((logp - old_logp).sum(-1) / mask.sum(-1)).exp() * A).mean(),
        "padding leaks into the sum: put 0 there before you add up, with log_ratio.masked_fill(~mask, 0.0). A product with the "
        "mask would not do, for −inf · 0 is nan.",
    ),
    gspo_without_the_mask=Mistake(
        lambda logp, old_logp, mask, A: ((logp - old_logp).mean(-1).exp() * A).mean(),
        "the mask is missing: padding is in the sum, and in the number of tokens that you divide by.",
    ),
    gspo_with_one_ratio_for_the_batch=Mistake(
        lambda logp, old_logp, mask, A: ((_log_ratio(logp, old_logp, mask).sum() / mask.sum()).exp() * A).mean(),
        "you have one ratio for the whole batch: sum over the tokens of each response, with .sum(-1).",
    ),
    gspo_with_every_ratio_times_every_advantage=Mistake(
        lambda logp, old_logp, mask, A: (_sequence_ratio(logp, old_logp, mask).unsqueeze(-1) * A).mean(),
        "each ratio meets every advantage: [N, 1] times [N] is [N, N], or you averaged s and A apart. Multiply [N] by [N] first.",
    ),
    gspo_summed_over_tokens=Mistake(
        gspo_summed_over_tokens,
        f"{_LONG_COUNT_MORE} long responses count more. Take the mean over responses alone.",
        "an [N, 1] loss times an [N, T] mask, as TRL's issue 3823 describes it: github.com/huggingface/trl/issues/3823",
    ),
    gspo_summed_over_all_tokens=Mistake(
        lambda logp, old_logp, mask, A: _on_tokens(logp, old_logp, mask, A).sum(),
        f"{_LONG_COUNT_MORE} long responses count more, and the number of responses as well. Take the mean over responses.",
    ),
    gspo_averaged_over_tokens=Mistake(
        lambda logp, old_logp, mask, A: _on_tokens(logp, old_logp, mask, A).sum() / mask.sum(),
        f"{_LONG_COUNT_MORE} a response of 8 tokens weighs four times as much as one of 2. Take the mean over responses.",
    ),
    gspo_averaged_over_all_places=Mistake(
        lambda logp, old_logp, mask, A: _on_tokens(logp, old_logp, mask, A).mean(),
        f"{_LONG_COUNT_MORE} long responses count more, and padding dilutes them all. Take the mean over responses alone.",
    ),
    gspo_summed_over_responses=Mistake(
        lambda logp, old_logp, mask, A: (_sequence_ratio(logp, old_logp, mask) * A).sum(),
        "you add the responses up: take their mean, as GSPO and GRPO do.",
    ),
    gspo_without_gradient=Mistake(
        lambda logp, old_logp, mask, A: (_sequence_ratio(logp.detach(), old_logp, mask) * A).mean(),
        "your s has no gradient: logp must not be detached, or nothing is learned.",
    ),
    gspo_with_the_old_recomputed=Mistake(
        lambda logp, old_logp, mask, A: (_sequence_ratio(logp, logp.detach(), mask) * A).mean(),
        "your s is always 1: old_logp has to stay frozen from the moment of sampling, so use it, and not logp again.",
    ),
    gspo_upside_down=Mistake(
        lambda logp, old_logp, mask, A: (_sequence_ratio(old_logp, logp, mask) * A).mean(),
        "your ratio is upside down: it is new over old, so the difference is logp − old_logp.",
    ),
    gspo_left_in_logs=Mistake(
        lambda logp, old_logp, mask, A: (_log_ratio(logp, old_logp, mask).sum(-1) / mask.sum(-1) * A).mean(),
        "that is the mean log-ratio times A: exp is missing.",
    ),
    gspo_with_the_new_policy_alone=Mistake(
        lambda logp, old_logp, mask, A: (_sequence_ratio(logp, 0 * old_logp, mask) * A).mean(),
        "old_logp is missing: the ratio compares the new policy with the one that sampled.",
    ),
    gspo_without_advantages=Mistake(
        lambda logp, old_logp, mask, A: _sequence_ratio(logp, old_logp, mask).mean(),
        "A is missing: multiply each response's s by its advantage before the mean.",
    ),
)
gspo = Topic(SEQUENCE_OBJECTIVE=SEQUENCE_OBJECTIVE)


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

    def limits(q: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> Pair:
        low, high = (1 - 4 * eps_low / q).clamp(min=0).sqrt(), (1 + 4 * eps_high / q).sqrt()
        return limit(low), torch.minimum(limit(high), max_ratio)

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
bounds = Topic(DYNAMIC_BOUNDS=DYNAMIC_BOUNDS, MOVING_LIMITS=MOVING_LIMITS)


# --- kl: (logp, ref_logp) → the estimate of each token ---


def kl_sign_lost(logp: Tensor, ref_logp: Tensor) -> Tensor:
    return ref_logp - logp


def k3_of_the_wrong_ratio(logp: Tensor, ref_logp: Tensor) -> Tensor:
    x = logp - ref_logp
    return torch.expm1(x) - x


def k3_computed_and_k1_used(logp: Tensor, ref_logp: Tensor) -> Tensor:
    x = ref_logp - logp
    _ = torch.expm1(x) - x
    return -x


K1 = family(
    kl_sign_lost=Mistake(
        kl_sign_lost, "the sign is lost: k1 is logp − ref_logp, whose mean is the KL, which is not negative."
    ),
)
K3 = family(
    k3_of_the_wrong_ratio=Mistake(
        k3_of_the_wrong_ratio,
        "your x is upside down: x = ref_logp − logp. The mean of yours over samples is not the KL.",
        "the course hands-on-modern-rl until June 2026: github.com/walkinglabs/hands-on-modern-rl/issues/27",
    ),
    k3_computed_and_k1_used=Mistake(
        k3_computed_and_k1_used,
        "that is k1, logp − ref_logp: its mean is the KL, but as a loss it pulls nowhere, for its gradient's mean is 0. k3 is "
        "eˣ − x − 1 with x = ref_logp − logp; if you computed it, return it.",
    ),
    sign_of_x_lost_in_the_exponential=Mistake(
        lambda logp, ref_logp: torch.exp(logp - ref_logp) - (ref_logp - logp) - 1,
        "the sign of x is lost in the exponential: eˣ is exp(ref_logp − logp), reference over policy.",
    ),
    sign_of_x_lost_after_the_exponential=Mistake(
        lambda logp, ref_logp: torch.exp(ref_logp - logp) + (ref_logp - logp) - 1,
        "the sign of x is lost after the exponential: k3 is eˣ − x − 1, and yours adds x.",
    ),
    exponential_forgotten=Mistake(
        lambda logp, ref_logp: (ref_logp - logp) - (ref_logp - logp) - 1,
        "the exponential is missing, so x − x leaves −1 for every token.",
    ),
    logarithms_divided=Mistake(
        lambda logp, ref_logp: ref_logp / logp - (ref_logp / logp).log() - 1,
        "you divide log-probabilities: the ratio of the probabilities is the exponential of their difference.",
    ),
    one_not_taken_off=Mistake(
        lambda logp, ref_logp: torch.exp(ref_logp - logp) - (ref_logp - logp),
        "the 1 is not taken off: where policy and reference agree, k3 has to be 0.",
    ),
    k2_for_k3=Mistake(
        k2,
        "that is k2, x²/2: close to k3 near the reference, but its mean is not the KL.",
    ),
    k3_weighed_by_its_probability=Mistake(
        lambda logp, ref_logp: logp.exp() * k3(logp, ref_logp),
        "you weigh by the probability: the tokens are sampled, so likely ones come often already, and would count twice.",
    ),
)
kl = Topic(K1=K1, K3=K3)


# --- entropy: log_probs [*n, V] → [*n] ---

ENTROPY = family(
    surprise_of_the_likeliest_token=Mistake(
        lambda log_probs: -log_probs.max(-1).values,
        "that is −log p of one token, the likeliest: the entropy is over all of them, each weighted by its probability.",
    ),
    surprises_added_unweighted=Mistake(
        lambda log_probs: -log_probs.sum(-1),
        "the weights are missing: each −log p counts as often as its token is drawn, so multiply by p = log_probs.exp().",
    ),
    surprises_averaged_unweighted=Mistake(
        lambda log_probs: -log_probs.mean(-1),
        "you average −log p as if all tokens were equally likely: weight each by its own probability, and add up.",
    ),
    weighted_surprises_averaged=Mistake(
        lambda log_probs: -(log_probs.exp() * log_probs).mean(-1),
        "you take the mean over the vocabulary: the weights p add up to 1 already, so take the sum.",
    ),
    weighted_by_the_logarithm=Mistake(
        lambda log_probs: -(log_probs * log_probs).sum(-1),
        "you weight by log p: the weight is p itself, log_probs.exp().",
    ),
    log_probabilities_taken_for_probabilities=Mistake(
        lambda log_probs: -(log_probs * log_probs.log()).sum(-1),
        "you take the logarithm of a logarithm: the input holds log p already.",
    ),
    entropy_in_bits=Mistake(
        lambda log_probs: values.entropy(log_probs) / math.log(2),
        "that is in bits: entropies here are in nats, with the natural logarithm.",
    ),
    entropy_as_a_share_of_the_most=Mistake(
        lambda log_probs: values.entropy(log_probs) / math.log(log_probs.shape[-1]),
        "you divide by log V: that is the share of the most that is possible.",
    ),
)

# --- entropy change: log_probs [*n, V], rewards [*n, V] → [*n] ---


def covariance_under_policy(log_probs: Tensor, x: Tensor) -> Tensor:
    """Return Cov_π(log π, x)."""
    p = log_probs.exp()
    return (p * log_probs * x).sum(-1) - (p * log_probs).sum(-1) * (p * x).sum(-1)


def _advantage_under_policy(log_probs: Tensor, rewards: Tensor) -> Tensor:
    return rewards - (log_probs.exp() * rewards).sum(-1, keepdim=True)


ENTROPY_CHANGE = family(
    covariance_with_its_sign_lost=Mistake(
        lambda log_probs, rewards: -values.entropy_change(log_probs, rewards),
        "the sign is wrong: dH = −Cov, so entropy falls where likely actions gain more than rare ones.",
    ),
    rewards_in_the_place_of_advantages=Mistake(
        lambda log_probs, rewards: -covariance_under_policy(log_probs, log_probs.exp() * rewards),
        "the baseline is missing: A is the reward minus the policy's mean reward, Σ π R.",
    ),
    baseline_over_actions=Mistake(
        lambda log_probs, rewards: (
            -covariance_under_policy(log_probs, log_probs.exp() * (rewards - rewards.mean(-1, keepdim=True)))
        ),
        "your baseline counts all actions alike: the policy's mean reward weighs each by its probability, Σ π R.",
    ),
    step_without_its_probability=Mistake(
        lambda log_probs, rewards: -covariance_under_policy(log_probs, _advantage_under_policy(log_probs, rewards)),
        "a factor π is missing: a logit moves by π · A, as its action is sampled. Cov(log π, A) is the natural gradient's.",
        "arXiv 2505.22617, where both forms stand side by side",
    ),
    covariance_over_actions=Mistake(
        lambda log_probs, rewards: (
            -(
                (log_probs - log_probs.mean(-1, keepdim=True))
                * log_probs.exp()
                * _advantage_under_policy(log_probs, rewards)
            ).mean(-1)
        ),
        "your covariance counts all actions alike: in both means each action has the weight π.",
    ),
    product_of_the_means_left_out=Mistake(
        lambda log_probs, rewards: (
            -(log_probs.exp().square() * log_probs * _advantage_under_policy(log_probs, rewards)).sum(-1)
        ),
        "the product of the means is missing: Cov(x, y) = mean of x y − mean of x · mean of y.",
    ),
)


def minus_surprise_of_the_sampled_token(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """In the place of a KL estimator, whose value is subtracted from a token's objective; ref_logp has no part in it."""
    return logp


(SAMPLED_SURPRISE,) = family(
    minus_surprise_of_the_sampled_token=Mistake(
        minus_surprise_of_the_sampled_token,
        "its mean is the entropy, but its gradient is not the entropy's: under the policy that sampled, the mean of ∇log p is 0.",
        "Stable-Baselines3 (ppo.py), where a distribution has no formula for its entropy: github.com/DLR-RM/stable-baselines3",
    ),
)
entropy = Topic(ENTROPY=ENTROPY, ENTROPY_CHANGE=ENTROPY_CHANGE, SAMPLED_SURPRISE=SAMPLED_SURPRISE)
