"""explore_process's curve against hand-worked numbers, and its picture against the curve."""

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from rlviz.algorithms import ALGORITHMS, DR_GRPO, GRPO, GRPO_PROCESS, PPO, RELATIVES, GroupPolicyGradient
from rlviz.pictures.gae import gae_curve
from rlviz.pictures.process import ROWS, Marks, ProcessPicture, compares_a_group, explore_process, process_curve

# The group in which no answer is right: 6 + 2 + 5 + 0 + 6 + 3 + 7 + 1 = 30 of 8 · 9 = 72 steps are right. Mean 30/72, unbiased
# variance 30 · 42 / 72 / 71, so z is 1.17497 for a right step and −0.83927 for a wrong one.
STD = math.sqrt(30 * 42 / 72 / 71)
GOOD, BAD = (1 - 30 / 72) / STD, (0 - 30 / 72) / STD
NONE_RIGHT = {"right_others": 0}


def test_the_answers():
    """6+1+6+5+1+7+7+8: running sums 6, 7, 13, 18, 19, 26, 33, 41, modulo 10; the first answer adds 7 too much from step 7."""
    curve = process_curve(GRPO, **NONE_RIGHT)
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
    curve = process_curve(GRPO, **NONE_RIGHT)
    np.testing.assert_allclose(curve.process, sums, rtol=1e-5)
    np.testing.assert_allclose(curve.beside, np.array(sums) / left, rtol=1e-5)
    assert not curve.outcome.any() and not curve.outcome_credit.any()
    swapped = process_curve(GRPO, supervision="mean", **NONE_RIGHT)
    np.testing.assert_array_equal(swapped.process, curve.beside)
    np.testing.assert_array_equal(swapped.beside, curve.process)
    assert (curve.rule, curve.beside_rule) == ("sum of the steps to come", "mean of the steps to come")


def test_one_right_answer():
    """Rewards 1, 0, …: mean 1/8, unbiased std √(1/8). GRPO ±; Dr.GRPO without the division."""
    curve = process_curve(GRPO, right_steps=8, **NONE_RIGHT)
    np.testing.assert_allclose(curve.outcome, 7 / 8 / math.sqrt(1 / 8), rtol=1e-5)
    np.testing.assert_allclose(curve.outcome_credit[1:], -1 / 8 / math.sqrt(1 / 8), rtol=1e-5)
    np.testing.assert_allclose(process_curve(DR_GRPO, right_steps=8, **NONE_RIGHT).outcome, 7 / 8)
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
    assert not process_curve(algorithm, **NONE_RIGHT).outcome_credit.any()


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


@pytest.mark.parametrize("algorithm", [a for a in RELATIVES if not compares_a_group(a)], ids=lambda a: a.name)
@pytest.mark.parametrize("curve", [process_curve, gae_curve])
def test_what_rewards_do_not_tell_is_said_in_words(curve, algorithm):
    """TIS needs a sampler's probabilities, distillation a teacher's; ORPO has no group: no picture of rewards has them."""
    with pytest.raises(
        ValueError, match=rf"^algorithm: {re.escape(algorithm.name)}('s advantage needs| (does not|learns))"
    ):
        curve(algorithm)


def test_three_others_are_right_at_first_so_that_the_algorithm_matters():
    """Rewards 1 for 3 of 8: mean 3/8, unbiased variance 8/7 · 3/8 · 5/8. Dr.GRPO does not divide."""
    curve = process_curve(GRPO)
    assert curve.outcomes.tolist() == [0.0] * 5 + [1.0] * 3
    std = math.sqrt(8 / 7 * 3 / 8 * 5 / 8)
    np.testing.assert_allclose(curve.outcome_credit, [-3 / 8 / std] * 5 + [5 / 8 / std] * 3, rtol=1e-5)
    np.testing.assert_allclose(process_curve(DR_GRPO).outcome_credit, [-3 / 8] * 5 + [5 / 8] * 3)


def test_process_supervision_is_offered_beside_the_outcome():
    explorer = explore_process()
    pick = explorer.controls["algorithm"]
    assert [label for label, _ in pick.options][:2] == ["GRPO", "GRPO (process)"]
    assert len(set(pick.options)) == len(pick.options)
    pick.value = GRPO_PROCESS
    assert explorer.call == "explore_process(GRPO_PROCESS)"
    assert "Process credit, its own rule, is put in the outcome's place" in explorer.caption


def written(marks):
    """Return the texts at their places: (x, y) → text."""
    places = [(round(float(x), 9), round(float(y), 9)) for x, y, _ in marks.places]
    return dict(zip(places, marks.texts, strict=True))


def standing(ax, moving):
    """Return what an axes says that does not move."""
    found = [marks for marks in ax.artists if isinstance(marks, Marks) and marks is not moving]
    return {place: text for marks in found for place, text in written(marks).items()}


def test_the_picture_is_the_curve():
    curve = process_curve(GRPO, right_others=2, answer=2)
    picture = ProcessPicture(curve)
    side, group = picture.credit, picture.group
    np.testing.assert_array_equal([path.vertices[1, 1] for path in side.bars.get_paths()], curve.process)
    np.testing.assert_array_equal(side.beside.get_ydata(), curve.beside)
    np.testing.assert_array_equal(side.outcome.get_ydata(), curve.outcome)
    below = written(side.written)
    assert "".join(below[x, ROWS["writes"]] for x in range(11)) == curve.answers[1]
    assert "".join(below[x, ROWS["right?"]] for x in (*range(8), 10)) == "✓✓✗✗✗✗✗✗✗"
    table = written(group.written)
    assert ["".join(table[x, y] for x in range(11)) for y in range(8)] == list(curve.answers)
    assert [table[11.6, y] for y in range(8)] == list("00000011")
    # 2 of 8: mean ¼, unbiased variance 8/7 · ¼ · ¾
    assert [table[13.9, y] for y in range(8)] == ["−0.54"] * 6 + ["+1.62"] * 2
    middles = np.array([(x, y) for y in range(8) for x in range(11)])
    grey = sum(path.contains_points(middles).astype(int) for path in group.wrong.get_paths())
    np.testing.assert_array_equal(grey.reshape(8, 11), ~curve.right)
    (shade,) = side.wrong.get_paths()
    np.testing.assert_array_equal(shade.contains_points([(x, 0) for x in range(11)]), ~curve.right[1])
    assert group.chosen.get_y() == pytest.approx(1 - 0.46)


def test_what_each_step_adds_stands_above_what_it_writes():
    """6+1+6+5+1+7+7+8: the sums are 6, 7, 13, 18, 19, 26, 33, 41."""
    picture = ProcessPicture(process_curve(GRPO))
    left = picture.credit
    adds = standing(left.ax, left.written)
    assert [adds[x, ROWS["adds"]] for x in range(8)] == ["+6", "+1", "+6", "+5", "+1", "+7", "+7", "+8"]
    assert {text.get_text() for text in left.ax.texts} == {"adds", "writes", "right?"}
    heads = standing(picture.group.written.axes, picture.group.written)
    assert "".join(heads[x, -2] for x in range(9)) == "61651778="
    assert "".join(heads[x, -1] for x in range(11)) == "67389631#1$"
    assert (heads[11.6, -1], heads[13.9, -1]) == ("R", "A")


def test_words():
    explorer = explore_process(right_others=0)
    # 6 GOOD + 3 BAD = 4.53, BAD = −0.84, 3 BAD = −2.52; token 5 is the first whose sum, 2 GOOD + 3 BAD, is below 0
    assert explorer.conclusion == (
        "GRPO gives no token of any answer any credit; process credit runs from +4.53 on the first token to −0.84 on the last, "
        "−2.52 at its lowest."
    )
    assert explorer.details == (
        "Each step adds a digit of 6+1+6+5+1+7+7+8 and writes the last digit of the sum so far; #, the answer and the end are "
        "the last step. None of the 8 answers is right; answer 1, 67389608#8, is wrong from step 7 of 9 on. Process credit, sum "
        "of the steps to come, is put in the outcome's place, not added to it; it is below 0 from token 5, before the first "
        "wrong step: a token answers for all steps to come. On the first token the mean of the steps to come is +0.50."
    )
    explorer.controls["right_steps"].value = 0
    assert "wrong from step 1 of 9 on" in explorer.caption and "before the first wrong step" not in explorer.caption
    explorer.controls["right_steps"].value = 8
    assert "1 of 8 answers is right; answer 1, 67389631#1, is right throughout" in explorer.details
    assert explorer.conclusion.startswith("GRPO gives every token of answer 1 the same +2.47; process credit ")
    explorer.controls["right_others"].value = 7
    assert "Each of the 8 answers is right; " in explorer.details
    assert explorer.conclusion == "GRPO gives no token of any answer any credit; process credit is 0 on every token."
    explorer.controls["right_steps"].value = 7
    # −1/8 against 7/8: −0.875 / 0.354
    assert "7 of 8 answers are right; " in explorer.details
    assert explorer.conclusion.startswith("GRPO gives every token of answer 1 the same −2.47; ")
    assert "wrong from step 8 of 9 on" in explorer.details
    explorer.controls["answer"].value = 3  # 1/8 / 0.354
    assert explorer.conclusion.startswith("GRPO gives every token of answer 3 the same +0.35; ")


def test_a_conclusion_is_a_sentence():
    for algorithm, right_others, right_steps in itertools.product((GRPO, GRPO_PROCESS), (0, 3), range(9)):
        curve = process_curve(algorithm, right_others=right_others, right_steps=right_steps)
        assert len(ProcessPicture(curve).conclusion(curve)) <= 160


def test_steps_answers_and_rows_are_dragged():
    explorer = explore_process()

    def drag(handle, place):
        explorer.asked = {"turn": explorer.answered + 1, "handle": handle, "place": place}
        return {name: control.value for name, control in explorer.controls.items()}

    # a token's bar is one wide: after six right ones the line is at 5.5; five of the rows 0 to 7 are wrong
    assert [handle["at"] for handle in explorer.handles] == [5.5, 4.5, 0.0]
    assert drag(0, 1.6)["right_steps"] == 2
    assert explorer.picture.credit.first_wrong.get_xdata()[0] == 1.5
    assert drag(0, 9.0)["right_steps"] == 8 and drag(0, -2.0)["right_steps"] == 0
    assert drag(1, 2.4)["right_others"] == 5
    assert explorer.curve.outcomes.tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    assert explorer.picture.group.first_right.get_ydata() == [2.5, 2.5]
    assert drag(2, 3.8)["answer"] == 5
    assert explorer.handles[0]["hidden"]  # another answer's steps


def test_bars_and_lines_stay_inside_wherever_the_sliders_are():
    """The numbers beside the ticks change, the ticks do not move."""
    picture = ProcessPicture(process_curve(GRPO))
    ax, units, places = picture.credit.ax, set(), set()
    for right_others, right_steps, answer in itertools.product(range(8), range(9), (1, 4, 8)):
        curve = process_curve(GRPO, right_others=right_others, right_steps=right_steps, answer=answer)
        picture.show(curve)
        low, high = ax.get_ylim()
        for values in (curve.process, curve.beside, curve.outcome):
            assert low < values.min() and values.max() < high
        ticks = ax.get_yticks()
        numbers = [text for (x, _), text in written(picture.credit.written).items() if x == -1.4]
        assert numbers == [f"{tick}".replace("-", "−") for tick in ticks]
        units.add(ticks[-1])
        places.add(tuple(np.round((ticks - low) / (high - low), 9)))
    assert len(units) == 3 and len(places) == 1
    shown = written(picture.credit.written)
    assert [y for (x, y) in shown if x == -1.4] == pytest.approx(places.pop())
