"""Overlong shaping by hand: rewards against length, and a group of eight before and after."""

from dataclasses import replace
from math import inf, sqrt

import numpy as np
import pytest

from rlviz.algorithms import DAPO, DR_GRPO, DUPO, GRPO, MAX_RL
from rlviz.pictures.overlong import explore_overlong
from rlviz.pieces.shaping import SoftOverlongPunishment

pytestmark = pytest.mark.usefixtures("untraced")

LENGTHS = [5, 7, 8, 10, 12, 13, 15, 18]  # 11 away by −6 −4 −3 −1 1 2 4 7
RIGHT = np.array([1, 1, 0, 1, 1, 0, 1, 0])


def shown(*arguments, **setting):
    return explore_overlong(*arguments, **setting).names().array


def rewards(*arguments, **setting):
    """Return a right response's reward at each length from 1 to 28."""
    found = shown(*arguments, **setting)
    return found("shaped")[found("whole") != 0]


def test_the_group_by_hand():
    # punished from 12 to 16: 13 by ¼, 15 by ¾, the one cut at 16 by 1; sum 3, mean .375; squared deviations add up to 4
    A, shaped = shown(), np.array([1, 1, 0, 1, 1, -0.25, 0.25, -1])
    assert A("lengths").tolist() == LENGTHS and A("cuts") == 1 and not A("out").any()
    np.testing.assert_array_equal(A("right"), RIGHT)
    np.testing.assert_allclose(A("new_R"), shaped)
    np.testing.assert_allclose(A("after"), (shaped - 0.375) / sqrt(4 / 7), rtol=1e-5)
    # plain: mean .625, squared deviations 5 · .375² + 3 · .625² = 1.875
    np.testing.assert_allclose(A("before"), (RIGHT - 0.625) / sqrt(1.875 / 7), rtol=1e-5)
    np.testing.assert_allclose(shown(DR_GRPO)("after"), shaped - 0.375, atol=1e-12)
    assert not shown(number_right=8)("right")[7]  # cut off, it has no answer
    # 1 and −1, then the same punishment: 1 1 −1 1 1 −1.25 .25 −2, mean 0, squared deviations 10.625
    signed = np.array([1, 1, -1, 1, 1, -1.25, 0.25, -2])
    np.testing.assert_allclose(A("signed"), signed / sqrt(10.625 / 7), rtol=1e-5)
    np.testing.assert_allclose(shown(DR_GRPO)("signed"), signed, atol=1e-12)


def test_a_right_response_s_reward_against_its_length():
    np.testing.assert_allclose(rewards(factor=0.5)[11:18], [1, 0.875, 0.75, 0.625, 0.5, -0.5, -0.5])
    np.testing.assert_allclose(rewards(factor=2.0)[11:17], [1, 0.5, 0, 0, 0, -1])  # never more than 1 taken off
    assert rewards(max_length=9, cache=8)[1] == 1 - 1 / 8
    found = shown(shaping="none")
    assert found("plain").tolist() == found("shaped").tolist() == [1.0] * 17 + [0.0] * 13  # a step at 16.5, not a slope
    assert found("at")[15:19].tolist() == [16, 16.5, 16.5, 17]


def test_the_filter_takes_cut_responses_out_of_the_loss_only():
    found = shown(GRPO, shaping="filter", mean_length=17)
    assert found("out").tolist() == [0.0] * 4 + [1.0] * 4
    np.testing.assert_array_equal(found("after"), found("before") * [1, 1, 1, 1, 0, 0, 0, 0])
    assert found("before").all()


def test_standardisation_is_blind_to_affine_changes():
    # none is cut at 9 on average, the longest having 16: .9 · correct + .1 · well formed is .9 R + .1
    found = shown(DUPO, shaping="own", mean_length=9)
    np.testing.assert_allclose(found("new_R"), 0.9 * found("R") + 0.1)
    np.testing.assert_allclose(found("after"), found("before"), atol=1e-5)
    # a cut response has no form either: 0, where the other wrong ones have .1
    assert shown(DUPO, shaping="own")("new_R")[[2, 5, 7]].tolist() == pytest.approx([0.1, 0.1, 0.0])


def test_a_shape_of_one_s_own_is_told_what_it_asks_for():
    def mine(rewards, lengths, truncated, well_formed):
        return rewards - 2.0 * truncated + 10 * well_formed + 0.01 * lengths

    found = shown(replace(GRPO, name="Mine", shape=mine), shaping="own")("new_R")
    np.testing.assert_allclose(found, [*(RIGHT[:7] + 10 + np.array(LENGTHS[:7]) / 100), 0.16 - 2])


BOTTOMLESS = replace(DAPO, name="Mine", shape=SoftOverlongPunishment(16, 4, floor=-inf))
DIVIDED = "With rewards 1 and −1 in place of 1 and 0 every advantage would be the same: the scale is divided out."
REFUSES = "With rewards 1 and −1 in place of 1 and 0 MaxRL refuses this group."


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "The right response of 15 tokens has reward 0.25 and A = −0.17; without shaping it has 1.00 and +0.72."),
        ({}, "half as much: the response of 15 tokens would have A = +0.20."),
        # twice as steep it has taken 1 off after 14 tokens, half of the way; a quarter as steep never
        ({"factor": 2.0}, "It takes off up to 1.00, from 14 tokens on, and never more than 1, the floor."),
        ({"factor": 0.25}, "It takes off up to 0.25, from 16 tokens on, and never more than 1, the floor."),
        ({"shaping": "none"}, DIVIDED),
        ({"algorithm": DR_GRPO, "shaping": "none"}, "advantages would be 2.0 times as large."),
        ({"algorithm": DR_GRPO, "number_right": 0}, "The cut response of 16 tokens has reward −1.00 and A = −0.75"),
        # 9 to 22 tokens, 11 is right, 14 has −½, four have −1: mean −.4375, before ⅛; the wrong one of 9 changes as much, .5625
        (
            {"algorithm": DR_GRPO, "mean_length": 15, "number_right": 2},
            "The right response of 11 tokens has reward 1.00 and A = +1.44; without shaping it has 1.00 and +0.88.",
        ),
        ({"algorithm": GRPO, "shaping": "filter", "mean_length": 20}, "Cut off, and out of the loss: 6 of the eight."),
        ({"algorithm": DUPO, "shaping": "own", "mean_length": 9}, "changes rewards by up to 0.10, but no advantage."),
        ({"algorithm": GRPO, "shaping": "own"}, "GRPO with its own shaping (none); the sampler cuts at 16 tokens."),
        # 1 1 −1 1 1 −1.25 .25 −2 has mean 0, by which MaxRL divides
        ({"algorithm": MAX_RL}, REFUSES),
        # all wrong and long: mean below 0
        ({"algorithm": MAX_RL, "number_right": 0}, "MaxRL refuses this group: its advantage is not defined"),
    ],
)
def test_words_by_hand(arguments, says):
    assert says in explore_overlong(**arguments).caption


def test_what_is_not_there_is_not_said_or_drawn():
    assert (
        "floor" not in explore_overlong(BOTTOMLESS, shaping="own").caption + explore_overlong(shaping="filter").caption
    )
    refused = shown(MAX_RL, number_right=0)
    assert np.isnan(refused("after")).all() and not refused("has_right") and not refused("has_wrong")
    assert (
        np.isnan(shown(shaping="filter")("start")) and not shown()("own_differs") and shown(factor=0.5)("own_differs")
    )
