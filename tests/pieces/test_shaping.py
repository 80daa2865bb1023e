import math

import pytest
import torch

from rlviz.pieces.shaping import LengthCost, OverlongFilter, SoftOverlongPunishment, WeightedRules
from tests.pieces.tensors import close, double

LENGTHS = [1, 12, 13, 14, 16, 17, 100]


def test_weighted_rules_by_hand():
    """Assert .9 correct + .1 well-formed, whatever other rewards there were."""
    shape = WeightedRules()
    correct, well_formed = double([[1, 1, 0, 0]]), double([[1, 0, 1, 0]])
    got = shape(double([[5, 5, 5, 5]]), torch.tensor([[1, 2, 3, 4]]), correct, well_formed)
    close(got, [[1, 0.9, 0.1, 0]])


def punishment(shape):
    rewards = double([[i / 8 for i in reversed(range(len(LENGTHS)))]])  # the longest one is wrong
    return (shape(rewards, torch.tensor([LENGTHS])) - rewards)[0].tolist()


def test_soft_overlong_punishment_by_hand():
    """Assert what is added at max_length 16, cache 4: 0 up to 12 tokens, −1/4 at 13, −2/4 at 14, −1 at 16 and beyond."""
    shape = SoftOverlongPunishment(max_length=16, cache=4)
    assert punishment(shape) == [0, 0, -1 / 4, -1 / 2, -1, -1, -1]


def test_overlong_filter_by_hand():
    """Assert that the truncated second response leaves the mask and no reward changes."""
    shape = OverlongFilter()
    mask = double([[[1, 1, 0], [1, 0, 1], [0, 1, 0]]]).bool()
    truncated = torch.tensor([[False, True, False]])
    assert shape.loss_mask(mask, truncated).int().tolist() == [[[1, 1, 0], [0, 0, 0], [0, 1, 0]]]
    close(shape(double([[1, 2, 3]]), torch.tensor([[2, 2, 1]])), [[1, 2, 3]])


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"factor": 2.0}, [0, 0, -1 / 2, -1, -1, -1, -1]),
        ({"floor": -0.25}, [0, 0, -1 / 4, -1 / 4, -1 / 4, -1 / 4, -1 / 4]),
        ({"floor": -math.inf}, [0, 0, -1 / 4, -1 / 2, -1, -5 / 4, -22]),
    ],
)
def test_factor_and_floor(parameters, expected):
    assert punishment(SoftOverlongPunishment(max_length=16, cache=4, **parameters)) == expected


def test_a_cache_as_long_as_the_response_punishes_from_the_first_token_on():
    # −length / 16, at least −1
    got = SoftOverlongPunishment(max_length=16, cache=16)(double([[0] * 5]), torch.tensor([[0, 1, 4, 16, 20]]))
    close(got, [[0, -1 / 16, -1 / 4, -1, -1]])


def test_length_cost_by_hand():
    """Assert 1 − 4/8, 0 − 0/8, −½ − 8/8, at an eighth a token."""
    shape = LengthCost(per_token=0.125)
    close(shape(double([[1, 0, -0.5]]), torch.tensor([[4, 0, 8]])), [[0.5, 0, -1.5]])
