import math

import pytest
from hypothesis import given, settings, strategies as st

from rlviz.pieces.bounds import DynamicBounds
from tests.pieces.tensors import close, double


def test_dynamic_bounds_by_hand():
    """Assert DCPO's limits at widths .16 and .2, cap 10.

    lower: 1 − .64/q is .6² at q = 1 and .2² at 2/3: ½ + ½ · .6 = .8, ½ + ½ · .2 = .6; it is 0 at q = .64 = 4 · .16, and below.
    upper: 1 + .8/q is 1.8 at q = 1, 2.2 at 2/3, 1.5² at .64, 3² at .1, 9² at .01: 1.25, 2, 5; 801 at .001: 14.65, capped.
    """
    bounds = DynamicBounds()
    lower, upper = bounds(double([1.0, 2 / 3, 0.64, 0.1, 0.01, 0.001]).log())
    close(lower, [0.8, 0.6, 0.5, 0.5, 0.5, 0.5], atol=1e-7)  # √ near 0 doubles the digits lost
    close(upper, [0.5 + math.sqrt(0.45), 0.5 + math.sqrt(0.55), 1.25, 2, 5, 10])


def test_the_examples_of_the_dcpo_paper():
    # where the new probability may go: from .9 to [.692, 1.068] (never clipped from above), from .01 to [.005, .05]
    q = double([0.9, 0.01])
    lower, upper = DynamicBounds()(q.log())
    assert [round(p, 3) for p in (q * lower).tolist()] == [0.692, 0.005]
    assert [round(p, 3) for p in (q * upper).tolist()] == [1.068, 0.05]


@given(st.floats(1e-4, 1), st.floats(0.01, 0.99), st.floats(0.01, 3))
@settings(max_examples=50, deadline=None)
def test_a_ratio_at_a_dynamic_limit_has_moved_by_the_width(q, eps_low, eps_high):
    bounds = DynamicBounds(eps_low, eps_high, max_ratio=math.inf)
    lower, upper = (limit.item() for limit in bounds(double([q]).log()))
    assert (upper - 1) * upper * q == pytest.approx(eps_high, rel=1e-9)
    if q > 4 * eps_low:
        assert (1 - lower) * lower * q == pytest.approx(eps_low, rel=1e-9)
    else:
        assert lower == pytest.approx(0.5, abs=1e-7)


def test_a_token_of_probability_zero_has_finite_limits():
    assert [limit.tolist() for limit in DynamicBounds()(double([-800.0]))] == [[0.5], [10]]
