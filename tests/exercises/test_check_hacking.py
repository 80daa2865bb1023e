"""The check of lesson 13: the loss of a reward model in other words passes, each slip is named, and so is one on padding."""

import math

import pytest
import torch
from torch.nn import functional as F

from rlviz.exercises import check, mistakes
from rlviz.exercises.check import Verdict
from tests.exercises.slips import name_in, not_typed, says_of
from tests.pieces.tensors import close, double

# differences ln 3, −ln 2, ln 4, so the chosen one wins with probability ¾, ⅓, ⅘
CHOSEN, REJECTED = double([3, 1, 2]).log(), double([1, 2, 0.5]).log()
RIGHT = math.log(4 / 3 * 3 * 5 / 4) / 3


def as_a_classifier(chosen, rejected):
    return F.binary_cross_entropy_with_logits(chosen - rejected, torch.ones_like(chosen))


def as_two_classes(chosen, rejected):
    return F.cross_entropy(torch.stack([chosen, rejected], 1), torch.zeros(len(chosen)).long())


def a_pair_at_a_time(chosen, rejected):
    return -sum(F.logsigmoid(c - r) for c, r in zip(chosen, rejected, strict=True)) / len(chosen)


def smooth_maximum(chosen, rejected):
    return torch.logaddexp(torch.zeros_like(chosen), rejected - chosen).mean()


def in_float32(chosen, rejected):
    return F.softplus(rejected.float() - chosen.float()).mean()


@pytest.mark.parametrize(
    "student", [as_a_classifier, as_two_classes, a_pair_at_a_time, smooth_maximum, in_float32], ids=lambda f: f.__name__
)
def test_the_loss_in_other_words_passes(student):
    close(student(CHOSEN, REJECTED).double(), RIGHT, rtol=1e-6)
    verdict = check.reward_model_loss(student)
    assert verdict.passed, verdict
    assert "900 points out of order" in verdict.says


# the wrong variant → its value by hand, and how a student would write it
SLIPS = {
    mistakes.reward_model.scores_swapped: (
        math.log(4 * 3 / 2 * 5) / 3,
        lambda rejected, chosen: as_a_classifier(chosen, rejected),
    ),
    mistakes.reward_model.sigmoid_without_its_logarithm: (
        -(3 / 4 + 1 / 3 + 4 / 5) / 3,
        lambda chosen, rejected: -(1 / (1 + torch.exp(rejected - chosen))).mean(),
    ),
    mistakes.reward_model.chance_of_the_other_order: (
        (1 / 4 + 2 / 3 + 1 / 5) / 3,
        lambda chosen, rejected: (1 - torch.sigmoid(chosen - rejected)).mean(),
    ),
    mistakes.reward_model.probability_of_the_right_order: (
        (3 / 4 + 1 / 3 + 4 / 5) / 3,
        lambda chosen, rejected: (1 / (1 + torch.exp(rejected - chosen))).mean(),
    ),
    mistakes.reward_model.sigmoid_of_each_score_without_a_logarithm: (  # σ of the chosen ¾, ½, ⅔, of the rejected ½, ⅔, ⅓
        (-1 / 4 + 1 / 6 - 1 / 3) / 3,
        lambda chosen, rejected: -(chosen.sigmoid() - rejected.sigmoid()).mean(),
    ),
    mistakes.reward_model.each_score_a_verdict_of_its_own: (  # and 1 − σ of the rejected ½, ⅓, ⅔
        -math.log((3 / 4 * 1 / 2 * 2 / 3) * (1 / 2 * 1 / 3 * 2 / 3)) / 3,
        lambda chosen, rejected: F.softplus(-chosen).mean() + F.softplus(rejected).mean(),
    ),
    mistakes.reward_model.difference_of_the_scores: (
        -math.log(3 / 2 * 4) / 3,
        lambda chosen, rejected: (rejected - chosen).mean(),
    ),
    mistakes.reward_model.sigmoid_of_each_score: (  # σ of the chosen ¾, ½, ⅔, of the rejected ½, ⅔, ⅓
        -math.log((3 / 4 * 1 / 2 * 2 / 3) / (1 / 2 * 2 / 3 * 1 / 3)) / 3,
        lambda chosen, rejected: F.softplus(-chosen).mean() - F.softplus(-rejected).mean(),
    ),
    mistakes.reward_model.losses_added_up: (3 * RIGHT, lambda chosen, rejected: F.softplus(rejected - chosen).sum()),
    mistakes.reward_model.mean_before_the_sigmoid: (
        math.log(1 + 6 ** (-1 / 3)),
        lambda chosen, rejected: F.softplus(rejected.mean() - chosen.mean()),
    ),
    mistakes.reward_model.mean_before_the_logarithm: (
        -math.log((3 / 4 + 1 / 3 + 4 / 5) / 3),
        lambda chosen, rejected: -(1 / (1 + torch.exp(rejected - chosen))).mean().log(),
    ),
    mistakes.reward_model.every_chosen_against_every_rejected: (  # odds 3, 3/2, 6; 1, ½, 2; 2, 1, 4
        math.log(4 / 3 * 5 / 3 * 7 / 6 * 2 * 3 * 3 / 2 * 3 / 2 * 2 * 5 / 4) / 9,
        lambda chosen, rejected: F.softplus(rejected - chosen[:, None]).mean(),
    ),
    mistakes.reward_model.logarithm_of_the_sigmoid: (
        RIGHT,
        lambda chosen, rejected: -(chosen - rejected).sigmoid().log().mean(),
    ),
}
EVERY_SLIP = pytest.mark.parametrize("wrong", SLIPS, ids=name_in(mistakes.reward_model.REWARD_MODEL_LOSS))


def test_every_known_slip_is_tested():
    assert set(SLIPS) == not_typed(check.reward_model_loss, mistakes.reward_model.REWARD_MODEL_LOSS)


@EVERY_SLIP
def test_the_wrong_variant_is_what_its_name_says(wrong):
    value, _ = SLIPS[wrong]
    close(wrong(CHOSEN, REJECTED), value)
    assert wrong is mistakes.reward_model.logarithm_of_the_sigmoid or abs(value - RIGHT) > 0.01


@EVERY_SLIP
def test_the_slip_is_named_however_it_is_written(wrong):
    assert check.reward_model_loss(SLIPS[wrong][1]) == Verdict(
        False, says_of(mistakes.reward_model.REWARD_MODEL_LOSS, wrong)
    )


def test_the_logarithm_of_a_probability_that_is_rounded_to_0_is_infinite():
    far = double([0.0]), double([900.0])
    assert mistakes.reward_model.logarithm_of_the_sigmoid(*far) == math.inf
    close(smooth_maximum(*far), 900.0)


@pytest.mark.parametrize("log_one_plus", [torch.log1p, lambda x: torch.log(1 + x)], ids=["log1p", "log of 1 +"])
def test_an_exponential_that_is_too_large_is_named(log_one_plus):  # exp(900) is infinite
    verdict = check.reward_model_loss(lambda chosen, rejected: log_one_plus(torch.exp(rejected - chosen)).mean())
    assert verdict == Verdict(
        False, says_of(mistakes.reward_model.REWARD_MODEL_LOSS, mistakes.reward_model.logarithm_of_the_sigmoid)
    )
    assert "exponential is too large" in verdict.says


@pytest.mark.parametrize(
    ("student", "words"),
    [
        (lambda c, r: None, "your function returns None: write your lines, and return their result."),
        (
            lambda c, r: F.softplus(r - c),
            "your result has shape [4]; it has to be []. One number for the whole batch: take the mean.",
        ),
        (
            lambda c, r: -as_a_classifier(c, r),
            "the sign is wrong: everything is the negative of what it should be.",
        ),
        (
            lambda c, r: as_a_classifier(c.detach(), r),
            "the values are right, but the gradient by chosen is not: is something detached, or rounded?",
        ),
        (
            lambda c, r: -F.logsigmoid(c - r.detach()).mean(),
            "the values are right, but the gradient by rejected is not: is something detached, or rounded?",
        ),
        (lambda c, r: as_a_classifier(c, r).item(), "your function returns a float: return a torch tensor."),
        (  # differences 1, −.9, 2, −.5: (.3133 + 1.2412 + .1269 + .9741) / 4
            lambda c, r: as_a_classifier(c, r) - 1,
            "for chosen [1.2, -0.3, 0.5, 2], rejected [0.2, 0.6, -1.5, 2.5]: expected 0.6639, got -0.3361.",
        ),
        (  # torch cuts its logarithm at −100, so the second pair adds 0 and the first 100
            lambda c, r: F.binary_cross_entropy(torch.sigmoid(c - r), torch.ones_like(c)),
            "right for scores that are near each other, but for chosen [0, 900], rejected [900, 0]: expected 450, got 50. "
            "torch.nn.functional.logsigmoid stays exact.",
        ),
    ],
)
def test_what_is_no_known_slip_is_told_kindly(student, words):
    assert check.reward_model_loss(student) == Verdict(False, words)


def test_a_mean_over_all_places_changes_with_the_padding():
    # two tokens of 1 and 3: the reading leaves out the last place, so 1 alone, and (1 + 3 + 5) / 3 with two of padding, 5
    scores, mask = double([[1, 3]]), torch.tensor([[True, True]])
    close(mistakes.reward_model.mean_over_all_places(scores, mask), [1])
    padded, longer = double([[1, 3, 5, 5]]), torch.tensor([[True, True, False, False]])
    close(mistakes.reward_model.mean_over_all_places(padded, longer), [3])


@pytest.mark.parametrize("by", ["chosen", "rejected"])
def test_a_loss_that_pulls_at_one_score_only_is_told(by):
    def one_sided(chosen, rejected):
        both = {"chosen": chosen, "rejected": rejected}
        both[by] = both[by].detach()
        return -F.logsigmoid(both["chosen"] - both["rejected"]).mean()

    verdict = check.reward_model_loss(one_sided)
    assert not verdict.passed
    assert f"the gradient by {by} is not" in verdict.says
