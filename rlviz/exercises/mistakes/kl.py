"""Wrong variants of KL estimates."""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.exercises.mistakes.mistake import Mistake


def kl_sign_lost(logp: Tensor, ref_logp: Tensor) -> Tensor:
    return ref_logp - logp


def k3_of_the_wrong_ratio(logp: Tensor, ref_logp: Tensor) -> Tensor:
    x = logp - ref_logp
    return torch.expm1(x) - x


def k3_computed_and_k1_used(logp: Tensor, ref_logp: Tensor) -> Tensor:
    x = ref_logp - logp
    _ = torch.expm1(x) - x
    return -x


def sign_of_x_lost_in_the_exponential(logp: Tensor, ref_logp: Tensor) -> Tensor:
    return torch.exp(logp - ref_logp) - (ref_logp - logp) - 1


def sign_of_x_lost_after_the_exponential(logp: Tensor, ref_logp: Tensor) -> Tensor:
    return torch.exp(ref_logp - logp) + (ref_logp - logp) - 1


def exponential_forgotten(logp: Tensor, ref_logp: Tensor) -> Tensor:
    x = ref_logp - logp
    return x - x - 1


def logarithms_divided(logp: Tensor, ref_logp: Tensor) -> Tensor:
    quotient = ref_logp / logp
    return quotient - quotient.log() - 1


def one_not_taken_off(logp: Tensor, ref_logp: Tensor) -> Tensor:
    x = ref_logp - logp
    return torch.exp(x) - x


def k2_for_k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    return (ref_logp - logp).square() / 2


def k3_weighed_by_its_probability(logp: Tensor, ref_logp: Tensor) -> Tensor:
    x = ref_logp - logp
    return logp.exp() * (torch.expm1(x) - x)


K1 = (Mistake(kl_sign_lost, "the sign is lost: k1 is logp − ref_logp, whose mean is the KL, which is not negative."),)
K3 = (
    Mistake(
        k3_of_the_wrong_ratio,
        "your x is upside down: x = ref_logp − logp. The mean of yours over samples is not the KL.",
        "the course hands-on-modern-rl until June 2026: github.com/walkinglabs/hands-on-modern-rl/issues/27",
    ),
    Mistake(
        k3_computed_and_k1_used,
        "that is k1, logp − ref_logp: its mean is the KL, but as a loss it pulls nowhere, for its gradient's mean is 0. k3 is "
        "eˣ − x − 1 with x = ref_logp − logp; if you computed it, return it.",
    ),
    Mistake(
        sign_of_x_lost_in_the_exponential,
        "the sign of x is lost in the exponential: eˣ is exp(ref_logp − logp), reference over policy.",
    ),
    Mistake(
        sign_of_x_lost_after_the_exponential,
        "the sign of x is lost after the exponential: k3 is eˣ − x − 1, and yours adds x.",
    ),
    Mistake(exponential_forgotten, "the exponential is missing, so x − x leaves −1 for every token."),
    Mistake(
        logarithms_divided,
        "you divide log-probabilities: the ratio of the probabilities is the exponential of their difference.",
    ),
    Mistake(one_not_taken_off, "the 1 is not taken off: where policy and reference agree, k3 has to be 0."),
    Mistake(k2_for_k3, "that is k2, x²/2: close to k3 near the reference, but its mean is not the KL."),
    Mistake(
        k3_weighed_by_its_probability,
        "you weigh by the probability: the tokens are sampled, so likely ones come often already, and would count twice.",
    ),
)
