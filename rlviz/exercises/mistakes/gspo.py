"""Wrong variants of GSPO's objective without its clip. (logp, old_logp, mask [N, T], A [N]) → mean of s · A, one number."""

from __future__ import annotations

from torch import Tensor

from rlviz.exercises.mistakes.mistake import Mistake
from rlviz.pieces.aggregation import token_mean
from rlviz.pieces.ratios import sequence_ratio, token_ratio


def _log_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return (logp - old_logp).masked_fill(~mask, 0.0)


def _sequence_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """Return the right ratio, one a response: [N]."""
    return sequence_ratio(logp[None], old_logp[None], mask[None])[0, :, 0]


def _on_tokens(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    """Return s · A on every token of its response, 0 on padding: [N, T]."""
    return (_sequence_ratio(logp, old_logp, mask) * A).unsqueeze(-1) * mask


def gspo_with_the_product_of_ratios(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    return (_log_ratio(logp, old_logp, mask).sum(-1).exp() * A).mean()


def gspo_with_the_mean_of_ratios(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    ratio = token_ratio(logp[None], old_logp[None], mask[None])[0] * mask
    return (ratio.sum(-1) / mask.sum(-1) * A).mean()


def gspo_with_token_ratios_and_token_mean(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    group = logp[None], old_logp[None], mask[None]
    return (token_ratio(*group) * A.unsqueeze(-1) * token_mean(group[-1])).sum()


def gspo_divided_by_the_width(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    return (_log_ratio(logp, old_logp, mask).mean(-1).exp() * A).mean()


def gspo_with_padding_in_the_sum(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    return (((logp - old_logp).sum(-1) / mask.sum(-1)).exp() * A).mean()


def gspo_without_the_mask(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    return ((logp - old_logp).mean(-1).exp() * A).mean()


def gspo_with_one_ratio_for_the_batch(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    return ((_log_ratio(logp, old_logp, mask).sum() / mask.sum()).exp() * A).mean()


def gspo_with_every_ratio_times_every_advantage(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    return (_sequence_ratio(logp, old_logp, mask).unsqueeze(-1) * A).mean()


def gspo_summed_over_tokens(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    log_ratio = (logp - old_logp).masked_fill(~mask, 0.0)
    s = (log_ratio.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)).exp()  # [N, 1]
    return (s * A.unsqueeze(-1) * mask).sum(-1).mean()


def gspo_summed_over_all_tokens(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    return _on_tokens(logp, old_logp, mask, A).sum()


def gspo_averaged_over_tokens(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    return _on_tokens(logp, old_logp, mask, A).sum() / mask.sum()


def gspo_averaged_over_all_places(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    return _on_tokens(logp, old_logp, mask, A).mean()


def gspo_summed_over_responses(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    return (_sequence_ratio(logp, old_logp, mask) * A).sum()


def gspo_without_gradient(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    return (_sequence_ratio(logp.detach(), old_logp, mask) * A).mean()


def gspo_with_the_old_recomputed(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    return (_sequence_ratio(logp, logp.detach(), mask) * A).mean()


def gspo_upside_down(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    return (_sequence_ratio(old_logp, logp, mask) * A).mean()


def gspo_left_in_logs(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    return (_log_ratio(logp, old_logp, mask).sum(-1) / mask.sum(-1) * A).mean()


def gspo_with_the_new_policy_alone(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    return (_sequence_ratio(logp, 0 * old_logp, mask) * A).mean()


def gspo_without_advantages(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    return _sequence_ratio(logp, old_logp, mask).mean()


_LONG_COUNT_MORE = "s has one value a response, and you add it up on every token of it:"

SEQUENCE_OBJECTIVE = (
    Mistake(
        gspo_with_the_product_of_ratios,
        "1/|y| is missing: exp of the plain sum is the product of all token ratios, and it runs away with length.",
    ),
    Mistake(
        gspo_with_the_mean_of_ratios,
        "you average the ratios, which is GRPO's objective: average their logarithms, then take exp.",
    ),
    Mistake(
        gspo_with_token_ratios_and_token_mean,
        "each token has its own ratio, averaged over all tokens of the batch: that is DAPO's. A response has one s.",
    ),
    Mistake(
        gspo_divided_by_the_width,
        "padding leaks into the mean: divide by the response's own number of tokens, mask.sum(-1), not by the width.",
    ),
    Mistake(
        gspo_with_padding_in_the_sum,
        "padding leaks into the sum: put 0 there before you add up, with log_ratio.masked_fill(~mask, 0.0). A product with the "
        "mask would not do, for −inf · 0 is nan.",
    ),
    Mistake(
        gspo_without_the_mask,
        "the mask is missing: padding is in the sum, and in the number of tokens that you divide by.",
    ),
    Mistake(
        gspo_with_one_ratio_for_the_batch,
        "you have one ratio for the whole batch: sum over the tokens of each response, with .sum(-1).",
    ),
    Mistake(
        gspo_with_every_ratio_times_every_advantage,
        "each ratio meets every advantage: [N, 1] times [N] is [N, N], or you averaged s and A apart. Multiply [N] by [N] first.",
    ),
    Mistake(
        gspo_summed_over_tokens,
        f"{_LONG_COUNT_MORE} long responses count more. Take the mean over responses alone.",
        "an [N, 1] loss times an [N, T] mask, as TRL's issue 3823 describes it: github.com/huggingface/trl/issues/3823",
    ),
    Mistake(
        gspo_summed_over_all_tokens,
        f"{_LONG_COUNT_MORE} long responses count more, and the number of responses as well. Take the mean over responses.",
    ),
    Mistake(
        gspo_averaged_over_tokens,
        f"{_LONG_COUNT_MORE} a response of 8 tokens weighs four times as much as one of 2. Take the mean over responses.",
    ),
    Mistake(
        gspo_averaged_over_all_places,
        f"{_LONG_COUNT_MORE} long responses count more, and padding dilutes them all. Take the mean over responses alone.",
    ),
    Mistake(gspo_summed_over_responses, "you add the responses up: take their mean, as GSPO and GRPO do."),
    Mistake(
        gspo_without_gradient,
        "your s has no gradient: logp must not be detached, or nothing is learned.",
    ),
    Mistake(
        gspo_with_the_old_recomputed,
        "your s is always 1: old_logp has to stay frozen from the moment of sampling, so use it, and not logp again.",
    ),
    Mistake(gspo_upside_down, "your ratio is upside down: it is new over old, so the difference is logp − old_logp."),
    Mistake(gspo_left_in_logs, "that is the mean log-ratio times A: exp is missing."),
    Mistake(
        gspo_with_the_new_policy_alone,
        "old_logp is missing: the ratio compares the new policy with the one that sampled.",
    ),
    Mistake(gspo_without_advantages, "A is missing: multiply each response's s by its advantage before the mean."),
)
