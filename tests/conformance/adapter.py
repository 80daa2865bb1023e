"""The functions of the reference cases, answered by the pieces and algorithms of rlviz; no formula stands here.

A reference has flat numpy batches [N, T] of single responses; here each row is a prompt with one response, [N, 1, T], and
groups are put together where a piece compares responses. A convention that rlviz does not have is composed of pieces, or
refused by NotImplementedError with the reason. `grad` is by autograd, with respect to the first input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.algorithms.dcpo import DCPO
from rlviz.algorithms.dpo import DPO
from rlviz.algorithms.grpo import GRPO
from rlviz.algorithms.gspo import GSPO, GSPO_TOKEN
from rlviz.pieces import gae as critic, kl as divergence, ratios
from rlviz.pieces.advantages import GroupAdvantage, LeaveOneOut, PromptHistory, SmoothStandardization
from rlviz.pieces.aggregation import Constant, sequence_mean, sequence_sum, token_mean, weighted_sum
from rlviz.pieces.bounds import DynamicBounds, FixedBounds
from rlviz.pieces.preference import ImplicitReward, SigmoidPreference
from rlviz.pieces.shaping import SoftOverlongPunishment
from rlviz.pieces.surrogate import DualClip, pessimistic
from rlviz.pieces.values import ClippedValueLoss
from rlviz.types import Batch, LossOutput
from small_models import sampling

Weigher = Callable[[Tensor], Tensor]
Result = dict[str, Any]


# numpy [N, T] ↔ torch [N, 1, T]


def numbers(values: Any) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.double)


def rows(values: Any) -> Tensor:
    return numbers(values).unsqueeze(1)


def leaf(values: Any) -> Tensor:
    return rows(values).requires_grad_()


def mask_of(values: Any) -> Tensor:
    return rows(values).bool()


def flat(values: Tensor) -> np.ndarray:
    return values.detach().squeeze(1).numpy()


def slope(value: Tensor, *inputs: Tensor) -> tuple[np.ndarray, ...]:
    return tuple(flat(gradient) for gradient in torch.autograd.grad(value.sum(), inputs))


def mean_over_tokens(values: Tensor, mask: Tensor) -> float:
    return weighted_sum(values.double(), token_mean(mask), mask).item()


def blocks(index: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (groups [P], rows [P, G]) for each size G of group that there is, in whatever order the rows stand."""
    names, where, sizes = np.unique(index, return_inverse=True, return_counts=True)
    for size in np.unique(sizes):
        if size < 2:
            raise NotImplementedError(
                "singleton group: one response has nothing to be compared with, so rlviz refuses it"
            )
        groups = np.flatnonzero(sizes == size)
        members = np.stack([np.flatnonzero(where == group) for group in groups])
        yield torch.tensor(names[groups]), torch.tensor(members)


# log-probabilities


def token_logp(logits, tokens) -> Result:
    inputs = numbers(logits).requires_grad_()
    logp = sampling.token_logp(inputs, torch.tensor(tokens))
    (gradient,) = torch.autograd.grad(logp.sum(), inputs)
    return {"logp": logp.detach(), "entropy": sampling.token_entropy(inputs).detach(), "grad": gradient}


# advantages


def group_advantage(rewards, group_index, baseline, scale, ddof, eps, whiten, mask=None) -> Result:
    if ddof != 1:
        raise NotImplementedError("GroupAdvantage has the unbiased std only")
    if baseline == "loo" and scale != "none":
        raise NotImplementedError("LeaveOneOut does not divide by a std")
    piece = LeaveOneOut() if baseline == "loo" else GroupAdvantage(scale=scale, eps=float(eps))
    groups = list(blocks(group_index))
    if scale == "batch_std" and len(groups) > 1:
        raise NotImplementedError("the std of a batch is that of one [P, G], so groups must be of one size")
    rewards = numbers(rewards)
    advantages = torch.zeros_like(rewards)
    for _, members in groups:
        advantages[members] = piece(rewards[members])
    if whiten:
        advantages = GroupAdvantage(scale="group_std", eps=float(eps))(advantages.view(1, -1)).view_as(advantages)
    if mask is None:
        return {"advantages": advantages}
    as_they_are = replace(GRPO, kl=None, advantage=lambda rewards: rewards)
    return {
        "advantages": advantages,
        "token_advantages": flat(as_they_are.advantages(advantages.unsqueeze(1), mask_of(mask))[0]),
    }


def gae(rewards, values, mask, gamma, lam, whiten) -> Result:
    piece = critic.GAE(gamma=float(gamma), lam=float(lam), whiten=whiten)
    advantages, returns = piece(rows(rewards), rows(values), mask_of(mask))
    return {"advantages": flat(advantages), "returns": flat(returns)}


def dcpo_sas(steps, norm_by_std, n_prompts, ddof) -> Result:
    piece = SmoothStandardization(ddof=ddof, scale="std" if norm_by_std else "none")
    history = PromptHistory.empty(n_prompts)
    result: Result = {"advantages": [], "mean": [], "std": [], "count": []}
    for step in steps:
        rewards = numbers(step["rewards"])
        advantages = torch.zeros_like(rewards)
        for prompts, members in blocks(step["prompt_ids"]):
            advantages[members], after = piece(rewards[members], history.index_select(prompts))
            history = history.index_put(prompts, after)
        after = {"mean": history.mean, "std": history.variance.sqrt(), "count": history.visits}
        for key, value in {"advantages": advantages, **after}.items():
            result[key].append(value.numpy())
    return result


# aggregation


def token_sum(mask: Tensor) -> Tensor:
    return mask.double()


def weigher(agg: str, width: int, norm: float | None = None) -> Weigher:
    """Return the aggregation that verl calls `agg`, for responses padded to `width`."""
    if agg == "seq-mean-token-sum-norm":
        length = width if norm is None else norm
        if length != int(length):
            raise NotImplementedError(f"Constant divides by a number of tokens, which {norm} is not")
        return Constant(int(length))
    return {
        "token-mean": token_mean,
        "token-sum": token_sum,
        "seq-mean-token-mean": sequence_mean,
        "seq-mean-token-sum": Constant(1),
        "seq-sum-token-mean": sequence_sum,
    }[agg]


def weights_of_part(aggregate: Weigher, mask: Tensor, elsewhere: Sequence[int]) -> Tensor:
    """Return the weights of a part of a batch, cut from the whole; `elsewhere`: lengths of the responses not in `mask`."""
    count, _, width = mask.shape
    batch = torch.zeros(count + len(elsewhere), 1, max(width, *elsewhere, 0), dtype=torch.bool)
    batch[:count, :, :width] = mask
    for row, length in enumerate(elsewhere):
        batch[count + row, :, :length] = True
    return aggregate(batch)[:count, :, :width]


def more_tokens(mask: Tensor, total: int | None) -> list[int]:
    """Return the lengths of the responses with which the batch has `total` tokens."""
    missing, width = (0 if total is None else int(total) - int(mask.sum())), mask.shape[-1]
    if missing < 0:
        raise NotImplementedError(f"a whole batch of {total} tokens is less than its part of {int(mask.sum())}")
    return [width] * (missing // width) + [missing % width]


def more_responses(mask: Tensor, total: int | None) -> list[int]:
    """Return the lengths of the responses with which the batch has `total` of them that have a token."""
    missing = 0 if total is None else int(total) - int(mask.any(-1).sum())
    if missing < 0:
        raise NotImplementedError(f"a whole batch of {total} responses is less than its part")
    return [1] * missing


def aggregate(losses, mask, agg, norm=None, total_tokens=None, total_seqs=None) -> Result:
    losses, mask = leaf(losses), mask_of(mask)
    elsewhere = {"token-mean": more_tokens(mask, total_tokens), "token-sum": []}.get(agg)
    if elsewhere is None:
        elsewhere = more_responses(mask, total_seqs)
    loss = weighted_sum(losses, weights_of_part(weigher(agg, mask.shape[-1], norm), mask, elsewhere), mask)
    (gradient,) = slope(loss, losses)
    return {"loss": loss, "grad": gradient}


def value_loss(values, returns, old_values, mask, clip, agg) -> Result:
    values, mask = leaf(values), mask_of(mask)
    piece = ClippedValueLoss(math.inf if clip is None else float(clip))
    losses = piece(values, rows(old_values), rows(returns))
    loss = weighted_sum(losses, weigher(agg, mask.shape[-1])(mask), mask)
    (gradient,) = slope(loss, values)
    unclipped = ClippedValueLoss(math.inf)(values, rows(old_values), rows(returns))
    return {"loss": loss, "grad": gradient, "clipfrac": mean_over_tokens(losses > unclipped, mask)}


# divergence from the reference


ESTIMATORS = {
    "k1": divergence.k1,
    "abs": lambda logp, ref_logp: divergence.k1(logp, ref_logp).abs(),
    "k2": divergence.k2,
    "k3": divergence.k3,
}


def estimator(kind: str, clamp_diff: float | None = None, clamp_value: float | None = None) -> divergence.Estimator:
    """Return an estimator by verl's name: with limits on ref_logp − logp and on the value; "+" has the gradient of k2."""

    def limited(logp: Tensor, ref_logp: Tensor) -> Tensor:
        if clamp_diff is not None:
            logp, ref_logp = torch.zeros_like(logp), (ref_logp - logp).clamp(-clamp_diff, clamp_diff)
        value = ESTIMATORS[kind.removesuffix("+")](logp, ref_logp)
        return value if clamp_value is None else value.clamp(-clamp_value, clamp_value)

    return divergence.StraightThrough(value=limited, gradient=divergence.k2) if kind.endswith("+") else limited


def kl_estimator(logp, ref_logp, kind, clamp_diff=None, clamp_value=None) -> Result:
    logp = leaf(logp)
    value = estimator(kind, clamp_diff, clamp_value)(logp, rows(ref_logp))
    (gradient,) = slope(value, logp)
    return {"value": flat(value), "grad": gradient}


def kl_mean(logp, ref_logp, mask, kind, clamp_diff=None, clamp_value=None) -> Result:
    logp, mask = leaf(logp), mask_of(mask)
    value = weighted_sum(estimator(kind, clamp_diff, clamp_value)(logp, rows(ref_logp)), token_mean(mask), mask)
    (gradient,) = slope(value, logp)
    return {"value": value, "grad": gradient}


def kl_shaped_rewards(scores, old_logp, ref_logp, mask, beta, kind) -> Result:
    old_logp, ref_logp, mask = rows(old_logp), rows(ref_logp), mask_of(mask)
    estimate = estimator(kind, 20.0, 10.0) if kind.startswith("k3") else estimator(kind)
    penalised = replace(
        GRPO,
        kl=divergence.KLInReward(beta=float(beta), estimator=estimate) if beta else None,
        advantage=lambda rewards: rewards,
    )
    rewards, _ = penalised.advantages(rows(scores), mask, old_logp=old_logp, ref_logp=ref_logp)
    every_row = weights_of_part(sequence_mean, mask, more_responses(mask, len(mask)))
    return {"rewards": flat(rewards), "kl": weighted_sum(estimate(old_logp, ref_logp), every_row, mask)}


def adaptive_kl(kls, n_steps, init, target, horizon) -> Result:
    controller = divergence.ProportionalController(target=float(target), horizon=float(horizon))
    coefs = [float(init)]
    for kl, count in zip(kls, n_steps, strict=True):
        coefs.append(controller(coefs[-1], float(kl), int(count)))
    return {"coefs": np.array(coefs[1:])}


# losses on groups


def surrogate_of(c: float | None) -> Callable[..., Tensor]:
    return pessimistic if c is None else DualClip(float(c))


def verl_loss(
    algorithm: GroupPolicyGradient, logp, old_logp, advantages, mask, log_ratio_clamp: float | None = None
) -> tuple[Result, LossOutput]:
    """Return loss, gradient and what verl reports with them."""
    logp, mask = leaf(logp), mask_of(mask)
    batch = Batch(rows(old_logp), rows(advantages), mask)
    near = logp
    if log_ratio_clamp is not None:
        near = batch.old_logp + (logp - batch.old_logp).clamp(-log_ratio_clamp, log_ratio_clamp)
    out = algorithm.loss(near, batch)
    (gradient,) = slope(out.loss, logp)
    return {
        "loss": out.loss,
        "grad": gradient,
        "per_token": flat(-algorithm.objective(near, batch).value),
        "clipfrac": mean_over_tokens(out.clipped_low | out.clipped_high, mask),
        "clipfrac_lower": mean_over_tokens(out.clipped_dual, mask),
        "approx_kl": mean_over_tokens(divergence.k1(batch.old_logp, near), mask),
    }, out


def policy_loss(
    logp, old_logp, advantages, mask, clip_low, clip_high, dual_clip, agg, norm=None, log_ratio_clamp=None
) -> Result:
    algorithm = replace(
        GRPO,
        bounds=FixedBounds(float(clip_low), float(clip_high)),
        surrogate=surrogate_of(dual_clip),
        kl=None,
        aggregate=weigher(agg, mask.shape[-1], norm),
    )
    return verl_loss(algorithm, logp, old_logp, advantages, mask, log_ratio_clamp)[0]


def gspo_loss(logp, old_logp, advantages, mask, variant, clip_low, clip_high, agg) -> Result:
    def capped(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
        return ratios.sequence_token_ratio(logp, old_logp, mask).clamp(max=math.exp(10))

    algorithm = replace(
        {"gspo": GSPO, "gspo-token": replace(GSPO_TOKEN, ratio=capped)}[variant],
        bounds=FixedBounds(float(clip_low), float(clip_high)),
        aggregate=weigher(agg, mask.shape[-1]),
    )
    result, out = verl_loss(algorithm, logp, old_logp, advantages, mask)
    return result | {"seq_clip_region": out.clipped.any(-1).double().mean()}


def dcpo_bounds(q, eps_low, eps_high, r_max) -> Result:
    piece = DynamicBounds(float(eps_low), float(eps_high), math.inf if r_max is None else float(r_max))
    low, high = piece(numbers(q).log())
    return {"low": low, "high": high}


def dcpo_loss(logp, old_logp, advantages, mask, eps_low, eps_high, r_max, dual_clip, agg) -> Result:
    algorithm = replace(
        DCPO,
        bounds=DynamicBounds(float(eps_low), float(eps_high), math.inf if r_max is None else float(r_max)),
        surrogate=surrogate_of(dual_clip),
        aggregate=weigher(agg, mask.shape[-1]),
    )
    return verl_loss(algorithm, logp, old_logp, advantages, mask)[0]


def capped_at(delta: float | None, clip_high: float) -> tuple[Callable[..., Tensor], float]:
    """Return surrogate and upper width with which the ratio stops at TRL's `delta`, for good and bad tokens alike.

    J = min(min(r, delta) A, clip(r) A): a bad token is let go above both limits, a good one above the lower of the two.
    """
    if delta is None:
        return pessimistic, clip_high
    if delta <= 1:
        raise NotImplementedError(f"delta {delta} would cut every gradient at ratios near 1, which rlviz refuses")
    return DualClip(max(float(delta), 1 + clip_high)), min(clip_high, delta - 1)


def grpo_loss(
    logp,
    old_logp,
    advantages,
    mask,
    loss_type,
    level,
    clip_low,
    clip_high,
    beta,
    delta,
    max_completion_length,
    kl_ratio_weighted,
    total_tokens=None,
    ref_logp=None,
) -> Result:
    logp, mask = leaf(logp), mask_of(mask)
    reference = None if ref_logp is None else rows(ref_logp)
    penalty = divergence.KLInLoss(beta=float(beta)) if beta else None

    def weighted_penalty(logp: Tensor, ref_logp: Tensor, ratio: Tensor) -> Tensor:
        return penalty(logp, ref_logp) * ratio

    surrogate, eps_high = capped_at(delta, clip_high)
    algorithm = replace(
        GRPO,
        ratio={"token": ratios.token_ratio, "sequence": ratios.sequence_ratio}[level],
        bounds=FixedBounds(float(clip_low), float(eps_high)),
        surrogate=surrogate,
        kl=weighted_penalty if penalty and kl_ratio_weighted else penalty,
        aggregate={
            "grpo": sequence_mean,
            "bnpo": token_mean,
            "dapo": token_mean,
            "dr_grpo": Constant(int(max_completion_length)),
        }[loss_type],
    )
    elsewhere = {
        "grpo": partial(
            more_responses, total=len(mask)
        ),  # a row without a token counts as one whose tokens are elsewhere
        "bnpo": partial(more_tokens, total=None),
        "dapo": partial(more_tokens, total=total_tokens),
        "dr_grpo": partial(more_responses, total=len(mask)),
    }[loss_type](mask)
    batch = Batch(
        old_logp=rows(old_logp),
        advantages=numbers(advantages)[:, None, None].expand(mask.shape),
        mask=mask,
        ref_logp=reference,
        weights=weights_of_part(algorithm.aggregate, mask, elsewhere) if any(elsewhere) else None,
    )
    out = algorithm.loss(logp, batch)
    (gradient,) = slope(out.loss, logp)

    def share(clipped: Tensor) -> float:
        return mean_over_tokens(clipped, mask) if level == "token" else clipped.any(-1).double().mean().item()

    result = {"loss": out.loss, "grad": gradient, "clip_low": share(out.clipped_low)}
    if delta is None or delta > 1 + clip_high:  # else TRL's ratio never exceeds 1 + clip_high, and it reports none
        result |= {"clip_high": share(out.clipped_high), "clip_region": share(out.clipped_low | out.clipped_high)}
    if reference is not None:
        kl = divergence.k3(logp, reference)
        result["kl"] = mean_over_tokens(kl * out.ratio if kl_ratio_weighted else kl, mask)
    return result


# preferences and shaping


def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta, label_smoothing) -> Result:
    algorithm = replace(
        DPO, reward=ImplicitReward(float(beta)), pair_loss=SigmoidPreference(label_smoothing=float(label_smoothing))
    )
    chosen, rejected = numbers(policy_chosen).requires_grad_(), numbers(policy_rejected).requires_grad_()
    out = algorithm.loss(chosen, rejected, numbers(ref_chosen), numbers(ref_rejected))
    to_chosen, to_rejected = torch.autograd.grad(out.loss, (chosen, rejected))
    return {
        "loss": out.loss,
        "grad_chosen": to_chosen,
        "grad_rejected": to_rejected,
        "reward_chosen": out.chosen_reward,
        "reward_rejected": out.rejected_reward,
        "losses": out.losses,
        "accuracy": out.accuracy,
        "margin": out.margin,
    }


def overlong_penalty(lengths, max_len, cache, factor, floor) -> Result:
    piece = SoftOverlongPunishment(
        int(max_len), int(cache), float(factor), -math.inf if floor is None else float(floor)
    )
    lengths = torch.tensor(lengths).unsqueeze(1)
    return {"penalty": flat(piece(torch.zeros(lengths.shape, dtype=torch.double), lengths))}
