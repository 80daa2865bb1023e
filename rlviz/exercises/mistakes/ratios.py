"""Wrong variants of importance ratios."""

from __future__ import annotations

from torch import Tensor

from rlviz.exercises.mistakes.mistake import Mistake


def ratio_upside_down(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return (old_logp - logp).masked_fill(~mask, 0.0).exp()


def ratio_left_in_logs(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return (logp - old_logp).masked_fill(~mask, 0.0)


def old_recomputed_before_every_update(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return (logp - logp.detach()).masked_fill(~mask, 0.0).exp()


def ratio_without_gradient(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return (logp.detach() - old_logp).masked_fill(~mask, 0.0).exp() + 0 * logp.masked_fill(~mask, 0.0)


TOKEN_RATIO = (
    Mistake(ratio_upside_down, "your ratio is upside down: it is new over old, so the difference is logp − old_logp."),
    Mistake(ratio_left_in_logs, "that is the log of the ratio: exp is missing."),
    Mistake(
        old_recomputed_before_every_update,
        "your ratio is always 1: old_logp has to stay frozen from the moment of sampling. If it is computed anew before each "
        "update, every bound gives the same run.",
        "github.com/huggingface/open-r1/issues/227 and github.com/tulerfeng/Video-R1/issues/87",
    ),
    Mistake(ratio_without_gradient, "your ratio has no gradient: logp must not be detached."),
)


def sequence_ratio_without_the_root(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    log_ratio = (logp - old_logp).masked_fill(~mask, 0.0)
    return log_ratio.sum(-1, keepdim=True).exp().expand_as(log_ratio).masked_fill(~mask, 1.0)


def sequence_ratio_as_arithmetic_mean(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    ratio = (logp - old_logp).masked_fill(~mask, 0.0).exp() * mask
    mean = ratio.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    return mean.expand_as(ratio).masked_fill(~mask, 1.0)


def sequence_ratio_with_padding_in_the_mean(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    log_ratio = (logp - old_logp).masked_fill(~mask, 0.0)
    return log_ratio.mean(-1, keepdim=True).exp().expand_as(log_ratio).masked_fill(~mask, 1.0)


SEQUENCE_RATIO = (
    Mistake(
        sequence_ratio_without_the_root,
        "the root 1/|o_i| is missing: the plain product of token ratios explodes with length.",
    ),
    Mistake(
        sequence_ratio_as_arithmetic_mean,
        "you average the ratios: average their logarithms, which gives the geometric mean.",
    ),
    Mistake(
        sequence_ratio_with_padding_in_the_mean,
        "padding leaks into the mean: divide by the response's own number of tokens, mask.sum(-1), not by the width.",
    ),
)
