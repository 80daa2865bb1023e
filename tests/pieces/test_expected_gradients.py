"""The expected gradient of group advantages, enumerated in plain Python."""

from __future__ import annotations

import itertools
import math

import pytest

from rlviz.pieces.advantages import GroupAdvantage, LeaveOneOut
from tests.pieces.tensors import close, double

PROBS, REWARDS = (0.5, 0.3, 0.2), (1.0, 0.0, 0.5)
MEAN = sum(p * r for p, r in zip(PROBS, REWARDS, strict=True))
EXACT = [p * (r - MEAN) for p, r in zip(PROBS, REWARDS, strict=True)]  # ∂J/∂z = π (R − J): .200, −.180, −.020


def expected_gradient(advantage, size):
    """Return Σ over all groups of chance · mean of A_i (e_aᵢ − π), by the three logits."""
    total = [0.0, 0.0, 0.0]
    for group in itertools.product(range(3), repeat=size):
        chance = math.prod(PROBS[action] for action in group)
        judged = advantage(double([[REWARDS[action] for action in group]]))[0].tolist()
        for action, a in zip(group, judged, strict=True):
            for logit in range(3):
                total[logit] += chance * a * ((logit == action) - PROBS[logit]) / size
    return double(total)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_group_mean_shrinks_the_gradient_the_std_tilts_it_leaving_one_out_does_neither(size):
    shrunk = [(size - 1) / size * slope for slope in EXACT]
    close(expected_gradient(GroupAdvantage(scale="none"), size), shrunk, atol=1e-12)
    close(expected_gradient(LeaveOneOut(), size), EXACT, atol=1e-12)
    tilted = expected_gradient(GroupAdvantage(), size) / double(EXACT)
    assert tilted.max() / tilted.min() > 1.5


def test_the_tilt_of_two_by_hand():
    # two rewards r > s have std (r − s) / √2, so A = ±1/√2 whatever they are (eps is 1e-6): E[A (e − π)] by logit is
    # √½ · Σ over pairs of different rewards π_a π_b (e_better − e_worse) = √½ · (.5·.3 + .5·.2, −.5·.3 − .3·.2, .3·.2 − .5·.2)
    close(expected_gradient(GroupAdvantage(), 2), [math.sqrt(0.5) * x for x in (0.25, -0.21, -0.04)], rtol=1e-5)
