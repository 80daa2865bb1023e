import math

import pytest

from rlviz.pieces.preference import (
    ImplicitReward,
    SigmoidPreference,
    bradley_terry,
    linear_preference,
    response_logp,
)
from tests.pieces.tensors import close, double, slope

# margins 0, ln 3, −ln 3: σ is 1/2, 3/4, 1/4
CHOSEN, REJECTED = double([2, 1 + math.log(3), 1]), double([2, 1, 1 + math.log(3)])


def check_pair_loss(pair_loss, losses, slopes):
    close(pair_loss(CHOSEN, REJECTED), losses)
    close(slope(pair_loss, CHOSEN, REJECTED), slopes)
    close(slope(lambda rejected: pair_loss(CHOSEN, rejected), REJECTED), [-s for s in slopes])


def check_bradley_terry(pair_loss):
    """Assert −log σ(margin): ln 2, ln 4/3, ln 4; slope −σ(rejected − chosen): −1/2, −1/4, −3/4, and its opposite."""
    check_pair_loss(pair_loss, [math.log(2), math.log(4 / 3), math.log(4)], [-1 / 2, -1 / 4, -3 / 4])


def check_linear_preference(pair_loss):
    """Assert −margin, slope −1 however well the pair is ordered."""
    check_pair_loss(pair_loss, [0, -math.log(3), math.log(3)], [-1, -1, -1])


def check_label_smoothing(pair_loss):
    """Assert .9 of the loss and .1 of the flipped pair's, at label_smoothing .1: slope −.9 σ(−m) + .1 σ(m)."""
    ordered, misordered = math.log(4 / 3), math.log(4)
    check_pair_loss(
        pair_loss,
        [math.log(2), 0.9 * ordered + 0.1 * misordered, 0.9 * misordered + 0.1 * ordered],
        [-0.4, -0.9 / 4 + 0.3 / 4, -2.7 / 4 + 0.1 / 4],
    )


def check_implicit_reward(reward):
    """Assert β (logp − ref_logp) at β = .1."""
    close(reward(double([-5, -20]), double([-7, -10])), [0.2, -1.0])


def check_response_logp(response_logp):
    """Assert the sum over the response's tokens, and no mean; a hole and padding have no part."""
    logp, mask = double([[[-1, 88, -2, -4], [-3, 88, 88, 88]]]), double([[[1, 0, 1, 1], [1, 0, 0, 0]]]).bool()
    close(response_logp(logp, mask), [[-7, -3]])
    close(slope(response_logp, logp, mask), mask.double())


@pytest.mark.parametrize("pair_loss", [bradley_terry, SigmoidPreference()])
def test_sigmoid_losses_by_hand(pair_loss):
    check_bradley_terry(pair_loss)
    close(pair_loss(double([800, -800]), double([0, 0])), [0, 800])  # no overflow


def test_label_smoothing_by_hand():
    check_label_smoothing(SigmoidPreference(label_smoothing=0.1))


def test_linear_preference_by_hand():
    check_linear_preference(linear_preference)


def test_implicit_reward_by_hand():
    check_implicit_reward(ImplicitReward(beta=0.1))


def test_response_logp_by_hand():
    check_response_logp(response_logp)
