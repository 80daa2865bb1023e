import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlviz.pieces.aggregation import sequence_mean, weighted_sum
from rlviz.pieces.kl import KLInLoss, k3


def test_k3_by_hand():
    # policy .5, reference .25: x = ln .25 − ln .5 = −ln 2, so eˣ − x − 1 = .5 + ln 2 − 1
    value = k3(torch.tensor([math.log(0.5)], dtype=torch.double), torch.tensor([math.log(0.25)], dtype=torch.double))
    assert value.item() == pytest.approx(math.log(2) - 0.5, rel=1e-12)


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)), min_size=2, max_size=6))
def test_k3_averaged_over_the_policy_is_the_kl(weights):
    policy, reference = (torch.tensor(column, dtype=torch.double) for column in zip(*weights, strict=True))
    policy, reference = policy / policy.sum(), reference / reference.sum()
    exact = (policy * (policy / reference).log()).sum()
    torch.testing.assert_close((policy * k3(policy.log(), reference.log())).sum(), exact, rtol=1e-9, atol=1e-12)
    assert (k3(policy.log(), reference.log()) >= 0).all()


def test_kl_in_loss_multiplies_by_beta_and_refuses_none():
    a, b = torch.tensor([-1.0]), torch.tensor([-2.0])
    torch.testing.assert_close(KLInLoss(beta=0.5)(a, b), 0.5 * k3(a, b))
    with pytest.raises(ValueError, match=r"beta.*got 0"):
        KLInLoss(beta=0.0)


def mask_of(*lengths, width):
    return torch.tensor([[[t < length for t in range(width)] for length in lengths]])


def test_sequence_mean_by_hand():
    # two responses with tokens, of 1 and 3: each weighs 1/2, so their tokens 1/2 and 1/6; the empty one is not counted
    weights = sequence_mean(mask_of(1, 3, 0, width=3))
    expected = torch.tensor([[[1 / 2, 0, 0], [1 / 6, 1 / 6, 1 / 6], [0, 0, 0]]], dtype=torch.double)
    torch.testing.assert_close(weights, expected)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any))
def test_sequence_mean_weights_add_up_to_one(lengths):
    assert sequence_mean(mask_of(*lengths, width=5)).sum().item() == pytest.approx(1, rel=1e-12)


def test_sequence_mean_is_not_the_token_mean():
    mask = mask_of(1, 3, width=3)
    assert not torch.allclose(sequence_mean(mask), mask.double() / mask.sum())


def test_weighted_sum_leaves_padding_out_of_value_and_gradient():
    mask = mask_of(1, 2, width=2)
    values = torch.tensor([[[3.0, float("inf")], [5.0, 7.0]]], requires_grad=True)
    total = weighted_sum(values, sequence_mean(mask), mask)
    assert total.item() == pytest.approx(3 / 2 + 5 / 4 + 7 / 4)
    total.backward()
    assert values.grad.tolist() == [[[0.5, 0.0], [0.25, 0.25]]]
