"""Importance ratios: the sampler's weight, capped, and GSPO's objective."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlviz.lessons.cases import RESPONSES, SAMPLERS
from rlviz.lessons.exercise import exercise
from rlviz.pieces import aggregation, mismatch, ratios


def without_padding(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with 0 on padding, whatever it gives there."""

    def masked(old_logp: Tensor, sampler_logp: Tensor, mask: Tensor, cap: Tensor) -> Any:
        weight = function(old_logp, sampler_logp, mask, cap)
        same = isinstance(weight, Tensor) and weight.shape == mask.shape
        return weight.masked_fill(~mask, 0.0) if same else weight

    return masked


@exercise(
    "the weight of every token, below the cap and above it, at two caps.",
    like=mismatch.capped_weight,
    cases=SAMPLERS,
    adapter=without_padding,
    slips="""
* weight upside down: old_logp - sampler_logp → sampler_logp - old_logp
  your weight is upside down: what the sampler draws too seldom has to count more, so it is trainer over sampler.
* weight left in logs: log_w.exp() → log_w
  that is the log of the weight: exp is missing, before the cap.
* weight never above one: torch.minimum(w, cap) → w.clamp(max=1.0)
  you cut at 1 whatever the cap is: use cap, or no token that the sampler draws too seldom counts more.
* weight with a floor: minimum → maximum
  your cap is a floor: clamp(max=cap), or the minimum of w and the cap.
* weight zero above the cap: → return torch.where(w <= cap, w, 0 * w)
  beyond the cap you leave the token out, as IcePop does: here it counts as much as the cap.
* weight without the cap: → return w
  nothing is truncated: that is the whole weight, as in decoupled PPO. Use cap.
* weight of the response: log_w.exp() → (log_w * mask).sum(-1, keepdim=True).exp().expand(mask.shape)
  you multiply the weights of a response's tokens: here each token has its own, so do not sum the log-probabilities.
""",
)
def truncated_weight(old_logp: Tensor, sampler_logp: Tensor, mask: Tensor, cap: Tensor) -> Tensor:
    """(old_logp, sampler_logp, mask, cap) → the weight of each token, trainer over sampler, at most cap."""
    log_w = old_logp - sampler_logp
    w = log_w.exp()
    return torch.minimum(w, cap)


def sequence_objective_piece(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    """Return GSPO's objective without its clip, of the pieces' own ratio and mean."""
    group = logp[None], old_logp[None], mask[None]
    return (ratios.sequence_ratio(*group) * A.unsqueeze(-1) * aggregation.sequence_mean(group[-1])).sum()


@exercise(
    "one ratio a response, in value and gradient, with responses of one to four tokens.",
    like=sequence_objective_piece,
    cases=RESPONSES,
    by="logp",
    slips="""
* gspo upside down: logp - old_logp → old_logp - logp
  your ratio is upside down: it is new over old, so the difference is logp − old_logp.
* gspo with the old recomputed: - old_logp → - logp.detach()
  your ratio is always 1: old_logp has to stay frozen from the moment of sampling. If it is computed anew before each
  update, every bound gives the same run.
  Seen in github.com/huggingface/open-r1/issues/227 and github.com/tulerfeng/Video-R1/issues/87
* gspo without gradient: logp - → logp.detach() -
  your ratio has no gradient: logp must not be detached, or nothing is learned.
* gspo with the product of ratios: / length →
  1/|y| is missing: exp of the plain sum is the product of all token ratios, and it grows with the length.
* gspo with the mean of ratios: (log_ratio.sum(-1) / length).exp() → (log_ratio.exp() * mask).sum(-1) / length
  you average the ratios, which is GRPO's objective: average their logarithms, then take exp.
* gspo divided by the width: mask.sum(-1) → mask.shape[-1]
  padding leaks into the mean: divide by the response's own number of tokens, mask.sum(-1), not by the width.
* gspo with padding in the sum: .masked_fill(~mask, 0.0) →
  padding leaks into the sum: put 0 there before you add up, with log_ratio.masked_fill(~mask, 0.0). A product with the mask
  would not do, for −inf · 0 is nan.
* gspo summed over tokens: → return ((s * A).unsqueeze(-1) * mask).sum(-1).mean()
  s has one value a response, and you add it up on every token of it: long responses count more. Take the mean over
  responses alone.
  Seen in an [N, 1] loss times an [N, T] mask, as TRL's issue 3823 describes it: github.com/huggingface/trl/issues/3823
* gspo averaged over tokens: → return ((s * A).unsqueeze(-1) * mask).sum() / mask.sum()
  s has one value a response, and you add it up on every token of it: a response of 8 tokens weighs four times as much as
  one of 2. Take the mean over responses.
""",
)
def sequence_objective(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    """(logp, old_logp, mask [N, T], A [N]) → GSPO's objective without its clip, the mean of s · A: one number."""
    log_ratio = (logp - old_logp).masked_fill(~mask, 0.0)
    length = mask.sum(-1)
    s = (log_ratio.sum(-1) / length).exp()
    return (s * A).mean()
