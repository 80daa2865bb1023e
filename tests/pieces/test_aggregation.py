import pytest
import torch
from hypothesis import given, settings, strategies as st

from rlviz.pieces.aggregation import Constant, sequence_mean, sequence_sum, token_mean, weighted_sum
from tests.pieces.tensors import close, double

# Two prompts; responses of 1 and 3 tokens (with a hole), of none and of 2: six tokens, three responses that count
MASK = double([[[1, 0, 0, 0], [1, 0, 1, 1]], [[0, 0, 0, 0], [1, 1, 0, 0]]]).bool()


# by hand, the weight of a token in each of the three: a third for a response, shared among its 1, 3, 2 tokens; a sixth on each;
# 1/(3 L) at L = 8; a response's own share, not divided by their number
AGGREGATIONS = {
    "sequence_mean": (sequence_mean, (1 / 3, 1 / 9, 1 / 6)),
    "token_mean": (token_mean, (1 / 6, 1 / 6, 1 / 6)),
    "constant": (Constant(8), (1 / 24, 1 / 24, 1 / 24)),
    "sequence_sum": (sequence_sum, (1, 1 / 3, 1 / 2)),
}


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_weights_by_hand(name):
    aggregate, (first, second, third) = AGGREGATIONS[name]
    close(aggregate(MASK), double([[[first], [second]], [[0], [third]]]) * MASK)
    assert (aggregate(torch.zeros(2, 2, 3, dtype=torch.bool)) == 0).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5))
def test_at_equal_lengths_all_are_the_mean_over_tokens_or_a_multiple(prompts, group_size, width):
    mask = torch.ones(prompts, group_size, width, dtype=torch.bool)
    close(sequence_mean(mask), token_mean(mask))
    close(Constant(width)(mask), token_mean(mask))
    close(sequence_sum(mask), prompts * group_size * token_mean(mask))


def test_weighted_sum_leaves_padding_out_of_value_and_gradient():
    mask = double([[[1, 0], [1, 1]]]).bool()
    values = torch.tensor([[[3.0, float("inf")], [5.0, 7.0]]], requires_grad=True)
    total = weighted_sum(values, double([[[0.5, 99.0], [0.25, 0.25]]]), mask)  # float64 weights, float32 values
    assert total.dtype == torch.float
    assert total.item() == pytest.approx(3 / 2 + 5 / 4 + 7 / 4)
    total.backward()
    assert values.grad.tolist() == [[[0.5, 0.0], [0.25, 0.25]]]
