"""Advantages over simulated groups, against enumeration and closed forms."""

from math import sqrt

import numpy as np
import pytest

from rlviz.algorithms import DCPO, DR_GRPO, GRPO, MAX_RL, RFT, RLOO
from rlviz.pictures.advantages import FEWER, GROUPS, POINTS, explore_advantages


def outputs(algorithm, **setting):
    return explore_advantages(algorithm, **setting).names()


def is_close(share, expected, draws=GROUPS):
    """Return whether a simulated share lies within four standard errors of the expected one."""
    return abs(share - expected) <= 4 * sqrt(expected * (1 - expected) / draws) + 1e-12


@pytest.mark.parametrize(("algorithm", "p", "size"), [(GRPO, 0.8, 8), (MAX_RL, 0.9, 4), (RFT, 0.2, 4)])
def test_exactly_the_groups_of_equal_rewards_are_dead(algorithm, p, size):
    def dead(q):  # RFT imitates right responses, also those of a group that is all right
        return (1 - q) ** size + (q**size if algorithm is not RFT else 0)

    names = outputs(algorithm, success_rate=p, group_size=size)
    assert is_close(names.one("dead_at"), dead(p)) and names.array("dead").sum() == pytest.approx(names.one("dead_at"))
    assert all(is_close(share, dead(q), FEWER) for q, share in zip(POINTS, names.array("dead_share"), strict=True))
    np.testing.assert_allclose(names.array("equal_share")[[0, 100, 200]], [1.0, 2 * 0.5**size, 1.0])


def test_the_distribution_is_that_of_the_enumerated_groups():
    # G = 4, p = ½, divided by the unbiased std: 1 right of 4: ¾ / ½ = 1.5 and −.5; 2: ±√¾ = ±.866; 3: .5 and −1.5
    names = outputs(GRPO, success_rate=0.5, group_size=4)
    right, wrong, dead, middle = (names.array(name) for name in ("right", "wrong", "dead", "middle"))
    for value, groups, part in ((1.5, 4 / 16, 1 / 4), (0.866, 6 / 16, 1 / 2), (0.5, 4 / 16, 3 / 4)):
        bin_ = int(np.argmin(np.abs(middle - value)))
        assert is_close(right[bin_] / part, groups) and is_close(wrong[40 - bin_] / part, groups)
    assert dead[20] == pytest.approx(names.one("dead_at")) and (right + wrong + dead).sum() == pytest.approx(1.0)
    # what lies on a limit: DCPO, G = 5, one right: .8 / √.16 = 2, but for rounding; MaxRL, G = 9, one right: 1 / (1/9) − 1 = 8
    reaches = [outputs(rule, success_rate=0.2, group_size=size).one("reach") for rule, size in ((DCPO, 5), (MAX_RL, 9))]
    assert reaches == [3.0, 16.0]
    # Dr.GRPO: right ones have 1 − k/G, k right of G; the mean counts the response itself, so (1 − p)(1 − 1/G). RLOO: 1 − p
    means = [outputs(rule, success_rate=0.5, group_size=4) for rule in (DR_GRPO, RLOO)]
    sides = [sign * names.one(name) for names in means for name, sign in (("mean_right", 1), ("mean_wrong", -1))]
    assert sides == pytest.approx([0.375, 0.375, 0.5, 0.5], abs=0.06)  # four standard errors, ¼ / √512 or ⅓ / √512 each
