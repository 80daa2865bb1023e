"""explore_process's curve against hand-worked numbers, and its picture against the curve."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rlviz.algorithms import ALGORITHMS, DR_GRPO, GRPO, GRPO_PROCESS, PPO, GroupPolicyGradient
from rlviz.curves import process_curve
from rlviz.plots.process import ProcessPicture
from rlviz.widgets import explore_process

# The default group: 6 + 2 + 5 + 0 + 6 + 3 + 7 + 1 = 30 of 8 · 9 = 72 steps are right, no answer is. Mean 30/72, unbiased
# variance 30 · 42 / 72 / 71, so z is 1.17497 for a right step and −0.83927 for a wrong one.
STD = math.sqrt(30 * 42 / 72 / 71)
GOOD, BAD = (1 - 30 / 72) / STD, (0 - 30 / 72) / STD


def test_the_answers():
    """6+1+6+5+1+7+7+8: running sums 6, 7, 13, 18, 19, 26, 33, 41, modulo 10; the first answer adds 7 too much from step 7."""
    curve = process_curve(GRPO)
    assert (curve.prompt, curve.gold) == ("61651778=", "67389631#1")
    assert curve.answers[0] == "67389608#8$"
    assert curve.right.sum(1).tolist() == [6, 2, 5, 0, 6, 3, 7, 1]
    assert np.flatnonzero(curve.ends).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 10]
    for answer, right in zip(curve.answers, curve.right, strict=True):
        first = 8 if right.all() else int(np.flatnonzero(~right)[0])
        assert answer[:first] == "67389631"[:first] and answer[first] != "67389631#"[first] and answer[9] == answer[7]


def test_process_credit_where_no_answer_is_right():
    sums = [(6 - t) * GOOD + 3 * BAD for t in range(6)] + [3 * BAD, 2 * BAD, BAD, BAD, BAD]
    left = [9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1]
    curve = process_curve(GRPO)
    np.testing.assert_allclose(curve.process, sums, rtol=1e-5)
    np.testing.assert_allclose(curve.beside, np.array(sums) / left, rtol=1e-5)
    assert not curve.outcome.any() and not curve.outcome_credit.any()
    swapped = process_curve(GRPO, supervision="mean")
    np.testing.assert_array_equal(swapped.process, curve.beside)
    np.testing.assert_array_equal(swapped.beside, curve.process)
    assert (curve.rule, curve.beside_rule) == ("sum of the steps to come", "mean of the steps to come")


def test_one_right_answer():
    """Rewards 1, 0, …: mean 1/8, unbiased std √(1/8). GRPO ±; Dr.GRPO without the division."""
    curve = process_curve(GRPO, right_steps=8)
    np.testing.assert_allclose(curve.outcome, 7 / 8 / math.sqrt(1 / 8), rtol=1e-5)
    np.testing.assert_allclose(curve.outcome_credit[1:], -1 / 8 / math.sqrt(1 / 8), rtol=1e-5)
    np.testing.assert_allclose(process_curve(DR_GRPO, right_steps=8).outcome, 7 / 8)
    # 33 of 72 steps are right now, and all 9 of answer 1: the sum is 9 z, the mean z
    z = (1 - 33 / 72) / math.sqrt(33 * 39 / 72 / 71)
    assert (curve.process[0], curve.process[-1]) == (pytest.approx(9 * z, rel=1e-5), pytest.approx(z, rel=1e-5))
    np.testing.assert_allclose(curve.beside, z, rtol=1e-5)


@pytest.mark.parametrize("right_others", range(8))
def test_the_last_of_the_others_become_right(right_others):
    curve = process_curve(GRPO, right_others=right_others, answer=8)
    assert curve.outcomes.tolist() == [0.0] * (8 - right_others) + [1.0] * right_others
    assert curve.right[0].sum() == 6
    assert curve.shown == 7 and curve.outcome[0] == curve.outcome_credit[7]


def test_when_all_are_right_nothing_is_left_to_say():
    curve = process_curve(GRPO, right_steps=8, right_others=7)
    assert set(curve.answers) == {"67389631#1$"}
    assert not curve.process.any() and not curve.beside.any() and not curve.outcome.any()


@pytest.mark.parametrize(
    "algorithm", [a for a in ALGORITHMS if isinstance(a, GroupPolicyGradient)], ids=lambda a: a.name
)
def test_process_credit_is_the_same_whoever_the_algorithm(algorithm):
    np.testing.assert_array_equal(process_curve(algorithm).process, process_curve(GRPO).process)
    assert not process_curve(algorithm).outcome_credit.any()


def test_an_algorithm_with_process_supervision_shows_its_own_rule():
    curve = process_curve(GRPO_PROCESS, right_others=2, supervision="mean")
    np.testing.assert_array_equal(curve.process, process_curve(GRPO, right_others=2).process)
    np.testing.assert_array_equal(curve.beside, process_curve(GRPO, right_others=2).beside)
    np.testing.assert_allclose(curve.outcome_credit, process_curve(GRPO, right_others=2).outcome_credit, rtol=1e-12)

    def own_step_only(rewards, step_ends):
        return rewards * step_ends

    mine = process_curve(replace(GRPO_PROCESS, name="Mine", advantage=own_step_only))
    assert mine.process.tolist() == [1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0]
    assert mine.rule == "its own rule"


@pytest.mark.parametrize(
    "wrong",
    [
        {"answer": 0},
        {"answer": 9},
        {"right_steps": -1},
        {"right_steps": 9},
        {"right_others": 8},
        {"supervision": "all"},
    ],
)
def test_refusals_name_the_parameter(wrong):
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))} must be"):
        process_curve(GRPO, **wrong)


def test_a_critic_has_no_group():
    with pytest.raises(ValueError, match="algorithm: PPO has nothing that this picture shows"):
        explore_process(PPO)


def written(marks):
    """Return the characters at their places: (x, y) → character."""
    return {
        (x, y): c for c, line in marks.lines.items() for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    }


def test_the_picture_is_the_curve():
    curve = process_curve(GRPO, right_others=2, answer=2)
    picture = ProcessPicture(curve)
    side, group = picture.credit, picture.group
    np.testing.assert_array_equal([path.vertices[1, 1] for path in side.bars.get_paths()], curve.process)
    np.testing.assert_array_equal(side.beside.get_ydata(), curve.beside)
    np.testing.assert_array_equal(side.outcome.get_ydata(), curve.outcome)
    tokens, marks = written(side.tokens), written(side.marks)
    assert "".join(tokens[x, -0.06] for x in range(11)) == curve.answers[1]
    assert "".join(marks[x, -0.14] for x in (*range(8), 10)) == "✓✓✗✗✗✗✗✗✗"
    table = written(group.tokens)
    assert ["".join(table[x, y] for x in range(11)) for y in range(8)] == list(curve.answers)
    assert [table[11.6, y] for y in range(8)] == list("00000011")
    grey = {(round(p.vertices[0, 0] + 0.5), round(p.vertices[0, 1] + 0.46)) for p in group.wrong.get_paths()}
    assert grey == {(x, y) for y in range(8) for x in range(11) if not curve.right[y, x]}
    assert group.chosen.get_y() == pytest.approx(1 - 0.46)


def test_words():
    explorer = explore_process()
    # 6 GOOD + 3 BAD = 4.53, BAD = −0.84, 3 BAD = −2.52; token 5 is the first whose sum, 2 GOOD + 3 BAD, is below 0
    assert (
        "GRPO: none of the 8 answers is right. So the outcome gives no token of any answer any credit."
        in explorer.caption
    )
    assert "Answer 1, 67389608#8, is wrong from step 7 of 9 on." in explorer.caption
    assert "runs from +4.53 on the first token to −0.84 on the last, −2.52 at its lowest" in explorer.caption
    assert "below 0 from token 5, before the first wrong step" in explorer.caption
    assert "the mean of the steps to come is +0.50" in explorer.caption
    explorer.controls["right_steps"].slider.value = 0
    assert "wrong from step 1 of 9 on" in explorer.caption and "before the first wrong step" not in explorer.caption
    explorer.controls["right_steps"].slider.value = 8
    assert "1 of 8 answers is right. The outcome gives every token of the answer the same +2.47" in explorer.caption
    assert "Answer 1, 67389631#1, is right throughout" in explorer.caption
    explorer.controls["right_others"].slider.value = 7
    assert "each of the 8 answers is right. So the outcome gives no token of any answer any credit." in explorer.caption
    assert "is 0 on every token" in explorer.caption
    explorer.controls["right_steps"].slider.value = 7
    # −1/8 against 7/8: −0.875 / 0.354
    assert "7 of 8 answers are right. The outcome gives every token of the answer the same −2.47" in explorer.caption
    assert "wrong from step 8 of 9 on" in explorer.caption
