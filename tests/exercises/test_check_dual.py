"""The check of lesson 17, the dual clip: right in other words, each slip by its name; values and slopes by hand."""

import pytest
import torch

from rlviz.exercises import check, mistakes
from rlviz.exercises.check import Verdict
from tests.exercises.slips import name_in, not_typed, says_of
from tests.pieces.tensors import close, double, slope

ZOO, C = mistakes.clipping, double(4.0)
# Beyond c: a bad token, a good one, a good one that its upper limit leaves free; then bad ones: within the limits, below, above.
RATIO, A = double([6, 6, 6, 1.1, 0.5, 2]), double([-2, 2, 2, -1, -3, -1])
LOWER, UPPER = torch.full_like(RATIO, 0.8), double([1.2, 1.2, 9, 1.2, 1.2, 1.2])
VALUE = [-8, 2.4, 12, -1.1, -2.4, -2]  # 4 · −2; 1.2 · 2; 6 · 2; r · A; .8 · −3; r · A, above 4 · −1
SLOPE = [0, 0, 2, -1, 0, -1]


def changed(numbers, **at):
    """Return the numbers with others in their place: changed(VALUE, t0=-12) changes the first token's."""
    return [at.get(f"t{place}", number) for place, number in enumerate(numbers)]


def clipped(r, a, low, high):
    return torch.minimum(r * a, r.clamp(low, high) * a)


def by_cases(r, a, low, high, c):
    good = torch.where(r > high, high, r) * a
    return torch.where(a >= 0, good, torch.where(r < low, low, torch.where(r > c, c, r)) * a)


RIGHT_ANSWERS = {
    "where": lambda r, a, low, high, c: torch.where(
        a < 0, torch.max(clipped(r, a, low, high), c * a), clipped(r, a, low, high)
    ),
    "c · min(A, 0)": lambda r, a, low, high, c: torch.where(
        a < 0, clipped(r, a, low, high).maximum(c * a.clamp(max=0)), clipped(r, a, low, high)
    ),
    "cases": by_cases,
}

# the wrong variant → value and slope by hand, and how a student would write it
SLIPS = {
    ZOO.dual_clip_left_out: (
        changed(VALUE, t0=-12),
        changed(SLOPE, t0=-2),
        lambda r, a, low, high, c: clipped(r, a, low, high),
    ),
    ZOO.dual_clip_for_every_sign: (
        changed(VALUE, t1=8),
        SLOPE,
        lambda r, a, low, high, c: torch.max(c * a, clipped(r, a, low, high)),
    ),
    ZOO.dual_clip_for_good_tokens: (
        changed(VALUE, t0=-12, t1=8),
        changed(SLOPE, t0=-2),
        lambda r, a, low, high, c: torch.where(
            a < 0, clipped(r, a, low, high), clipped(r, a, low, high).maximum(a * c)
        ),
    ),
    ZOO.dual_clip_from_above: (
        [-12, 2.4, 12, -4, -12, -4],
        [-2, 0, 2, 0, 0, 0],
        lambda r, a, low, high, c: clipped(r, a, low, high).where(a >= 0, clipped(r, a, low, high).min(c * a)),
    ),
    ZOO.dual_clip_of_every_ratio: (
        changed(VALUE, t2=8),
        changed(SLOPE, t2=0),
        lambda r, a, low, high, c: torch.min(r.clamp(max=c) * a, r.clamp(max=c).clamp(low, high) * a),
    ),
    ZOO.dual_clip_with_a_width: (
        changed(VALUE, t0=-10),
        SLOPE,
        lambda r, a, low, high, c: RIGHT_ANSWERS["where"](r, a, low, high, 1 + c),
    ),
    ZOO.dual_clip_without_the_lower_limit: (
        changed(VALUE, t4=-1.5),
        changed(SLOPE, t4=-3),
        lambda r, a, low, high, c: torch.where(a < 0, r.clamp(max=c) * a, clipped(r, a, low, high)),
    ),
    ZOO.dual_clip_at_three: (
        changed(VALUE, t0=-6),
        SLOPE,
        lambda r, a, low, high, c: RIGHT_ANSWERS["where"](r, a, low, high, torch.tensor(3.0)),
    ),
}
INPUTS = RATIO, A, LOWER, UPPER, C
EVERY_SLIP = pytest.mark.parametrize("wrong", SLIPS, ids=name_in(ZOO.DUAL_CLIP))


@pytest.mark.parametrize("words", RIGHT_ANSWERS)
def test_the_right_objective_passes_in_other_words(words):
    close(RIGHT_ANSWERS[words](*INPUTS), VALUE)
    close(slope(RIGHT_ANSWERS[words], *INPUTS), SLOPE)
    assert check.dual_clip(RIGHT_ANSWERS[words]).passed


def test_every_known_slip_is_tested():
    assert set(SLIPS) == not_typed(check.dual_clip, ZOO.DUAL_CLIP)


@EVERY_SLIP
def test_the_wrong_variant_is_what_its_name_says(wrong):
    value, steepness, written = SLIPS[wrong]
    for function in (wrong, written):
        close(function(*INPUTS), value)
        close(slope(function, *INPUTS), steepness)


@EVERY_SLIP
def test_the_slip_is_named_however_it_is_written(wrong):
    assert check.dual_clip(SLIPS[wrong][2]) == Verdict(False, says_of(ZOO.DUAL_CLIP, wrong))
