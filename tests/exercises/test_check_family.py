"""The check of lesson 15, CISPO's surrogate: right in other words, each slip by its name; values and slopes by hand."""

import math

import pytest
import torch

from rlviz.exercises import check, mistakes
from rlviz.exercises.check import Verdict
from tests.exercises.slips import name_in, not_typed, says_of
from tests.pieces.tensors import close, double, slope

ZOO, LOG = mistakes.clipping, math.log
# A good token that has gone too far, one within the limits, a bad one that has fallen too far. The weights are 1.2, 1.1 and .8.
RATIO, A = double([1.5, 1.1, 0.5]), double([2.0, 2.0, -3.0])
LOWER, UPPER = torch.full_like(RATIO, 0.8), torch.full_like(RATIO, 1.2)
INPUTS = RATIO, A, LOWER, UPPER
VALUE = [1.2 * 2 * LOG(1.5), 1.1 * 2 * LOG(1.1), 0.8 * -3 * LOG(0.5)]
SLOPE = [1.2 * 2 / 1.5, 2.0, 0.8 * -3 / 0.5]  # weight · A / r

RIGHT_ANSWERS = {
    "torch.clamp": lambda r, A, low, high: torch.clamp(r, low, high).detach() * A * r.log(),
    "minimum and maximum": lambda r, A, low, high: (
        torch.maximum(torch.minimum(r, high), low).detach() * A * torch.log(r)
    ),
    "frozen first": lambda r, A, low, high: r.detach().clamp(low, high) * r.log() * A,
    "cases": lambda r, A, low, high: torch.where(r < low, low, torch.where(r > high, high, r)).detach() * (A * r.log()),
}

# the wrong variant → value and slope by hand, and how a student would write it
SLIPS = {
    ZOO.cispo_with_its_ratio_inverted: (
        [0.8 * 2 * LOG(1.5), 2 * LOG(1.1) / 1.1, 1.2 * -3 * LOG(0.5)],
        [0.8 * 2 / 1.5, 2 / 1.1**2, 1.2 * -3 / 0.5],
        lambda r, A, low, high: r.pow(-1).clamp(low, high).detach() * A * r.log(),
    ),
    ZOO.cispo_with_a_weight_that_moves: (
        VALUE,
        [SLOPE[0], 2 * LOG(1.1) + 2, SLOPE[2]],  # beyond the limits the clamp freezes it anyway
        lambda r, A, low, high: r.clamp(low, high) * A * r.log(),
    ),
    ZOO.cispo_all_frozen: (
        VALUE,
        [0, 0, 0],
        lambda r, A, low, high: r.clamp(low, high).detach() * A * r.detach().log(),
    ),
    ZOO.cispo_with_its_log_frozen: (
        VALUE,
        [0, 2 * LOG(1.1), 0],
        lambda r, A, low, high: r.clamp(low, high) * A * r.log().detach(),
    ),
    ZOO.cispo_with_the_ratio_for_its_log: (
        [1.2 * 2 * 1.5, 1.1 * 2 * 1.1, 0.8 * -3 * 0.5],
        [2.4, 2.2, -2.4],
        lambda r, A, low, high: r.clamp(low, high).detach() * (A * r),
    ),
    ZOO.cispo_with_the_log_of_the_clipped: (
        [1.2 * 2 * LOG(1.2), VALUE[1], 0.8 * -3 * LOG(0.8)],
        [0, 2, 0],
        lambda r, A, low, high: r.clamp(low, high).detach() * A * r.clamp(low, high).log(),
    ),
    ZOO.cispo_without_the_clip: (
        [1.5 * 2 * LOG(1.5), VALUE[1], 0.5 * -3 * LOG(0.5)],
        [2, 2, -3],
        lambda r, A, low, high: A * r.log() * r.detach(),
    ),
    ZOO.cispo_without_the_weight: (
        [2 * LOG(1.5), 2 * LOG(1.1), -3 * LOG(0.5)],
        [2 / 1.5, 2 / 1.1, -6],
        lambda r, A, low, high: r.log() * A,
    ),
    ZOO.cispo_without_the_advantages: (
        [1.2 * LOG(1.5), 1.1 * LOG(1.1), 0.8 * LOG(0.5)],
        [0.8, 1, 1.6],
        lambda r, A, low, high: r.log() * r.clamp(low, high).detach(),
    ),
    ZOO.cispo_without_the_log: ([2.4, 2.2, -2.4], [0, 0, 0], lambda r, A, low, high: A * r.clamp(low, high).detach()),
    ZOO.cispo_clipped_from_above_only: (
        [*VALUE[:2], 0.5 * -3 * LOG(0.5)],
        [*SLOPE[:2], -3],
        lambda r, A, low, high: r.clamp(max=high).detach() * A * r.log(),
    ),
    ZOO.cispo_with_limits_for_widths: (  # limits .2 and 2.2: nothing is clipped
        [1.5 * 2 * LOG(1.5), VALUE[1], 0.5 * -3 * LOG(0.5)],
        [2, 2, -3],
        lambda r, A, low, high: r.clamp(1 - low, 1 + high).detach() * A * r.log(),
    ),
    ZOO.cispo_silent_outside_the_limits: (
        [0, VALUE[1], 0],
        [0, 2, 0],
        lambda r, A, low, high: ((r >= low) & (r <= high)) * r.detach() * A * r.log(),
    ),
    ZOO.clamp_without_the_minimum: (
        [1.2 * 2, 1.1 * 2, 0.8 * -3],
        [0, 2, 0],
        lambda r, A, low, high: A * r.clamp(low, high),
    ),
    ZOO.pessimistic: (
        [1.2 * 2, 1.1 * 2, 0.8 * -3],
        [0, 2, 0],
        lambda r, A, low, high: torch.min(r * A, r.clamp(low, high) * A),
    ),
}
EVERY_SLIP = pytest.mark.parametrize("wrong", SLIPS, ids=name_in(ZOO.CISPO_SURROGATE))


@pytest.mark.parametrize("words", RIGHT_ANSWERS)
def test_the_right_surrogate_passes_in_other_words(words):
    close(RIGHT_ANSWERS[words](*INPUTS), VALUE)
    close(slope(RIGHT_ANSWERS[words], *INPUTS), SLOPE)
    verdict = check.clipped_weight(RIGHT_ANSWERS[words])
    assert verdict.passed, verdict
    assert "no token loses its gradient" in verdict.says


def test_every_known_slip_is_tested():
    assert set(SLIPS) == not_typed(check.clipped_weight, ZOO.CISPO_SURROGATE)


@EVERY_SLIP
def test_the_wrong_variant_is_what_its_name_says(wrong):
    value, steepness, written = SLIPS[wrong]
    for function in (wrong, written):
        close(function(*INPUTS), value)
        if any(steepness):
            close(slope(function, *INPUTS), steepness)
        else:
            assert not function(RATIO.clone().requires_grad_(), A, LOWER, UPPER).requires_grad


@EVERY_SLIP
def test_the_slip_is_named_however_it_is_written(wrong):
    assert check.clipped_weight(SLIPS[wrong][2]) == Verdict(False, says_of(ZOO.CISPO_SURROGATE, wrong))


@pytest.mark.parametrize(
    ("student", "words"),
    [
        (lambda r, A, low, high: None, "your function returns None: write your lines, and return their result."),
        (
            lambda r, A, low, high: (r.clamp(low, high).detach() * A * r.log()).mean(),
            "your result has shape []; it has to be [10]. One value for each token: do not average or add over them.",
        ),
        (
            lambda r, A, low, high: (r.clamp(low, high) * A * r.log()).detach().numpy(),
            "your function returns a ndarray",
        ),
        (
            lambda r, A, low, high: r if r > high else low,
            "your function broke off (RuntimeError): a comparison of whole",
        ),
        (lambda r, A, low, high: -r.clamp(low, high).detach() * A * r.log(), "the sign is wrong: everything is the"),
        # the first of the case's tokens, ratio .5 and A 2, weight .8: 1.6 · log .5 = −1.109; in base 2 it is −1.6
        (
            lambda r, A, low, high: r.clamp(low, high).detach() * A * r.log2(),
            "at [0] for ratio 0.5, A 2, lower 0.8, upper 1.2: expected -1.109, got -1.6.",
        ),
    ],
)
def test_what_is_no_known_slip_is_told_kindly(student, words):
    verdict = check.clipped_weight(student)
    assert not verdict.passed
    assert verdict.says.startswith(words)
