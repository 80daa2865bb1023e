"""Wrong variants of whole losses: REINFORCE's, one step of it on a table of logits, and PPO's with its critic and entropy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from rlviz.algorithms.ppo import PPO
from rlviz.exercises.judge import Mistake, Topic, family
from rlviz.exercises.mistakes.clipping import clipping
from rlviz.exercises.mistakes.ratios import ratios
from rlviz.pieces.advantages import GroupAdvantage, LeaveOneOut
from rlviz.pieces.aggregation import sequence_mean, weighted_sum
from rlviz.pieces.ratios import token_ratio
from rlviz.pieces.surrogate import unclipped
from rlviz.pieces.values import ClippedValueLoss
from rlviz.types import Batch

# --- reinforce: (logp [N, T], mask [N, T], R [N], b) → the loss ---


def right_reinforce(logp: Tensor, mask: Tensor, R: Tensor, b: Tensor) -> Tensor:
    """Return −1/N Σ_i (R_i − b) Σ_t log π(o_it), the right loss."""
    return -((R - b) * (logp * mask).sum(1)).mean()


def every_reward_with_every_response(logp: Tensor, mask: Tensor, R: Tensor, b: Tensor) -> Tensor:
    summed = (logp * mask).sum(1, keepdim=True)
    A = R - b
    return -(A * summed).mean()


REINFORCE = family(
    every_reward_with_every_response=Mistake(
        every_reward_with_every_response,
        "every advantage meets every response, as shapes [N] and [N, 1] do in a product, or two separate means: make both [N], "
        "multiply, then take the mean.",
    ),
    sign_lost=Mistake(
        lambda logp, mask, R, b: -right_reinforce(logp, mask, R, b),
        "the sign is wrong: an optimizer minimises, so return minus the mean of (R − b) · log π.",
    ),
    baseline_left_out=Mistake(
        lambda logp, mask, R, b: right_reinforce(logp, mask, R, torch.zeros_like(b)),
        "the baseline is missing: weigh by R − b.",
    ),
    baseline_added=Mistake(
        lambda logp, mask, R, b: right_reinforce(logp, mask, R, -b), "you add the baseline: it is subtracted, R − b."
    ),
    baseline_outside=Mistake(
        lambda logp, mask, R, b: right_reinforce(logp, mask, R, torch.zeros_like(b)) + b,
        "you subtract b from R · log π, where it is a constant without a gradient: subtract it from R, then multiply by log π.",
    ),
    probability_for_its_logarithm=Mistake(
        lambda logp, mask, R, b: right_reinforce(logp.exp(), mask, R, b),
        "you weigh the probabilities: the trick asks for their logarithms, so do not take exp().",
    ),
    product_of_probabilities=Mistake(
        lambda logp, mask, R, b: -((R - b) * (logp * mask).sum(1).exp()).mean(),
        "you weigh the probability of the response: weigh its logarithm, which is the sum of its tokens' log-probabilities.",
    ),
    padding_counted=Mistake(
        lambda logp, mask, R, b: right_reinforce(logp, torch.ones_like(mask), R, b),
        "padding is in your sum: multiply by the mask before you sum over tokens.",
    ),
    mean_over_the_tokens_of_a_response=Mistake(
        lambda logp, mask, R, b: -((R - b) * (logp * mask).sum(1) / mask.sum(1)).mean(),
        "you average over the tokens of a response: log π of a response is their sum.",
    ),
    mean_over_all_tokens=Mistake(
        lambda logp, mask, R, b: right_reinforce(logp, mask, R, b) * len(R) / mask.sum(),
        "you divide by the number of tokens: REINFORCE sums over tokens and divides by the number of responses.",
    ),
    mean_over_all_places=Mistake(
        lambda logp, mask, R, b: right_reinforce(logp, mask, R, b) / mask.shape[1],
        "you average over all places, padding included: sum over tokens, then take the mean over responses.",
    ),
    sum_over_responses=Mistake(
        lambda logp, mask, R, b: right_reinforce(logp, mask, R, b) * len(R),
        "you sum over the responses: take their mean.",
    ),
    baseline_times_the_logarithm_alone=Mistake(
        lambda logp, mask, R, b: -(R - b * (logp * mask).sum(1)).mean(),
        "parentheses are missing: R − b · log π multiplies b alone. It is (R − b) · log π.",
    ),
    mean_of_the_batch_for_b=Mistake(
        lambda logp, mask, R, b: right_reinforce(logp, mask, R, R.mean()),
        "your baseline is the batch's mean: subtract b, which is given.",
    ),
    divided_by_the_baseline=Mistake(
        lambda logp, mask, R, b: right_reinforce(logp, mask, R / b, torch.zeros_like(b)),
        "you divide by the baseline: it is subtracted, R − b.",
    ),
    divided_by_the_spread=Mistake(
        lambda logp, mask, R, b: right_reinforce(logp, mask, R, b) / (R.std() + 1e-6),
        "you divide by the standard deviation of the rewards: weigh by R − b alone.",
    ),
    reward_with_its_sign_turned=Mistake(
        lambda logp, mask, R, b: right_reinforce(logp, mask, -R, b), "you turn the reward's sign: weigh by R − b."
    ),
    advantage_floored=Mistake(
        lambda logp, mask, R, b: right_reinforce(logp, mask, (R - b).clamp(min=0), 0 * b),
        "you leave out what is worse than the baseline: R − b may be negative, and then lowers log π.",
    ),
    reward_floored=Mistake(
        lambda logp, mask, R, b: right_reinforce(logp, mask, R.clamp(min=0), b),
        "you set negative rewards to 0: take R as it is.",
    ),
    size_of_the_advantage=Mistake(
        lambda logp, mask, R, b: right_reinforce(logp, mask, (R - b).abs(), 0 * b),
        "you take the size of R − b, so that bad responses are raised, too: keep its sign.",
    ),
    reward_left_out=Mistake(
        lambda logp, mask, R, b: right_reinforce(logp, mask, torch.ones_like(R), 0 * b),
        "the reward is missing: that raises every response, as imitation does. Weigh each by R − b.",
    ),
    mean_of_probabilities=Mistake(
        lambda logp, mask, R, b: -((R - b) * (logp.exp() * mask).sum(1) / mask.sum(1)).mean(),
        "you average the probabilities of a response's tokens: add up their logarithms, without exp().",
    ),
    weighed_by_the_probability=Mistake(
        lambda logp, mask, R, b: right_reinforce(logp * logp.exp(), mask, R, b),
        "you weigh log π by π: the responses are sampled, so likely ones come often already, and would count twice.",
    ),
    without_a_gradient=Mistake(
        lambda logp, mask, R, b: right_reinforce(logp.detach(), mask, R, b),
        "the value is right, but it has no gradient: do not detach logp.",
    ),
)


# --- reinforce_step: (logits [K], actions [N], R [N], lr) → the logits after one step ---


def ascended(
    weights: Callable[[Tensor], Tensor] = lambda R: LeaveOneOut()(R[None])[0],
    of: Callable[[Tensor], Tensor] = lambda logits: logits.log_softmax(0),
) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Return logits → logits + lr · ∇ 1/N Σ_i weights_i · of(logits)[a_i]; as it comes, with the right weights."""

    def step(logits: Tensor, actions: Tensor, R: Tensor, lr: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = logits.detach().clone().requires_grad_()
            (slope,) = torch.autograd.grad((weights(R) * of(leaf)[actions]).mean(), leaf)
        return logits + lr * slope

    return step


_step = ascended()
REINFORCE_STEP = family(
    descended=Mistake(
        lambda logits, actions, R, lr: 2 * logits - _step(logits, actions, R, lr),
        "you step the wrong way: minimise minus the mean of A · log π, or climb the mean itself.",
    ),
    own_reward_in_the_baseline=Mistake(
        ascended(lambda R: R - R.mean()),
        "your baseline is the mean of all rewards, the response's own among them, so it depends on the action and shrinks "
        "the gradient by (N − 1) / N: take the mean of the others, (sum − own) / (N − 1).",
    ),
    baseline_left_out=Mistake(
        ascended(lambda R: R), "the baseline is missing: subtract the mean of the other rewards from each reward."
    ),
    baseline_divided_by_all=Mistake(
        ascended(lambda R: R - (R.sum() - R) / len(R)),
        "your baseline divides the sum of the others by N: there are N − 1 of them.",
    ),
    sum_for_the_baseline=Mistake(
        ascended(lambda R: 2 * R - R.sum()), "your baseline is the sum of the others: take their mean, over N − 1."
    ),
    baseline_added=Mistake(
        ascended(lambda R: R + (R.sum() - R) / (len(R) - 1)),
        "you add the baseline: subtract the mean of the others from each reward.",
    ),
    own_left_out_and_divided_by_the_spread=Mistake(
        ascended(lambda R: LeaveOneOut()(R[None])[0] / (R.std() + 1e-6)),
        "you divide by the standard deviation: here A is the reward minus the mean of the others, and no more.",
    ),
    divided_by_the_spread=Mistake(
        ascended(lambda R: GroupAdvantage()(R[None])[0]),
        "you divide by the standard deviation: that is GRPO's advantage. Here A is the reward minus the mean of the others.",
    ),
    probability_for_its_logarithm=Mistake(
        ascended(of=lambda logits: logits.softmax(0)),
        "you climb the probability of the actions: the trick asks for its logarithm, log_softmax.",
    ),
    sum_over_responses=Mistake(
        lambda logits, actions, R, lr: _step(logits, actions, R, lr * len(R)),
        "you sum over the responses: take their mean.",
    ),
    learning_rate_left_out=Mistake(
        lambda logits, actions, R, lr: _step(logits, actions, R, torch.ones_like(lr)),
        "the learning rate is missing: add lr times the gradient.",
    ),
    gradient_for_the_logits=Mistake(
        lambda logits, actions, R, lr: _step(logits, actions, R, torch.ones_like(lr)) - logits,
        "you return the gradient: return the logits after the step, logits + lr · gradient.",
    ),
    nothing_moved=Mistake(
        lambda logits, actions, R, lr: logits,
        "the logits come out as they went in: add lr times the gradient of the mean of A · log π of the action that was played.",
    ),
    advantage_floored=Mistake(
        ascended(lambda R: LeaveOneOut()(R[None])[0].clamp(min=0)),
        "you leave out what is worse than the baseline: A may be negative, and then lowers its action.",
    ),
    reward_floored=Mistake(
        ascended(lambda R: LeaveOneOut()(R.clamp(min=0)[None])[0]),
        "you set negative rewards to 0: take them as they are.",
    ),
    other_actions_left_alone=Mistake(
        lambda logits, actions, R, lr: (
            logits + lr * LeaveOneOut()(R[None])[0] @ ((1 - logits.softmax(0)) * one_hot(actions, len(logits))) / len(R)
        ),
        "you move only the logit of the action that was played: the softmax moves the others, too, by −π.",
    ),
    log_probabilities_for_the_logits=Mistake(
        lambda *given: _step(*given).log_softmax(0), "you return log-probabilities: return the logits themselves."
    ),
    probabilities_for_the_logits=Mistake(
        lambda *given: _step(*given).softmax(0), "you return probabilities: return the logits themselves."
    ),
)


# --- ppo: (logp, old_logp, A, values, old_values, returns, entropy, mask), all [P, G, T] → the loss that is minimised ---


def ppo_parts(policy: float = 1.0, value: float = 0.5, entropy: float = -0.01, **pieces: Any) -> Callable[..., Tensor]:
    """Return PPO's loss as a function of its tensors, with these weights of its three terms and these pieces changed."""
    algorithm, weight_of_value, weight_of_entropy = replace(PPO, **pieces), value, entropy

    def loss(
        logp: Tensor,
        old_logp: Tensor,
        A: Tensor,
        values: Tensor,
        old_values: Tensor,
        returns: Tensor,
        entropy: Tensor,
        mask: Tensor,
    ) -> Tensor:
        weights = algorithm.aggregate(mask)
        value_loss = weighted_sum(algorithm.value_loss(values, old_values, returns), weights, mask)
        bonus = weighted_sum(entropy, weights, mask)
        clipped = algorithm.loss(logp, Batch(old_logp, A, mask)).loss
        return policy * clipped + weight_of_value * value_loss + weight_of_entropy * bonus

    return loss


def _with(changed: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Callable[..., Tensor]:
    """Return PPO's loss of other tensors than it is given."""
    return lambda *tensors: ppo_parts()(**changed(dict(zip(_GIVEN, tensors, strict=True))))


_GIVEN = ("logp", "old_logp", "A", "values", "old_values", "returns", "entropy", "mask")


def _near(values: Tensor, old_values: Tensor) -> Tensor:
    return torch.clamp(values, old_values - 0.2, old_values + 0.2)


def _smaller_of_both(values: Tensor, old_values: Tensor, returns: Tensor) -> Tensor:
    return torch.minimum((values - returns).square(), (_near(values, old_values) - returns).square()) / 2


def _larger_of_both(values: Tensor, near: Tensor, returns: Tensor) -> Tensor:
    return torch.maximum((values - returns).square(), (near - returns).square()) / 2


_IN_THE_POLICY_TERM = {
    "inverted for bad tokens",
    "maximum for the minimum",
    "inverted for good tokens",
    "clipped from above only",
    "clipped from below only",
    "log ratio clamped at the widths",
    "objective clipped instead of ratio",
    "ratio left in logs",
    "ratio with the exponential of the old alone",
    "ratio with the old recomputed",
}
PPO_LOSS = family(
    entropy_punished=Mistake(
        ppo_parts(entropy=0.01),
        "the entropy has the wrong sign: it is a bonus, so minus c_H · H in a loss that is minimised.",
    ),
    entropy_left_out=Mistake(ppo_parts(entropy=0.0), "the entropy term is missing: minus .01 · mean of H."),
    entropy_in_full=Mistake(ppo_parts(entropy=-1.0), "the entropy counts in full: its weight c_H is .01."),
    value_loss_left_out=Mistake(ppo_parts(value=0.0), "the value loss is missing: plus .5 · mean of L_V."),
    value_loss_rewarded=Mistake(
        ppo_parts(value=-0.5),
        "the value loss has the wrong sign: the critic is to come nearer to the returns, so add it.",
    ),
    value_loss_twice=Mistake(
        ppo_parts(value=1.0),
        "the value term is twice too large: there is a ½ in L_V, and the weight c_V = .5 in front of it.",
    ),
    value_clip_left_out=Mistake(
        ppo_parts(value_loss=ClippedValueLoss(eps_value=float("inf"))),
        "the critic's own clip is missing: take the larger of the squared error of V and of clip(V, V_old ± .2).",
    ),
    value_clip_alone=Mistake(
        ppo_parts(value_loss=lambda values, old_values, returns: (_near(values, old_values) - returns).square() / 2),
        "you take the clipped value's error alone: the larger of both errors counts, else a V that went astray has no gradient.",
    ),
    value_clip_with_a_minimum=Mistake(
        ppo_parts(value_loss=_smaller_of_both),
        "of the two squared errors you take the smaller: it is a loss, so the pessimistic one is the larger.",
    ),
    policy_sign_lost=Mistake(
        ppo_parts(policy=-1.0), "the policy term has the wrong sign: J is maximised, so the loss holds −J."
    ),
    policy_not_clipped=Mistake(ppo_parts(surrogate=unclipped), "the policy term is r · A without the clip."),
    policy_clip_without_the_minimum=Mistake(
        ppo_parts(surrogate=clipping.clamp_without_the_minimum),
        "the policy term has the clip but not the minimum: min(r · A, clip(r) · A).",
    ),
    ratio_inverted=Mistake(
        ppo_parts(ratio=lambda logp, old_logp, mask: token_ratio(old_logp, logp, mask)),
        "your ratio is old over new: exp(logp − old_logp).",
    ),
    each_response_averaged_first=Mistake(
        ppo_parts(aggregate=sequence_mean),
        "you average each response first, as GRPO does: here every token of the batch weighs the same.",
    ),
    padding_counted=Mistake(
        lambda *tensors: ppo_parts()(*tensors[:-1], torch.ones_like(tensors[-1])),
        "padding is in your means: sum over the mask, and divide by mask.sum().",
    ),
    summed_over_tokens=Mistake(
        lambda *tensors: ppo_parts()(*tensors) * tensors[-1].sum(), "you sum over the tokens: take their mean."
    ),
    value_halved_twice=Mistake(
        ppo_parts(value=0.25), "the value term is half as large as it should be: one ½ in L_V, and the weight c_V = .5."
    ),
    value_loss_four_times=Mistake(
        ppo_parts(value=2.0),
        "the value term is four times too large: both the ½ in L_V and the weight c_V = .5 are missing.",
    ),
    entropy_ten_times=Mistake(ppo_parts(entropy=-0.1), "the entropy's weight is .1: c_H is .01."),
    policy_alone=Mistake(
        ppo_parts(value=0.0, entropy=0.0),
        "the value loss and the entropy bonus are missing: + .5 · L_V − .01 · H, their means.",
    ),
    value_and_entropy_with_wrong_signs=Mistake(
        ppo_parts(value=-0.5, entropy=0.01),
        "value loss and entropy both have the wrong sign: the loss holds + .5 · L_V and − .01 · H.",
    ),
    value_clipped_like_a_ratio=Mistake(
        ppo_parts(value_loss=lambda V, old, returns: _larger_of_both(V, V.clamp(0.8, 1.2), returns)),
        "you clip V from .8 to 1.2, as if it were a ratio: it may move by .2 from the old value, V_old ± .2.",
    ),
    value_clipped_by_a_share=Mistake(
        ppo_parts(value_loss=lambda V, old, returns: _larger_of_both(V, V.clamp(0.8 * old, 1.2 * old), returns)),
        "you clip V to a fifth more or less than V_old: it may move by .2 from it, V_old ± .2.",
    ),
    weights_swapped=Mistake(
        ppo_parts(value=0.01, entropy=-0.5),
        "your two weights have changed places: c_V = .5 belongs to the value loss, c_H = .01 to the entropy.",
    ),
    policy_and_entropy_with_wrong_signs=Mistake(
        ppo_parts(policy=-1.0, entropy=0.01),
        "policy term and entropy both have the wrong sign: the loss holds − J and − .01 · H.",
    ),
    value_clip_left_out_and_not_halved=Mistake(
        ppo_parts(value=1.0, value_loss=ClippedValueLoss(eps_value=float("inf"))),
        "the value term is .5 · (V − returns)²: the critic's own clip is missing, and the ½ in L_V.",
    ),
    returns_for_the_advantages=Mistake(
        _with(lambda given: given | {"A": given["returns"]}),
        "the policy term weighs by the returns: they are the critic's target, the policy's weight is A.",
    ),
    advantages_for_the_returns=Mistake(
        _with(lambda given: given | {"returns": given["A"]}),
        "the critic's target is A in your loss: it is the returns.",
    ),
    returns_made_anew=Mistake(
        _with(lambda given: given | {"returns": given["A"] + given["values"]}),
        "your target is A + V with the V of now, so it moves along with the critic: take the returns as they are given.",
    ),
    values_swapped=Mistake(
        _with(lambda given: given | {"values": given["old_values"], "old_values": given["values"]}),
        "V and V_old have changed places: V is held near V_old.",
    ),
    advantages_floored=Mistake(
        _with(lambda given: given | {"A": given["A"].clamp(min=0)}),
        "you leave out the tokens with A < 0: they are to become less likely.",
    ),
    both_value_errors_added=Mistake(
        ppo_parts(value_loss=lambda V, old, returns: ((V - returns).square() + (_near(V, old) - returns).square()) / 2),
        "you add both squared errors of the critic: the larger of them counts.",
    ),
    **{
        f"policy_{row.name}": replace(row, wrong=ppo_parts(**{slot: row.wrong}), says=f"in the policy term {row.says}")
        for slot, rows in (("surrogate", clipping.SURROGATE), ("ratio", ratios.TOKEN_RATIO))
        for row in rows
        if row.name in _IN_THE_POLICY_TERM
    },
)
losses = Topic(
    right_reinforce=right_reinforce,
    ascended=ascended,
    REINFORCE=REINFORCE,
    REINFORCE_STEP=REINFORCE_STEP,
    PPO_LOSS=PPO_LOSS,
)
