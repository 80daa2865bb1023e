"""The importance ratio: a token's, a response's, the sampler's, and GSPO's objective."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlviz.lessons.cases import LOGPS, RESPONSES, SAMPLERS
from rlviz.lessons.exercise import exercise
from rlviz.pieces import aggregation, mismatch, ratios


@exercise(
    like=ratios.token_ratio,
    cases=LOGPS,
    by="logp",
    slips="""
* ratio upside down: logp - old_logp → old_logp - logp
  your ratio is upside down: it is new over old, so the difference is logp − old_logp.
* ratio with the old recomputed: - old_logp → - logp.detach()
  your ratio is always 1: old_logp has to stay frozen from the moment of sampling. If it is computed anew before each
  update, every bound gives the same run.
  Seen in github.com/huggingface/open-r1/issues/227 and github.com/tulerfeng/Video-R1/issues/87
* ratio without gradient: logp - → logp.detach() -
  your ratio has no gradient: logp must not be detached, or nothing is learned.
* ratio with the new policy alone: - old_logp →
  old_logp is missing: the ratio compares the new policy with the one that sampled.
* ratio left in logs: .exp() →
  1.0 → 0.0
  that is the log of the ratio: exp is missing.
* ratio with the exponential of the old alone: - old_logp → - old_logp.exp()
  log_ratio.exp() → log_ratio
  parentheses are missing: logp − old_logp.exp() takes exp of old_logp alone. It is (logp − old_logp).exp().
* ratio of the logarithms: logp - old_logp → logp / old_logp
  log_ratio.exp() → log_ratio
  you divide log-probabilities: the ratio of the probabilities is exp of their difference, (logp − old_logp).exp().
* ratio as a difference: logp - old_logp → logp.exp() - old_logp.exp()
  log_ratio.exp() → log_ratio
  you subtract the probabilities: the ratio divides them, which is exp of the difference of their logarithms.
* ratio with exp of the probabilities: logp - old_logp → logp.exp() - old_logp.exp()
  you take exp twice: the inputs are logarithms, so it is exp of their difference, (logp − old_logp).exp().
* ratio of first order: log_ratio.exp() → (1 + log_ratio)
  1 + x is near exp(x) for small x alone: take exp of the difference of the logarithms.
* ratio with the logarithms added: logp - old_logp → logp + old_logp
  you add the logarithms, which multiplies the probabilities: the ratio divides them, (logp − old_logp).exp().
* ratio of the size of the difference: log_ratio.exp() → log_ratio.abs().exp()
  you take the size of the difference, so that no ratio is below 1: a token that became less likely has one.
* ratio to base two: log_ratio.exp() → log_ratio.exp2()
  you take 2 to the power of the difference: log-probabilities have base e, so take exp.
* ratio clipped at once: log_ratio.exp() → log_ratio.exp().clamp(0.8, 1.2)
  you clip the ratio itself: the objective needs it unclipped as well, for the smaller of the two branches.
* ratio of the response so far: log_ratio.exp() → (log_ratio * mask).cumsum(-1).exp()
  you multiply the ratios of all tokens up to this one: each token has a ratio of its own, without cumsum.
""",
)
def importance_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """(logp, old_logp, mask) → the ratio of each token, 1 on padding."""
    log_ratio = logp - old_logp
    return log_ratio.exp().masked_fill(~mask, 1.0)


@exercise(
    like=ratios.sequence_ratio,
    cases=LOGPS,
    by="logp",
    slips="""
* sequence ratio upside down: logp - old_logp → old_logp - logp
  your ratio is upside down: it is new over old, so the difference is logp − old_logp.
* sequence ratio with the old recomputed: - old_logp → - logp.detach()
  your ratio is always 1: old_logp has to stay frozen from the moment of sampling. If it is computed anew before each
  update, every bound gives the same run.
  Seen in github.com/huggingface/open-r1/issues/227 and github.com/tulerfeng/Video-R1/issues/87
* sequence ratio without gradient: logp - → logp.detach() -
  your ratio has no gradient: logp must not be detached, or nothing is learned.
* sequence ratio with the new policy alone: - old_logp →
  old_logp is missing: the ratio compares the new policy with the one that sampled.
* sequence ratio left in logs: .exp() →
  that is the mean of the log-ratios: exp is missing.
* sequence ratio divided after the exponential: (log_ratio.sum(-1) / length).exp() → log_ratio.sum(-1).exp() / length
  you divide by |o_i| after exp: divide the sum of the log-ratios by it, then take exp.
* sequence ratio with padding in the sum: .masked_fill(~mask, 0.0) →
  padding leaks into the sum: put 0 there before you add up, with log_ratio.masked_fill(~mask, 0.0).
* sequence ratio without the mask: .masked_fill(~mask, 0.0) →
  mask.sum(-1).clamp(min=1) → mask.shape[-1]
  the mask is missing: padding is in the sum, and in the number of tokens that you divide by.
* sequence ratio of each token: → return log_ratio.exp()
  each token has its own ratio: here a response has one, the geometric mean of them, on every token of it.
* sequence ratio without the root: / length →
  the root 1/|o_i| is missing: the plain product of token ratios explodes with length.
* sequence ratio as arithmetic mean: (log_ratio.sum(-1) / length).exp() → (log_ratio.exp() * mask).sum(-1) / length
  you average the ratios: average their logarithms, which gives the geometric mean.
* sequence ratio with padding in the mean: mask.sum(-1).clamp(min=1) → mask.shape[-1]
  padding leaks into the mean: divide by the response's own number of tokens, mask.sum(-1), not by the width.
""",
)
def sequence_importance_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """(logp, old_logp, mask) → the geometric mean of each response's ratios, on every token of it."""
    log_ratio = (logp - old_logp).masked_fill(~mask, 0.0)
    length = mask.sum(-1).clamp(min=1)
    ratio = (log_ratio.sum(-1) / length).exp()
    return ratio.unsqueeze(-1).expand(mask.shape).masked_fill(~mask, 1.0)


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
    through=without_padding,
    slips="""
* weight upside down: old_logp - sampler_logp → sampler_logp - old_logp
  your weight is upside down: what the sampler draws too seldom has to count more, so it is trainer over sampler.
* weight left in logs: log_w.exp() → log_w
  that is the log of the weight: exp is missing, before the cap.
* weight with the cap on its log: log_w.exp() → log_w
  torch.minimum(w, cap) → torch.minimum(w, cap).exp()
  you cap the logarithm, so the weight goes up to e to the cap: take exp first.
* weight with the exponential of the sampler alone: - sampler_logp → - sampler_logp.exp()
  log_w.exp() → log_w
  parentheses are missing: it is (old_logp − sampler_logp).exp(), of the difference.
* weight of the logarithms: old_logp - sampler_logp → old_logp / sampler_logp
  log_w.exp() → log_w
  you divide log-probabilities: the weight is exp of their difference.
* weight as a difference: old_logp - sampler_logp → old_logp.exp() - sampler_logp.exp()
  log_w.exp() → log_w
  you subtract the probabilities: the weight divides them, which is exp of the difference of their logarithms.
* weight never above one: torch.minimum(w, cap) → w.clamp(max=1.0)
  you cut at 1 whatever the cap is: use cap, or no token that the sampler draws too seldom counts more.
* weight with a floor: minimum → maximum
  your cap is a floor: clamp(max=cap), or the minimum of w and the cap.
* weight cut on both sides: → return torch.minimum(w, cap).maximum(1 / cap)
  you cut w from below as well, at 1 / cap: a token that the sampler draws too often has to count less, however little.
* weight zero above the cap: → return torch.where(w <= cap, w, 0 * w)
  beyond the cap you leave the token out, as IcePop does: here it counts as much as the cap.
* weight one above the cap: → return torch.where(w <= cap, w, torch.ones_like(w))
  beyond the cap you give a weight of 1: give the cap.
* weight without the cap: → return w
  nothing is truncated: that is the whole weight, as in decoupled PPO. Use cap.
* weight with a width: w, cap → w, 1 + cap
  the cap is the largest weight itself, not a width: do not add it to 1.
* weight of the response: log_w.exp() → (log_w * mask).sum(-1, keepdim=True).exp().expand(mask.shape)
  you multiply the weights of a response's tokens: here each token has its own, so do not sum the log-probabilities.
* weight as mean of the response:
  log_w.exp() → ((log_w * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)).exp().expand(mask.shape)
  you take the geometric mean over the response: here each token has its own weight, so do not average.
* weight scaled to a mean of one: → w = torch.minimum(w, cap) ⏎ return w / w[mask].mean()
  you divide by the mean weight of the batch: a token's weight is its own, whatever the others are.
* weight capped at two: torch.minimum(w, cap) → w.clamp(max=2.0)
  you cut at 2 whatever the cap is: use cap.
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
* gspo with the new policy alone: - old_logp →
  old_logp is missing: the ratio compares the new policy with the one that sampled.
* gspo with the product of ratios: / length →
  1/|y| is missing: exp of the plain sum is the product of all token ratios, and it grows with the length.
* gspo with the mean of ratios: (log_ratio.sum(-1) / length).exp() → (log_ratio.exp() * mask).sum(-1) / length
  you average the ratios, which is GRPO's objective: average their logarithms, then take exp.
* gspo with the mean of ratios over the width: (log_ratio.sum(-1) / length).exp() → (log_ratio.exp() * mask).mean(-1)
  you average the ratios, over the width, padding included: average their logarithms over the response's own tokens.
* gspo with padding as ratios of one: (log_ratio.sum(-1) / length).exp() → log_ratio.exp().mean(-1)
  you average the ratios, padding as 1: average their logarithms, over the response's own tokens.
* gspo with the sum of ratios: (log_ratio.sum(-1) / length).exp() → (log_ratio.exp() * mask).sum(-1)
  you add up the ratios of a response's tokens: average their logarithms, then take exp.
* gspo divided after the exponential: (log_ratio.sum(-1) / length).exp() → log_ratio.sum(-1).exp() / length
  you divide by |y| after exp: divide the sum of the log-ratios by it, then take exp.
* gspo with the old divided alone:
  (log_ratio.sum(-1) / length).exp() → ((logp * mask).sum(-1) - (old_logp * mask).sum(-1) / length).exp()
  parentheses are missing: only the old sum is divided by |y|. Divide the difference of both sums.
* gspo divided by the tokens of the batch: mask.sum(-1) → mask.sum()
  you divide by the tokens of the whole batch: divide each sum by the response's own number, mask.sum(-1).
* gspo by the root of the length: mask.sum(-1) → mask.sum(-1).sqrt()
  you divide by the square root of |y|: divide by |y| itself.
* gspo as a quotient of log probabilities:
  (log_ratio.sum(-1) / length).exp() → (logp * mask).sum(-1) / (old_logp * mask).sum(-1)
  you divide log-probabilities: take their difference, divide it by |y|, then exp.
* gspo clipped: → return torch.minimum(s * A, s.clamp(0.8, 1.2) * A).mean()
  that is clipped at 0.8 and 1.2: here the objective without its clip is asked for, the mean of s · A.
* gspo clipped at the papers limits: → return torch.minimum(s * A, s.clamp(0.9997, 1.0004) * A).mean()
  that is clipped at the paper's limits: here the objective without its clip is asked for, the mean of s · A.
* gspo with the mask inverted: ~mask → mask
  your masked_fill clears the tokens and keeps the padding: mask is true on tokens, so it is masked_fill(~mask, 0.0).
* gspo clamped: s * A → s.clamp(0.8, 1.2) * A
  you clamp s to 0.8 … 1.2: here the objective without its clip is asked for, the mean of s · A.
* gspo of the difference of probabilities: logp - old_logp → logp.exp() - old_logp.exp()
  you subtract probabilities: subtract log-probabilities, and the difference is the logarithm of the ratio.
* gspo with token ratios and token mean: → return (log_ratio.exp() * A.unsqueeze(-1))[mask].mean()
  each token has its own ratio, averaged over all tokens of the batch: that is DAPO's. A response has one s.
* gspo divided by the width: mask.sum(-1) → mask.shape[-1]
  padding leaks into the mean: divide by the response's own number of tokens, mask.sum(-1), not by the width.
* gspo with padding in the sum: .masked_fill(~mask, 0.0) →
  padding leaks into the sum: put 0 there before you add up, with log_ratio.masked_fill(~mask, 0.0). A product with the mask
  would not do, for −inf · 0 is nan.
* gspo without the mask: .masked_fill(~mask, 0.0) →
  mask.sum(-1) → mask.shape[-1]
  the mask is missing: padding is in the sum, and in the number of tokens that you divide by.
* gspo with one ratio for the batch: log_ratio.sum(-1) → log_ratio.sum()
  mask.sum(-1) → mask.sum()
  you have one ratio for the whole batch: sum over the tokens of each response, with .sum(-1).
* gspo with every ratio times every advantage: s * A → s.unsqueeze(-1) * A
  each ratio meets every advantage: [N, 1] times [N] is [N, N], or you averaged s and A apart. Multiply [N] by [N] first.
* gspo summed over tokens: → return ((s * A).unsqueeze(-1) * mask).sum(-1).mean()
  s has one value a response, and you add it up on every token of it: long responses count more. Take the mean over
  responses alone.
  Seen in an [N, 1] loss times an [N, T] mask, as TRL's issue 3823 describes it: github.com/huggingface/trl/issues/3823
* gspo summed over all tokens: → return ((s * A).unsqueeze(-1) * mask).sum()
  s has one value a response, and you add it up on every token of it: long responses count more, and the number of responses
  as well. Take the mean over responses.
* gspo averaged over tokens: → return ((s * A).unsqueeze(-1) * mask).sum() / mask.sum()
  s has one value a response, and you add it up on every token of it: a response of 8 tokens weighs four times as much as
  one of 2. Take the mean over responses.
* gspo averaged over all places: → return ((s * A).unsqueeze(-1) * mask).mean()
  s has one value a response, and you add it up on every token of it: long responses count more, and padding dilutes them
  all. Take the mean over responses alone.
* gspo summed over responses: .mean() → .sum()
  you add the responses up: take their mean, as GSPO and GRPO do.
* gspo left in logs: .exp() →
  that is the mean log-ratio times A: exp is missing.
* gspo without advantages: s * A → s
  A is missing: multiply each response's s by its advantage before the mean.
""",
)
def sequence_objective(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    """(logp, old_logp, mask [N, T], A [N]) → GSPO's objective without its clip, the mean of s · A: one number."""
    log_ratio = (logp - old_logp).masked_fill(~mask, 0.0)
    length = mask.sum(-1)
    s = (log_ratio.sum(-1) / length).exp()
    return (s * A).mean()
