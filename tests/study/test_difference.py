"""What a difference is worth: intervals by hand and by enumeration of all draws, and their sign and size."""

import math
from itertools import product

import numpy as np
import pytest

from rlviz.study import difference
from rlviz.study.difference import Difference, bootstrap, bootstrap_of_the_difference, interval, iqm, paired, unpaired

NAN = math.nan


@pytest.mark.parametrize(
    ("gaps", "size", "low", "high", "sign"),
    [
        ((1, 2, 3), 2, 2 - 2 / 3**0.5, 2 + 2 / 3**0.5, 1),  # standard deviation 1, standard error 1/√3
        ((-1, -2, -3), -2, -2 - 2 / 3**0.5, -2 + 2 / 3**0.5, -1),
        ((1, 0, 2), 1, 1 - 2 / 3**0.5, 1 + 2 / 3**0.5, 0),
        ((0.5, 0.5), 0.5, 0.5, 0.5, 1),  # no spread at all
        ((1.0,), 1, NAN, NAN, NAN),
        ((), NAN, NAN, NAN, NAN),
    ],
)
def test_a_number_per_seed(gaps, size, low, high, sign):
    gap = paired(gaps)
    assert (gap.size, gap.low, gap.high, gap.sign) == pytest.approx((size, low, high, sign), nan_ok=True)
    if gaps:
        assert difference.standard_error(gaps) == pytest.approx((high - low) / 4, nan_ok=True)


def test_against_the_smallest_effect():
    around = Difference(0.05, -0.1, 0.2)
    assert around.is_within(0.21) and not around.is_within(0.2) and not Difference(-0.05, -0.2, 0.1).is_within(0.2)
    assert not Difference(0.0, NAN, NAN).is_within(1)


def slow_iqm(scores):
    """Return the mean without a quarter of the scores at each end."""
    cut = len(scores) // 4
    return np.mean(sorted(scores)[cut : len(scores) - cut])


def test_interquartile_mean():
    assert iqm([0.9, 0.1, 0.5, 0.7, 0.3]) == pytest.approx(0.5)  # of .3 .5 .7
    # a quarter of three is less than one
    assert iqm([[0.0, 0.1, 1.0], [1.0, 2.0, 3.0]]) == pytest.approx([1.1 / 3, 2.0])


@pytest.mark.parametrize("scores", [[0.1, 0.7, 0.2, 1.0], [0.5, 0.4, 0.9, 0.3, 0.35]])
def test_bootstrap_against_all_draws(scores):
    every = [slow_iqm(draw) for draw in product(scores, repeat=len(scores))]  # each as likely as the next
    low, high = interval(bootstrap(scores))
    assert (low, high) == pytest.approx(tuple(np.quantile(every, [0.025, 0.975])), abs=0.02)
    assert bootstrap(scores).mean() == pytest.approx(np.mean(every), abs=0.01)


def test_two_sides_are_spread_by_what_few_draws_lack():
    """The variance of the mean of n draws of n is (n − 1)/n · s²/n; √(n/(n − 1)) further out it is s²/n, of both sides together
    s²/n + s²/n. Of three scores the IQM is the mean."""
    one, two = [0.1, 0.2, 0.6], [0.3, 0.5, 1.0]
    results = bootstrap_of_the_difference(two, one)
    assert results.mean() == pytest.approx(0.3, abs=0.01)
    assert results.var() == pytest.approx(np.var(one, ddof=1) / 3 + np.var(two, ddof=1) / 3, rel=0.05)
    gap = unpaired(two, one)
    assert gap.size == pytest.approx(0.3) and (gap.low, gap.high) == interval(results)
    assert math.isnan(unpaired(two[:2], one).sign) and unpaired(two[:2], one).size == pytest.approx(0.1)


def test_how_often_equals_pass_for_different_is_as_documented(monkeypatch):
    monkeypatch.setattr(difference, "RESAMPLES", 1000)
    random, pairs, seeds, wrong = np.random.default_rng(0), 500, 3, 0.12
    certain = sum(unpaired(*random.normal(size=(2, seeds))).sign != 0 for _ in range(pairs))
    assert certain / pairs == pytest.approx(wrong, abs=3 * (wrong * (1 - wrong) / pairs) ** 0.5)
