from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import DAPO, DUPO, GRPO
from rlviz.pieces.selection import drop_all_equal, duplicate_informative, keep_all
from tests.pieces.tensors import double

# groups 1 and 3 have right and wrong answers; the others are all right, all wrong, or of three rewards of .1
OUTCOMES = double([[1, 1, 1], [0, 1, 0], [0, 0, 0], [1, 0, 1], [0.1, 0.1, 0.1]])
DEAD = OUTCOMES[[0, 2, 4]]


def test_keep_all_by_hand():
    """Assert every group once."""
    assert keep_all(OUTCOMES).tolist() == [0, 1, 2, 3, 4]


def test_drop_all_equal_by_hand():
    """Assert the groups whose rewards differ, and none if there is none."""
    assert drop_all_equal(OUTCOMES).tolist() == [1, 3]
    assert drop_all_equal(DEAD).tolist() == []
    assert drop_all_equal(double([[0.1, 0.1, 0.1]])).tolist() == []  # alone, their std is 1.7e-17


def test_duplicate_informative_by_hand():
    """Assert P groups: each informative one once, then random informative ones, all of which come up; all if there is none."""
    drawn = [duplicate_informative(OUTCOMES, torch.Generator().manual_seed(seed)).tolist() for seed in range(12)]
    assert all(len(groups) == 5 and groups[:2] == [1, 3] for groups in drawn)
    assert {g for groups in drawn for g in groups[2:]} == {1, 3}
    assert len({tuple(groups) for groups in drawn}) > 2
    assert duplicate_informative(DEAD, torch.Generator()).tolist() == [0, 1, 2]


@pytest.mark.parametrize("algorithm", [GRPO, DAPO, DUPO], ids=lambda a: a.name)
def test_a_selection_says_how_often_it_uses_each_group(algorithm):
    batches = torch.stack([OUTCOMES[[0, 1, 2]], OUTCOMES[[1, 3, 1]], DEAD])
    drawn = [
        [algorithm.select_groups(batch, torch.Generator().manual_seed(i)) for i in range(600)] for batch in batches
    ]
    counts = torch.stack([torch.stack([x.bincount(minlength=3) for x in draws]).double().mean(0) for draws in drawn])
    torch.testing.assert_close(algorithm.uses(batches), counts, atol=0.15, rtol=0)
    if algorithm is DUPO:  # one of three differs, and takes their places; all three differ; none does
        assert algorithm.uses(batches).tolist() == [[0, 3, 0], [1, 1, 1], [1, 1, 1]]


def test_a_selection_that_does_not_say_is_counted():
    twice = replace(GRPO, name="Mine", select=lambda rewards: torch.tensor([1, 1, 0]))
    assert twice.uses(OUTCOMES.unsqueeze(0)).tolist() == [[1, 2, 0, 0, 0]]
