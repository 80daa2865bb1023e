"""Checks for the exercises: each takes the student's function, and says what is wrong with it rather than that it is.

    check.pessimistic(my_objective)

A check never raises for a wrong answer: it returns a Verdict, which shows itself in a notebook. `passed` says the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import PPO, GroupPolicyGradient
from rlviz.exercises import cases, mistakes
from rlviz.exercises.assembly import judge_assembly
from rlviz.exercises.judge import Unusable, Verdict, judge
from rlviz.exercises.puzzles import judge_bug, judge_unlabelled
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.aggregation import Constant, sequence_mean, sequence_sum, token_mean
from rlviz.pieces.bounds import DynamicBounds
from rlviz.pieces.gae import GAE
from rlviz.pieces.kl import k1, k3
from rlviz.pieces.mismatch import capped_weight
from rlviz.pieces.preference import ImplicitReward, bradley_terry, response_logp
from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.pieces.shaping import SoftOverlongPunishment
from rlviz.pieces.surrogate import (
    DualClip,
    clipped_weight as clipped_weight_piece,
    pessimistic as pessimistic_piece,
    sign_weighted,
)
from rlviz.pieces.values import entropy as entropy_piece, entropy_change as entropy_change_piece
from rlviz.types import Batch
from small_models.checks import check_at_least


def pessimistic(student: Callable[..., Any]) -> Verdict:
    """Check (ratio, A, lower, upper) → the clipped objective of each token."""
    return judge(
        student,
        pessimistic_piece,
        cases.SURROGATES,
        known=mistakes.clipping.SURROGATE,
        by="ratio",
        praise="all four quadrants, in value and slope, at two widths and at one that never clips.",
    )


def clipped_weight(student: Callable[..., Any]) -> Verdict:
    """Check (ratio, A, lower, upper) → CISPO's objective of each token: the clipped ratio is a weight, frozen."""
    return judge(
        student,
        clipped_weight_piece,
        cases.SURROGATES,
        known=mistakes.clipping.CISPO_SURROGATE,
        by="ratio",
        praise="the objective and its slope, within the limits and beyond them: no token loses its gradient.",
    )


def _dual_clip(ratio: Tensor, A: Tensor, lower: Tensor, upper: Tensor, c: Tensor) -> Tensor:
    return DualClip(float(c))(ratio, A, lower, upper)


def dual_clip(student: Callable[..., Any]) -> Verdict:
    """Check (ratio, A, lower, upper, c) → the clipped objective of each token, for A < 0 no less than c · A."""
    return judge(
        student,
        _dual_clip,
        cases.DUAL_CLIPS,
        known=mistakes.clipping.DUAL_CLIP,
        by="ratio",
        praise="value and slope for both signs, with c below the upper limit and above it.",
    )


def sign_weights(student: Callable[..., Any]) -> Verdict:
    """Check (ratio, A, lower, upper, positive, negative) → the clipped objective with A times a weight by its sign."""
    return judge(
        student,
        sign_weighted,
        cases.SIGN_WEIGHTS,
        known=mistakes.clipping.SIGN_WEIGHTS,
        by="ratio",
        praise="value and slope of good and bad tokens, within the limits and beyond them.",
    )


def truncated_weight(student: Callable[..., Any]) -> Verdict:
    """Check (old_logp, sampler_logp, mask, cap) → the weight of each token, trainer over sampler, at most cap."""

    def without_padding(function: Callable[..., Any]) -> Callable[..., Any]:
        def masked(old_logp: Tensor, sampler_logp: Tensor, mask: Tensor, cap: Tensor) -> Any:
            weight = function(old_logp, sampler_logp, mask, cap)
            same = isinstance(weight, Tensor) and weight.shape == mask.shape
            return weight.masked_fill(~mask, 0.0) if same else weight

        return masked

    return judge(
        student,
        capped_weight,
        cases.SAMPLERS,
        known=mistakes.mismatch.TRUNCATED_WEIGHT,
        through=without_padding,
        praise="the weight of every token, below the cap and above it, at two caps.",
    )


def importance_ratio(student: Callable[..., Any]) -> Verdict:
    """Check (logp, old_logp, mask) → the ratio of each token, 1 on padding."""
    return judge(student, token_ratio, cases.LOGPS, known=mistakes.ratios.TOKEN_RATIO, by="logp")


def sequence_importance_ratio(student: Callable[..., Any]) -> Verdict:
    """Check (logp, old_logp, mask) → the geometric mean of each response's ratios, on every token of it."""
    return judge(student, sequence_ratio, cases.LOGPS, known=mistakes.ratios.SEQUENCE_RATIO, by="logp")


def _sequence_objective(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    group = logp[None], old_logp[None], mask[None]
    return (sequence_ratio(*group) * A.unsqueeze(-1) * sequence_mean(group[-1])).sum()


def sequence_objective(student: Callable[..., Any]) -> Verdict:
    """Check (logp, old_logp, mask [N, T], A [N]) → GSPO's objective without its clip, the mean of s · A: one number."""
    return judge(
        student,
        _sequence_objective,
        cases.RESPONSES,
        known=mistakes.gspo.SEQUENCE_OBJECTIVE,
        by="logp",
        praise="one ratio a response, in value and gradient, with responses of one to four tokens.",
    )


def group_advantage(student: Callable[..., Any]) -> Verdict:
    """Check rewards [P, G] → (R − mean) / (std + 1e-6) of the group."""
    return judge(student, GroupAdvantage(), cases.REWARDS, known=mistakes.advantages.GROUP_ADVANTAGE, each="response")


def mean_of_responses(student: Callable[..., Any]) -> Verdict:
    """Check mask [P, G, T] → GRPO's weight of each token."""
    return judge(student, sequence_mean, cases.MASKS, known=mistakes.aggregation.SEQUENCE_MEAN)


def mean_of_tokens(student: Callable[..., Any]) -> Verdict:
    """Check mask [P, G, T] → DAPO's weight of each token."""
    return judge(student, token_mean, cases.MASKS, known=mistakes.aggregation.TOKEN_MEAN)


def constant_weight(student: Callable[..., Any], max_length: int) -> Verdict:
    """Check mask [P, G, T] → Dr.GRPO's weight of each token, for this maximum length, in tokens."""
    try:
        check_at_least(1, max_length=max_length)
    except ValueError as error:
        return Verdict(False, f"of this check, {error}.")
    return judge(student, Constant(max_length), cases.MASKS, known=mistakes.aggregation.constant(max_length))


def sum_of_responses(student: Callable[..., Any]) -> Verdict:
    """Check mask [P, G, T] → DCPO's weight of each token."""
    return judge(student, sequence_sum, cases.MASKS, known=mistakes.aggregation.SEQUENCE_SUM)


def _own_token_weights(turn: Tensor) -> Tensor:
    return token_mean(turn % 2 == 0)  # of −1 the remainder is 1


def own_token_weights(student: Callable[..., Any]) -> Verdict:
    """Check turn [P, G, T] → the weight of each token in the mean over the policy's: even turns; odd: a tool's; −1: padding."""
    return judge(
        student,
        _own_token_weights,
        cases.TURNS,
        known=mistakes.observations.OWN_TOKEN_WEIGHTS,
        praise="the weight of every token, with two calls, one and none, and where a response was cut off.",
    )


def kl_estimate_k1(student: Callable[..., Any]) -> Verdict:
    """Check (logp, ref_logp) → k1."""
    return judge(student, k1, cases.REFERENCES, known=mistakes.kl.K1, by="logp")


def kl_estimate_k3(student: Callable[..., Any]) -> Verdict:
    """Check (logp, ref_logp) → k3."""
    return judge(student, k3, cases.REFERENCES, known=mistakes.kl.K3, by="logp")


def entropy(student: Callable[..., Any]) -> Verdict:
    """Check log_probs [*n, V] → the entropy over the last axis, in nats: [*n].

    Gradients are compared through the logits, where every right way of writing it has the same one.
    """

    def of_logits(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda logits: function(torch.log_softmax(logits, -1))

    return judge(
        student,
        entropy_piece,
        cases.LOGITS,
        known=mistakes.entropy.ENTROPY,
        by="logits",
        each="distribution",
        through=of_logits,
    )


def entropy_change(student: Callable[..., Any]) -> Verdict:
    """Check (log_probs, rewards), both [*n, V] → −Cov_π(log π, π A), with A the reward minus the policy's mean reward: [*n]."""
    return judge(
        student,
        entropy_change_piece,
        cases.REWARDED,
        known=mistakes.entropy.ENTROPY_CHANGE,
        each="distribution",
        praise="it falls and rises as measured, whatever the actions earn on average.",
    )


def _dpo_loss(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    both = (response_logp(x, mask).unbind(-1) for x in (logp, ref_logp))
    chosen, rejected = map(ImplicitReward(float(beta)), *both)
    return bradley_terry(chosen, rejected).mean()


def dpo_loss(student: Callable[..., Any]) -> Verdict:
    """Check (logp, ref_logp, mask, beta) → DPO's loss, one number; logp, ref_logp, mask: [N, 2, T], the chosen one first."""
    return judge(
        student,
        _dpo_loss,
        cases.PAIRS,
        known=mistakes.preferences.DPO_LOSS,
        by="logp",
        praise="the loss and its gradient, with responses of different lengths and at two betas.",
    )


def _gae_advantages(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    return GAE(gamma=float(gamma), lam=float(lam), whiten=False)(rewards, values, mask)[0]


def gae_advantages(student: Callable[..., Any]) -> Verdict:
    """Check (rewards, values, mask, gamma, lam) → the advantage of each token, not whitened, 0 on padding: [P, G, T]."""
    return judge(
        student,
        _gae_advantages,
        cases.CREDITS,
        known=mistakes.gae.GAE_ADVANTAGES,
        praise="the advantage of every token, with answers of one to four tokens, at two settings of gamma and lam.",
    )


def _reward_model_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    return bradley_terry(chosen, rejected).mean()


def reward_model_loss(student: Callable[..., Any]) -> Verdict:
    """Check (chosen, rejected) → the Bradley–Terry loss of a batch, one number; both are scores of N responses, [N].

    First with scores near each other, where only the formula counts, then with scores far apart, where its rounding does.
    """
    compared = partial(
        judge,
        student,
        _reward_model_loss,
        known=mistakes.reward_model.REWARD_MODEL_LOSS,
        by=("chosen", "rejected"),
        praise="the loss and its gradient, also for a pair that is 900 points out of order.",
    )
    near = compared(cases.SCORES)
    if not near.passed:
        return near
    far = compared([*cases.SCORES, cases.FAR_SCORES])
    if far.says.startswith("for chosen"):
        advice = "torch.nn.functional.logsigmoid stays exact."
        return Verdict(False, f"right for scores that are near each other, but {far.says} {advice}")
    return far


def soft_overlong_punishment(student: Callable[..., Any], max_length: int = 16, cache: int = 4) -> Verdict:
    """Check (rewards [P, G], lengths [P, G]) → rewards after DAPO's punishment, from max_length − cache to max_length tokens."""
    try:
        check_at_least(1, max_length=max_length, cache=cache)
        right = SoftOverlongPunishment(max_length=max_length, cache=cache)
    except ValueError as error:
        return Verdict(False, f"of this check, {error}.")
    return judge(
        student,
        right,
        cases.lengths(max_length, cache),
        known=mistakes.overlong(max_length, cache),
        each="response",
        praise="right for short responses, on the ramp, at max_length and far beyond, whatever they earned.",
    )


def _stacked(limits: Callable[..., Any]) -> Callable[..., Any]:
    """Return `limits` with both of its results in one tensor, [2, N], a number standing for every token."""

    def both(q: Tensor, *given: Tensor) -> Any:
        result = limits(q, *given)
        if result is None:
            return None
        if not (isinstance(result, tuple | list) and len(result) == 2 and all(isinstance(x, Tensor) for x in result)):
            raise Unusable("return two tensors, the lower limit and the upper one: return lower, upper.")
        for name, limit in zip(("lower", "upper"), result, strict=True):
            if limit.shape not in (q.shape, ()):
                raise Unusable(f"your {name} limit has shape {list(limit.shape)}; it has to be {list(q.shape)}, as q.")
        return torch.stack([limit.expand_as(q) for limit in result])

    return both


def _of_side(side: int) -> Callable[..., Any]:
    """Return what makes of limits one of them: side 0 the lower limit, 1 the upper one."""
    return lambda limits: lambda *given: _stacked(limits)(*given)[side]


def _dynamic_bounds(q: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> tuple[Tensor, Tensor]:
    return DynamicBounds(float(eps_low), float(eps_high), float(max_ratio))(q.log())


def dynamic_bounds(student: Callable[..., Any]) -> Verdict:
    """Check (q, eps_low, eps_high, max_ratio) → DCPO's limits (lower, upper) on the ratio of tokens of old probability q: [N]."""
    verdict = judge(
        student,
        _dynamic_bounds,
        cases.PROBABILITIES,
        known=mistakes.bounds.DYNAMIC_BOUNDS,
        through=_stacked,
        praise="both limits, for rare and for likely tokens, at two settings of the widths and the cap.",
    )
    if not verdict.says.startswith("at ["):
        return verdict
    for side, name in enumerate(("lower", "upper")):  # say in words which limit, and of which probability
        alone = judge(student, _dynamic_bounds, cases.PROBABILITIES, through=_of_side(side))
        if not alone.passed:
            says = alone.says.replace("as from 0 / 0 or ln(−1)", "as the root of a negative number is none")
            return Verdict(False, f"{name} limit, {says}")
    return verdict


def reinforce(student: Callable[..., Any]) -> Verdict:
    """Check (logp, mask [N, T], R [N], b) → REINFORCE's loss with the baseline b, minus the mean of (R − b) log π: one number."""
    return judge(
        student,
        mistakes.losses.right_reinforce,
        cases.EPISODES,
        known=mistakes.losses.REINFORCE,
        by="logp",
        praise="value and gradient, with responses of one to three tokens and with a baseline above the mean.",
    )


def _normalises(step: Callable[..., Any]) -> bool:
    """Whether the logit of an action that nobody played reaches the others' step, as it does through a softmax: is a NaN seen?"""
    given = {name: value.clone() for name, value in cases.TABLE_STEPS[0].items()}
    given["logits"][1] = torch.nan
    try:
        return bool(step(*given.values())[given["actions"]].isnan().any())
    except Exception:  # a distribution refuses logits that are no numbers, and it normalises
        return True


def reinforce_step(student: Callable[..., Any]) -> Verdict:
    """Check (logits [K], actions [N], R [N], lr) → the logits one step up the mean of A log π, A = R − mean of the others.

    These A sum to 0, and log π = logits[actions] − logsumexp(logits). So Σ A log π = Σ A logits[actions]: an answer that
    climbs the logits alone is right, and is told why.
    """
    verdict = judge(
        student,
        mistakes.losses.ascended(),
        cases.TABLE_STEPS,
        known=mistakes.losses.REINFORCE_STEP,
        each="logit",
        praise="the logits after the step, with actions that were played twice, once and never.",
    )
    if verdict.passed and not _normalises(student):
        return replace(verdict, says=f"{verdict.says} {_NOT_NORMALISED}")
    return verdict


_NOT_NORMALISED = (
    "You climb the logits themselves, not log π = logits[actions] − logsumexp(logits). Here both have one gradient: with "
    "the mean of the others as the baseline the A sum to 0, and logsumexp drops out. With another baseline it does not, so "
    "take log_softmax."
)


def _ppo_loss(
    logp: Tensor,
    old_logp: Tensor,
    A: Tensor,
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    entropy: Tensor,
    mask: Tensor,
) -> Tensor:
    algorithm = replace(PPO, entropy_weight=0.01)
    policy_loss = algorithm.loss(logp, Batch(old_logp, A, mask)).loss
    return algorithm.total_loss(policy_loss, values, old_values, returns, entropy, mask).loss


def ppo_loss(student: Callable[..., Any]) -> Verdict:
    """Check (logp, old_logp, A, values, old_values, returns, entropy, mask), all [P, G, T] → PPO's whole loss: one number.

    Policy term with ε = .2, value loss with its clip of .2 and weight .5, entropy bonus of .01, all means over the tokens.
    """
    return judge(
        student,
        _ppo_loss,
        cases.ACTORS_AND_CRITICS,
        known=mistakes.losses.PPO_LOSS,
        by=("logp", "values", "entropy"),
        praise="all three terms, and the gradient by the policy, the critic and the entropy.",
    )


def assembly(student: Callable[..., Any], algorithm: GroupPolicyGradient) -> Verdict:
    """Check (logp, old_logp, ref_logp [P, G, T], rewards [P, G], mask) → an algorithm's whole loss, which is minimised.

    A slip is named by the slot of which a change makes the same loss. Raises ValueError for an algorithm that needs more.
    """
    return judge_assembly(student, algorithm)


def bug(lesson: str, *, line: int, does: str) -> Verdict:
    """Check an answer to `show_bug(lesson)`: the line to blame, from 1, and which of the printed choices it does."""
    return judge_bug(lesson, line, does)


def unlabelled(lesson: str, answer: str) -> Verdict:
    """Check which of the printed settings made the run of `unlabelled(lesson)`."""
    return judge_unlabelled(lesson, answer)
