"""explore_advantages: dead groups against their formula, advantages by hand, memory and leave-one-out."""

import numpy as np
import pytest

from rlviz.algorithms import DCPO, DPO, DR_GRPO, GRPO, PPO
from rlviz.pictures.advantages import explore_advantages


@pytest.mark.parametrize("size", [2, 4, 16])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dead_groups_are_those_that_the_formula_expects(size, rate):
    names = explore_advantages(success_rate=rate, group_size=size).names()
    expected = rate**size + (1 - rate) ** size  # all right or all wrong
    assert names.one("equal_at") == pytest.approx(expected, rel=1e-12)
    assert names.one("dead_at") == pytest.approx(expected, abs=4 * (expected * (1 - expected) / 512) ** 0.5 + 1e-9)


def test_advantages_of_a_group_of_two_by_hand():
    # rewards 1 and 0: mean ½, unbiased std 1/√2: A = ±½ · √2 = ±.7071; half of the groups are dead at p = ½
    names = explore_advantages(success_rate=0.5, group_size=2).names()
    share = (1 - names.one("dead_at")) * 0.70711
    assert names.one("mean_right") == pytest.approx(share, abs=0.03)  # dead ones count as 0
    assert names.one("mean_wrong") == pytest.approx(-share, abs=0.03)
    assert names.array("right").sum() + names.array("wrong").sum() + names.array("dead").sum() == pytest.approx(1.0)
    # Dr.GRPO does not divide: A = ±½
    names = explore_advantages(DR_GRPO, success_rate=0.5, group_size=2).names()
    assert names.one("mean_right") == pytest.approx((1 - names.one("dead_at")) * 0.5, abs=0.02)
    # leave-one-out multiplies R − mean by G / (G − 1) = 2: A = ±1
    names = explore_advantages(success_rate=0.5, group_size=2, rule="leave_one_out").names()
    assert names.one("mean_right") == pytest.approx(1 - names.one("dead_at"), abs=0.03)


def test_a_group_s_mean_errs_like_one_over_the_root_of_its_size():
    names = explore_advantages(success_rate=0.8).names()
    sizes, error = names.array("sizes"), names.array("mean_error")
    np.testing.assert_allclose(error, np.sqrt(0.8 * 0.2 / sizes), rtol=1e-9)


def test_a_memory_leaves_fewer_groups_dead():
    first, fifth = (explore_advantages(DCPO, success_rate=0.95, visits=n).names().one("dead_at") for n in (1, 5))
    assert first > 0.5 and fifth < first / 2


@pytest.mark.parametrize("algorithm", [PPO, DPO], ids=lambda a: a.name)
def test_who_compares_no_responses_is_refused(algorithm):
    with pytest.raises(ValueError, match=f"algorithm: {algorithm.name}"):
        explore_advantages(algorithm)


@pytest.mark.parametrize("wrong", [{"group_size": 1}, {"group_size": 65}, {"success_rate": 1.5}, {"visits": 0}])
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        explore_advantages(GRPO, **wrong)
