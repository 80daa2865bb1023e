"""Wrong variants of what is estimated of a distribution: the KL to the reference, and the entropy."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from rlviz.exercises.judge import Mistake, Topic, family
from rlviz.pieces import values
from rlviz.pieces.kl import k2, k3

# --- kl: (logp, ref_logp) → the estimate of each token ---


def kl_sign_lost(logp: Tensor, ref_logp: Tensor) -> Tensor:
    return ref_logp - logp


def k3_of_the_wrong_ratio(logp: Tensor, ref_logp: Tensor) -> Tensor:
    x = logp - ref_logp
    return torch.expm1(x) - x


def k3_computed_and_k1_used(logp: Tensor, ref_logp: Tensor) -> Tensor:
    x = ref_logp - logp
    _ = torch.expm1(x) - x
    return -x


K1 = family(
    k1_weighed_by_its_probability=Mistake(
        lambda logp, ref_logp: logp.exp() * (logp - ref_logp),
        "you weigh by the probability: the tokens are sampled, so likely ones come often already, and would count twice.",
    ),
    k1_of_probabilities=Mistake(
        lambda logp, ref_logp: logp.exp() - ref_logp.exp(),
        "you subtract the probabilities: k1 is the difference of their logarithms.",
    ),
    ratio_for_k1=Mistake(
        lambda logp, ref_logp: (logp - ref_logp).exp(),
        "you take exp of it: k1 is the difference of the logarithms itself.",
    ),
    k1_without_its_sign=Mistake(
        lambda logp, ref_logp: (logp - ref_logp).abs(),
        "you take the absolute value: single values of k1 may be negative, and only so is their mean the KL.",
    ),
    k2_for_k1=Mistake(k2, "that is k2, x²/2: k1 is logp − ref_logp itself."),
    k3_for_k1=Mistake(k3, "that is k3, eˣ − x − 1: k1 is logp − ref_logp alone."),
    kl_sign_lost=Mistake(
        kl_sign_lost, "the sign is lost: k1 is logp − ref_logp, whose mean is the KL, which is not negative."
    ),
)
K3 = family(
    k3_of_the_wrong_ratio=Mistake(
        k3_of_the_wrong_ratio,
        "your x is upside down: x = ref_logp − logp. The mean of yours over samples is not the KL.",
        "the course hands-on-modern-rl until June 2026: github.com/walkinglabs/hands-on-modern-rl/issues/27",
    ),
    k3_computed_and_k1_used=Mistake(
        k3_computed_and_k1_used,
        "that is k1, logp − ref_logp: its mean is the KL, but as a loss it pulls nowhere, for its gradient's mean is 0. k3 is "
        "eˣ − x − 1 with x = ref_logp − logp; if you computed it, return it.",
    ),
    sign_of_x_lost_in_the_exponential=Mistake(
        lambda logp, ref_logp: torch.exp(logp - ref_logp) - (ref_logp - logp) - 1,
        "the sign of x is lost in the exponential: eˣ is exp(ref_logp − logp), reference over policy.",
    ),
    sign_of_x_lost_after_the_exponential=Mistake(
        lambda logp, ref_logp: torch.exp(ref_logp - logp) + (ref_logp - logp) - 1,
        "the sign of x is lost after the exponential: k3 is eˣ − x − 1, and yours adds x.",
    ),
    exponential_forgotten=Mistake(
        lambda logp, ref_logp: (ref_logp - logp) - (ref_logp - logp) - 1,
        "the exponential is missing, so x − x leaves −1 for every token.",
    ),
    logarithms_divided=Mistake(
        lambda logp, ref_logp: ref_logp / logp - (ref_logp / logp).log() - 1,
        "you divide log-probabilities: the ratio of the probabilities is the exponential of their difference.",
    ),
    one_not_taken_off=Mistake(
        lambda logp, ref_logp: torch.exp(ref_logp - logp) - (ref_logp - logp),
        "the 1 is not taken off: where policy and reference agree, k3 has to be 0.",
    ),
    k2_for_k3=Mistake(
        k2,
        "that is k2, x²/2: close to k3 near the reference, but its mean is not the KL.",
    ),
    k1_upside_down_for_k3=Mistake(
        lambda logp, ref_logp: ref_logp - logp,
        "that is x alone, ref_logp − logp: k3 is eˣ − x − 1.",
    ),
    distance_for_k3=Mistake(
        lambda logp, ref_logp: (ref_logp - logp).abs(),
        "you take the absolute value of x: k3 is eˣ − x − 1, and only that has the KL for its mean.",
    ),
    square_for_k3=Mistake(
        lambda logp, ref_logp: (ref_logp - logp).square(),
        "you square x, which is twice k2: k3 is eˣ − x − 1.",
    ),
    exact_kl_for_k3=Mistake(
        lambda logp, ref_logp: logp.exp() * (logp - ref_logp),
        "p · (log p − log q) is a term of the exact KL, a sum over all tokens of the vocabulary: here one was sampled, by p, "
        "so it comes as often as p says already. k3 is eˣ − x − 1.",
    ),
    forward_kl_for_k3=Mistake(
        lambda logp, ref_logp: ref_logp.exp() * (ref_logp - logp),
        "that is a term of the exact KL in the other direction, KL(ref‖policy), as F.kl_div(logp, ref_logp, log_target=True) "
        "gives it: the KL here is KL(policy‖ref), estimated from the sampled token by eˣ − x − 1.",
    ),
    forward_estimate_for_k3=Mistake(
        lambda logp, ref_logp: torch.exp(ref_logp - logp) * (ref_logp - logp),
        "eˣ · x estimates the KL in the other direction, KL(ref‖policy): here it is KL(policy‖ref), by eˣ − x − 1.",
    ),
    forward_k3=Mistake(
        lambda logp, ref_logp: torch.exp(ref_logp - logp) * (ref_logp - logp) - torch.expm1(ref_logp - logp),
        "r · log r − (r − 1) estimates the KL in the other direction, KL(ref‖policy): here it is r − 1 − log r.",
    ),
    x_not_taken_off=Mistake(
        lambda logp, ref_logp: torch.expm1(ref_logp - logp),
        "x is not taken off: eˣ − 1 has a mean of 0. k3 is eˣ − x − 1.",
    ),
    one_added=Mistake(
        lambda logp, ref_logp: torch.exp(ref_logp - logp) - (ref_logp - logp) + 1,
        "the 1 is added: where policy and reference agree, k3 has to be 0, so take it off.",
    ),
    one_in_the_exponent=Mistake(
        lambda logp, ref_logp: torch.exp(ref_logp - logp - 1) - (ref_logp - logp),
        "the 1 is in the exponent: k3 is eˣ − x − 1, with the 1 taken off at the end.",
    ),
    all_in_the_exponent=Mistake(
        lambda logp, ref_logp: torch.exp(torch.full_like(logp, -1.0) + 0 * ref_logp),
        "the parenthesis closes too late: exp is of x alone, and −x − 1 stands outside, torch.exp(x) − x − 1.",
    ),
    probabilities_subtracted_for_the_ratio=Mistake(
        lambda logp, ref_logp: ref_logp.exp() - logp.exp() - (ref_logp - logp) - 1,
        "you subtract the probabilities: eˣ is their ratio, exp(ref_logp − logp).",
    ),
    exponential_of_logp_alone=Mistake(
        lambda logp, ref_logp: ref_logp - logp.exp() - (ref_logp - logp) - 1,
        "parentheses are missing: ref_logp − logp.exp() takes exp of logp alone. eˣ is (ref_logp − logp).exp().",
    ),
    half_of_k3=Mistake(lambda logp, ref_logp: k3(logp, ref_logp) / 2, "you halve it: the ½ is k2's, k3 is eˣ − x − 1."),
    k3_weighed_by_its_probability=Mistake(
        lambda logp, ref_logp: logp.exp() * k3(logp, ref_logp),
        "you weigh by the probability: the tokens are sampled, so likely ones come often already, and would count twice.",
    ),
)
kl = Topic(K1=K1, K3=K3)


# --- entropy: log_probs [*n, V] → [*n] ---

ENTROPY = family(
    surprise_of_the_likeliest_token=Mistake(
        lambda log_probs: -log_probs.max(-1).values,
        "that is −log p of one token, the likeliest: the entropy is over all of them, each weighted by its probability.",
    ),
    surprises_added_unweighted=Mistake(
        lambda log_probs: -log_probs.sum(-1),
        "the weights are missing: each −log p counts as often as its token is drawn, so multiply by p = log_probs.exp().",
    ),
    surprises_averaged_unweighted=Mistake(
        lambda log_probs: -log_probs.mean(-1),
        "you average −log p as if all tokens were equally likely: weight each by its own probability, and add up.",
    ),
    weighted_surprises_averaged=Mistake(
        lambda log_probs: -(log_probs.exp() * log_probs).mean(-1),
        "you take the mean over the vocabulary: the weights p add up to 1 already, so take the sum.",
    ),
    weighted_by_the_logarithm=Mistake(
        lambda log_probs: -(log_probs * log_probs).sum(-1),
        "you weight by log p: the weight is p itself, log_probs.exp().",
    ),
    log_probabilities_taken_for_probabilities=Mistake(
        lambda log_probs: -(log_probs * log_probs.log()).sum(-1),
        "you take the logarithm of a logarithm: the input holds log p already.",
    ),
    entropy_in_bits=Mistake(
        lambda log_probs: values.entropy(log_probs) / math.log(2),
        "that is in bits: entropies here are in nats, with the natural logarithm.",
    ),
    entropy_to_base_ten=Mistake(
        lambda log_probs: values.entropy(log_probs) / math.log(10),
        "that is to base 10: entropies here are in nats, with the natural logarithm.",
    ),
    normalised_over_another_axis=Mistake(
        lambda log_probs: values.entropy(log_probs.log_softmax(-2)),
        "you normalise over dim −2: the distribution is along the last axis, dim −1, and log_probs are normalised already.",
    ),
    normalised_over_the_first_axis=Mistake(
        lambda log_probs: values.entropy(log_probs.log_softmax(0)),
        "you normalise over dim 0: the distribution is along the last axis, dim −1, and log_probs are normalised already.",
    ),
    surprise_of_the_first_token=Mistake(
        lambda log_probs: -log_probs[..., 0],
        "that is −log p of the first token alone: the entropy is over all of them, each weighted by its probability.",
    ),
    surprise_of_the_last_token=Mistake(
        lambda log_probs: -log_probs[..., -1],
        "that is −log p of the last token alone: the entropy is over all of them, each weighted by its probability.",
    ),
    probabilities_added=Mistake(
        lambda log_probs: -log_probs.exp().sum(-1),
        "the logarithm is missing: p adds up to 1, whatever the distribution. Add up p · log p.",
    ),
    perplexity=Mistake(
        lambda log_probs: values.entropy(log_probs).exp(),
        "that is the perplexity, exp of the entropy: return the entropy itself.",
    ),
    gini=Mistake(
        lambda log_probs: 1 - log_probs.exp().square().sum(-1),
        "1 − Σ p² is the Gini impurity: the entropy is −Σ p · log p.",
    ),
    collision_entropy=Mistake(
        lambda log_probs: -log_probs.exp().square().sum(-1).log(),
        "−log Σ p² is the collision entropy, of order 2: the one asked for is −Σ p · log p.",
    ),
    missing_to_the_most=Mistake(
        lambda log_probs: math.log(log_probs.shape[-1]) - values.entropy(log_probs),
        "that is what is missing to the most, log V − H: return H, −Σ p · log p.",
    ),
    powers_of_two_for_probabilities=Mistake(
        lambda log_probs: -(2**log_probs * log_probs).sum(-1),
        "2 to the power log p is not p: the logarithm is the natural one, so p = log_probs.exp().",
    ),
    log_probabilities_divided_by_their_sum=Mistake(
        lambda log_probs: values.entropy((log_probs / log_probs.sum(-1, keepdim=True)).log()),
        "you give log-probabilities where probabilities are meant: Categorical takes them as logits=log_probs.",
    ),
    softmax_of_probabilities=Mistake(
        lambda log_probs: values.entropy(log_probs.exp().log_softmax(-1)),
        "you take the softmax of probabilities: p = log_probs.exp() adds up to 1 already.",
    ),
    weighted_by_the_inverse=Mistake(
        lambda log_probs: -((-log_probs).exp() * log_probs).sum(-1),
        "your weight is 1 / p, exp of −log p: the weight is p itself, log_probs.exp().",
    ),
    logarithm_of_the_sum=Mistake(
        lambda log_probs: 0 * log_probs[..., 0],
        "that is 0 for every distribution, as is the logarithm of Σ p = 1: weight each log p by its own p, then add up.",
    ),
    entropy_as_a_share_of_the_most=Mistake(
        lambda log_probs: values.entropy(log_probs) / math.log(log_probs.shape[-1]),
        "you divide by log V: that is the share of the most that is possible.",
    ),
)

# --- entropy change: log_probs [*n, V], rewards [*n, V] → [*n] ---


def covariance_under_policy(log_probs: Tensor, x: Tensor) -> Tensor:
    """Return Cov_π(log π, x)."""
    p = log_probs.exp()
    return (p * log_probs * x).sum(-1) - (p * log_probs).sum(-1) * (p * x).sum(-1)


def _advantage_under_policy(log_probs: Tensor, rewards: Tensor) -> Tensor:
    return rewards - (log_probs.exp() * rewards).sum(-1, keepdim=True)


def _changed_by(
    advantage: Callable[[Tensor, Tensor], Tensor] = lambda p, R: R - (p * R).sum(-1, keepdim=True),
    x: Callable[[Tensor], Tensor] = lambda log_probs: log_probs,
    centre: Callable[[Tensor], Tensor] | None = None,
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return (log_probs, rewards) → −Σ π (x − centre) π advantage(π, R); centre: None, the mean of x. As it comes it is right."""

    def change(log_probs: Tensor, rewards: Tensor) -> Tensor:
        p, of = log_probs.exp(), x(log_probs)
        middle = (p * of).sum(-1) if centre is None else centre(log_probs)
        return -(p * (of - middle.unsqueeze(-1)) * p * advantage(p, rewards)).sum(-1)

    return change


ENTROPY_CHANGE = family(
    covariance_with_its_sign_lost=Mistake(
        lambda log_probs, rewards: -values.entropy_change(log_probs, rewards),
        "the sign is wrong: dH = −Cov, so entropy falls where likely actions gain more than rare ones.",
    ),
    rewards_in_the_place_of_advantages=Mistake(
        lambda log_probs, rewards: -covariance_under_policy(log_probs, log_probs.exp() * rewards),
        "the baseline is missing: A is the reward minus the policy's mean reward, Σ π R.",
    ),
    baseline_over_actions=Mistake(
        lambda log_probs, rewards: (
            -covariance_under_policy(log_probs, log_probs.exp() * (rewards - rewards.mean(-1, keepdim=True)))
        ),
        "your baseline counts all actions alike: the policy's mean reward weighs each by its probability, Σ π R.",
    ),
    step_without_its_probability=Mistake(
        lambda log_probs, rewards: -covariance_under_policy(log_probs, _advantage_under_policy(log_probs, rewards)),
        "a factor π is missing: one is in the step, π · A, as an action is sampled, and one is the weight in the means. With "
        "one of the two it is Cov(log π, A), the natural gradient's.",
        "arXiv 2505.22617, where both forms stand side by side",
    ),
    covariance_over_actions=Mistake(
        lambda log_probs, rewards: (
            -(
                (log_probs - log_probs.mean(-1, keepdim=True))
                * log_probs.exp()
                * _advantage_under_policy(log_probs, rewards)
            ).mean(-1)
        ),
        "your covariance counts all actions alike: in both means each action has the weight π.",
    ),
    product_of_the_means_left_out=Mistake(
        lambda log_probs, rewards: (
            -(log_probs.exp().square() * log_probs * _advantage_under_policy(log_probs, rewards)).sum(-1)
        ),
        "the product of the means is missing: Cov(x, y) = mean of x y − mean of x · mean of y.",
    ),
    baseline_averaged=Mistake(
        _changed_by(lambda p, R: R - (p * R).mean(-1, keepdim=True)),
        "your baseline averages π R over the actions: the weights π add up to 1 already, so take the sum, Σ π R.",
    ),
    baseline_of_all_distributions=Mistake(
        _changed_by(lambda p, R: R - (p * R).sum()),
        "your baseline adds up all distributions: each has a mean reward of its own, .sum(-1, keepdim=True).",
    ),
    baseline_added_to_rewards=Mistake(
        _changed_by(lambda p, R: R + (p * R).sum(-1, keepdim=True)), "you add the baseline: A is R minus Σ π R."
    ),
    rewards_standardised=Mistake(
        _changed_by(lambda p, R: (R - R.mean(-1, keepdim=True)) / (R.std(-1, keepdim=True) + 1e-6)),
        "you divide by the standard deviation, as GRPO does with a group: here A is R minus Σ π R, and no more.",
    ),
    step_with_two_probabilities=Mistake(
        _changed_by(lambda p, R: p * (R - (p * R).sum(-1, keepdim=True))),
        "a factor π is too many: one is in the step, π · A, and one is the weight in the means.",
    ),
    step_with_the_logarithm=Mistake(
        _changed_by(lambda p, R: p.log() / p * (R - (p * R).sum(-1, keepdim=True))),
        "your step is log π · A: a logit moves by π · A, as its action is sampled.",
    ),
    covariance_of_the_probability=Mistake(
        _changed_by(x=lambda log_probs: log_probs.exp()),
        "you take the covariance of π with the step: it is that of log π.",
    ),
    weighted_products_averaged=Mistake(
        lambda log_probs, rewards: values.entropy_change(log_probs, rewards) / log_probs.shape[-1],
        "you take the mean over the actions where π is the weight already: take the sum.",
    ),
    entropy_taken_off=Mistake(
        _changed_by(centre=values.entropy),
        "the mean of log π is −H: centred, log π is log π + H. Or the product of the means is added: it is taken off.",
    ),
    centred_over_actions=Mistake(
        _changed_by(centre=lambda log_probs: log_probs.mean(-1)),
        "your mean of log π counts all actions alike: each has the weight π, so it is Σ π log π.",
    ),
    change_in_bits=Mistake(
        lambda log_probs, rewards: values.entropy_change(log_probs, rewards) / math.log(2),
        "that is in bits: entropies here are in nats, with the natural logarithm.",
    ),
)


def minus_surprise_of_the_sampled_token(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """In the place of a KL estimator, whose value is subtracted from a token's objective; ref_logp has no part in it."""
    return logp


(SAMPLED_SURPRISE,) = family(
    minus_surprise_of_the_sampled_token=Mistake(
        minus_surprise_of_the_sampled_token,
        "its mean is the entropy, but its gradient is not the entropy's: under the policy that sampled, the mean of ∇log p is 0.",
        "Stable-Baselines3 (ppo.py), where a distribution has no formula for its entropy: github.com/DLR-RM/stable-baselines3",
    ),
)
entropy = Topic(ENTROPY=ENTROPY, ENTROPY_CHANGE=ENTROPY_CHANGE, SAMPLED_SURPRISE=SAMPLED_SURPRISE)
