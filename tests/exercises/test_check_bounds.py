"""The exercise on DCPO's limits: right answers in any words pass, each mistake is named, on one side too."""

import math

import pytest
import torch

from rlviz.algorithms import DCPO
from rlviz.exercises import check, mistakes
from rlviz.exercises.check import Verdict
from tests.exercises.typed import TYPED
from tests.pieces.tensors import close, double

CAP, NAN = 3.0, math.nan
# q = .64 and .1, eps_low .12, eps_high .2, cap 3. At .64 the numbers under the roots are 1 − .48/.64 = ¼ and 1 + .8/.64 = 9/4,
# at .1 they are 1 − 4.8 = −3.8 and 1 + 8 = 9: limits ½ + ½ · ½ = ¾ and ½ + ½ · 3/2 = 5/4, then ½ and 2
Q, LOW, HIGH = double([0.64, 0.1]), 0.12, 0.2
LOWER, UPPER = [0.75, 0.5], [1.25, 2.0]


def at(under):
    return 0.5 + 0.5 * math.sqrt(under)


BY_HAND = {
    "widths swapped": ([0.5, 0.5], [at(1.75), at(5.8)]),  # 1 − .8/.64 < 0; 1 + .48/.64, 1 + 4.8
    "low width on both sides": (LOWER, [at(1.75), at(5.8)]),
    "high width on both sides": ([0.5, 0.5], UPPER),
    "old probability forgotten": ([at(0.52)] * 2, [at(1.8)] * 2),
    "multiplied by the probability": ([at(1 - 0.48 * 0.64), at(0.952)], [at(1 + 0.8 * 0.64), at(1.08)]),
    "logarithm taken for the probability": (
        [at(1 - 0.48 / math.log(q)) for q in (0.64, 0.1)],
        [NAN, at(1 + 0.8 / math.log(0.1))],  # 1 − .8 / .446 is negative
    ),
    "logarithm and both roots clamped": (
        [at(1 - 0.48 / math.log(q)) for q in (0.64, 0.1)],
        [0.5, at(1 + 0.8 / math.log(0.1))],
    ),
    "four forgotten": ([at(1 - 0.1875), 0.5], [at(1.3125), at(3)]),  # 1 − 1.2 is negative too
    "root of a negative number": ([0.75, NAN], UPPER),
    "clamp and cap forgotten": ([0.75, NAN], UPPER),
    "no lower limit where there is no root": ([0.75, 0.0], UPPER),
    "sign dropped under the root": ([0.75, at(3.8)], UPPER),
    "smaller root": ([0.25, 0.5], UPPER),
    "plus under both roots": ([at(1.75), at(5.8)], UPPER),
    "root forgotten": ([0.625, 0.5], [1.625, CAP]),  # ½ + ⅛, ½; ½ + 9/8, ½ + 9/2
    "half of the root forgotten": ([1.0, 0.5], [2.0, CAP]),
    "half in front forgotten": ([0.25, 0.0], [0.75, 1.5]),
    "both halves forgotten": ([1.5, 1.0], [2.5, CAP]),
    "cap of ten always": (LOWER, UPPER),  # not reached here
    "cap forgotten": (LOWER, UPPER),
    "cap from below": (LOWER, [CAP, CAP]),
    "cap where the probability is one": (LOWER, UPPER),  # 1 / .64 = 1.5625
    "limits of the probability": ([0.48, 0.05], [0.8, 0.2]),
    "widths in their place": ([0.25, 0.5], [0.25, 1.0]),
    "limits swapped": (UPPER, LOWER),
    "fixed limits": ([0.88, 0.88], [1.2, 1.2]),
    "change weighed by the old probability": ([0.8125, 0.0], [1.3125, CAP]),  # 1 − .1875, 1 − 1.2; 1 + .3125, 1 + 2
}


def limits(function, q=Q, cap=CAP):
    return function(q, double(LOW), double(HIGH), double(cap))


def same(got, expected):
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, double(theirs), equal_nan=True)


WHOLE = {
    m.name: m
    for m in mistakes.bounds.DYNAMIC_BOUNDS
    if not m.name.endswith((" lower limit", " upper limit")) and m.name not in TYPED[check.dynamic_bounds]
}


def test_the_mistakes_by_hand():
    assert set(WHOLE) == set(BY_HAND)
    for name, expected in BY_HAND.items():
        same(limits(WHOLE[name].wrong), expected)
    same(limits(check._dynamic_bounds), (LOWER, UPPER))


def test_the_caps_by_hand():
    # q = .001: √801 = 28.30, so ½ + ½ √801 = 14.65; 1 / q = 1000
    rare = double([0.001])
    for name, upper in (
        ("cap forgotten", at(801)),
        ("clamp and cap forgotten", at(801)),
        ("cap of ten always", 10.0),
        ("cap from below", at(801)),
    ):
        close(limits(WHOLE[name].wrong, q=rare)[1], [upper])
    # q = .9, cap 1.1 under the limit 1.1873 but over 1 / .9
    close(limits(WHOLE["cap where the probability is one"].wrong, q=double([0.9]))[1], [1 / 0.9])


def test_a_mistake_in_one_limit_says_which_one_and_keeps_the_other():
    by_name = {mistake.name: mistake for mistake in mistakes.bounds.DYNAMIC_BOUNDS}
    assert len(by_name) == len(mistakes.bounds.DYNAMIC_BOUNDS)
    assert by_name["four forgotten in the lower limit"].says.startswith(
        "the upper limit is right. In the lower one the 4"
    )
    assert by_name["four forgotten in the upper limit"].says.startswith(
        "the lower limit is right. In the upper one the 4"
    )
    low, high = BY_HAND["four forgotten"]
    same(limits(by_name["four forgotten in the lower limit"].wrong), (low, UPPER))
    same(limits(by_name["four forgotten in the upper limit"].wrong), (LOWER, high))


def with_torch(q, eps_low, eps_high, max_ratio):
    lower = 0.5 + 0.5 * torch.sqrt(torch.relu(1 - 4 * eps_low / q))
    return [lower, torch.minimum(0.5 + 0.5 * torch.sqrt(1 + 4 * eps_high / q), max_ratio)]


def by_the_quadratic_formula(q, eps_low, eps_high, max_ratio):
    """q r² − q r ∓ eps = 0, in the words of school."""
    upper = (q + (q * q + 4 * q * eps_high).sqrt()) / (2 * q)
    lower = (q + (q * q - 4 * q * eps_low).clamp(min=0).sqrt()) / (2 * q)
    return lower, torch.where(upper > max_ratio, max_ratio, upper)


def with_a_loop(q, eps_low, eps_high, max_ratio):
    """Halve the interval until |r − 1| r q = eps, from ½ to 1 and from 1 to the cap."""
    rows = []
    for p in q.tolist():
        for change, (near, far) in ((eps_low, (1.0, 0.5)), (eps_high, (1.0, float(max_ratio)))):
            fine, width = near, (far - near) / 2
            for _ in range(60):
                fits = abs(fine + width - 1) * (fine + width) * p <= change
                fine, width = fine + width * bool(fits), width / 2
            rows.append(fine)
    both = double(rows).view(-1, 2)
    return both[:, 0], both[:, 1]


@pytest.mark.parametrize("student", [with_torch, by_the_quadratic_formula, with_a_loop])
def test_a_right_answer_in_other_words_passes(student):
    assert check.dynamic_bounds(student).passed, check.dynamic_bounds(student)
    same(limits(student), (LOWER, UPPER))


def test_float32_and_inputs_that_are_changed_pass():
    assert check.dynamic_bounds(lambda q, *given: with_torch(q.float(), *given)).passed
    assert check.dynamic_bounds(lambda q, *given: with_torch(q.mul_(1), *given)).passed


def test_a_number_stands_for_every_token():
    def without_q(q, eps_low, eps_high, max_ratio):
        one = double(1.0)
        return with_torch(one, eps_low, eps_high, max_ratio)

    assert check.dynamic_bounds(without_q).says.startswith("the old probability is missing")


TWO = "return two tensors, the lower limit and the upper one: return lower, upper."


@pytest.mark.parametrize(
    ("student", "says"),
    [
        (lambda *given: None, "your function returns None: write your lines, and return their result."),
        (lambda q, *given: q, TWO),
        (lambda q, *given: (q, q, q), TWO),
        (lambda q, *given: (0.8, 1.2), TWO),
        (lambda q, *given: torch.stack([q, q]), TWO),
        (lambda *given: 1 / 0, "your function broke off with ZeroDivisionError: division by zero"),
    ],
)
def test_what_cannot_be_compared_is_told_in_a_sentence(student, says):
    assert check.dynamic_bounds(student) == Verdict(False, says)


def test_limits_of_another_length_are_told_in_a_sentence():
    says = check.dynamic_bounds(lambda q, *given: (q, q[:2])).says
    assert says == "your upper limit has shape [2]; it has to be [6], as q."


def test_min_of_python_gets_advice():
    def with_min(q, eps_low, eps_high, max_ratio):
        lower, upper = with_torch(q, eps_low, eps_high, max_ratio)
        return lower, min(upper, max_ratio)

    assert "torch.minimum" in check.dynamic_bounds(with_min).says


def test_an_unknown_mistake_shows_the_first_number_that_differs():
    # q = .9, eps_high .2: ½ + ½ √(1 + .8/.9) = 1.187; eps_low .16: ½ + ½ √(1 − .64/.9) = .7687
    given = "at [0] for q 0.9, eps_low 0.16, eps_high 0.2, max_ratio 10"
    says = check.dynamic_bounds(lambda *given: (with_torch(*given)[0], 2 * with_torch(*given)[1])).says
    assert says == f"upper limit, {given}: expected 1.187, got 2.374."
    says = check.dynamic_bounds(lambda *given: (3 * with_torch(*given)[0], with_torch(*given)[1])).says
    assert says == f"lower limit, {given}: expected 0.7687, got 2.306."


def test_a_root_of_a_negative_number_in_what_is_unknown_is_not_told_to_be_a_division():
    def no_clamp_and_twice_the_upper_limit(q, eps_low, eps_high, max_ratio):
        return 0.5 + 0.5 * (1 - 4 * eps_low / q).sqrt(), 2 * with_torch(q, eps_low, eps_high, max_ratio)[1]

    says = check.dynamic_bounds(no_clamp_and_twice_the_upper_limit).says
    given = "q 0.01, eps_low 0.16, eps_high 0.2, max_ratio 10"
    nan = "nan: no number, as the root of a negative number is none"
    assert says == f"lower limit, at [1] for {given}: expected 0.5, got {nan}."


def test_the_moving_limits_have_a_slope_of_their_own_by_hand():
    # A > 0, above the limit: J = upper(r q) = ½ + ½ √(1 + .8/(r q)); q = .01, r = 8: √11 · ½ + ½ = 2.158 < 8, and
    # dJ/dr = ¼ · (−.8 / (r² q)) / √11 = −.3125 / √11. Under limits of the old probability J = 5 there, and stays 5
    (mistake,) = mistakes.bounds.MOVING_LIMITS
    old_logp, ratio = double([0.01]).log(), double([8.0]).requires_grad_()
    lower, upper = DCPO.bounds(old_logp)
    J = mistake.wrong(ratio, double([1.0]), lower, upper, old_logp)
    close(J.detach(), [at(11)])
    close(torch.autograd.grad(J.sum(), ratio)[0], [-0.3125 / math.sqrt(11)])
    close(DCPO.surrogate(ratio.detach(), double([1.0]), lower, upper), [5.0])
    # A < 0, q = .9, r = .6: the limit at .54 is ½, so J = −r, where the old limit .769 has cut it
    ratio, old_logp = double([0.6]), double([0.9]).log()
    close(mistake.wrong(ratio, double([-1.0]), lower, upper, old_logp), [-0.6])
    close(DCPO.surrogate(ratio, double([-1.0]), *DCPO.bounds(old_logp)), [-at(1 - 0.64 / 0.9)])
