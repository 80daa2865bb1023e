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
    like=kl.k1,
    cases=REFERENCES,
    by="logp",
    slips="""
* k1 weighed by its probability: → return logp.exp() * (logp - ref_logp)
  you weigh by the probability: the tokens are sampled, so likely ones come often already, and would count twice.
* k1 of probabilities: → return logp.exp() - ref_logp.exp()
  you subtract the probabilities: k1 is the difference of their logarithms.
* ratio for k1: → return (logp - ref_logp).exp()
  you take exp of it: k1 is the difference of the logarithms itself.
* k1 without its sign: → return (logp - ref_logp).abs()
  you take the absolute value: single values of k1 may be negative, and only so is their mean the KL.
* k2 for k1: → return (logp - ref_logp).square() / 2
  that is k2, x²/2: k1 is logp − ref_logp itself.
* k3 for k1: → return (ref_logp - logp).exp() - (ref_logp - logp) - 1
  that is k3, eˣ − x − 1: k1 is logp − ref_logp alone.
* kl sign lost: → return ref_logp - logp
  the sign is lost: k1 is logp − ref_logp, whose mean is the KL, which is not negative.
* ratio upside down for k1: → return (ref_logp - logp).exp()
  you take the ratio of the reference's probability to the policy's: k1 is the difference of the logarithms, logp − ref_logp.
* ratio less one for k1: → return (logp - ref_logp).exp() - 1
  you take the ratio minus 1, which is near k1 for small differences alone: k1 is logp − ref_logp itself.
* k1 floored: → return (logp - ref_logp).clamp(min=0)
  you set negative values to 0: a single value of k1 may be negative, and the mean of what is left would be too large.
* k1 weighed by the reference: → return ref_logp.exp() * (logp - ref_logp)
  you weigh by the reference's probability: the tokens are sampled from the policy, and k1 needs no weight.
* term of the other kl: → return ref_logp.exp() * (ref_logp - logp)
  that is a term of the KL from the reference to the policy, as F.kl_div returns it: k1 is logp − ref_logp, of the sampled token.
* k1 in bits: → return (logp - ref_logp) / math.log(2)
  that is in bits: the KL here is in nats, so do not divide by log 2.
* quotient of the logarithms for k1: → return logp / ref_logp
  you divide the logarithms: the logarithm of the ratio is their difference, logp − ref_logp.
* sum of the logarithms for k1: → return logp + ref_logp
  you add the logarithms: k1 is their difference, logp − ref_logp.
* square for k1: → return (logp - ref_logp).square()
  you square the difference: that is twice k2. k1 is logp − ref_logp itself.
* k1 of the policy alone: → return logp
  the reference is missing: k1 is logp − ref_logp.
* k1 of the reference alone: → return -ref_logp
  the policy's own log-probability is missing: k1 is logp − ref_logp.
""",
)
def kl_estimate_k1(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """(logp, ref_logp) → k1."""
    return logp - ref_logp


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
* exponential forgotten: torch.exp(x) → x
  the exponential is missing, so x − x leaves −1 for every token.
* logarithms divided: → return ref_logp / logp - (ref_logp / logp).log() - 1
  you divide log-probabilities: the ratio of the probabilities is the exponential of their difference.
* one not taken off: - 1 →
  the 1 is not taken off: where policy and reference agree, k3 has to be 0.
* k2 for k3: → return x.square() / 2
  that is k2, x²/2: close to k3 near the reference, but its mean is not the KL.
* k1 upside down for k3: → return x
  that is x alone, ref_logp − logp: k3 is eˣ − x − 1.
* distance for k3: → return x.abs()
  you take the absolute value of x: k3 is eˣ − x − 1, and only that has the KL for its mean.
* square for k3: → return x.square()
  you square x, which is twice k2: k3 is eˣ − x − 1.
* exact kl for k3: → return logp.exp() * (logp - ref_logp)
  p · (log p − log q) is a term of the exact KL, a sum over all tokens of the vocabulary: here one was sampled, by p, so it
  comes as often as p says already. k3 is eˣ − x − 1.
* forward kl for k3: → return ref_logp.exp() * x
  that is a term of the exact KL in the other direction, KL(ref‖policy), as F.kl_div(logp, ref_logp, log_target=True) gives
  it: the KL here is KL(policy‖ref), estimated from the sampled token by eˣ − x − 1.
* forward estimate for k3: → return torch.exp(x) * x
  eˣ · x estimates the KL in the other direction, KL(ref‖policy): here it is KL(policy‖ref), by eˣ − x − 1.
* forward k3: → return torch.exp(x) * x - (torch.exp(x) - 1)
  r · log r − (r − 1) estimates the KL in the other direction, KL(ref‖policy): here it is r − 1 − log r.
* x not taken off: - x →
  x is not taken off: eˣ − 1 has a mean of 0. k3 is eˣ − x − 1.
* one added: - 1 → + 1
  the 1 is added: where policy and reference agree, k3 has to be 0, so take it off.
* one in the exponent: → return torch.exp(x - 1) - x
  the 1 is in the exponent: k3 is eˣ − x − 1, with the 1 taken off at the end.
* all in the exponent: → return torch.exp(x - x - 1)
  the parenthesis closes too late: exp is of x alone, and −x − 1 stands outside, torch.exp(x) − x − 1.
* probabilities subtracted for the ratio: torch.exp(x) → ref_logp.exp() - logp.exp()
  you subtract the probabilities: eˣ is their ratio, exp(ref_logp − logp).
* exponential of logp alone: torch.exp(x) → ref_logp - logp.exp()
  parentheses are missing: ref_logp − logp.exp() takes exp of logp alone. eˣ is (ref_logp − logp).exp().
* half of k3: → return (torch.exp(x) - x - 1) / 2
  you halve it: the ½ is k2's, k3 is eˣ − x − 1.
* k3 weighed by its probability: → return logp.exp() * (torch.exp(x) - x - 1)
  you weigh by the probability: the tokens are sampled, so likely ones come often already, and would count twice.
""",
)
def kl_estimate_k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """(logp, ref_logp) → k3."""
    x = ref_logp - logp
    return torch.exp(x) - x - 1


def of_logits(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of logits, through which every right way of writing it has the same gradient."""
    return lambda logits: function(torch.log_softmax(logits, -1))


@exercise(
    like=values.entropy,
    cases=LOGITS,
    by="logits",
    each="distribution",
    through=of_logits,
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
* weighted by the logarithm: log_probs.exp() → log_probs
  you weight by log p: the weight is p itself, log_probs.exp().
* log probabilities taken for probabilities: p * log_probs → log_probs * log_probs.log()
  you take the logarithm of a logarithm: the input holds log p already.
* entropy in bits: .sum(-1) → .sum(-1) / math.log(2)
  that is in bits: entropies here are in nats, with the natural logarithm.
* entropy to base ten: .sum(-1) → .sum(-1) / math.log(10)
  that is to base 10: entropies here are in nats, with the natural logarithm.
* normalised over another axis: p = → log_probs = log_probs.log_softmax(-2) ⏎ p =
  you normalise over dim −2: the distribution is along the last axis, dim −1, and log_probs are normalised already.
* normalised over the first axis: p = → log_probs = log_probs.log_softmax(0) ⏎ p =
  you normalise over dim 0: the distribution is along the last axis, dim −1, and log_probs are normalised already.
* surprise of the first token: → return -log_probs[..., 0]
  that is −log p of the first token alone: the entropy is over all of them, each weighted by its probability.
* surprise of the last token: → return -log_probs[..., -1]
  that is −log p of the last token alone: the entropy is over all of them, each weighted by its probability.
* probabilities added: p * log_probs → p
  the logarithm is missing: p adds up to 1, whatever the distribution. Add up p · log p.
* perplexity: → return (-(p * log_probs).sum(-1)).exp()
  that is the perplexity, exp of the entropy: return the entropy itself.
* gini: → return 1 - p.square().sum(-1)
  1 − Σ p² is the Gini impurity: the entropy is −Σ p · log p.
* collision entropy: → return -p.square().sum(-1).log()
  −log Σ p² is the collision entropy, of order 2: the one asked for is −Σ p · log p.
* missing to the most: → return math.log(log_probs.shape[-1]) + (p * log_probs).sum(-1)
  that is what is missing to the most, log V − H: return H, −Σ p · log p.
* powers of two for probabilities: log_probs.exp() → 2**log_probs
  2 to the power log p is not p: the logarithm is the natural one, so p = log_probs.exp().
* log probabilities divided by their sum: p = → log_probs = (log_probs / log_probs.sum(-1, keepdim=True)).log() ⏎ p =
  you give log-probabilities where probabilities are meant: Categorical takes them as logits=log_probs.
* softmax of probabilities: p = → log_probs = log_probs.exp().log_softmax(-1) ⏎ p =
  you take the softmax of probabilities: p = log_probs.exp() adds up to 1 already.
* weighted by the inverse: log_probs.exp() → (-log_probs).exp()
  your weight is 1 / p, exp of −log p: the weight is p itself, log_probs.exp().
* logarithm of the sum: → return -p.sum(-1).log()
  that is 0 for every distribution, as is the logarithm of Σ p = 1: weight each log p by its own p, then add up.
* entropy as a share of the most: .sum(-1) → .sum(-1) / math.log(log_probs.shape[-1])
  you divide by log V: that is the share of the most that is possible.
* surprise of the rarest token: → return -log_probs.amin(-1)
  that is −log p of one token, the rarest: the entropy is over all of them, each weighted by its probability.
* missing to a sure token: → return 1 - p.amax(-1)
  1 minus the largest p is how often the likeliest token is missed: the entropy is −Σ p · log p.
* variance of the surprise: → return (p * (log_probs - (p * log_probs).sum(-1, keepdim=True)).square()).sum(-1)
  that is the variance of −log p: the entropy is its mean.
* each token against the others: → return -(p * log_probs + (1 - p) * torch.log1p(-p)).sum(-1)
  you add (1 − p) · log(1 − p), the entropy of each token against all others: here the tokens are one distribution, −Σ p · log p.
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
    each="distribution",
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
* baseline averaged: (p * rewards).sum → (p * rewards).mean
  your baseline averages π R over the actions: the weights π add up to 1 already, so take the sum, Σ π R.
* baseline of all distributions: (p * rewards).sum(-1, keepdim=True) → (p * rewards).sum()
  your baseline adds up all distributions: each has a mean reward of its own, .sum(-1, keepdim=True).
* baseline added to rewards: rewards - → rewards +
  you add the baseline: A is R minus Σ π R.
* rewards standardised: (p * rewards).sum → rewards.mean
  p * A → p * A / (rewards.std(-1, keepdim=True) + 1e-6)
  you divide by the standard deviation, as GRPO does with a group: here A is R minus Σ π R, and no more.
* step with two probabilities: p * A → p * p * A
  a factor π is too many: one is in the step, π · A, and one is the weight in the means.
* step with the logarithm: p * A → log_probs * A
  your step is log π · A: a logit moves by π · A, as its action is sampled.
* covariance of the probability: log_probs - (p * log_probs) → p - (p * p)
  you take the covariance of π with the step: it is that of log π.
* weighted products averaged: step).sum → step).mean
  you take the mean over the actions where π is the weight already: take the sum.
* entropy taken off: log_probs - (p → log_probs + (p
  the mean of log π is −H: centred, log π is log π + H. Or the product of the means is added: it is taken off.
* centred over actions: (p * log_probs).sum → log_probs.mean
  your mean of log π counts all actions alike: each has the weight π, so it is Σ π log π.
* change in bits: step).sum(-1) → step).sum(-1) / math.log(2)
  that is in bits: entropies here are in nats, with the natural logarithm.
""",
)
def entropy_change(log_probs: Tensor, rewards: Tensor) -> Tensor:
    """(log_probs, rewards), both [*n, V] → −Cov_π(log π, π A), with A the reward minus the policy's mean reward: [*n]."""
    p = log_probs.exp()
    A = rewards - (p * rewards).sum(-1, keepdim=True)
    step = p * A
    centred = log_probs - (p * log_probs).sum(-1, keepdim=True)
    return -(p * centred * step).sum(-1)


def _of_numbers(right: Tensor, samples: Tensor, k: Tensor) -> Tensor:
    return advantages.pass_at_k(right, int(samples), int(k))


@exercise(
    "right for none, some and all right, for one draw and for all of them.",
    like=_of_numbers,
    cases=COUNTS,
    each="prompt",
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
* all of k right, drawn with replacement: → return (right / samples) ** k
  that is the chance that all k are right, each put back: pass@k asks for at least one.
* exactly one of k right: → return torch.tensor([k * c * math.perm(samples - c, k - 1) for c in right]) / math.perm(samples, k)
  that is the chance that exactly one of the k is right: pass@k asks for at least one.
* at least one wrong: samples - right → right
  that is the chance that at least one of the k is wrong: count the draws that are all wrong.
* first draw left out: range(k) → range(1, k)
  you leave the first draw out: i begins at 0, with n − c wrong ones of n.
* draws counted from 1: range(k) → range(1, k + 1)
  you count the draws from 1: i begins at 0, with n − c wrong ones of n.
* one draw too few: range(k) → range(k - 1)
  you draw k − 1 times: range(k) has k numbers, from 0.
* one draw too many: range(k) → range(k + 1)
  you draw k + 1 times: range(k) has k numbers, from 0.
* k times pass@1 at most 1: → return (k * right / samples).clamp(max=1)
  you add k chances, and cut the sum at 1: two draws may both be right, so the chance of one is less than the sum.
* exponential for the draws: → return 1 - torch.exp(-k * right / samples)
  that is the limit of very many samples with few right ones: count the draws without a right one exactly.
* k of the samples right: → return (right >= k).double()
  you ask whether k of all the samples are right: pass@k asks whether one is, of k that are drawn.
* divided by k: → return right / k
  you divide the right ones by the number that is drawn: pass@k is the chance that one of k drawn samples is right.
""",
)
def pass_at_k(right: Tensor, samples: Tensor, k: Tensor) -> Tensor:
    """(right, samples, k) → the chance that k of the samples hold a right one."""
    wrong, fails = samples - right, torch.ones(right.shape, dtype=torch.double)
    for i in range(k):
        fails = fails * (wrong - i) / (samples - i)
    return 1 - fails
