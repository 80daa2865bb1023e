"""Overlong shaping by hand: rewards against length, and a group of eight before and after."""

from math import sqrt

import numpy as np
import pytest

from rlviz.algorithms import DR_GRPO, GRPO
from rlviz.pictures.overlong import explore_overlong

pytestmark = pytest.mark.usefixtures("untraced")

LENGTHS = [5, 7, 8, 10, 12, 13, 15, 18]  # 11 away by −6 −4 −3 −1 1 2 4 7
RIGHT = np.array([1, 1, 0, 1, 1, 0, 1, 0])


def outputs(*arguments, **setting):
    return explore_overlong(*arguments, **setting).names().array


def rewards(*arguments, **setting):
    """Return a right response's reward at each length from 1 to 28."""
    output = outputs(*arguments, **setting)
    return output("shaped")[output("whole") != 0]


def test_the_group_by_hand():
    # punished from 12 to 16: 13 by ¼, 15 by ¾, the one cut at 16 by 1; sum 3, mean .375; squared deviations add up to 4
    A, shaped = outputs(), np.array([1, 1, 0, 1, 1, -0.25, 0.25, -1])
    assert A("lengths").tolist() == LENGTHS and not A("out").any()
    np.testing.assert_array_equal(A("right"), RIGHT)
    np.testing.assert_allclose(A("after"), (shaped - 0.375) / sqrt(4 / 7), rtol=1e-5)
    # plain: mean .625, squared deviations 5 · .375² + 3 · .625² = 1.875
    np.testing.assert_allclose(A("before"), (RIGHT - 0.625) / sqrt(1.875 / 7), rtol=1e-5)
    np.testing.assert_allclose(outputs(DR_GRPO)("after"), shaped - 0.375, atol=1e-12)
    assert not outputs(number_right=8)("right")[7]  # cut off, it has no answer
    # 1 and −1, then the same punishment: 1 1 −1 1 1 −1.25 .25 −2, mean 0, squared deviations 10.625
    signed = np.array([1, 1, -1, 1, 1, -1.25, 0.25, -2])
    np.testing.assert_allclose(A("signed"), signed / sqrt(10.625 / 7), rtol=1e-5)


def test_a_right_response_s_reward_against_its_length():
    np.testing.assert_allclose(rewards(factor=0.5)[11:18], [1, 0.875, 0.75, 0.625, 0.5, -0.5, -0.5])
    np.testing.assert_allclose(rewards(factor=2.0)[11:17], [1, 0.5, 0, 0, 0, -1])  # never more than 1 taken off
    assert rewards(max_length=9, cache=8)[1] == 1 - 1 / 8
    plain = outputs(shaping="none")
    assert plain("plain").tolist() == plain("shaped").tolist() == [1.0] * 17 + [0.0] * 13  # a step at 16.5, not a slope
    assert plain("at")[15:19].tolist() == [16, 16.5, 16.5, 17]


def test_the_filter_takes_cut_responses_out_of_the_loss_only():
    A = outputs(GRPO, shaping="filter", mean_length=17)
    assert A("out").tolist() == [0.0] * 4 + [1.0] * 4
    np.testing.assert_array_equal(A("after"), A("before") * [1, 1, 1, 1, 0, 0, 0, 0])
    assert A("before").all()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        # (.25 − .375) / √(4/7) and .375 / √(1.875/7)
        ({}, "DAPO: the response of 15 tokens has A = −0.17, without shaping +0.72."),
        # all wrong; punished by ¼, ¾ and 1 of eight: mean −¼
        ({"algorithm": DR_GRPO, "number_right": 0}, "the response of 16 tokens has A = −0.75, without shaping 0.00."),
    ],
)
def test_the_conclusion_by_hand(arguments, says):
    assert says in explore_overlong(**arguments).conclusion
