"""The check of a group's advantage: what was confused with the group's mean, its std, or the number added to it, is named."""

import math

import pytest

from rlviz.exercises import check, mistakes
from rlviz.exercises.check import Verdict
from rlviz.pieces.advantages import GroupAdvantage
from tests.exercises.slips import name_in, says_of
from tests.pieces.tensors import close, double

ZOO = mistakes.advantages
# 3 1 and 1 1: the groups' means are 2 and 1, their variances (1 + 1)/1 = 2 and 0; by columns 2 and 1, and 2 and 0
REWARDS = double([[3, 1], [1, 1]])

# the wrong variant → its values by hand, and how a student would write it
SLIPS = {
    ZOO.over_the_position_in_the_group: (
        [[math.sqrt(0.5), 0], [-math.sqrt(0.5), 0]],
        lambda rewards: (rewards - rewards.mean(0)) / (rewards.std(0) + 1e-6),
    ),
    ZOO.variance_for_std: (
        [[0.5, -0.5], [0, 0]],
        lambda rewards: (rewards - rewards.mean(1)[:, None]) / (rewards.std(1)[:, None] ** 2 + 1e-6),
    ),
    ZOO.eps_forgotten: (  # 0 / 0 in the second
        [[math.sqrt(0.5), -math.sqrt(0.5)], [math.nan, math.nan]],
        lambda rewards: (rewards - rewards.mean(1)[:, None]) / rewards.std(1)[:, None],
    ),
    ZOO.eps_of_one_in_ten_thousand: (
        [[1 / (math.sqrt(2) + 1e-4), -1 / (math.sqrt(2) + 1e-4)], [0, 0]],
        GroupAdvantage(eps=1e-4),
    ),
    ZOO.eps_of_one_in_a_hundred_thousand: (
        [[1 / (math.sqrt(2) + 1e-5), -1 / (math.sqrt(2) + 1e-5)], [0, 0]],
        GroupAdvantage(eps=1e-5),
    ),
}
EVERY_SLIP = pytest.mark.parametrize("wrong", SLIPS, ids=name_in(ZOO.GROUP_ADVANTAGE))


@EVERY_SLIP
def test_the_wrong_variant_is_what_its_name_says(wrong):
    rtol = 1e-9 if isinstance(wrong, GroupAdvantage) else 1e-5  # the others have an eps of 1e-6
    if wrong is ZOO.eps_forgotten:
        assert wrong(REWARDS)[1].isnan().all()
        close(wrong(REWARDS)[0], SLIPS[wrong][0][0])
    else:
        close(wrong(REWARDS), SLIPS[wrong][0], rtol=rtol)


@EVERY_SLIP
def test_the_slip_is_named_however_it_is_written(wrong):
    assert check.group_advantage(SLIPS[wrong][1]) == Verdict(False, says_of(ZOO.GROUP_ADVANTAGE, wrong))


def test_an_eps_that_nobody_foresaw_is_shown_with_digits_enough_to_differ():
    # 3/4 over ½ + 1e-6 is 1.499997, over ½ + 2e-5 it is 1.49994
    says = check.group_advantage(GroupAdvantage(eps=2e-5)).says
    assert says == "at [0, 0] for rewards 1: expected 1.5, got 1.4999."


def test_the_known_mistakes_warn_nobody(
    recwarn,
):  # torch warns of a std over one value, as over the prompts of one group
    check.group_advantage(lambda rewards: 3 * GroupAdvantage()(rewards))
    assert [str(warning.message) for warning in recwarn] == []
