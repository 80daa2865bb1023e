"""Whole losses: REINFORCE's, one step of it on a table of logits, and PPO's with its critic and entropy."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rlviz.algorithms import PPO
from rlviz.lessons.cases import ACTORS_AND_CRITICS, EPISODES, TABLE_STEPS
from rlviz.lessons.exercise import Exercise, Function, exercise
from rlviz.lessons.verdict import Verdict
from rlviz.types import Batch


@exercise(
    "value and gradient, with responses of one to three tokens and with a baseline above the mean.",
    cases=EPISODES,
    by="logp",
    slips="""
* every reward with every response: .sum(1) → .sum(1, keepdim=True)
  every advantage meets every response, as shapes [N] and [N, 1] do in a product, or two separate means: make both [N],
  multiply, then take the mean.
* sign lost: return - → return
  the sign is wrong: an optimizer minimises, so return minus the mean of (R − b) · log π.
* baseline left out: R - b → R
  the baseline is missing: weigh by R − b.
* baseline added: R - b → R + b
  you add the baseline: it is subtracted, R − b.
* baseline outside: → return -(R * log_pi).mean() + b
  you subtract b from R · log π, where it is a constant without a gradient: subtract it from R, then multiply by log π.
* probability for its logarithm: logp * mask → logp.exp() * mask
  you weigh the probabilities: the trick asks for their logarithms, so do not take exp().
* product of probabilities: .sum(1) → .sum(1).exp()
  you weigh the probability of the response: weigh its logarithm, which is the sum of its tokens' log-probabilities.
* padding counted: (logp * mask) → logp
  padding is in your sum: multiply by the mask before you sum over tokens.
* mean over the tokens of a response: .sum(1) → .sum(1) / mask.sum(1)
  you average over the tokens of a response: log π of a response is their sum.
* mean over all tokens: .mean() → .sum() / mask.sum()
  you divide by the number of tokens: REINFORCE sums over tokens and divides by the number of responses.
* mean over all places: .sum(1) → .mean(1)
  you average over all places, padding included: sum over tokens, then take the mean over responses.
* sum over responses: .mean() → .sum()
  you sum over the responses: take their mean.
* baseline times the logarithm alone: → return -(R - b * log_pi).mean()
  parentheses are missing: R − b · log π multiplies b alone. It is (R − b) · log π.
* mean of the batch for b: R - b → R - R.mean()
  your baseline is the batch's mean: subtract b, which is given.
* divided by the baseline: R - b → R / b
  you divide by the baseline: it is subtracted, R − b.
* divided by the spread: R - b → (R - b) / (R.std() + 1e-6)
  you divide by the standard deviation of the rewards: weigh by R − b alone.
* reward with its sign turned: R - b → -R - b
  you turn the reward's sign: weigh by R − b.
* advantage floored: R - b → (R - b).clamp(min=0)
  you leave out what is worse than the baseline: R − b may be negative, and then lowers log π.
* reward floored: R - b → R.clamp(min=0) - b
  you set negative rewards to 0: take R as it is.
* size of the advantage: R - b → (R - b).abs()
  you take the size of R − b, so that bad responses are raised, too: keep its sign.
* reward left out: R - b → torch.ones_like(R)
  the reward is missing: that raises every response, as imitation does. Weigh each by R − b.
* mean of probabilities: (logp * mask).sum(1) → (logp.exp() * mask).sum(1) / mask.sum(1)
  you average the probabilities of a response's tokens: add up their logarithms, without exp().
* weighed by the probability: logp * mask → logp * logp.exp() * mask
  you weigh log π by π: the responses are sampled, so likely ones come often already, and would count twice.
* without a gradient: logp * mask → logp.detach() * mask
  the value is right, but it has no gradient: do not detach logp.
""",
)
def reinforce(logp: Tensor, mask: Tensor, R: Tensor, b: Tensor) -> Tensor:
    """(logp, mask [N, T], R [N], b) → REINFORCE's loss with the baseline b, minus the mean of (R − b) log π: one number."""
    log_pi = (logp * mask).sum(1)
    A = R - b
    return -(A * log_pi).mean()


_NOT_NORMALISED = (
    "You climb the logits themselves, not log π = logits[actions] − logsumexp(logits). Here both have one gradient: with "
    "the mean of the others as the baseline the A sum to 0, and logsumexp drops out. With another baseline it does not, so "
    "take log_softmax."
)


def _normalises(step: Function) -> bool:
    """Whether the logit of an action that nobody played reaches the others' step, as it does through a softmax: is a NaN seen?"""
    given = {name: value.clone() for name, value in TABLE_STEPS[0].items()}
    given["logits"][1] = torch.nan
    try:
        return bool(step(*given.values())[given["actions"]].isnan().any())
    except Exception:  # a distribution refuses logits that are no numbers, and it normalises
        return True


def _normalisation(exercise: Exercise, student: Function, verdict: Verdict) -> Verdict:
    """Return the verdict, with a word to one who climbs the logits alone: Σ A log π = Σ A logits[actions], as the A sum to 0."""
    if verdict.passed and not _normalises(student):
        return replace(verdict, says=f"{verdict.says} {_NOT_NORMALISED}")
    return verdict


@exercise(
    "the logits after the step, with actions that were played twice, once and never.",
    cases=TABLE_STEPS,
    each="logit",
    then=_normalisation,
    slips="""
* descended: logits + → logits -
  you step the wrong way: minimise minus the mean of A · log π, or climb the mean itself.
* own reward in the baseline: (R.sum() - R) / (len(R) - 1) → R.mean()
  your baseline is the mean of all rewards, the response's own among them, so it depends on the action and shrinks the
  gradient by (N − 1) / N: take the mean of the others, (sum − own) / (N − 1).
* baseline left out: - (R.sum() - R) / (len(R) - 1) →
  the baseline is missing: subtract the mean of the other rewards from each reward.
* baseline divided by all: (len(R) - 1) → len(R)
  your baseline divides the sum of the others by N: there are N − 1 of them.
* sum for the baseline: / (len(R) - 1) →
  your baseline is the sum of the others: take their mean, over N − 1.
* baseline added: R - (R.sum() → R + (R.sum()
  you add the baseline: subtract the mean of the others from each reward.
* own left out and divided by the spread: (A * → (A / (R.std() + 1e-6) *
  you divide by the standard deviation: here A is the reward minus the mean of the others, and no more.
* divided by the spread: R - (R.sum() - R) / (len(R) - 1) → (R - R.mean()) / (R.std() + 1e-6)
  you divide by the standard deviation: that is GRPO's advantage. Here A is the reward minus the mean of the others.
* probability for its logarithm: log_softmax → softmax
  you climb the probability of the actions: the trick asks for its logarithm, log_softmax.
* sum over responses: .mean() → .sum()
  you sum over the responses: take their mean.
* learning rate left out: lr * slope → slope
  the learning rate is missing: add lr times the gradient.
* gradient for the logits: → return slope
  you return the gradient: return the logits after the step, logits + lr · gradient.
* nothing moved: → return logits
  the logits come out as they went in: add lr times the gradient of the mean of A · log π of the action that was played.
* advantage floored: (A * → (A.clamp(min=0) *
  you leave out what is worse than the baseline: A may be negative, and then lowers its action.
* reward floored: A = R - → R = R.clamp(min=0) ⏎ A = R -
  you set negative rewards to 0: take them as they are.
* other actions left alone: → return logits.index_add(0, actions, lr * A * (1 - logits.softmax(0))[actions] / len(R))
  you move only the logit of the action that was played: the softmax moves the others, too, by −π.
* log probabilities for the logits: → return (logits + lr * slope).log_softmax(0)
  you return log-probabilities: return the logits themselves.
* probabilities for the logits: → return (logits + lr * slope).softmax(0)
  you return probabilities: return the logits themselves.
* logits climbed by the reward: (A * theta.log_softmax(0) → (R * theta
  you climb the logits themselves, not log π: take log_softmax. And the baseline is missing, without which the two differ:
  subtract the mean of the other rewards.
* weighed by the probability: theta.log_softmax(0) → (theta.softmax(0) * theta.log_softmax(0))
  you weigh log π by π: the actions are sampled, so likely ones come often already, and would count twice.
* entropy added: .mean() → .mean() - (theta.softmax(0) * theta.log_softmax(0)).sum()
  you add the policy's entropy: the step climbs the mean of A · log π alone.
* size of the advantage: (A * → (A.abs() *
  you take the size of A, so that bad actions are raised, too: keep its sign.
* square of the advantage: (A * → (A.square() *
  you square A, so that bad actions are raised, too: multiply by A itself.
* advantage left out: (A * theta → (theta
  the advantage is missing: that raises every action that was played, as imitation does. Weigh log π by A.
* advantages as weights: (A * → (A.softmax(0) *
  you take a softmax of the advantages, which makes all of them positive: multiply by A itself.
* mean over the actions: .mean() → .sum() / len(theta)
  you divide by the number of actions: the mean is over the responses that were sampled.
* sigmoid for the softmax: theta.log_softmax(0) → F.logsigmoid(theta)
  a sigmoid looks at each logit alone: the actions share one softmax, so raising one lowers the others.
* logarithm to base two: theta.log_softmax(0) → theta.softmax(0).log2()
  your logarithm is to base 2: take the natural one, as log_softmax does.
* logarithm to base ten: theta.log_softmax(0) → theta.softmax(0).log10()
  your logarithm is to base 10: take the natural one, as log_softmax does.
""",
)
def reinforce_step(logits: Tensor, actions: Tensor, R: Tensor, lr: Tensor) -> Tensor:
    """(logits [K], actions [N], R [N], lr) → the logits one step up the mean of A log π, A = R − mean of the others."""
    theta = logits.detach().clone().requires_grad_()
    A = R - (R.sum() - R) / (len(R) - 1)
    J = (A * theta.log_softmax(0)[actions]).mean()
    (slope,) = torch.autograd.grad(J, theta)
    return logits + lr * slope


def ppo_loss_piece(
    logp: Tensor,
    old_logp: Tensor,
    A: Tensor,
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    entropy: Tensor,
    mask: Tensor,
) -> Tensor:
    """Return the loss of PPO as it stands in the library, with an entropy bonus."""
    algorithm = replace(PPO, entropy_weight=0.01)
    policy_loss = algorithm.loss(logp, Batch(old_logp, A, mask)).loss
    return algorithm.total_loss(policy_loss, values, old_values, returns, entropy, mask).loss


@exercise(
    "all three terms, and the gradient by the policy, the critic and the entropy.",
    like=ppo_loss_piece,
    cases=ACTORS_AND_CRITICS,
    by=("logp", "values", "entropy"),
    slips="""
* entropy punished: - 0.01 → + 0.01
  the entropy has the wrong sign: it is a bonus, so minus c_H · H in a loss that is minimised.
* entropy left out: - 0.01 * entropy →
  the entropy term is missing: minus .01 · mean of H.
* entropy in full: 0.01 * entropy → entropy
  the entropy counts in full: its weight c_H is .01.
* value loss left out: + 0.5 * L →
  the value loss is missing: plus .5 · mean of L_V.
* value loss rewarded: + 0.5 → - 0.5
  the value loss has the wrong sign: the critic is to come nearer to the returns, so add it.
* value loss twice: 0.5 * L → L
  the value term is twice too large: there is a ½ in L_V, and the weight c_V = .5 in front of it.
* value clip left out: near = torch.clamp(values, old_values - 0.2, old_values + 0.2) → near = values
  the critic's own clip is missing: take the larger of the squared error of V and of clip(V, V_old ± .2).
* value clip alone: (values - returns) → (near - returns)
  you take the clipped value's error alone: the larger of both errors counts, else a V that went astray has no gradient.
* value clip with a minimum: torch.maximum → torch.minimum
  of the two squared errors you take the smaller: it is a loss, so the pessimistic one is the larger.
* policy sign lost: -J → J
  the policy term has the wrong sign: J is maximised, so the loss holds −J.
* policy not clipped: torch.minimum(ratio * A, ratio.clamp(0.8, 1.2) * A) → ratio * A
  the policy term is r · A without the clip.
* policy clip without the minimum: torch.minimum(ratio * A, ratio.clamp(0.8, 1.2) * A) → ratio.clamp(0.8, 1.2) * A
  the policy term has the clip but not the minimum: min(r · A, clip(r) · A).
* ratio inverted: logp - old_logp → old_logp - logp
  your ratio is old over new: exp(logp − old_logp).
* each response averaged first: → return ((loss * mask).sum(-1) / mask.sum(-1)).mean()
  you average each response first, as GRPO does: here every token of the batch weighs the same.
* padding counted: loss[mask] → loss
  padding is in your means: sum over the mask, and divide by mask.sum().
* summed over tokens: .mean() → .sum()
  you sum over the tokens: take their mean.
* value halved twice: 0.5 * → 0.25 *
  the value term is half as large as it should be: one ½ in L_V, and the weight c_V = .5.
* value loss four times: 0.5 * → 2 *
  the value term is four times too large: both the ½ in L_V and the weight c_V = .5 are missing.
* entropy ten times: 0.01 → 0.1
  the entropy's weight is .1: c_H is .01.
* policy alone: + 0.5 * L - 0.01 * entropy →
  the value loss and the entropy bonus are missing: + .5 · L_V − .01 · H, their means.
* value and entropy with wrong signs: + 0.5 * L - 0.01 → - 0.5 * L + 0.01
  value loss and entropy both have the wrong sign: the loss holds + .5 · L_V and − .01 · H.
* value clipped like a ratio: old_values - 0.2, old_values + 0.2 → 0.8, 1.2
  you clip V from .8 to 1.2, as if it were a ratio: it may move by .2 from the old value, V_old ± .2.
* value clipped by a share: old_values - 0.2, old_values + 0.2 → 0.8 * old_values, 1.2 * old_values
  you clip V to a fifth more or less than V_old: it may move by .2 from it, V_old ± .2.
* weights swapped: 0.5 * L - 0.01 → 0.01 * L - 0.5
  your two weights have changed places: c_V = .5 belongs to the value loss, c_H = .01 to the entropy.
* policy and entropy with wrong signs: -J → J
  - 0.01 → + 0.01
  policy term and entropy both have the wrong sign: the loss holds − J and − .01 · H.
* value clip left out and not halved: near = torch.clamp(values, old_values - 0.2, old_values + 0.2) → near = values
  / 2 →
  the value term is .5 · (V − returns)²: the critic's own clip is missing, and the ½ in L_V.
* returns for the advantages: J = → A = returns ⏎ J =
  the policy term weighs by the returns: they are the critic's target, the policy's weight is A.
* advantages for the returns: L = → returns = A ⏎ L =
  the critic's target is A in your loss: it is the returns.
* returns made anew: L = → returns = A + values ⏎ L =
  your target is A + V with the V of now, so it moves along with the critic: take the returns as they are given.
* values swapped: near = → values, old_values = old_values, values ⏎ near =
  V and V_old have changed places: V is held near V_old.
* advantages floored: J = → A = A.clamp(min=0) ⏎ J =
  you leave out the tokens with A < 0: they are to become less likely.
* both value errors added: torch.maximum → torch.add
  you add both squared errors of the critic: the larger of them counts.
* policy inverted for bad tokens:
  loss = → J = torch.where(A < 0, torch.maximum(ratio * A, ratio.clamp(0.8, 1.2) * A), J) ⏎ loss =
  in the policy term your A < 0 branch is inverted: the minimum of r·A and clip(r)·A holds for both signs (the minimum of
  the ratios, times A, is a maximum for A < 0). So a bad token loses its gradient when its probability has run up, where it
  needs it most.
  Seen in a notebook of reasoning-from-scratch until May 2026: github.com/rasbt/reasoning-from-scratch/pull/240
* policy maximum for the minimum: torch.minimum → torch.maximum
  in the policy term you take the maximum of the two branches: the objective is to be pessimistic.
* policy inverted for good tokens:
  loss = → J = torch.where(A < 0, J, torch.maximum(ratio * A, ratio.clamp(0.8, 1.2) * A)) ⏎ loss =
  in the policy term your A > 0 branch is inverted: the minimum of r·A and clip(r)·A holds for both signs.
* policy clipped from above only: clamp(0.8, 1.2) → clamp(max=1.2)
  in the policy term you clip from above only: tokens with A < 0 need the lower limit.
* policy clipped from below only: clamp(0.8, 1.2) → clamp(min=0.8)
  in the policy term you clip from below only: tokens with A > 0 need the upper limit.
* policy log ratio clamped at the widths: ratio.clamp(0.8, 1.2) → ratio.log().clamp(-0.2, 0.2).exp()
  in the policy term you clamp log r at the widths, −.2 and .2 say, so r is clipped at e^−.2 = .82 and e^.2 = 1.22: clamp r
  itself at lower and upper.
* policy objective clipped instead of ratio: ratio.clamp(0.8, 1.2) * A → (ratio * A).clamp(0.8, 1.2)
  in the policy term you clip r · A: clip the ratio, then multiply by A.
* policy ratio with the old recomputed: - old_logp → - logp.detach()
  in the policy term your ratio is always 1: old_logp has to stay frozen from the moment of sampling. If it is computed anew
  before each update, every bound gives the same run.
  Seen in github.com/huggingface/open-r1/issues/227 and github.com/tulerfeng/Video-R1/issues/87
* policy ratio left in logs: (logp - old_logp).exp() → logp - old_logp
  in the policy term that is the log of the ratio: exp is missing.
* policy ratio with the exponential of the old alone: (logp - old_logp).exp() → logp - old_logp.exp()
  in the policy term parentheses are missing: logp − old_logp.exp() takes exp of old_logp alone. It is (logp −
  old_logp).exp().
""",
)
def ppo_loss(
    logp: Tensor,
    old_logp: Tensor,
    A: Tensor,
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    entropy: Tensor,
    mask: Tensor,
) -> Tensor:
    """(logp, old_logp, A, values, old_values, returns, entropy, mask), all [P, G, T] → PPO's whole loss: one number.

    Policy term with ε = .2, value loss with its clip of .2 and weight .5, entropy bonus of .01, all means over the tokens.
    """
    ratio = (logp - old_logp).exp()
    J = torch.minimum(ratio * A, ratio.clamp(0.8, 1.2) * A)
    near = torch.clamp(values, old_values - 0.2, old_values + 0.2)
    L = torch.maximum((values - returns).square(), (near - returns).square()) / 2
    loss = -J + 0.5 * L - 0.01 * entropy
    return loss[mask].mean()
