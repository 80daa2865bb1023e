"""Whole losses: REINFORCE's, one step of it on a table of logits, and PPO's with its critic and entropy."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rlviz.algorithms import PPO
from rlviz.lessons.cases import ACTORS_AND_CRITICS, EPISODES, TABLE_STEPS
from rlviz.lessons.exercise import exercise
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
* probability for its logarithm: logp * mask → logp.exp() * mask
  you weigh the probabilities: the trick asks for their logarithms, so do not take exp().
* padding counted: (logp * mask) → logp
  padding is in your sum: multiply by the mask before you sum over tokens.
* mean over the tokens of a response: .sum(1) → .sum(1) / mask.sum(1)
  you average over the tokens of a response: log π of a response is their sum.
* mean over all tokens: .mean() → .sum() / mask.sum()
  you divide by the number of tokens: REINFORCE sums over tokens and divides by the number of responses.
* sum over responses: .mean() → .sum()
  you sum over the responses: take their mean.
""",
)
def reinforce(logp: Tensor, mask: Tensor, R: Tensor, b: Tensor) -> Tensor:
    """(logp, mask [N, T], R [N], b) → REINFORCE's loss with the baseline b, minus the mean of (R − b) log π: one number."""
    log_pi = (logp * mask).sum(1)
    A = R - b
    return -(A * log_pi).mean()


@exercise(
    "the logits after the step, with actions that were played twice, once and never.",
    cases=TABLE_STEPS,
    per="logit",
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
* divided by the spread: R - (R.sum() - R) / (len(R) - 1) → (R - R.mean()) / (R.std() + 1e-6)
  you divide by the standard deviation: that is GRPO's advantage. Here A is the reward minus the mean of the others.
* probability for its logarithm: log_softmax → softmax
  you climb the probability of the actions: the trick asks for its logarithm, log_softmax.
* sum over responses: .mean() → .sum()
  you sum over the responses: take their mean.
* learning rate left out: lr * slope → slope
  the learning rate is missing: add lr times the gradient.
* logits climbed by the reward: (A * theta.log_softmax(0) → (R * theta
  you climb the logits themselves, not log π: take log_softmax. And the baseline is missing, without which the two differ:
  subtract the mean of the other rewards.
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
* value loss left out: + 0.5 * L →
  the value loss is missing: plus .5 · mean of L_V.
* value loss twice: 0.5 * L → L
  the value term is twice too large: there is a ½ in L_V, and the weight c_V = .5 in front of it.
* value clip left out: near = torch.clamp(values, old_values - 0.2, old_values + 0.2) → near = values
  the critic's own clip is missing: take the larger of the squared error of V and of clip(V, V_old ± .2).
* value clip with a minimum: torch.maximum → torch.minimum
  of the two squared errors you take the smaller: it is a loss, so the pessimistic one is the larger.
* policy sign lost: -J → J
  the policy term has the wrong sign: J is maximised, so the loss holds −J.
* policy clip without the minimum: torch.minimum(ratio * A, ratio.clamp(0.8, 1.2) * A) → ratio.clamp(0.8, 1.2) * A
  the policy term has the clip but not the minimum: min(r · A, clip(r) · A).
* each response averaged first: → return ((loss * mask).sum(-1) / mask.sum(-1)).mean()
  you average each response first, as GRPO does: here every token of the batch weighs the same.
* padding counted: loss[mask] → loss
  padding is in your means: sum over the mask, and divide by mask.sum().
* policy inverted for bad tokens:
  loss = → J = torch.where(A < 0, torch.maximum(ratio * A, ratio.clamp(0.8, 1.2) * A), J) ⏎ loss =
  in the policy term your A < 0 branch is inverted: the minimum of r·A and clip(r)·A holds for both signs (the minimum of
  the ratios, times A, is a maximum for A < 0). So a bad token loses its gradient when its probability has run up, where it
  needs it most.
  Seen in a notebook of reasoning-from-scratch until May 2026: github.com/rasbt/reasoning-from-scratch/pull/240
* policy ratio with the old recomputed: - old_logp → - logp.detach()
  in the policy term your ratio is always 1: old_logp has to stay frozen from the moment of sampling. If it is computed anew
  before each update, every bound gives the same run.
  Seen in github.com/huggingface/open-r1/issues/227 and github.com/tulerfeng/Video-R1/issues/87
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
