"""The pessimistic surrogate, and the ways in which published code got it wrong."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlviz.pieces.surrogate import is_clipped, pessimistic

LOWER, UPPER = 0.8, 1.2
# (ratio, A) → (objective, slope). By hand, with |A| = 2:
#   A > 0, r above 1.2: 1.2 · 2 = 2.4 is the smaller, constant        A > 0, r below .8: r·A = 1 < .8 · 2, slope A
#   A < 0, r below .8: .8 · −2 = −1.6 < .5 · −2, constant              A < 0, r above 1.2: 1.5 · −2 = −3 < −2.4, slope A
BY_HAND = {
    (1.5, 2.0): (2.4, 0.0),
    (0.5, 2.0): (1.0, 2.0),
    (0.5, -2.0): (-1.6, 0.0),
    (1.5, -2.0): (-3.0, -2.0),
    (1.1, 2.0): (2.2, 2.0),
    (0.9, -2.0): (-1.8, -2.0),
    (1.5, 0.0): (0.0, 0.0),
}


def check(surrogate):
    """Assert the hand-worked values and slopes of a surrogate."""
    for (ratio, advantage), (objective, slope) in BY_HAND.items():
        r = torch.tensor([ratio], dtype=torch.double, requires_grad=True)
        a, lower, upper = (torch.tensor([v], dtype=torch.double) for v in (advantage, LOWER, UPPER))
        value = surrogate(r, a, lower, upper)
        (gradient,) = torch.autograd.grad(value.sum(), r)
        assert value.item() == pytest.approx(objective, abs=1e-12), (ratio, advantage)
        assert gradient.item() == pytest.approx(slope, abs=1e-12), (ratio, advantage)


def inverted_for_bad_tokens(r, a, lower, upper):
    s1, s2 = r * a, torch.clamp(r, lower, upper) * a
    return torch.where(a >= 0, torch.minimum(s1, s2), torch.maximum(s1, s2))


def clamp_without_the_minimum(r, a, lower, upper):
    return torch.clamp(r, lower, upper) * a


def maximum_for_the_minimum(r, a, lower, upper):
    return torch.maximum(r * a, torch.clamp(r, lower, upper) * a)


def never_clipped(r, a, lower, upper):
    return r * a


def test_the_four_quadrants_by_hand():
    check(pessimistic)


@pytest.mark.parametrize(
    "wrong", [inverted_for_bad_tokens, clamp_without_the_minimum, maximum_for_the_minimum, never_clipped]
)
def test_known_wrong_variants_are_told_from_the_right_one(wrong):
    with pytest.raises(AssertionError):
        check(wrong)


@given(st.floats(0.01, 5), st.floats(-3, 3).map(lambda a: round(a, 3)), st.floats(0.05, 0.95), st.floats(0.05, 2))
def test_clipped_is_where_the_slope_is_cut(ratio, advantage, eps_low, eps_high):
    r = torch.tensor([ratio], dtype=torch.double, requires_grad=True)
    a, lower, upper = (torch.tensor([v], dtype=torch.double) for v in (advantage, 1 - eps_low, 1 + eps_high))
    (slope,) = torch.autograd.grad(pessimistic(r, a, lower, upper).sum(), r)
    low, high, dual = is_clipped(pessimistic, r, a, lower, upper)
    assert (bool(low), bool(high)) == (
        advantage < 0 and ratio < 1 - eps_low,
        advantage > 0 and ratio > 1 + eps_high,
    )
    assert not dual.any()
    assert not (low & high).any()
    assert bool(low | high) == (slope.item() == 0 and advantage != 0)
    assert slope.item() in (0.0, pytest.approx(advantage))


@pytest.mark.parametrize("surrogate", [never_clipped, lambda r, a, lower, upper: torch.tanh(r - 1) * a])
def test_a_surrogate_that_never_cuts_is_never_clipped(surrogate):
    r, a = torch.tensor([0.1, 0.9, 1.1, 3.0]), torch.tensor([-1.0, 1.0, 1.0, 1.0])
    assert not any(
        cut.any() for cut in is_clipped(surrogate, r, a, torch.full_like(r, LOWER), torch.full_like(r, UPPER))
    )


def test_a_surrogate_may_cut_where_it_likes():
    def cispo(r, a, lower, upper):  # the gradient goes through log r, so that clipping the weight cuts nothing
        return torch.clamp(r, lower, upper).detach() * a * r.log()

    def one_sided(r, a, lower, upper):
        return torch.clamp(r, max=1.2) * a

    r = torch.tensor([0.5, 1.5])
    a, lower, upper = torch.ones(2), torch.full((2,), LOWER), torch.full((2,), UPPER)
    assert [c.tolist() for c in is_clipped(cispo, r, a, lower, upper)] == [[False, False]] * 3
    assert [c.tolist() for c in is_clipped(one_sided, r, a, lower, upper)] == [
        [False, False],
        [False, True],
        [False, False],
    ]
