"""Wrong variants of DPO's loss, and its reference."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rlviz.exercises.mistakes.mistake import Mistake


def _gains(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return by how much the log-probability of each chosen and each rejected response is above the reference's, [N]."""
    chosen, rejected = (logp - ref_logp).masked_fill(~mask, 0.0).sum(-1).unbind(-1)
    return chosen, rejected


def reference_forgotten(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, torch.zeros_like(ref_logp), mask)
    return -logsigmoid(beta * (chosen - rejected)).mean()


def beta_forgotten(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -logsigmoid(chosen - rejected).mean()


def beta_on_the_chosen_only(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -logsigmoid(beta * chosen - rejected).mean()


def beta_on_the_policy_only(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(beta * logp, ref_logp, mask)
    return -logsigmoid(chosen - rejected).mean()


def beta_outside_the_sigmoid(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    return beta * beta_forgotten(logp, ref_logp, mask, beta)


def divided_by_beta(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -logsigmoid((chosen - rejected) / beta).mean()


def means_over_tokens(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    length = mask.sum(-1, keepdim=True)
    chosen, rejected = _gains(logp / length, ref_logp / length, mask)
    return -logsigmoid(beta * (chosen - rejected)).mean()


def means_over_the_width(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -logsigmoid(beta * (chosen - rejected) / mask.shape[-1]).mean()


def padding_in_the_sum(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, torch.ones_like(mask))
    return -logsigmoid(beta * (chosen - rejected)).mean()


def margin_turned_round(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -logsigmoid(beta * (rejected - chosen)).mean()


def linear_for_the_logarithm(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -(beta * (chosen - rejected)).mean()


def logarithm_forgotten(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -torch.sigmoid(beta * (chosen - rejected)).mean()


def a_sigmoid_for_each_response(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -(logsigmoid(beta * chosen) - logsigmoid(beta * rejected)).mean()


def sum_over_the_pairs(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -logsigmoid(beta * (chosen - rejected)).sum()


def mean_inside_the_sigmoid(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -logsigmoid(beta * (chosen - rejected).mean())


DPO_LOSS = (
    Mistake(
        reference_forgotten,
        "the reference is missing: what counts is how much likelier than under the reference, logp − ref_logp.",
        "Liger-Kernel's first DPO loss, which was CPO in effect: github.com/linkedin/Liger-Kernel/pull/387",
    ),
    Mistake(beta_forgotten, "beta is missing: it turns the margin, in nats, into a difference of rewards."),
    Mistake(beta_on_the_chosen_only, "beta stands at the chosen response only: it multiplies the whole margin."),
    Mistake(
        beta_on_the_policy_only, "beta stands at the policy's log-probabilities only: the reference's need it as well."
    ),
    Mistake(
        beta_outside_the_sigmoid,
        "beta stands outside of log σ, where it only scales the loss: inside, it says at which margin the pull fades.",
    ),
    Mistake(divided_by_beta, "you divide by beta: the implicit reward is beta times the log-ratio."),
    Mistake(
        means_over_tokens,
        "you take means over tokens: the log-probability of a response is the sum over its tokens.",
        "SimPO (arXiv 2405.14734), on purpose",
    ),
    Mistake(
        means_over_the_width,
        "you take means over places, padding included: the log-probability of a response is the sum over its tokens.",
    ),
    Mistake(padding_in_the_sum, "padding leaks into the sum: add up where the mask is true, and nowhere else."),
    Mistake(
        margin_turned_round,
        "the margin is turned round, and the loss teaches the rejected responses: it is policy minus reference, chosen minus "
        "rejected.",
    ),
    Mistake(
        linear_for_the_logarithm,
        "that is the linear loss, −margin: the log σ is missing, and nothing lets go of a pair that is in order.",
    ),
    Mistake(
        logarithm_forgotten,
        "the logarithm is missing: −σ(margin) hardly pulls at a pair that is far out of order, where −log σ pulls most.",
    ),
    Mistake(
        a_sigmoid_for_each_response,
        "you take log σ of each reward by itself: it belongs around their difference, for only that is in the preference.",
    ),
    Mistake(sum_over_the_pairs, "you add up the pairs' losses: take their mean, or a larger batch means larger steps."),
    Mistake(
        mean_inside_the_sigmoid,
        "you average the margins and then take log σ of the mean: each pair has a loss of its own, so take the mean last.",
    ),
)


def the_policy_itself(logp: Tensor) -> Tensor:
    """In the place of the reference's log-probabilities."""
    return logp


def the_policy_itself_without_gradient(logp: Tensor) -> Tensor:
    """In the place of the reference's log-probabilities."""
    return logp.detach()


MOVING_REFERENCE = (
    Mistake(
        the_policy_itself,
        "policy and reference are one object, so they cancel: every gradient is 0, and nothing is learnt.",
        "TRL's DPOTrainer refuses it: `model` and `ref_model` cannot be the same object",
    ),
    Mistake(
        the_policy_itself_without_gradient,
        "the reference moves along with the policy: every margin stays 0 and every pull ½, which is the linear loss.",
    ),
)
