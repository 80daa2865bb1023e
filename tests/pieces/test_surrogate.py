"""Surrogates by hand, and where they cut the gradient. Wrong variants: tests/exercises/test_bug_zoo.py."""

import math

import pytest
import torch

from rlviz.pieces.surrogate import DualClip, GammaWeight, is_clipped, pessimistic, unclipped
from tests.pieces.tensors import close, double, slope

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


# with a dual clip at 3 beside that: A < 0, r above 3: 3 · −2 = −6 > 4 · −2, constant; for A > 0 there is none
DUAL_BY_HAND = BY_HAND | {
    (2.5, -2.0): (-5.0, -2.0),
    (4.0, -2.0): (-6.0, 0.0),
    (4.0, 2.0): (2.4, 0.0),
    (4.0, 0.0): (0.0, 0.0),
}


# other limits, .9 and 1.5, |A| = 1: r = 1.3 is inside, .85 is not; nothing but the limits cuts, at r = 5 neither
ELSEWHERE_BY_HAND = {
    (1.3, 1.0): (1.3, 1.0),
    (0.85, -1.0): (-0.9, 0.0),
    (5.0, -1.0): (-5.0, -1.0),
    (5.0, 1.0): (1.5, 0.0),
}


def check(surrogate, by_hand, limits=(LOWER, UPPER)):
    for (ratio, advantage), (objective, expected) in by_hand.items():
        r, *others = (double([v]) for v in (ratio, advantage, *limits))
        assert surrogate(r, *others).item() == pytest.approx(objective, abs=1e-12), (ratio, advantage)
        assert slope(surrogate, r, *others).item() == pytest.approx(expected, abs=1e-12), (ratio, advantage)


def test_the_four_quadrants_by_hand():
    """Assert the hand-worked values and slopes of the surrogate with limits."""
    check(pessimistic, BY_HAND)
    check(DualClip(c=3.0), DUAL_BY_HAND)
    check(unclipped, {(r, a): (r * a, a) for r, a in BY_HAND})
    check(pessimistic, ELSEWHERE_BY_HAND, (0.9, 1.5))
    # two tokens with limits of their own: 1.1 · 2 is below 1.2 · 2, and 1.05 · 2 below 1.1 · 2
    objective = pessimistic(double([1.1, 1.1]), double([2, 2]), double([0.8, 0.7]), double([1.2, 1.05]))
    assert objective.tolist() == pytest.approx([2.2, 2.1], abs=1e-12)


def test_a_gamma_weight_by_hand():
    """Two responses of two tokens, ratios ½ and 4, so W = 2: φ is 2² e^(3 − 6) for A ≥ 0 and 2³ e^(2 − 4) for A < 0, on both."""
    ratio = double([[0.5, 4.0, 1.0], [0.5, 4.0, 1.0], [0.5, 4.0, 1.0]])
    mask = torch.tensor([[True, True, False]] * 3)
    advantages, limits = double([[2.0] * 3, [-1.0] * 3, [0.0] * 3]), double([[0.0] * 3] * 3)
    weight = double([[8 * math.exp(-3)] * 2, [-8 * math.exp(-2)] * 2, [0.0] * 2])
    logs = ratio.log().requires_grad_()
    objective = GammaWeight()(logs.exp(), advantages, limits, limits, mask)
    close(objective[:, :2], weight * double([math.log(0.5), math.log(4)]))
    (got,) = torch.autograd.grad(objective[:, :2].sum(), logs)  # of log r: W itself has no gradient
    close(got[:, :2], weight)
    other = GammaWeight(k_positive=1.0, lambda_positive=0.5, k_negative=9.0, lambda_negative=9.0)
    close(other(ratio, advantages, limits, limits, mask)[0, 1], double(2 * 2 * math.exp(-0.5) * math.log(4)))


def test_a_gamma_weight_is_a_at_ratio_1_and_nothing_far_away():
    for advantage in (1.0, -1.0):
        for size, slope_there in ((0.0, advantage), (400.0, 0.0), (-400.0, 0.0)):
            logs = torch.full((1, 2), size, dtype=torch.double, requires_grad=True)
            mask = torch.ones(1, 2, dtype=torch.bool)
            objective = GammaWeight()(logs.exp(), torch.full((1, 2), advantage), logs * 0, logs * 0, mask)
            (got,) = torch.autograd.grad(objective.sum(), logs)
            close(got, torch.full((1, 2), slope_there, dtype=torch.double))


@pytest.mark.parametrize("gradients", [True, False])
def test_low_high_and_dual_by_hand(gradients):
    """The cut rows of DUAL_BY_HAND with A ≠ 0, also where gradients are off."""
    ratio, advantages = (double(column) for column in zip(*DUAL_BY_HAND, strict=True))
    limits = torch.full_like(ratio, LOWER), torch.full_like(ratio, UPPER)
    with torch.set_grad_enabled(gradients):
        cuts = is_clipped(DualClip(c=3.0), ratio, advantages, *limits)
    where = [{at for at, is_cut in zip(DUAL_BY_HAND, cut.tolist(), strict=True) if is_cut} for cut in cuts]
    assert where == [{(0.5, -2.0)}, {(1.5, 2.0), (4.0, 2.0)}, {(4.0, -2.0)}]


@pytest.mark.parametrize("surrogate", [unclipped, lambda r, a, lower, upper: torch.tanh(r - 1) * a])
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


def test_a_surrogate_without_a_gradient_is_cut_wherever_a_token_counts():
    r, a, limits = double([0.5, 1.5, 1.5, 0.5]), double([1.0, 1.0, -1.0, 0.0]), double([1.0] * 4)
    expected = [[True, False, False, False], [False, True, False, False], [False, False, True, False]]
    for flat in (
        lambda r, a, lower, upper: r.detach() * a,
        lambda r, a, lower, upper: a.clone().requires_grad_() * 2,
    ):
        assert [cut.tolist() for cut in is_clipped(flat, r, a, limits, limits)] == expected
