"""The check of lesson 05: k3 in other words passes, each slip is called by its name, and what is no answer is told kindly."""

import math

import pytest
import torch

from rlviz.exercises import check, mistakes
from rlviz.exercises.check import Verdict
from tests.exercises.slips import name_in, not_typed, says_of
from tests.pieces.tensors import close, double

LN2 = math.log(2)
# policy .5 and reference .25, then the other way round: x is −ln 2, then ln 2; eˣ is ½, then 2; logp is −ln 2, then −2 ln 2
LOGP, REF_LOGP = double([0.5, 0.25]).log(), double([0.25, 0.5]).log()


def by_the_ratio(logp, ref_logp):
    ratio = ref_logp.exp() / logp.exp()
    return ratio - ratio.log() - 1


def a_token_at_a_time(logp, ref_logp):
    pairs = zip(logp, ref_logp, strict=True)
    return torch.stack([(ref - new).exp() - (ref - new) - 1 for new, ref in pairs])


@pytest.mark.parametrize("student", [by_the_ratio, a_token_at_a_time], ids=lambda f: f.__name__)
def test_k3_in_other_words_passes(student):
    assert check.kl_estimate_k3(student).passed


# the wrong variant → its two values by hand, and how a student would write it
SLIPS = {
    mistakes.kl.k3_of_the_wrong_ratio: (  # x is ln 2, then −ln 2
        [1 - LN2, LN2 - 0.5],
        lambda ref_logp, logp: (ref_logp - logp).exp() - (ref_logp - logp) - 1,  # the arguments swapped
    ),
    mistakes.kl.k3_computed_and_k1_used: ([LN2, -LN2], lambda logp, ref_logp: logp - ref_logp),
    mistakes.kl.sign_of_x_lost_in_the_exponential: (  # 2 + ln 2 − 1, ½ − ln 2 − 1
        [1 + LN2, -0.5 - LN2],
        lambda logp, ref_logp: logp.exp() / ref_logp.exp() - (ref_logp - logp) - 1,
    ),
    mistakes.kl.sign_of_x_lost_after_the_exponential: (  # ½ − ln 2 − 1, 2 + ln 2 − 1
        [-0.5 - LN2, 1 + LN2],
        lambda logp, ref_logp: torch.exp(ref_logp - logp) - (logp - ref_logp) - 1,
    ),
    mistakes.kl.exponential_forgotten: ([-1, -1], lambda logp, ref_logp: 0 * logp - 1),
    mistakes.kl.logarithms_divided: (  # the quotients are 2 and ½
        [1 - LN2, LN2 - 0.5],
        lambda logp, ref_logp: ref_logp / logp - ref_logp.neg().log() + logp.neg().log() - 1,
    ),
    mistakes.kl.one_not_taken_off: (
        [0.5 + LN2, 2 - LN2],
        lambda logp, ref_logp: (ref_logp - logp).exp() + logp - ref_logp,
    ),
    mistakes.kl.k2_for_k3: ([LN2**2 / 2] * 2, lambda logp, ref_logp: 0.5 * (logp - ref_logp) ** 2),
    mistakes.kl.k3_weighed_by_its_probability: (  # ½ of ln 2 − ½, ¼ of 1 − ln 2
        [(LN2 - 0.5) / 2, (1 - LN2) / 4],
        lambda logp, ref_logp: ref_logp.exp() - logp.exp() * (ref_logp - logp) - logp.exp(),
    ),
}
EVERY_SLIP = pytest.mark.parametrize("wrong", SLIPS, ids=name_in(mistakes.kl.K3))


def test_plain_k1_is_not_taken_for_a_k3_that_was_computed():
    # k1's gradient by logp is 1 for every token, and the mean of ∇logp is 0: in logits p, p (1 − p) − (1 − p) p
    assert check.kl_estimate_k3(lambda logp, ref_logp: logp - ref_logp).says == (
        "that is k1, logp − ref_logp: its mean is the KL, but as a loss it pulls nowhere, for its gradient's mean is 0. k3 is "
        "eˣ − x − 1 with x = ref_logp − logp; if you computed it, return it."
    )
    logits = double([0.3, -1.0]).requires_grad_()
    logp = logits.log_softmax(0)
    (mean_gradient,) = torch.autograd.grad((logp.exp().detach() * (logp - LOGP)).sum(), logits)
    close(mean_gradient, [0, 0])


def test_every_known_slip_is_tested():
    assert set(SLIPS) == not_typed(check.kl_estimate_k3, mistakes.kl.K3)


@EVERY_SLIP
def test_the_wrong_variant_is_what_its_name_says(wrong):
    close(wrong(LOGP, REF_LOGP), SLIPS[wrong][0])


@EVERY_SLIP
def test_the_slip_is_named_however_it_is_written(wrong):
    assert check.kl_estimate_k3(SLIPS[wrong][1]) == Verdict(False, says_of(mistakes.kl.K3, wrong))


def test_the_case_of_the_lost_sign_is_told_in_k1_too():
    assert check.kl_estimate_k1(lambda logp, ref_logp: ref_logp - logp).says == says_of(
        mistakes.kl.K1, mistakes.kl.kl_sign_lost
    )


def k3_of(logp, ref_logp):
    return torch.expm1(ref_logp - logp) - (ref_logp - logp)


@pytest.mark.parametrize(
    ("student", "words"),
    [
        (lambda logp, ref_logp: None, "your function returns None: write your lines, and return their result."),
        (
            lambda logp, ref_logp: k3_of(logp, ref_logp).mean(),
            "your result has shape []; it has to be [3]. One value for each token: do not average or add over them.",
        ),
        (
            lambda logp, ref_logp: k3_of(logp, ref_logp).unsqueeze(0),
            "your result has shape [1, 3]; it has to be [3].",
        ),
        (
            lambda logp, ref_logp: -k3_of(logp, ref_logp),
            "the sign is wrong: everything is the negative of what it should be.",
        ),
        (
            lambda logp, ref_logp: k3_of(logp, ref_logp).detach(),
            "the values are right, but the gradient by logp is not: is something detached, or rounded?",
        ),
        (  # x is −ln 2: ½ + ln 2 − 1 = .1931, three times that .5794
            lambda logp, ref_logp: 3 * k3_of(logp, ref_logp),
            "at [0] for logp -0.693, ref_logp -1.39: expected 0.1931, got 0.5794.",
        ),
    ],
)
def test_what_is_no_known_slip_is_told_kindly(student, words):
    assert check.kl_estimate_k3(student) == Verdict(False, words)
