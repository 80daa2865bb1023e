import math

import pytest
import torch

from rlviz.pieces.advantages import GroupAdvantage, all_equal


def rewards(*rows):
    return torch.tensor(rows, dtype=torch.double)


def check_group_std(advantage):
    """Hand-worked: rewards 1 0 0 0 have mean 1/4, deviations 3/4 −1/4 −1/4 −1/4, unbiased variance (9+1+1+1)/16/3 = 1/4."""
    got = advantage(rewards([1, 0, 0, 0]))
    torch.testing.assert_close(got, rewards([1.5, -0.5, -0.5, -0.5]), rtol=1e-5, atol=0)
    assert (advantage(rewards([0.1, 0.1, 0.1])) == 0).all()
    assert (advantage(rewards([1e8 + 1, 1e8 + 1])) == 0).all()


def test_group_std_by_hand():
    check_group_std(GroupAdvantage())


def test_eps_stands_beside_the_std():
    got = GroupAdvantage(eps=0.5)(rewards([1, 0, 0, 0]))
    torch.testing.assert_close(got, rewards([0.75, -0.25, -0.25, -0.25]), rtol=1e-12, atol=0)


def test_no_scale_and_batch_scale_by_hand():
    # group means 1/2 and 1/4; all eight rewards: mean 3/8, squared deviations 3·(5/8)² + 5·(3/8)² = 15/8, unbiased variance 15/56
    batch = rewards([1, 0, 1, 0], [0, 0, 1, 0])
    centred = rewards([0.5, -0.5, 0.5, -0.5], [-0.25, -0.25, 0.75, -0.25])
    torch.testing.assert_close(GroupAdvantage(scale="none")(batch), centred, rtol=1e-12, atol=0)
    scaled = GroupAdvantage(scale="batch_std", eps=0.0)(batch)
    torch.testing.assert_close(scaled, centred / math.sqrt(15 / 56), rtol=1e-12, atol=0)


def biased_std(r):
    return (r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True, correction=0) + 1e-6)


def std_above_zero_as_the_test(r):
    std = r.std(1, keepdim=True)
    return torch.where(std > 0, (r - r.mean(1, keepdim=True)) / std, 0.0)


def over_the_batch(r):
    return (r - r.mean()) / (r.std() + 1e-6)


def no_std(r):
    return r - r.mean(1, keepdim=True)


@pytest.mark.parametrize("wrong", [biased_std, std_above_zero_as_the_test, no_std])
def test_known_wrong_variants_are_told_from_the_right_one(wrong):
    with pytest.raises(AssertionError):
        check_group_std(wrong)


def test_groups_do_not_see_each_other():
    alone, beside = rewards([1, 0, 0, 0]), rewards([1, 0, 0, 0], [5, 6, 7, 8])
    torch.testing.assert_close(GroupAdvantage()(beside)[:1], GroupAdvantage()(alone), rtol=1e-12, atol=0)
    assert not torch.allclose(over_the_batch(beside)[:1], over_the_batch(alone))


def test_all_equal_compares_the_rewards_themselves():
    assert all_equal(rewards([0.1, 0.1, 0.1], [0.1, 0.1, 0.2])).tolist() == [True, False]


def test_a_group_of_one_is_refused():
    with pytest.raises(ValueError, match=r"group_size must be at least 2.*got 1"):
        GroupAdvantage()(rewards([1.0]))


@pytest.mark.parametrize("wrong", [{"scale": "std"}, {"eps": -1e-6}])
def test_parameters_out_of_range_are_refused(wrong):
    with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):  # the tests' type checker may be first
        GroupAdvantage(**wrong)
