"""What nobody foresaw gets a sentence that helps all the same: the first number that differs, a shape, a gradient, advice."""

import math
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from rlviz.lessons import check
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.surrogate import pessimistic
from rlviz.pieces.values import entropy
from tests.lessons.answers import ANSWERS
from tests.pieces.tensors import double

LIMITS, PAIR = (ANSWERS[name][0] for name in ("dynamic_bounds", "reward_model_loss"))


def doubled_above(ratio, A, lower, upper):
    right = pessimistic(ratio, A, lower, upper)
    return torch.where((ratio == 1.1) & (A < 0), 2 * right, right)


def without_root(q, eps_low, eps_high, max_ratio):
    return 0.5 + 0.5 * (1 - 4 * eps_low / q).sqrt(), 2 * LIMITS(q, eps_low, eps_high, max_ratio)[1]


WIDTHS = "q [0.9, 0.01, 0.64, 0.3, 1, 0.002], eps_low 0.16, eps_high 0.2, max_ratio 10"
# (8 − 3) / std of 0 1 8, whose mean is 3 and variance (9 + 4 + 25) / 2 = 19; with the 9 its mean is 10/3, its variance 73/3
NINE = f"at [2, 0] for rewards 0: expected {-10 / 3 / math.sqrt(73 / 3):.4g}, got {-3 / math.sqrt(19):.4g}."
SIGN, BROKE = "the sign is wrong: everything is the negative of what it should be.", "your function broke off"
UNKNOWN = {  # check → students' functions, and what is said
    check.pessimistic: [
        # 1.1 · −2 = −2.2, the seventh of the case's tokens
        (doubled_above, "at [6] for ratio 1.1, A -2, lower 0.8, upper 1.2: expected -2.2, got -4.4."),
        (lambda x, *_: x.mean(), "your result has shape []; it has to be [10]. One value for each token: do not average"),
        (lambda *inputs: -pessimistic(*inputs), SIGN),
        (lambda r, *inputs: pessimistic(r.detach(), *inputs), "the values are right, but the gradient by ratio is not"),
        (lambda r, A, low, high: r.clamp_(low, high) * A, f"{BROKE} (RuntimeError): you change a tensor in place whose"),
        (lambda r, A, *_: r * A if r > 1 else A, f"{BROKE} (RuntimeError): a comparison of whole tensors has no single"),
        (lambda r, A, low, high: r * A * float(low), f"{BROKE} (ValueError): float(), int() and .item() take one"),
    ],
    check.group_advantage: [
        (lambda rewards: GroupAdvantage()(rewards.clamp(max=8)), NINE),
        # 3/4 over ½ + 1e-6 is 1.499997, over ½ + 2e-5 it is 1.49994
        (GroupAdvantage(eps=2e-5), "at [0, 0] for rewards 1: expected 1.5, got 1.4999."),
        (lambda rewards: rewards * math.nan, "at [0, 0] for rewards 1: expected 1.5, got nan: no number"),
        (lambda rewards: rewards.mean(1, keepdim=True), "your result has shape [2, 1]; it has to be [2, 4]. Is a sum or"),
        (lambda rewards: rewards - rewards.mean(1), f"{BROKE} (RuntimeError): two shapes do not fit"),
        (GroupAdvantage()(double([[1, 0]])), "give the check your function itself, its name without brackets"),
        (lambda *inputs: None, "your function returns None: write your lines, and return their result."),
        (lambda *inputs: 0.5, "your function returns a float: return a torch tensor."),
    ],
    check.gae_advantages: [
        (  # the response of one token: 2 − 1.5
            lambda *inputs: torch.where(inputs[0] == 2, 7.0, ANSWERS["gae_advantages"][0](*inputs)),
            "at [0, 2, 0] for lengths [[4, 2, 1]], rewards 2, values 1.5, mask 1, gamma 0.9, lam 0.5: expected 0.5, got 7.",
        ),
    ],
    check.reinforce_step: [
        (  # action 0 earned 0 and −½: with the others' means A is −.3125 and −.9375, and all A add up to 0
            lambda logits, *_: logits,
            "at [0] for logits 0.2, actions [2, 0, 2, 3, 0], R [1, 0, 0.5, 0.25, -0.5], lr 0.5: expected 0.075, got 0.2.",
        ),
    ],
    check.dynamic_bounds: [
        # ½ + ½ √(1 + .8/.9) = 1.187
        (lambda *x: (LIMITS(*x)[0], 2 * LIMITS(*x)[1]), f"at [1, 0] for {WIDTHS}: expected 1.187, got 2.374."),
        (without_root, f"at [0, 1] for {WIDTHS}: expected 0.5, got nan: no number, as from"),
        (lambda q, *_: torch.stack([q, q]), "return two tensors, the lower limit and the upper one: return lower, upper."),
        (lambda q, *inputs: (q, q[:2]), "your upper limit has shape [2]; it has to be [6], as q."),
        (lambda q, *inputs: LIMITS(double(1.0), *inputs), "the old probability is missing"),  # a number is every token's
    ],
    check.reward_model_loss: [
        (lambda c, r: 3 * PAIR(c, r), "for chosen [1.2, -0.3, 0.5, 2], rejected [0.2, 0.6, -1.5, 2.5]"),
        (
            lambda c, r: -(c - r).sigmoid().clamp(min=1e-9).log().mean(),
            "for chosen [0, 900], rejected [900, 0]: expected 450, got ",
        ),
        (lambda c, r: F.softplus(r - c), "your result has shape [4]; it has to be []. One number for the whole batch"),
    ],
    check.entropy: [
        (lambda x: entropy(x).numpy(), f"{BROKE} (RuntimeError): stay in torch: numpy breaks the chain"),
        (  # ln 4
            lambda x: torch.where(x[..., 0] == x[..., 1], 0, entropy(x)),
            "at [0, 1] for logits [0.5, 0.5, 0.5, 0.5]: expected 1.386, got 0.",
        ),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("checks", "student", "says"), [(one, *row) for one, rows in UNKNOWN.items() for row in rows])
def test_what_nobody_foresaw_is_told_in_a_sentence(checks, student, says):
    verdict = checks(student)
    assert not verdict.passed and verdict.says.startswith(says), verdict


@pytest.mark.parametrize("weigh", [torch.Tensor.clone, torch.Tensor.detach])
def test_a_known_slip_is_named_with_its_gradient_and_without_which_is_told(weigh):
    verdict = check.entropy(lambda x: -(weigh(x.exp()) * x.exp().log2()).sum(-1))
    assert (verdict.passed, verdict.mistake) == (False, "entropy in bits")
    words = "And its gradient is not even that of these values" in verdict.says
    assert words is (weigh is torch.Tensor.detach)


def test_an_exponential_that_is_too_large_is_named():  # exp(900) is infinite
    verdict = check.reward_model_loss(lambda chosen, rejected: torch.log1p(torch.exp(rejected - chosen)).mean())
    assert verdict.mistake == "logarithm of the sigmoid" and "exponential is too large" in verdict.says


def test_an_input_that_is_overwritten_is_told():
    def overwrites(rewards):
        rewards -= rewards.mean(1, keepdim=True)
        return rewards / (rewards.std(1, keepdim=True) + 1e-6)

    verdict = check.group_advantage(overwrites)
    words = " But it overwrites its input rewards, which the caller still needs: work on a copy, rewards.clone()."
    assert verdict.passed and verdict.says.endswith(words)
    assert "overwrites" not in check.group_advantage(lambda rewards: overwrites(rewards.clone())).says


def test_the_library_s_own_does_not_pass():
    for student in (pessimistic, partial(pessimistic)):
        assert "pessimistic is the library's own" in check.pessimistic(student).says


def test_a_verdict_in_a_notebook_escapes_what_it_says():
    def breaks(rewards):
        raise ValueError("<script>a & b</script>")

    html = check.group_advantage(breaks)._repr_html_()
    assert "&lt;script&gt;a &amp; b&lt;/script&gt;" in html and "<script>" not in html
    assert "<b>Not yet:</b>" in html
    assert "<b>Right:</b>" in check.group_advantage(ANSWERS["group_advantage"][0])._repr_html_()
