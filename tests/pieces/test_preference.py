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


ORDERED, MISORDERED = math.log(4 / 3), math.log(4)
SIGMOID = [math.log(2), ORDERED, MISORDERED], [-1 / 2, -1 / 4, -3 / 4]


@pytest.mark.parametrize(
    ("pair_loss", "losses", "slopes"),
    [
        # −log σ(margin), slope −σ(rejected − chosen)
        (bradley_terry, *SIGMOID),
        (SigmoidPreference(), *SIGMOID),
        # .9 of the loss and .1 of the flipped pair's, slope −.9 σ(−m) + .1 σ(m)
        (
            SigmoidPreference(label_smoothing=0.1),
            [math.log(2), 0.9 * ORDERED + 0.1 * MISORDERED, 0.9 * MISORDERED + 0.1 * ORDERED],
            [-0.4, -0.9 / 4 + 0.3 / 4, -2.7 / 4 + 0.1 / 4],
        ),
        # −margin, slope −1 however well the pair is ordered
        (linear_preference, [0, -math.log(3), math.log(3)], [-1, -1, -1]),
    ],
)
def test_pair_losses_by_hand(pair_loss, losses, slopes):
    close(pair_loss(CHOSEN, REJECTED), losses)
    close(slope(pair_loss, CHOSEN, REJECTED), slopes)
    close(slope(lambda rejected: pair_loss(CHOSEN, rejected), REJECTED), [-s for s in slopes])


@pytest.mark.parametrize("pair_loss", [bradley_terry, SigmoidPreference()])
def test_nothing_overflows(pair_loss):
    close(pair_loss(double([800, -800]), double([0, 0])), [0, 800])


def test_implicit_reward_by_hand():
    """Assert β (logp − ref_logp) at β = .1."""
    reward = ImplicitReward(beta=0.1)
    close(reward(double([-5, -20]), double([-7, -10])), [0.2, -1.0])


def test_response_logp_by_hand():
    """Assert the sum over the response's tokens, and no mean; a hole and padding have no part."""
    logp, mask = double([[[-1, 88, -2, -4], [-3, 88, 88, 88]]]), double([[[1, 0, 1, 1], [1, 0, 0, 0]]]).bool()
    close(response_logp(logp, mask), [[-7, -3]])
    close(slope(response_logp, logp, mask), mask.double())
