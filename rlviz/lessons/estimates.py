"""What is estimated of a distribution: the KL to the reference, the entropy, and how the entropy changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlviz.lessons.cases import COUNTS, LOGITS, REFERENCES, REWARDED
from rlviz.lessons.exercise import exercise
from rlviz.pieces import advantages, kl, values


@exercise(
    like=kl.k3,
    cases=REFERENCES,
    by="logp",
    slips="""
* k3 of the wrong ratio: ref_logp - logp → logp - ref_logp
  your x is upside down: x = ref_logp − logp. The mean of yours over samples is not the KL.
  Seen in the course hands-on-modern-rl until June 2026: github.com/walkinglabs/hands-on-modern-rl/issues/27
* k3 computed and k1 used: → return -x
  that is k1, logp − ref_logp: its mean is the KL, but as a loss its gradient's mean is 0 at the first update on a rollout.
  k3 is eˣ − x − 1 with x = ref_logp − logp; if you computed it, return it.
* sign of x lost in the exponential: torch.exp(x) → torch.exp(-x)
  the sign of x is lost in the exponential: eˣ is exp(ref_logp − logp), reference over policy.
* sign of x lost after the exponential: - x - 1 → + x - 1
  the sign of x is lost after the exponential: k3 is eˣ − x − 1, and yours adds x.
* one not taken off: - 1 →
  the 1 is not taken off: where policy and reference agree, k3 has to be 0.
* k2 for k3: → return x.square() / 2
  that is k2, x²/2: close to k3 near the reference, but its mean is not the KL.
* exact kl for k3: → return logp.exp() * (logp - ref_logp)
  p · (log p − log q) is a term of the exact KL, a sum over all tokens of the vocabulary: here one was sampled, by p, so it
  comes as often as p says already. k3 is eˣ − x − 1.
* x not taken off: - x →
  x is not taken off: eˣ − 1 has a mean of 0. k3 is eˣ − x − 1.
""",
)
def kl_estimate_k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """(logp, ref_logp) → k3."""
    x = ref_logp - logp
    return torch.exp(x) - x - 1


def through_log_softmax(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of logits, through which every right way of writing it has the same gradient."""
    return lambda logits: function(torch.log_softmax(logits, -1))


@exercise(
    like=values.entropy,
    cases=LOGITS,
    by="logits",
    per="distribution",
    adapter=through_log_softmax,
    slips="""
* surprise of the likeliest token: → return -log_probs.max(-1).values
  that is −log p of one token, the likeliest: the entropy is over all of them, each weighted by its probability.
* surprises added unweighted: p * log_probs → log_probs
  the weights are missing: each −log p counts as often as its token is drawn, so multiply by p = log_probs.exp().
* surprises averaged unweighted: p * log_probs → log_probs
  .sum → .mean
  you average −log p as if all tokens were equally likely: weight each by its own probability, and add up.
* weighted surprises averaged: .sum → .mean
  you take the mean over the vocabulary: the weights p add up to 1 already, so take the sum.
* log probabilities taken for probabilities: p * log_probs → log_probs * log_probs.log()
  you take the logarithm of a logarithm: the input holds log p already.
* entropy in bits: .sum(-1) → .sum(-1) / math.log(2)
  that is in bits: entropies here are in nats, with the natural logarithm.
* perplexity: → return (-(p * log_probs).sum(-1)).exp()
  that is the perplexity, exp of the entropy: return the entropy itself.
* softmax of probabilities: p = → log_probs = log_probs.exp().log_softmax(-1) ⏎ p =
  you take the softmax of probabilities: p = log_probs.exp() adds up to 1 already.
""",
)
def entropy(log_probs: Tensor) -> Tensor:
    """log_probs [*n, V] → the entropy over the last axis, in nats: [*n]."""
    p = log_probs.exp()
    return -(p * log_probs).sum(-1)


@exercise(
    "it falls and rises as measured, whatever the actions earn on average.",
    like=values.entropy_change,
    cases=REWARDED,
    per="distribution",
    slips="""
* covariance with its sign lost: return - → return
  the sign is wrong: dH = −Cov, so entropy falls where likely actions gain more than rare ones.
* rewards in the place of advantages: - (p * rewards).sum(-1, keepdim=True) →
  the baseline is missing: A is the reward minus the policy's mean reward, Σ π R.
* baseline over actions: (p * rewards).sum → rewards.mean
  your baseline counts all actions alike: the policy's mean reward weighs each by its probability, Σ π R.
* step without its probability: p * A → A
  a factor π is missing: one is in the step, π · A, as an action is sampled, and one is the weight in the means. With one of
  the two it is Cov(log π, A), the natural gradient's.
  Seen in arXiv 2505.22617, where both forms stand side by side
* covariance over actions: (p * log_probs).sum → log_probs.mean
  (p * centred * step).sum → (centred * step).mean
  your covariance counts all actions alike: in both means each action has the weight π.
* product of the means left out: - (p * log_probs).sum(-1, keepdim=True) →
  the product of the means is missing: Cov(x, y) = mean of x y − mean of x · mean of y.
* rewards standardised: (p * rewards).sum → rewards.mean
  p * A → p * A / (rewards.std(-1, keepdim=True) + 1e-6)
  you divide by the standard deviation, as GRPO does with a group: here A is R minus Σ π R, and no more.
* step with two probabilities: p * A → p * p * A
  a factor π is too many: one is in the step, π · A, and one is the weight in the means.
""",
)
def entropy_change(log_probs: Tensor, rewards: Tensor) -> Tensor:
    """(log_probs, rewards), both [*n, V] → −Cov_π(log π, π A), with A the reward minus the policy's mean reward: [*n]."""
    p = log_probs.exp()
    A = rewards - (p * rewards).sum(-1, keepdim=True)
    step = p * A
    centred = log_probs - (p * log_probs).sum(-1, keepdim=True)
    return -(p * centred * step).sum(-1)


def pass_at_k_piece(right: Tensor, samples: Tensor, k: Tensor) -> Tensor:
    return advantages.pass_at_k(right, int(samples), int(k))


@exercise(
    "right for none, some and all right, for one draw and for all of them.",
    like=pass_at_k_piece,
    cases=COUNTS,
    per="prompt",
    slips="""
* pass@k with draws put back: → return 1 - (1 - right / samples) ** k
  you put each sample back before the next draw: that is too low on average. Of the k that are drawn all are different.
* fails in place of passes: 1 - fails → fails
  that is the chance that none of the k is right: take it from 1.
* all of k right: samples - right → right
  1 - fails → fails
  that is the chance that all k are right: pass@k asks for one.
* pass@1: → return right / samples
  that is pass@1, the share of the samples that are right, whatever k is.
* pass@n: → return (right > 0).double()
  that is pass@n, of all n: with k below n a draw may miss the right ones. Or you divide in whole numbers: write / for //.
* k times pass@1: → return k * right / samples
  you add k chances: two draws may both be right, and the sum may be above 1.
* wrong ones never fewer: (wrong - i) → wrong
  after each wrong draw there is one wrong sample less: wrong − i.
* samples never fewer: (samples - i) → samples
  after each draw there is one sample less: samples − i.
""",
)
def pass_at_k(right: Tensor, samples: Tensor, k: Tensor) -> Tensor:
    """(right, samples, k) → the chance that k of the samples hold a right one."""
    wrong, fails = samples - right, torch.ones(right.shape, dtype=torch.double)
    for i in range(k):
        fails = fails * (wrong - i) / (samples - i)
    return 1 - fails
