"""Wrong variants of the entropy."""

from __future__ import annotations

import math

from torch import Tensor

from rlviz.exercises.mistakes.mistake import Mistake


def surprise_of_the_likeliest_token(log_probs: Tensor) -> Tensor:
    return -log_probs.max(-1).values


def surprises_added_unweighted(log_probs: Tensor) -> Tensor:
    return -log_probs.sum(-1)


def surprises_averaged_unweighted(log_probs: Tensor) -> Tensor:
    return -log_probs.mean(-1)


def weighted_surprises_averaged(log_probs: Tensor) -> Tensor:
    return -(log_probs.exp() * log_probs).mean(-1)


def weighted_by_the_logarithm(log_probs: Tensor) -> Tensor:
    return -(log_probs * log_probs).sum(-1)


def log_probabilities_taken_for_probabilities(log_probs: Tensor) -> Tensor:
    return -(log_probs * log_probs.log()).sum(-1)


def entropy_in_bits(log_probs: Tensor) -> Tensor:
    return -(log_probs.exp() * log_probs).sum(-1) / math.log(2)


def entropy_as_a_share_of_the_most(log_probs: Tensor) -> Tensor:
    return -(log_probs.exp() * log_probs).sum(-1) / math.log(log_probs.shape[-1])


ENTROPY = (
    Mistake(
        surprise_of_the_likeliest_token,
        "that is −log p of one token, the likeliest: the entropy is over all of them, each weighted by its probability.",
    ),
    Mistake(
        surprises_added_unweighted,
        "the weights are missing: each −log p counts as often as its token is drawn, so multiply by p = log_probs.exp().",
    ),
    Mistake(
        surprises_averaged_unweighted,
        "you average −log p as if all tokens were equally likely: weight each by its own probability, and add up.",
    ),
    Mistake(
        weighted_surprises_averaged,
        "you take the mean over the vocabulary: the weights p add up to 1 already, so take the sum.",
    ),
    Mistake(weighted_by_the_logarithm, "you weight by log p: the weight is p itself, log_probs.exp()."),
    Mistake(
        log_probabilities_taken_for_probabilities,
        "you take the logarithm of a logarithm: the input holds log p already.",
    ),
    Mistake(entropy_in_bits, "that is in bits: entropies here are in nats, with the natural logarithm."),
    Mistake(entropy_as_a_share_of_the_most, "you divide by log V: that is the share of the most that is possible."),
)


def minus_surprise_of_the_sampled_token(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """In the place of a KL estimator, whose value is subtracted from a token's objective; ref_logp has no part in it."""
    return logp


SAMPLED_SURPRISE = Mistake(
    minus_surprise_of_the_sampled_token,
    "its mean is the entropy, but its gradient is not the entropy's: under the policy that sampled, the mean of ∇log p is 0.",
    "Stable-Baselines3 (ppo.py), where a distribution has no formula for its entropy: github.com/DLR-RM/stable-baselines3",
)
