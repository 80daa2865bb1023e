"""Credit of outcomes and of steps against hand-worked numbers."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rlviz.algorithms import DR_GRPO, GRPO_PROCESS
from rlviz.pictures.process import explore_process

pytestmark = pytest.mark.usefixtures("untraced")

# The group in which no answer is right: 6 + 2 + 5 + 0 + 6 + 3 + 7 + 1 = 30 of 8 · 9 = 72 steps are right. Mean 30/72, unbiased
# variance 30 · 42 / 72 / 71, so z is 1.17497 for a right step and −0.83927 for a wrong one.
STD = math.sqrt(30 * 42 / 72 / 71)
GOOD, BAD = (1 - 30 / 72) / STD, (0 - 30 / 72) / STD
NONE_RIGHT = {"right_others": 0}


def outputs(*arguments, **setting):
    return explore_process(*arguments, **setting).names().array


def outcomes(names):
    return [names(f"A_{i}")[0] for i in range(1, 9)]


def test_the_answers():
    """6+1+6+5+1+7+7+8: running sums 6, 7, 13, 18, 19, 26, 33, 41, modulo 10; the first answer adds 7 too much from step 7."""
    names = outputs(**NONE_RIGHT)
    assert names("sums").tolist() == [6, 7, 3, 8, 9, 6, 0, 8] and names("answer_says") == 8
    right = 1 - names("group_wrong").reshape(8, 11)
    assert right.sum(1).tolist() == [6, 2, 5, 0, 6, 3, 7, 1]
    for digits, flags in zip(names("group_digits").reshape(8, 8), right, strict=True):
        np.testing.assert_array_equal(digits == [6, 7, 3, 8, 9, 6, 3, 1], flags[:8] > 0)
    assert np.flatnonzero(names("marks_right")).tolist() == [0, 1, 2, 3, 4, 5]
    assert np.flatnonzero(names("marks_wrong")).tolist() == [6, 7, 10]  # #, the answer and the end are one step


def test_process_credit_where_no_answer_is_right():
    sums = [(6 - t) * GOOD + 3 * BAD for t in range(6)] + [3 * BAD, 2 * BAD, BAD, BAD, BAD]
    names = outputs(**NONE_RIGHT)
    np.testing.assert_allclose(names("process"), sums, rtol=1e-5)
    np.testing.assert_allclose(names("mean"), np.array(sums) / [9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1], rtol=1e-5)
    np.testing.assert_array_equal(names("group_credit").reshape(8, 11)[0], names("process"))
    assert not names("outcome").any() and not any(outcomes(names))


def test_one_right_answer_and_three():
    """Rewards 1, 0, …: mean 1/8, unbiased std √(1/8). GRPO ±; Dr.GRPO without the division."""
    names = outputs(right_steps=8, **NONE_RIGHT)
    np.testing.assert_allclose(names("outcome"), 7 / 8 / math.sqrt(1 / 8), rtol=1e-5)
    np.testing.assert_allclose(outcomes(names)[1:], -1 / 8 / math.sqrt(1 / 8), rtol=1e-5)
    np.testing.assert_allclose(outputs(DR_GRPO, right_steps=8, **NONE_RIGHT)("outcome"), 7 / 8)
    # 33 of 72 steps are right now, and all 9 of answer 1: the sum is 9 z, the mean z
    z = (1 - 33 / 72) / math.sqrt(33 * 39 / 72 / 71)
    np.testing.assert_allclose(names("process")[[0, -1]], [9 * z, z], rtol=1e-5)
    # 3 of 8, the last three: mean 3/8, unbiased variance 8/7 · 3/8 · 5/8
    std = math.sqrt(8 / 7 * 3 / 8 * 5 / 8)
    np.testing.assert_allclose(outcomes(outputs()), [-3 / 8 / std] * 5 + [5 / 8 / std] * 3, rtol=1e-5)


def test_an_algorithm_with_process_supervision_has_its_own_rule():
    """Its outcome credit rewards the last token alone."""
    names = outputs(GRPO_PROCESS)
    np.testing.assert_array_equal(names("process"), outputs()("process"))  # the paper's sum
    np.testing.assert_allclose(outcomes(names), outcomes(outputs()), rtol=1e-12)
    mine = outputs(replace(GRPO_PROCESS, name="Mine", advantage=lambda rewards, step_ends: rewards * step_ends))
    assert mine("process").tolist() == [1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("setting", "credit"),
    [
        # 3 BAD = −2.52 on token 7, the first wrong one
        (NONE_RIGHT, "token 7 of answer 1 the least credit, −2.52, where the outcome gives 0.00."),
        (
            {"right_steps": 8, "right_others": 7},
            "all tokens of answer 1 the same credit, 0.00; the outcome gives 0.00.",
        ),
    ],
)
def test_the_conclusion_by_hand(setting, credit):
    assert explore_process(**setting).conclusion == f"GRPO: rewards for steps give {credit}"
