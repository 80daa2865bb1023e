"""Wrong variants of the importance ratio: a token's, a response's, the sampler's, and GSPO's objective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from rlviz.exercises.judge import Mistake, Topic, family
from rlviz.pieces.mismatch import capped_weight, sequence_weight
from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.pieces.surrogate import pessimistic

# --- ratios: (logp, old_logp, mask [P, G, T]) → the ratio of each token, 1 on padding ---


def _log_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return (logp - old_logp).masked_fill(~mask, 0.0)


def _mean_log_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return _log_ratio(logp, old_logp, mask).sum(-1) / mask.sum(-1).clamp(min=1)


def _on_every_token(of_response: Tensor, mask: Tensor) -> Tensor:
    return of_response.unsqueeze(-1).expand(mask.shape).masked_fill(~mask, 1.0)


# what may stand in the place of (logp, old_logp), whatever is made of them
_OTHER_LOGPS = {
    "upside_down": Mistake(
        lambda logp, old_logp: (old_logp, logp),
        "your ratio is upside down: it is new over old, so the difference is logp − old_logp.",
    ),
    "with_the_old_recomputed": Mistake(
        lambda logp, old_logp: (logp, logp.detach()),
        "your ratio is always 1: old_logp has to stay frozen from the moment of sampling. If it is computed anew before each "
        "update, every bound gives the same run.",
        "github.com/huggingface/open-r1/issues/227 and github.com/tulerfeng/Video-R1/issues/87",
    ),
    "without_gradient": Mistake(
        lambda logp, old_logp: (logp.detach(), old_logp),
        "your ratio has no gradient: logp must not be detached, or nothing is learned.",
    ),
    "with_the_new_policy_alone": Mistake(
        lambda logp, old_logp: (logp, 0 * old_logp),
        "old_logp is missing: the ratio compares the new policy with the one that sampled.",
    ),
}


def _with_other_logps(word: str, right: Callable[..., Tensor]) -> dict[str, Mistake]:
    """Return the mistakes above at a function of (logp, old_logp, …), with a word before their names."""

    def at(change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Callable[..., Tensor]:
        return lambda logp, old_logp, *given: right(*change(logp, old_logp), *given)

    return {f"{word}_{name}": replace(row, wrong=at(row.wrong)) for name, row in _OTHER_LOGPS.items()}


def _made_of(ratio: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return what is made of (logp, old_logp) as the ratio, 1 on padding."""
    return lambda logp, old_logp, mask: ratio(logp, old_logp).masked_fill(~mask, 1.0)


TOKEN_RATIO = family(
    **_with_other_logps("ratio", token_ratio),
    ratio_left_in_logs=Mistake(
        _log_ratio,
        "that is the log of the ratio: exp is missing.",
    ),
    ratio_with_the_exponential_of_the_old_alone=Mistake(
        _made_of(lambda logp, old_logp: logp - old_logp.exp()),
        "parentheses are missing: logp − old_logp.exp() takes exp of old_logp alone. It is (logp − old_logp).exp().",
    ),
    ratio_of_the_logarithms=Mistake(
        _made_of(lambda logp, old_logp: logp / old_logp),
        "you divide log-probabilities: the ratio of the probabilities is exp of their difference, (logp − old_logp).exp().",
    ),
    ratio_as_a_difference=Mistake(
        _made_of(lambda logp, old_logp: logp.exp() - old_logp.exp()),
        "you subtract the probabilities: the ratio divides them, which is exp of the difference of their logarithms.",
    ),
)
SEQUENCE_RATIO = family(
    **_with_other_logps("sequence_ratio", sequence_ratio),
    sequence_ratio_left_in_logs=Mistake(
        lambda logp, old_logp, mask: _on_every_token(_mean_log_ratio(logp, old_logp, mask), mask),
        "that is the mean of the log-ratios: exp is missing.",
    ),
    sequence_ratio_divided_after_the_exponential=Mistake(
        lambda logp, old_logp, mask: _on_every_token(
            _log_ratio(logp, old_logp, mask).sum(-1).exp() / mask.sum(-1).clamp(min=1), mask
        ),
        "you divide by |o_i| after exp: divide the sum of the log-ratios by it, then take exp.",
    ),
    sequence_ratio_with_padding_in_the_sum=Mistake(
        lambda logp, old_logp, mask: _on_every_token(
            ((logp - old_logp).sum(-1) / mask.sum(-1).clamp(min=1)).exp(), mask
        ),
        "padding leaks into the sum: put 0 there before you add up, with log_ratio.masked_fill(~mask, 0.0).",
    ),
    sequence_ratio_without_the_mask=Mistake(
        lambda logp, old_logp, mask: _on_every_token((logp - old_logp).mean(-1).exp(), mask),
        "the mask is missing: padding is in the sum, and in the number of tokens that you divide by.",
    ),
    sequence_ratio_of_each_token=Mistake(
        token_ratio,
        "each token has its own ratio: here a response has one, the geometric mean of them, on every token of it.",
    ),
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
    weight_with_the_exponential_of_the_sampler_alone=Mistake(
        lambda old_logp, sampler_logp, mask, cap: (old_logp - sampler_logp.exp()).clamp(max=cap),
        "parentheses are missing: it is (old_logp − sampler_logp).exp(), of the difference.",
    ),
    weight_of_the_logarithms=Mistake(
        lambda old_logp, sampler_logp, mask, cap: (old_logp / sampler_logp).clamp(max=cap),
        "you divide log-probabilities: the weight is exp of their difference.",
    ),
    weight_as_a_difference=Mistake(
        lambda old_logp, sampler_logp, mask, cap: (old_logp.exp() - sampler_logp.exp()).clamp(max=cap),
        "you subtract the probabilities: the weight divides them, which is exp of the difference of their logarithms.",
    ),
    weight_never_above_one=Mistake(
        _capped_weight(lambda w, cap: w.clamp(max=1.0)),
        "you cut at 1 whatever the cap is: use cap, or no token that the sampler draws too seldom counts more.",
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


def _objective(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    """Return the right objective."""
    return (_sequence_ratio(logp, old_logp, mask) * A).mean()


def _on_tokens(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    """Return s · A on every token of its response, 0 on padding: [N, T]."""
    return (_sequence_ratio(logp, old_logp, mask) * A).unsqueeze(-1) * mask


def gspo_summed_over_tokens(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    log_ratio = (logp - old_logp).masked_fill(~mask, 0.0)
    s = (log_ratio.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)).exp()  # [N, 1]
    return (s * A.unsqueeze(-1) * mask).sum(-1).mean()


_LONG_COUNT_MORE = "s has one value a response, and you add it up on every token of it:"

SEQUENCE_OBJECTIVE = family(
    **_with_other_logps("gspo", _objective),
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
    gspo_with_the_mean_of_ratios_over_the_width=Mistake(
        lambda logp, old_logp, mask, A: ((_log_ratio(logp, old_logp, mask).exp() * mask).mean(-1) * A).mean(),
        "you average the ratios, over the width, padding included: average their logarithms over the response's own tokens.",
    ),
    gspo_with_padding_as_ratios_of_one=Mistake(
        lambda logp, old_logp, mask, A: (_log_ratio(logp, old_logp, mask).exp().mean(-1) * A).mean(),
        "you average the ratios, padding as 1: average their logarithms, over the response's own tokens.",
    ),
    gspo_with_the_sum_of_ratios=Mistake(
        lambda logp, old_logp, mask, A: ((_log_ratio(logp, old_logp, mask).exp() * mask).sum(-1) * A).mean(),
        "you add up the ratios of a response's tokens: average their logarithms, then take exp.",
    ),
    gspo_divided_after_the_exponential=Mistake(
        lambda logp, old_logp, mask, A: (_log_ratio(logp, old_logp, mask).sum(-1).exp() / mask.sum(-1) * A).mean(),
        "you divide by |y| after exp: divide the sum of the log-ratios by it, then take exp.",
    ),
    gspo_with_the_old_divided_alone=Mistake(
        lambda logp, old_logp, mask, A: (
            ((logp * mask).sum(-1) - (old_logp * mask).sum(-1) / mask.sum(-1)).exp() * A
        ).mean(),
        "parentheses are missing: only the old sum is divided by |y|. Divide the difference of both sums.",
    ),
    gspo_divided_by_the_tokens_of_the_batch=Mistake(
        lambda logp, old_logp, mask, A: ((_log_ratio(logp, old_logp, mask).sum(-1) / mask.sum()).exp() * A).mean(),
        "you divide by the tokens of the whole batch: divide each sum by the response's own number, mask.sum(-1).",
    ),
    gspo_by_the_root_of_the_length=Mistake(
        lambda logp, old_logp, mask, A: (
            (_log_ratio(logp, old_logp, mask).sum(-1) / mask.sum(-1).sqrt()).exp() * A
        ).mean(),
        "you divide by the square root of |y|: divide by |y| itself.",
    ),
    gspo_as_a_quotient_of_log_probabilities=Mistake(
        lambda logp, old_logp, mask, A: ((logp * mask).sum(-1) / (old_logp * mask).sum(-1) * A).mean(),
        "you divide log-probabilities: take their difference, divide it by |y|, then exp.",
    ),
    gspo_clipped=Mistake(
        lambda logp, old_logp, mask, A: pessimistic(
            s := _sequence_ratio(logp, old_logp, mask), A, torch.full_like(s, 0.8), torch.full_like(s, 1.2)
        ).mean(),
        "that is clipped at 0.8 and 1.2: here the objective without its clip is asked for, the mean of s · A.",
    ),
    gspo_clipped_at_the_papers_limits=Mistake(
        lambda logp, old_logp, mask, A: pessimistic(
            s := _sequence_ratio(logp, old_logp, mask), A, torch.full_like(s, 0.9997), torch.full_like(s, 1.0004)
        ).mean(),
        "that is clipped at the paper's limits: here the objective without its clip is asked for, the mean of s · A.",
    ),
    gspo_with_the_mask_inverted=Mistake(
        lambda logp, old_logp, mask, A: (
            ((logp - old_logp).masked_fill(mask, 0.0).sum(-1) / mask.sum(-1).clamp(min=1)).exp() * A
        ).mean(),
        "your masked_fill clears the tokens and keeps the padding: mask is true on tokens, so it is masked_fill(~mask, 0.0).",
    ),
    gspo_clamped=Mistake(
        lambda logp, old_logp, mask, A: (_sequence_ratio(logp, old_logp, mask).clamp(0.8, 1.2) * A).mean(),
        "you clamp s to 0.8 … 1.2: here the objective without its clip is asked for, the mean of s · A.",
    ),
    gspo_of_the_difference_of_probabilities=Mistake(
        lambda logp, old_logp, mask, A: (
            ((logp.exp() - old_logp.exp()).masked_fill(~mask, 0.0).sum(-1) / mask.sum(-1).clamp(min=1)).exp() * A
        ).mean(),
        "you subtract probabilities: subtract log-probabilities, and the difference is the logarithm of the ratio.",
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
    gspo_left_in_logs=Mistake(
        lambda logp, old_logp, mask, A: (_mean_log_ratio(logp, old_logp, mask) * A).mean(),
        "that is the mean log-ratio times A: exp is missing.",
    ),
    gspo_without_advantages=Mistake(
        lambda logp, old_logp, mask, A: _sequence_ratio(logp, old_logp, mask).mean(),
        "A is missing: multiply each response's s by its advantage before the mean.",
    ),
)
gspo = Topic(SEQUENCE_OBJECTIVE=SEQUENCE_OBJECTIVE)
