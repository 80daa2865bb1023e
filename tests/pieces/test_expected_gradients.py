"""What the pieces pull towards on average, enumerated in plain Python: the claims of lessons 03, 10 and 11."""

from __future__ import annotations

import itertools
import math

import pytest

from rlviz.pieces.advantages import GroupAdvantage, LeaveOneOut
from rlviz.pieces.kl import k1, k3
from rlviz.pieces.values import entropy
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


# policy (¾, ¼), reference (½, ½): ∇log π by the first logit is ¼ for the first action and −¾ for the second
POLICY, REFERENCE = double([0.75, 0.25]).log(), double([0.5, 0.5]).log()
REVERSE = 0.75 * 0.25 * math.log(3)  # ∂KL(π‖ref)/∂z₁ = π₁ (ln(π₁/ref₁) − KL) = π₁ π₂ · ln(π₁/π₂) = .206
FORWARD = 0.75 - 0.5  # ∂KL(ref‖π)/∂z₁ = π₁ − ref₁ = .25


def in_the_reward(estimator):
    """Return E[k · ∇log π] by the first logit."""
    number = estimator(POLICY, REFERENCE).tolist()
    return double(0.75 * number[0] * 0.25 + 0.25 * number[1] * -0.75)


def test_in_the_reward_k1_pulls_to_the_reference_and_k3_away_from_it():
    close(in_the_reward(k1), REVERSE)
    close(in_the_reward(k3), REVERSE - FORWARD)
    assert in_the_reward(k3) < 0 < in_the_reward(k1)


@pytest.mark.parametrize(("praised", "rises"), [(0, True), (1, False), (2, True)])
def test_the_entropy_moves_by_minus_the_covariance(praised, rises):
    # dH = −Σ p (log p + H) dz, here with dz = e − π, the gradient of the praised action's log-probability
    probs = (0.46, 0.49, 0.05)
    logs = [math.log(p) for p in probs]
    before = -sum(p * log for p, log in zip(probs, logs, strict=True))
    step = [(action == praised) - p for action, p in enumerate(probs)]
    change = -sum(p * (log + before) * dz for p, log, dz in zip(probs, logs, step, strict=True))
    assert (change > 0) == rises
    logits = double(logs).requires_grad_()
    entropy(logits.log_softmax(0)).backward()
    close(logits.grad @ double(step), change, atol=1e-12)
