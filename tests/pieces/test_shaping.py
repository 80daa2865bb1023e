import math

import pytest
import torch

from rlviz.pieces.shaping import OverlongFilter, SoftOverlongPunishment, WeightedRules
from tests.pieces.tensors import close, double

LENGTHS = [1, 12, 13, 14, 16, 17, 100]


def check_weighted_rules(shape):
    """Assert .9 correct + .1 well-formed, whatever other rewards there were."""
    correct, well_formed = double([[1, 1, 0, 0]]), double([[1, 0, 1, 0]])
    got = shape(double([[5, 5, 5, 5]]), torch.tensor([[1, 2, 3, 4]]), correct, well_formed)
    close(got, [[1, 0.9, 0.1, 0]])


def punishment(shape):
    rewards = double([[i / 8 for i in range(len(LENGTHS))]])
    return (shape(rewards, torch.tensor([LENGTHS])) - rewards)[0].tolist()


def check_soft_overlong_punishment(shape):
    """Assert what is added at max_length 16, cache 4: 0 up to 12 tokens, −1/4 at 13, −2/4 at 14, −1 at 16 and beyond."""
    assert punishment(shape) == [0, 0, -1 / 4, -1 / 2, -1, -1, -1]


def check_overlong_filter(shape):
    """Assert that the truncated second response leaves the mask and no reward changes."""
    mask = double([[[1, 1, 0], [1, 0, 1], [0, 1, 0]]]).bool()
    truncated = torch.tensor([[False, True, False]])
    assert shape.loss_mask(mask, truncated).int().tolist() == [[[1, 1, 0], [0, 0, 0], [0, 1, 0]]]
    close(shape(double([[1, 2, 3]]), torch.tensor([[2, 2, 1]])), [[1, 2, 3]])


def test_weighted_rules_by_hand():
    check_weighted_rules(WeightedRules())


def test_soft_overlong_punishment_by_hand():
    check_soft_overlong_punishment(SoftOverlongPunishment(max_length=16, cache=4))


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


def test_thirds_are_float64():
    got = SoftOverlongPunishment(max_length=20, cache=3)(double([[0, 0]]), torch.tensor([[18, 19]]))
    close(got, [[-1 / 3, -2 / 3]])


def test_overlong_filter_by_hand():
    check_overlong_filter(OverlongFilter())
