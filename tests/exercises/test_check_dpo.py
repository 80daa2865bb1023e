"""The check of lesson 12: DPO's loss in other words passes, each slip is named, and a reference that moves is no reference."""

import math

import pytest
import torch
from torch.nn import functional as F

from rlviz.algorithms import DPO, DPO_LINEAR
from rlviz.exercises import check, mistakes
from rlviz.exercises.check import Verdict
from tests.exercises.slips import name_in, not_typed, says_of
from tests.pieces.tensors import close, double, slope

# Two pairs, β = ½. Gains ln(π/π_ref) of chosen and rejected: 2 ln 3 and −ln 4; −ln 4 and ln 2 (+ ln 1). Padding would add ln 9.
# Margins ½ ln 36 = ln 6 and −½ ln 8. With odds e^margin a loss −ln σ(margin) is ln(1 + 1/odds).
LOGP = double([[[0.9, 0.9], [0.2, 0.9]], [[0.2, 0.9], [0.6, 0.9]]]).log()
REF_LOGP = double([[[0.3, 0.3], [0.8, 0.1]], [[0.8, 0.1], [0.3, 0.9]]]).log()
MASK = torch.tensor([[[1, 1], [1, 0]], [[1, 0], [1, 1]]]).bool()
BETA = double(0.5)
AT = LOGP, REF_LOGP, MASK, BETA


def of_odds(*odds):
    return sum(math.log(1 + 1 / o) for o in odds) / len(odds)


RIGHT = of_odds(6, 8**-0.5)


def gains(logp, ref_logp, mask):
    return ((logp - ref_logp) * mask).sum(-1)


def in_float32(logp, ref_logp, mask, beta):
    margin = beta.float() * gains(logp.float(), ref_logp.float(), mask).diff().neg()
    return F.softplus(-margin).mean()


def a_pair_at_a_time(logp, ref_logp, mask, beta):
    losses = []
    for new, ref, kept in zip(logp, ref_logp, mask, strict=True):
        chosen, rejected = (beta * (new[i][kept[i]].sum() - ref[i][kept[i]].sum()) for i in (0, 1))
        losses.append(torch.log(1 + torch.exp(rejected - chosen)))
    return sum(losses) / len(losses)


def as_a_classifier(logp, ref_logp, mask, beta):
    gain = gains(logp, ref_logp, mask)
    return F.binary_cross_entropy_with_logits(beta * (gain[:, 0] - gain[:, 1]), torch.ones(len(gain)).double())


def ratios_of_policy_and_reference(logp, ref_logp, mask, beta):
    (chosen, rejected), (ref_chosen, ref_rejected) = ((x * mask).sum(-1).T for x in (logp, ref_logp))
    return -torch.sigmoid(beta * ((chosen - rejected) - (ref_chosen - ref_rejected))).log().mean()


IN_OTHER_WORDS = (in_float32, a_pair_at_a_time, as_a_classifier, ratios_of_policy_and_reference)


@pytest.mark.parametrize("student", IN_OTHER_WORDS, ids=lambda f: f.__name__)
def test_the_loss_in_other_words_passes(student):
    close(student(*AT).double(), RIGHT, rtol=1e-6)
    verdict = check.dpo_loss(student)
    assert verdict.passed, verdict


def loss_of(margin):
    return F.softplus(-margin).mean()


def margin_of(logp, ref_logp, mask):
    chosen, rejected = gains(logp, ref_logp, mask).T
    return chosen - rejected


def reward_of(logp, ref_logp, mask, beta):
    return beta * gains(logp, ref_logp, mask)


# the wrong variant → its value by hand, and how a student would write it
SLIPS = {
    mistakes.preferences.reference_forgotten: (  # ½ (ln .81 − ln .2), ½ (ln .2 − ln .54)
        of_odds(4.05**0.5, (0.2 / 0.54) ** 0.5),
        lambda logp, ref_logp, mask, beta: loss_of(beta * (logp * mask).sum(-1).diff().neg()),
    ),
    mistakes.preferences.beta_forgotten: (of_odds(36, 1 / 8), lambda x, r, m, b: loss_of(margin_of(x, r, m))),
    mistakes.preferences.beta_on_the_chosen_only: (  # ln 3 + ln 4, −ln 2 − ln 2
        of_odds(12, 1 / 4),
        lambda x, r, m, b: loss_of(reward_of(x, r, m, b)[:, 0] - gains(x, r, m)[:, 1]),
    ),
    mistakes.preferences.beta_on_the_policy_only: (
        # (ln .9 − ln .09) − (½ ln .2 − ln .8), (½ ln .2 − ln .8) − (½ ln .54 − ln .27)
        of_odds(8 / 0.2**0.5, 0.2**0.5 / 0.8 * 0.27 / 0.54**0.5),
        lambda x, r, m, b: loss_of(b * margin_of(x, 0, m) - margin_of(r, 0, m)),
    ),
    mistakes.preferences.beta_outside_the_sigmoid: (
        of_odds(36, 1 / 8) / 2,
        lambda x, r, m, b: b * loss_of(margin_of(x, r, m)),
    ),
    mistakes.preferences.divided_by_beta: (of_odds(36**2, 8**-2), lambda x, r, m, b: loss_of(margin_of(x, r, m) / b)),
    mistakes.preferences.means_over_tokens: (  # ½ (ln 3 + ln 4), ½ (−ln 4 − ½ ln 2)
        of_odds(12**0.5, 32**-0.25),
        lambda x, r, m, b: loss_of(b * (gains(x, r, m) / m.sum(-1)).diff().neg()),
    ),
    mistakes.preferences.means_over_the_width: (  # half of each margin
        of_odds(6**0.5, 8**-0.25),
        lambda x, r, m, b: loss_of(b * ((x - r) * m).mean(-1).diff().neg()),
    ),
    mistakes.preferences.padding_in_the_sum: (  # ½ (ln 9 − ln 9/4), ½ (ln 9/4 − ln 2)
        of_odds(2, (9 / 8) ** 0.5),
        lambda x, r, m, b: loss_of(b * (x - r).sum(-1).diff().neg()),
    ),
    mistakes.preferences.margin_turned_round: (  # the reference's minus the policy's
        of_odds(1 / 6, 8**0.5),
        lambda x, r, m, b: loss_of(b * margin_of(r, x, m)),
    ),
    mistakes.preferences.linear_for_the_logarithm: (
        (math.log(8) / 2 - math.log(6)) / 2,
        lambda x, r, m, b: b * margin_of(x, r, m).neg().mean(),
    ),
    mistakes.preferences.logarithm_forgotten: (
        -(6 / 7 + 1 / (1 + 8**0.5)) / 2,
        lambda x, r, m, b: -(b * margin_of(x, r, m)).sigmoid().mean(),
    ),
    mistakes.preferences.a_sigmoid_for_each_response: (  # rewards ln 3, −ln 2; −ln 2, ½ ln 2: σ is ¾, ⅓; ⅓, √2/(1 + √2)
        -(math.log(9 / 4) + math.log((1 + 2**0.5) / 2**0.5 / 3)) / 2,
        lambda x, r, m, b: -F.logsigmoid(reward_of(x, r, m, b)).diff().neg().mean(),
    ),
    mistakes.preferences.sum_over_the_pairs: (2 * RIGHT, lambda x, r, m, b: F.softplus(-b * margin_of(x, r, m)).sum()),
    mistakes.preferences.mean_inside_the_sigmoid: (
        of_odds(6**0.5 * 8**-0.25),
        lambda x, r, m, b: loss_of(b * margin_of(x, r, m).mean()),
    ),
}
EVERY_SLIP = pytest.mark.parametrize("wrong", SLIPS, ids=name_in(mistakes.preferences.DPO_LOSS))


def test_every_known_slip_is_tested():
    assert set(SLIPS) == not_typed(check.dpo_loss, mistakes.preferences.DPO_LOSS)


@EVERY_SLIP
def test_the_wrong_variant_is_what_its_name_says(wrong):
    value, _ = SLIPS[wrong]
    assert abs(value - RIGHT) > 0.01
    close(wrong(*AT), value)


@EVERY_SLIP
def test_the_slip_is_named_however_it_is_written(wrong):
    assert check.dpo_loss(SLIPS[wrong][1]) == Verdict(False, says_of(mistakes.preferences.DPO_LOSS, wrong))


@pytest.mark.parametrize(
    ("student", "words"),
    [
        (lambda x, r, m, b: None, "your function returns None: write your lines, and return their result."),
        (
            lambda x, r, m, b: F.softplus(-b * margin_of(x, r, m)),
            "your result has shape [2]; it has to be []. One number for the whole batch: take the mean.",
        ),
        (
            lambda x, r, m, b: -as_a_classifier(x, r, m, b),
            "the sign is wrong: everything is the negative of what it should be.",
        ),
        (
            lambda x, r, m, b: as_a_classifier(x.detach(), r, m, b),
            "the values are right, but the gradient by logp is not: is something detached, or rounded?",
        ),
        (
            lambda x, r, m, b: as_a_classifier(x, r, m, b).item(),
            "your function returns a float: return a torch tensor.",
        ),
    ],
)
def test_what_is_no_known_slip_is_told_kindly(student, words):
    assert check.dpo_loss(student) == Verdict(False, words)


def test_a_number_that_is_off_stands_beside_its_beta_and_lengths():
    says = check.dpo_loss(lambda x, r, m, b: 3 * as_a_classifier(x, r, m, b)).says
    assert says.startswith("for lengths [[3, 2], [1, 4]], beta 0.1: expected ")


def test_a_reference_that_moves_hides_the_linear_loss_and_one_with_gradient_stops_everything():
    with_gradient, without = (mistake.wrong for mistake in mistakes.preferences.MOVING_REFERENCE)
    chosen, rejected = double([-3.0, -1.0]), double([-2.0, -4.0])

    def loss(algorithm, reference):
        return lambda new: algorithm.loss(new, rejected, reference(new), reference(rejected)).loss

    fixed = double([-5.0, -5.0])
    for reference in (with_gradient, without):
        close(loss(DPO, reference)(chosen), math.log(2))
    # σ(0) = ½ of β = .1, over two pairs
    close(slope(loss(DPO, without), chosen), [-0.025, -0.025])
    close(slope(loss(DPO_LINEAR, lambda new: fixed), chosen), [-0.05, -0.05])
    close(slope(loss(DPO, with_gradient), chosen), [0.0, 0.0])
