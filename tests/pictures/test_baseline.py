"""explore_baseline: advantages of dragged rewards by hand, and the groups that teach nothing."""

import numpy as np
import pytest

from rlviz.algorithms import DR_GRPO, GRPO, RLOO
from rlviz.pictures import explore_baseline

ONE_RIGHT = (1.0, 0.0, 0.0, 0.0)


def outputs(algorithm, *rewards):
    return explore_baseline(algorithm, group_size=len(rewards), rewards=(*rewards, *[0.0] * (8 - len(rewards)))).names()


# 1 0 0 0: mean ¼, deviations ¾ and −¼, std √(¾ / 3) = ½. The others' mean is 0 for the right one, ⅓ for a wrong one.
@pytest.mark.parametrize(
    ("algorithm", "right", "wrong", "has_std"),
    [(GRPO, 1.5, -0.5, 1), (DR_GRPO, 0.75, -0.25, 0), (RLOO, 1.0, -1 / 3, 0)],
    ids=lambda value: getattr(value, "name", None),
)
def test_each_push_by_hand(algorithm, right, wrong, has_std):
    names = outputs(algorithm, *ONE_RIGHT)
    np.testing.assert_allclose(names.array("A"), [right, *[wrong] * 3], atol=4e-6)  # 1e-6 is added to the std
    assert (names.one("mean"), names.one("has_std"), names.one("teaches")) == (0.25, has_std, 1)
    assert (names.one("mean_less_std"), names.one("mean_plus_std")) == pytest.approx((-0.25, 0.75))
    assert names.array("is_up").tolist() == [1, 0, 0, 0] and names.array("is_down").tolist() == [0, 1, 1, 1]
    # from the mean to the reward, from 0 to A, and a gap
    assert names.array("deviation")[:3] == pytest.approx([0.25, 1.0, np.nan], nan_ok=True)
    assert names.array("arrow_up")[:3] == pytest.approx([0.0, right, np.nan], abs=4e-6, nan_ok=True)
    assert names.array("arrow_down")[3:5] == pytest.approx([0.0, wrong], abs=2e-6)


def test_responses_beyond_the_group_size_have_no_part():
    names = explore_baseline(group_size=2, rewards=(1.0, 0.0, *[2.0] * 6)).names()
    assert names.one("mean") == 0.5 and names.array("A") == pytest.approx([0.5**0.5, -(0.5**0.5)], abs=2e-6)
    assert [names.one(f"has{i}") for i in range(3, 9)] == [0.0] * 6 and names.one("rewards8") == 2.0


def test_a_group_of_equal_rewards_teaches_nothing():
    picture = explore_baseline(group_size=3, rewards=8 * (0.1,))
    names = picture.names()
    assert names.array("is_none").tolist() == [1, 1, 1] and names.one("has_std") == 0
    assert names.array("is_up").tolist() == names.array("is_down").tolist() == [0, 0, 0]
    assert picture.conclusion == "GRPO: all 3 rewards are 0.10, so every A is 0, and the group teaches nothing."
