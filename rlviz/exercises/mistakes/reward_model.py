"""Wrong variants of a reward model's loss, and its reading of a response."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rlviz.exercises.mistakes.mistake import Mistake


def scores_swapped(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -logsigmoid(rejected - chosen).mean()


def logarithm_of_the_sigmoid(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -torch.log(torch.sigmoid(chosen - rejected)).mean()


def sigmoid_without_its_logarithm(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -torch.sigmoid(chosen - rejected).mean()


def chance_of_the_other_order(chosen: Tensor, rejected: Tensor) -> Tensor:
    return torch.sigmoid(rejected - chosen).mean()


def probability_of_the_right_order(chosen: Tensor, rejected: Tensor) -> Tensor:
    return torch.sigmoid(chosen - rejected).mean()


def sigmoid_of_each_score_without_a_logarithm(chosen: Tensor, rejected: Tensor) -> Tensor:
    return (torch.sigmoid(rejected) - torch.sigmoid(chosen)).mean()


def each_score_a_verdict_of_its_own(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -(logsigmoid(chosen) + logsigmoid(-rejected)).mean()


def difference_of_the_scores(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -(chosen - rejected).mean()


def sigmoid_of_each_score(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -(logsigmoid(chosen) - logsigmoid(rejected)).mean()


def losses_added_up(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -logsigmoid(chosen - rejected).sum()


def mean_before_the_sigmoid(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -logsigmoid((chosen - rejected).mean())


def mean_before_the_logarithm(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -torch.log(torch.sigmoid(chosen - rejected).mean())


def every_chosen_against_every_rejected(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -logsigmoid(chosen.unsqueeze(1) - rejected).mean()


REWARD_MODEL_LOSS = (
    Mistake(
        scores_swapped,
        "chosen and rejected are swapped: this teaches the model to score the rejected response higher.",
    ),
    Mistake(
        logarithm_of_the_sigmoid,
        "right for scores that are near each other, but infinite, with no gradient, where the rejected one is far ahead: there "
        "the exponential is too large for a number, and the probability is rounded to 0, before the logarithm is taken. "
        "torch.nn.functional.logsigmoid takes all in one step.",
        "ColossalAI's RLHF application of 2023: github.com/hpcaitech/ColossalAI/issues/3490",
    ),
    Mistake(
        sigmoid_without_its_logarithm,
        "the logarithm is missing: −σ hardly pulls at a pair that is far out of order, where −log σ pulls most.",
    ),
    Mistake(
        chance_of_the_other_order,
        "that is the probability of the other order, 1 − σ: take −log σ, which pulls most at a pair that is far out of order.",
    ),
    Mistake(
        probability_of_the_right_order,
        "that is the probability that the chosen one wins, and a loss is made small: take −log of it.",
    ),
    Mistake(
        sigmoid_of_each_score_without_a_logarithm,
        "you take σ of each score by itself, and no logarithm: the loss is −log σ of their difference.",
    ),
    Mistake(
        each_score_a_verdict_of_its_own,
        "you grade each response by itself, the chosen one as right and the rejected one as wrong: a preference only tells of "
        "the difference of their scores, and that goes into the sigmoid.",
    ),
    Mistake(
        difference_of_the_scores,
        "the sigmoid and its logarithm are missing: nothing lets go of a pair that is in order, and the scores grow for ever.",
    ),
    Mistake(
        sigmoid_of_each_score,
        "you take log σ of each score by itself: a preference only tells of their difference, so that goes into the sigmoid.",
    ),
    Mistake(losses_added_up, "you add up the pairs' losses: take their mean, or a larger batch means larger steps."),
    Mistake(
        mean_before_the_sigmoid,
        "you average the differences and then take log σ: each pair has a loss of its own, so take the mean last.",
    ),
    Mistake(
        mean_before_the_logarithm,
        "you average the probabilities and then take the logarithm: each pair has a loss of its own, so take the mean last.",
    ),
    Mistake(
        every_chosen_against_every_rejected,
        "each chosen response is compared with every rejected one, also of other prompts: [N, 1] minus [N] is [N, N].",
    ),
)


def mean_over_all_places(scores: Tensor, mask: Tensor) -> Tensor:
    """In the place of a reward model's reading of a response: scores, mask [*n, T] → [*n]."""
    return scores[..., :-1].mean(-1)


READING = Mistake(
    mean_over_all_places,
    "padding is in the mean, so a response's score depends on the longest one beside it in the batch.",
    "ColossalAI's RLHF application of 2023: github.com/hpcaitech/ColossalAI/issues/3950",
)
