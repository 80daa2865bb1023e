"""A check of each kind of call once refuses what a check of every call refuses, first call or later."""

from __future__ import annotations

import pytest
import torch
from beartype import beartype
from jaxtyping import Float, TypeCheckError, jaxtyped
from torch import Tensor

from rlviz.pieces.advantages import standardized


@jaxtyped(typechecker=beartype)
def pairs(a: Float[Tensor, " n"], b: Float[Tensor, " n"], length: int | None = None) -> Float[Tensor, " n"]:
    return (a + b)[:length]


@pytest.mark.parametrize(
    ("a", "b", "length"),
    [
        (torch.ones(3), torch.ones(2), None),
        (torch.ones(3), torch.ones(3, 1), None),
        (torch.ones(3), torch.ones(3, dtype=torch.long), None),
        ([1.0, 1.0, 1.0], torch.ones(3), None),
        (torch.ones(3), torch.ones(3), "3"),
        (torch.ones(3), torch.ones(3), 2),  # what is returned is too short
    ],
)
def test_after_a_call_that_is_right_a_wrong_one_is_refused_each_time(a, b, length):
    for _again in range(2):
        assert len(pairs(torch.ones(3), torch.ones(3))) == 3
        with pytest.raises(TypeCheckError, match="return value" if length == 2 else "parameters"):
            pairs(a, b, length)


def test_what_is_returned_is_looked_at_each_time_and_nothing_is_called_twice():
    """Two calls that look alike: by its numbers the second returns another shape."""
    calls = []

    @jaxtyped(typechecker=beartype)
    def above(a: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        calls.append(a)
        return a[a > 0]

    assert len(above(torch.ones(3))) == 3
    with pytest.raises(TypeCheckError, match="return value"):
        above(torch.tensor([1.0, 0.0, 1.0]))
    assert len(calls) == 2


def test_the_pieces_are_checked():
    assert standardized(torch.ones(2, 3), 1e-6).shape == (2, 3)
    with pytest.raises(TypeCheckError):
        standardized(torch.ones(2, 3, 4), 1e-6)
