"""What a difference is worth: intervals by hand and by enumeration, and the one rule of sign and size that all studies read."""

import math
from itertools import product

import numpy as np
import pytest

from rlviz.study import difference
from rlviz.study.difference import (
    Difference,
    bootstrap,
    bootstrap_of_the_difference,
    interval,
    iqm,
    paired,
    standard_error,
    unpaired,
)


@pytest.mark.parametrize(
    ("gaps", "size", "low", "high", "sign"),
    [
        ((1, 2, 3), 2, 2 - 2 / 3**0.5, 2 + 2 / 3**0.5, 1),  # standard deviation 1, standard error 1/√3
        ((-1, -2, -3), -2, -2 - 2 / 3**0.5, -2 + 2 / 3**0.5, -1),
        ((1, 0, 2), 1, 1 - 2 / 3**0.5, 1 + 2 / 3**0.5, 0),
        ((0.5, 0.5), 0.5, 0.5, 0.5, 1),  # no spread at all
        ((0, 0), 0, 0, 0, 0),
        ((1.0,), 1, math.nan, math.nan, math.nan),
        ((), math.nan, math.nan, math.nan, math.nan),
    ],
)
def test_a_number_a_seed(gaps, size, low, high, sign):
    found = paired(gaps)
    assert (found.size, found.low, found.high, found.sign) == pytest.approx((size, low, high, sign), nan_ok=True)
    if gaps:
        assert standard_error(gaps) == pytest.approx((high - low) / 4, nan_ok=True)


@pytest.mark.parametrize(
    ("low", "high", "smallest", "within", "beyond"),
    [
        (-0.1, 0.2, 0.21, True, False),
        (-0.1, 0.2, 0.2, False, False),
        (-0.2, 0.1, 0.2, False, False),
        (0.1, 0.2, 0.09, False, True),
        (-0.2, -0.1, 0.09, False, True),
        (0.1, 0.2, 0.1, False, False),
        (math.nan, math.nan, 1, False, False),
    ],
)
def test_against_the_smallest_effect(low, high, smallest, within, beyond):
    found = Difference((low + high) / 2, low, high)
    assert (found.within(smallest), found.beyond(smallest)) == (within, beyond)


def slow_iqm(scores):
    """Take away lowest and highest in turn, a quarter of the scores at each end at most."""
    left = list(scores)
    for _ in range(len(scores) // 4):
        left.remove(min(left))
        left.remove(max(left))
    return sum(left) / len(left)


def test_interquartile_mean_by_hand_and_against_taking_away_one_by_one():
    assert iqm([0.9, 0.1, 0.5, 0.7, 0.3]) == pytest.approx(0.5)  # of .3 .5 .7
    assert iqm([0.0, 0.1, 1.0]) == pytest.approx(1.1 / 3)  # a quarter of three is less than one: all
    assert iqm([5.0]) == 5.0
    for count in range(1, 14):
        scores = np.random.default_rng(count).normal(size=(3, count))
        np.testing.assert_allclose(iqm(scores), [slow_iqm(row) for row in scores])


@pytest.mark.parametrize("scores", [[0.1, 0.7, 0.2, 1.0], [0.5, 0.4, 0.9, 0.3, 0.35]])
def test_bootstrap_against_all_draws(scores):
    every = [slow_iqm(drawn) for drawn in product(scores, repeat=len(scores))]  # each as likely as the next
    low, high = interval(bootstrap(scores))
    assert (low, high) == pytest.approx(tuple(np.quantile(every, [0.025, 0.975])), abs=0.02)
    assert bootstrap(scores).mean() == pytest.approx(np.mean(every), abs=0.01)
    assert interval(bootstrap([0.2, 0.5, 0.9])) == pytest.approx(
        (0.2, 0.9)
    )  # all draws the lowest: 1 of 27, above 2.5 %


def test_two_sides_are_spread_by_what_few_draws_lack():
    """The variance of the mean of n draws of n is (n − 1)/n · s²/n; √(n/(n − 1)) further out it is s²/n, of both sides together
    s²/n + s²/n. Of three scores the IQM is the mean."""
    one, two = [0.1, 0.2, 0.6], [0.3, 0.5, 1.0]
    results = bootstrap_of_the_difference(two, one)
    assert results.mean() == pytest.approx(0.3, abs=0.01)
    assert results.var() == pytest.approx(np.var(one, ddof=1) / 3 + np.var(two, ddof=1) / 3, rel=0.05)
    found = unpaired(two, one)
    assert found.size == pytest.approx(0.3) and (found.low, found.high) == interval(results)
    assert math.isnan(unpaired(two[:2], one).sign) and unpaired(two[:2], one).size == pytest.approx(0.1)


@pytest.mark.parametrize(("seeds", "wrong"), [(3, 0.12), (5, 0.05), (10, 0.04)])
def test_how_often_equals_pass_for_different_is_as_documented(seeds, wrong, monkeypatch):
    monkeypatch.setattr(difference, "RESAMPLES", 1000)
    random, pairs = np.random.default_rng(0), 500
    found = sum(unpaired(*random.normal(size=(2, seeds))).sign != 0 for _ in range(pairs))
    assert found / pairs == pytest.approx(wrong, abs=3 * (wrong * (1 - wrong) / pairs) ** 0.5)
