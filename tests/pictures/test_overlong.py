"""Overlong shaping by hand: rewards against length, and a group of eight before and after."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from rlviz.algorithms import ALGORITHMS, DAPO, DR_GRPO, DUPO, GRPO, MAX_RL, PPO
from rlviz.pictures.overlong import OverlongPicture, explore_overlong, overlong_curve
from rlviz.pieces.shaping import SoftOverlongPunishment

LENGTHS = [5, 7, 8, 10, 12, 13, 15, 18]  # 11 away by −6 −4 −3 −1 1 2 4 7
RIGHT = [1, 1, 0, 1, 1, 0, 1, 0]


def test_the_group_by_hand():
    # punished from 12 to 16: 13 by ¼, 15 by ¾, the one cut at 16 by 1; sum 3, mean .375; squared deviations add up to 4
    curve = overlong_curve(DAPO)
    shaped = np.array([1, 1, 0, 1, 1, -0.25, 0.25, -1])
    assert curve.group_lengths.tolist() == LENGTHS
    assert curve.right.tolist() == [bool(r) for r in RIGHT]
    assert curve.cut.tolist() == [False] * 7 + [True]
    assert not curve.out.any()
    np.testing.assert_allclose(curve.rewards, RIGHT)
    np.testing.assert_allclose(curve.new_rewards, shaped)
    np.testing.assert_allclose(curve.after, (shaped - 0.375) / np.sqrt(4 / 7), rtol=1e-5)
    # plain: mean .625, squared deviations 5 · .375² + 3 · .625² = 1.875
    np.testing.assert_allclose(curve.before, (np.array(RIGHT) - 0.625) / np.sqrt(1.875 / 7), rtol=1e-5)
    assert not overlong_curve(DAPO, number_right=8).right[7]  # cut off, it has no answer
    assert curve.after[6] < 0 < curve.before[6]  # right, long, and worse than its group
    np.testing.assert_allclose(overlong_curve(DR_GRPO).after, shaped - 0.375, atol=1e-12)


def test_a_right_response_s_reward_against_its_length():
    curve = overlong_curve(DAPO, max_length=16, cache=4, factor=0.5)
    assert curve.lengths.tolist() == list(range(1, 29))
    assert curve.plain.tolist() == [1.0] * 16 + [0.0] * 12  # the sampler cuts after 16
    np.testing.assert_allclose(curve.shaped[11:18], [1, 0.875, 0.75, 0.625, 0.5, -0.5, -0.5])
    steep = overlong_curve(DAPO, factor=2.0)
    np.testing.assert_allclose(steep.shaped[11:17], [1, 0.5, 0, 0, 0, -1])  # never more than 1 taken off
    assert overlong_curve(DAPO, max_length=9, cache=8).shaped[1] == 1 - 1 / 8


def test_the_filter_takes_cut_responses_out_of_the_loss_only():
    curve = overlong_curve(GRPO, shaping="filter", mean_length=17)
    assert curve.out.tolist() == curve.cut.tolist() == [False] * 4 + [True] * 4
    np.testing.assert_array_equal(curve.after[:4], curve.before[:4])
    assert not curve.after[4:].any()
    assert curve.before[4:].all()
    np.testing.assert_array_equal(curve.shaped, curve.plain)


def test_none_and_own():
    none = overlong_curve(DAPO, shaping="none")
    np.testing.assert_array_equal(none.after, none.before)
    own, soft = overlong_curve(DAPO, shaping="own"), overlong_curve(DAPO)
    np.testing.assert_array_equal(own.after, soft.after)  # the sliders start at the family's numbers
    assert own.own is None and soft.own is None
    np.testing.assert_allclose(overlong_curve(DAPO, factor=0.5).own, soft.shaped)
    assert overlong_curve(GRPO).own is None
    assert overlong_curve(GRPO, shaping="own").rule == "none"


def test_standardisation_is_blind_to_affine_changes():
    # none is cut at 9 on average, the longest having 16: .9 · correct + .1 · well formed is .9 R + .1
    curve = overlong_curve(DUPO, shaping="own", mean_length=9)
    np.testing.assert_allclose(curve.new_rewards, 0.9 * curve.rewards + 0.1)
    np.testing.assert_allclose(curve.after, curve.before, atol=1e-5)
    undivided = overlong_curve(replace(DUPO, advantage=DR_GRPO.advantage), shaping="own", mean_length=9)
    np.testing.assert_allclose(undivided.after, 0.9 * undivided.before)
    # a cut response has no form either: 0, where the other wrong ones have .1
    assert overlong_curve(DUPO, shaping="own").new_rewards[[2, 5, 7]].tolist() == pytest.approx([0.1, 0.1, 0.0])


def test_where_all_are_right_the_size_of_the_punishment_is_divided_out():
    small, large = (overlong_curve(GRPO, number_right=8, mean_length=9, factor=f) for f in (0.25, 1.0))
    np.testing.assert_allclose(small.after, large.after, atol=1e-3)
    # lengths to 13 and 16: punished by ¼ and 1 of factor .25, mean −.3125/8 = −.0390625
    undivided = overlong_curve(DR_GRPO, number_right=8, mean_length=9, factor=0.25).after
    np.testing.assert_allclose(undivided[[0, 6, 7]], [0.0390625, -0.0234375, -0.2109375], atol=1e-12)
    assert small.after[7] < -2


def test_a_shape_of_one_s_own_is_told_what_it_asks_for():
    seen = {}

    def mine(rewards, lengths, truncated, well_formed):
        seen.update(lengths=lengths[0].tolist(), truncated=truncated[0].tolist(), form=well_formed[0].tolist())
        return rewards - 2.0 * truncated

    curve = overlong_curve(replace(GRPO, name="Mine", shape=mine), shaping="own")
    assert curve.new_rewards.tolist() == [*RIGHT[:7], -2.0]
    overlong_curve(replace(GRPO, shape=mine, name="Mine"), shaping="soft")
    assert seen["lengths"] == [*range(1, 17), *[16] * 12]  # the line of its own, beside the soft punishment's
    assert seen["truncated"] == [n > 16 for n in range(1, 29)]
    assert seen["form"] == [float(n <= 16) for n in range(1, 29)]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"shaping": "hard"}, "shaping must be one of soft, own, filter, none; got 'hard'"),
        ({"max_length": 1}, "max_length must be from 2 to 28; got 1"),
        ({"mean_length": 6}, "mean_length must be from 7 to 21; got 6"),
        ({"number_right": 9}, "number_right must be from 0 to 8; got 9"),
        ({"cache": 17}, r"cache must be above 0 and at most max_length \(16\).*got 17"),
        ({"factor": 0.0}, "factor must be above 0 and finite; got 0.0"),
        ({"algorithm": PPO}, "algorithm: PPO does not learn from groups"),
    ],
)
def test_refusals(wrong, says):
    with pytest.raises(ValueError, match=says):
        overlong_curve(**{"algorithm": DAPO, **wrong})


@pytest.mark.parametrize("setting", [{}, {"shaping": "filter", "mean_length": 20}, {"factor": 0.25, "number_right": 8}])
def test_the_picture_is_the_curve(setting):
    picture = OverlongPicture(overlong_curve(GRPO, max_length=20))
    curve = overlong_curve(DAPO, **setting)
    picture.show(curve)
    for line, rewards in ((picture.plain, curve.plain), (picture.shaped, curve.shaped), (picture.own, curve.own)):
        x, y = line.get_data()
        if rewards is None:
            assert len(x) == 0
            continue
        whole = x == np.round(x)
        np.testing.assert_array_equal(x[whole], curve.lengths)
        np.testing.assert_array_equal(y[whole], rewards)
        # where responses begin to be cut there is a step, not a slope: 16 | 16.5, 16.5 | 17
        assert x[15:19].tolist() == [16, 16.5, 16.5, 17]
        assert y[15:19].tolist() == [rewards[15], rewards[15], rewards[16], rewards[16]]
    assert picture.shaped.get_markevery() == [*range(16), *range(18, 30)]
    np.testing.assert_array_equal(picture.before.get_xydata(), np.column_stack([curve.group_lengths, curve.before]))
    kept = ~curve.out
    np.testing.assert_array_equal(
        picture.plus_minus.get_xydata(), np.column_stack([curve.group_lengths[kept], curve.plus_minus[kept]])
    )
    assert picture.out.get_xdata().tolist() == curve.group_lengths[curve.out].tolist()
    drawn = {}
    for right, bars in picture.bars.items():
        for path in bars.get_paths():
            x, y = path.vertices[:4].T
            drawn[round(x.mean())] = (right, y[np.argmax(np.abs(y))])
    expected = {
        int(n): (bool(r), a)
        for n, r, a, out in zip(curve.group_lengths, curve.right, curve.after, curve.out, strict=True)
        if a and not out
    }
    assert drawn == expected
    assert [beyond.get_x() for beyond in picture.beyond] == [16.5, 16.5]
    assert len(OverlongPicture.alone(curve).axes) == 2


def test_every_advantage_of_the_family_lies_within_the_axes():
    groups = [a for a in ALGORITHMS if not isinstance(a, type(PPO)) and hasattr(a, "shape")]
    for algorithm in groups:
        for right in range(9):
            curve = overlong_curve(algorithm, number_right=right, mean_length=9)
            assert OverlongPicture(curve).axes[1].get_ylim() == (-4.0, 4.0)
    far = replace(DR_GRPO, name="Mine", shape=lambda rewards, lengths: -1.0 * lengths)
    low, high = OverlongPicture(overlong_curve(far, shaping="own")).axes[1].get_ylim()
    assert low < -5 and high > 5


def legend(picture):
    (only,) = picture.figure.legends
    return [text.get_text() for text in only.get_texts()]


def test_the_legend_names_what_is_drawn_and_nothing_else():
    always = ["without shaping", "mean length", "cut off, wrong"]
    both = ["right: A", "wrong: A", "A without shaping", "A with rewards ±1"]
    soft = ["mean length", "punished from here", always[-1]]
    picture = OverlongPicture(overlong_curve(DAPO))
    assert legend(picture) == [always[0], "shaped", *both, *soft]
    for setting, expected in (
        # without the shaping of another than the algorithm's own there is one line and no diamond
        ({"algorithm": GRPO, "shaping": "none"}, [always[0], "right: A", "wrong: A", both[3], *always[1:]]),
        ({"shaping": "filter"}, [always[0], "shaped", "the algorithm's own", *both, "out of the loss", *always[1:]]),
        ({"number_right": 8, "mean_length": 9}, [always[0], "shaped", "right: A", *both[2:], *soft]),
        ({"shaping": "none", "algorithm": GRPO, "number_right": 0}, always),
        ({}, [always[0], "shaped", *both, *soft]),
    ):
        curve = overlong_curve(**{"algorithm": DAPO, **setting})
        picture.show(curve)
        assert legend(picture) == legend(OverlongPicture(curve)) == expected
    assert picture.still(overlong_curve(DAPO)) != picture.still(overlong_curve(DAPO, shaping="filter"))


def test_the_punishment_weighs_half_as_much_on_the_paper_s_rewards():
    # 1 and −1, then the same punishment: 1 1 −1 1 1 −1.25 .25 −2, mean 0, squared deviations 10.625
    signed = np.array([1, 1, -1, 1, 1, -1.25, 0.25, -2])
    standardised, undivided = overlong_curve(DAPO), overlong_curve(DR_GRPO)
    np.testing.assert_allclose(standardised.plus_minus, signed / np.sqrt(10.625 / 7), rtol=1e-5)
    np.testing.assert_allclose(undivided.plus_minus, signed, atol=1e-12)
    # half the punishment on 1 and 0 is the same scale, an affine change: standardised the same, else half as large
    np.testing.assert_allclose(overlong_curve(DAPO, factor=0.5).after, standardised.plus_minus, rtol=1e-5)
    np.testing.assert_allclose(overlong_curve(DR_GRPO, factor=0.5).after, undivided.plus_minus / 2, atol=1e-12)
    assert standardised.after[6] < 0 < standardised.plus_minus[6]  # right and long: blamed here, praised there


def test_without_a_punishment_the_scale_of_rewards_is_divided_out_or_doubles_advantages():
    for shaping in ("none", "filter"):
        divided, undivided = (overlong_curve(of, shaping=shaping, mean_length=17) for of in (DAPO, DR_GRPO))
        np.testing.assert_allclose(divided.plus_minus, divided.after, atol=1e-4)
        np.testing.assert_allclose(undivided.plus_minus, 2 * undivided.after)
        assert not undivided.plus_minus[undivided.out].any()
    # with no mean taken off, −1 for wrong is seen
    raw = overlong_curve(replace(GRPO, name="Raw", advantage=lambda rewards: rewards), shaping="none")
    np.testing.assert_allclose(raw.plus_minus, [1 if right else -1 for right in RIGHT])
    # MaxRL divides by the mean, and that of 1 1 −1 1 1 −1.25 .25 −2 is 0
    refused = overlong_curve(MAX_RL)
    assert refused.plus_minus is None and refused.after.any()
    picture = OverlongPicture(refused)
    assert not len(picture.plus_minus.get_xdata()) and "A with rewards ±1" not in legend(picture)
    assert "With rewards 1 and −1 in place of 1 and 0 MaxRL refuses this group." in said(MAX_RL)
    # rules in place of rewards do not ask how those are scaled
    rules = overlong_curve(DUPO, shaping="own")
    np.testing.assert_array_equal(rules.plus_minus, rules.after)


def said(*arguments, **setting):
    curve = overlong_curve(*arguments, **setting)
    picture = OverlongPicture(curve)
    said = picture.conclusion(curve)
    assert 40 < len(said) <= 160 and said.endswith(".")
    return f"{picture.words(curve)} {said}"


def test_words_at_several_settings():
    words = said(DAPO)
    assert words.startswith(
        "DAPO with a soft punishment (overlong punishment from 12 to 16 tokens: it takes off up to 1.00, from 16 tokens on, and "
        "never more than 1, the floor); the sampler cuts at 16"
    )
    # twice as steep it has taken 1 off after 14 tokens, half of the way; a quarter as steep never
    assert "it takes off up to 1.00, from 14 tokens on, and never more than 1, the floor)" in said(DAPO, factor=2.0)
    assert "it takes off up to 0.25, from 16 tokens on, and never more than 1, the floor)" in said(DAPO, factor=0.25)
    bottomless = replace(DAPO, shape=SoftOverlongPunishment(16, 4, floor=-inf))
    assert "floor" not in said(bottomless, shaping="own") + said(DUPO, shaping="own") + said(GRPO, shaping="filter")
    assert "1 of the eight is cut off and counts as wrong." in words
    assert "The right response of 15 tokens has reward 0.25 and A = −0.17, without shaping 1.00 and A = +0.72." in words
    halved = "With rewards 1 and −1, as in DAPO's paper, the same punishment weighs half as much: the right response of 15 tokens"
    assert f"{halved} would have A = +0.20." in words
    assert f"{halved} would have A = +0.25." in said(DR_GRPO)
    rewards = "With rewards 1 and −1 in place of 1 and 0"
    divided_out = f"{rewards} every advantage would be the same: the scale is divided out."
    assert divided_out in said(DAPO, shaping="none")
    assert f"{rewards} advantages would be 2.0 times as large." in said(DR_GRPO, shaping="none")
    # rules in place of rewards, all right, all wrong: the same, and no scale was divided out
    for same in (said(DUPO, shaping="own"), said(GRPO, number_right=8, mean_length=9), said(DR_GRPO, number_right=0)):
        assert f"{rewards} every advantage would be the same." in same
    below = replace(GRPO, name="Mine", shape=lambda rewards, lengths: rewards.clamp(max=0))
    assert f"{rewards} the right response of 5 tokens would have A = +0.72." in said(below, shaping="own")  # before: 0
    two_off = replace(GRPO, name="Mine", shape=lambda rewards, lengths, truncated: rewards - 2.0 * truncated)
    assert f"{rewards} the right response of 5 tokens would have A = " in said(two_off, shaping="own")
    assert said(GRPO, shaping="own").startswith("GRPO with its own shaping (none); the sampler")
    assert said(GRPO, shaping="none").startswith("GRPO without shaping; the sampler")
    filtered = said(GRPO, shaping="filter", mean_length=20)
    assert "without shaping; 6 of the eight are cut off and leave the loss." in filtered
    assert "No response in the loss has another advantage than without shaping" in filtered
    assert "Shaping changes rewards by up to 0.10, but no advantage; none" in said(DUPO, shaping="own", mean_length=9)
    assert "All advantages are 0." in said(GRPO, shaping="none", number_right=0)
    assert said(GRPO, shaping="none", max_length=14).endswith(
        "A right response earns 1 up to 14 tokens and 0 beyond; 2 of the eight are cut off and count as wrong."
    )
    all_right = said(GRPO, number_right=8, mean_length=9, factor=0.25)
    assert "cut off and" not in all_right
    assert (
        "The right response of 16 tokens has reward 0.75 and A = −2.40, without shaping 1.00 and A = 0.00." in all_right
    )
    none_right = said(DR_GRPO, number_right=0, mean_length=20)  # 14 and 16 tokens and six cut: −½ and −1; mean −.9375
    assert (
        "The wrong response of 14 tokens has reward −0.50 and A = +0.44, without shaping 0.00 and A = 0.00."
        in none_right
    )
    # 9 to 22 tokens, 11 is right, 14 has −½, four have −1: mean −.4375, before ⅛; the wrong one of 9 changes as much, .5625
    assert "The right response of 11 tokens has reward 1.00 and A = +1.44, without shaping 1.00 and A = +0.88." in said(
        DR_GRPO, mean_length=15, number_right=2
    )
    # 13 has −¼, 15 −¾, the one cut at 16 −1: mean −¼
    cut = said(DR_GRPO, number_right=0)
    assert "The cut response of 16 tokens has reward −1.00 and A = −0.75, without shaping 0.00 and A = 0.00." in cut


def test_lengths_are_dragged():
    explorer = explore_overlong()

    def drag(handle, place):
        explorer.asked = {"turn": explorer.answered + 1, "handle": handle, "place": place}
        return explorer.controls

    assert [handle["at"] for handle in explorer.handles] == [16.5, 12.0, 11.0, 16.5]
    assert drag(0, 20.4)["max_length"].value == 20  # half a token beyond which responses are cut
    assert drag(3, 13.6)["max_length"].value == 13
    assert drag(1, 8.2)["cache"].value == 5  # 13 − 8
    assert explorer.curve.shaped[8:10].tolist() == [1 - 1 / 5, 1 - 2 / 5]  # 9 tokens are the first that are punished
    assert drag(2, 14.3)["mean_length"].value == 14
    picture = explorer.picture
    assert [rule.get_xdata()[0] for rule in picture.rules] == [13.5, 13.5, 8.0, 14.0]
    explorer.controls["shaping"].value = "filter"
    assert explorer.controls["cache"].hidden and explorer.handles[1]["hidden"] and not explorer.handles[0]["hidden"]
