"""Advantages over simulated groups, against enumeration and closed forms; the picture against the curve."""

import itertools
from dataclasses import dataclass, replace
from math import comb, pi, sqrt

import numpy as np
import pytest

from rlviz.algorithms import DAPO, DCPO, DR_GRPO, GRPO, GRPO_PROCESS, GSPO, LITE_PPO, PPO
from rlviz.pictures.advantages import (
    GROUPS,
    POINTS,
    AdvantagesPicture,
    advantages_curve,
    explore_advantages,
)
from rlviz.pictures.groups import share_all_equal
from rlviz.pieces.kl import KLInReward


def close_as_drawn(share, expected, draws=GROUPS):
    """Return whether a simulated share lies within four standard errors of the expected one."""
    return abs(share - expected) <= 4 * sqrt(expected * (1 - expected) / draws) + 1e-12


def over_groups(p, size, value):
    """Return the mean of value(number right) over the right responses of all groups, by enumeration."""
    weights = [comb(size, k) * p**k * (1 - p) ** (size - k) * k for k in range(size + 1)]
    return sum(w * value(k) for k, w in enumerate(weights) if w) / sum(weights)


@pytest.mark.parametrize("p", [0.3, 0.9])
def test_the_share_of_all_equal_groups_is_that_of_all_sequences_of_coins(p):
    sequences = itertools.product([0, 1], repeat=5)
    by_hand = sum(p ** sum(s) * (1 - p) ** (5 - sum(s)) for s in sequences if len(set(s)) == 1)
    assert share_all_equal(p, 5) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("algorithm", [GRPO, DR_GRPO, LITE_PPO, DAPO, GSPO], ids=lambda a: a.name)
@pytest.mark.parametrize(("p", "size"), [(0.8, 8), (0.95, 4), (0.5, 2)])
def test_without_a_memory_exactly_the_all_equal_groups_are_dead(algorithm, p, size):
    curve = advantages_curve(algorithm, success_rate=p, group_size=size, visits=4)
    assert close_as_drawn(curve.dead_at, p**size + (1 - p) ** size)
    assert curve.equal_at == pytest.approx(p**size + (1 - p) ** size, rel=1e-12)
    assert curve.dead.sum() == pytest.approx(curve.dead_at)
    for q, share in zip(POINTS, curve.dead_share, strict=True):
        assert close_as_drawn(share, q**size + (1 - q) ** size, draws=256)
    np.testing.assert_allclose(curve.equal_share[[0, 100, 200]], [1.0, 2 * 0.5**size, 1.0])


@pytest.mark.parametrize(("p", "size", "visits"), [(0.95, 2, 5), (0.9, 4, 3), (0.9, 4, 1)])
def test_with_a_memory_a_group_is_dead_while_its_prompt_never_earned_another_reward(p, size, visits):
    # at visit i the group learns as soon as one of the i·G rewards differs, so that p^(iG) + (1 − p)^(iG) are dead
    curve = advantages_curve(DCPO, success_rate=p, group_size=size, visits=visits)
    assert curve.remembers
    assert close_as_drawn(curve.dead_at, p ** (visits * size) + (1 - p) ** (visits * size))
    assert curve.equal_at == pytest.approx(p**size + (1 - p) ** size)
    assert close_as_drawn(
        curve.dead_share[0], POINTS[0] ** (visits * size) + (1 - POINTS[0]) ** (visits * size), draws=256
    )


def test_the_distribution_is_that_of_the_enumerated_groups():
    # G = 4, p = ½, divided by the unbiased std: 1 right of 4: ¾ / ½ = 1.5 and −.5; 2: ±√¾ = ±.866; 3: .5 and −1.5
    curve = advantages_curve(GRPO, success_rate=0.5, group_size=4)
    middles = (curve.edges[1:] + curve.edges[:-1]) / 2
    assert curve.edges[0] == -2.0 and curve.edges[-1] == 2.0
    for value, groups, part in ((1.5, 4 / 16, 1 / 4), (0.866, 6 / 16, 1 / 2), (0.5, 4 / 16, 3 / 4)):
        bin_ = int(np.argmin(np.abs(middles - value)))
        assert close_as_drawn(curve.right[bin_] / part, groups)
        assert close_as_drawn(curve.wrong[len(middles) - 1 - bin_] / part, groups)
    assert curve.dead[20] == pytest.approx(curve.dead_at) and curve.dead_at == pytest.approx(0.125, abs=0.04)
    assert (curve.right + curve.wrong + curve.dead).sum() == pytest.approx(1.0)
    assert np.count_nonzero(curve.right) == np.count_nonzero(curve.wrong) == 3


def test_as_many_responses_are_right_as_the_rate_says():
    curve = advantages_curve(GRPO, success_rate=0.8, group_size=64)  # no group is dead
    assert close_as_drawn(curve.right.sum(), 0.8, draws=64 * GROUPS)
    assert close_as_drawn(curve.wrong.sum(), 0.2, draws=64 * GROUPS)


def test_mean_advantages_by_enumeration():
    # Dr.GRPO, G = 4, p = ½: right responses of groups with k right have 1 − k/4, 0 in dead groups of 4 right, and there are
    # k · C(4, k) of them: (4 · ¾ + 12 · ½ + 12 · ¼ + 4 · 0) / 32 = .375; as the mean counts the response itself, (1 − p)(1 − 1/G)
    counts = {k: k * comb(4, k) for k in (1, 2, 3, 4)}
    expected = sum(n * (1 - k / 4) for k, n in counts.items()) / sum(counts.values())
    assert expected == 0.375
    curve = advantages_curve(DR_GRPO, success_rate=0.5, group_size=4)
    assert curve.mean_right == pytest.approx(expected, abs=0.03)  # about four standard errors, ¼ / √1000 each
    assert curve.mean_wrong == pytest.approx(-expected, abs=0.03)
    # the mean of the others does not know of the response: 1 − p, what it is in a very large group, however small the group
    unbiased = advantages_curve(DR_GRPO, success_rate=0.5, group_size=4, rule="leave_one_out")
    assert unbiased.mean_right == pytest.approx(0.5, abs=0.04)


def test_means_and_error_are_over_the_same_responses():
    # G = 2, p = .8: beside a wrong one (.2 of the right ones) A = ½ / √½ = .7071, in dead groups (.8) 0; .5 in a very large group
    curve = advantages_curve(GRPO, group_size=2)
    mean, square = curve.mean_right / sqrt(0.5), curve.advantage_error_at**2
    assert mean == pytest.approx(0.2, abs=0.03)  # the share of right responses in groups that are not dead
    assert square == pytest.approx(mean * (sqrt(0.5) - 0.5) ** 2 + (1 - mean) * 0.25, rel=1e-3)
    picture = AdvantagesPicture(curve)
    words = picture.words(curve)
    assert f"on average A is +{curve.mean_right:.2f} for right responses and " in picture.conclusion(curve)
    assert "averages are over all 1,000 simulated groups, dead ones too" in words
    assert f"by {sqrt(square):.2f}, root mean square over the same groups; a group's mean" in words


def test_visits_move_only_what_remembers():
    first, fifth = (advantages_curve(GRPO, visits=visits) for visits in (1, 5))
    for name in ("right", "wrong", "dead", "dead_share", "advantage_error"):
        np.testing.assert_array_equal(getattr(first, name), getattr(fifth, name))
    explorer = explore_advantages(GRPO)
    hidden = [explorer.controls["visits"].hidden]
    explorer.controls["algorithm"].value = DCPO
    hidden.append(explorer.controls["visits"].hidden)
    explorer.controls["rule"].value = "leave_one_out"
    hidden.append(explorer.controls["visits"].hidden)
    assert hidden == [True, False, True]


def test_a_large_group_gives_the_advantage_of_the_whole_population():
    # p = .8: mean .8, std √(.8 · .2) = .4, so a right response has (1 − .8) / .4 = ½, undivided .2
    assert advantages_curve(GRPO).limit == pytest.approx(0.5, abs=1e-4)
    assert advantages_curve(LITE_PPO).limit == pytest.approx(0.5, abs=1e-4)
    assert advantages_curve(DCPO, visits=3).limit == pytest.approx(0.5, abs=1e-4)
    assert advantages_curve(DR_GRPO).limit == pytest.approx(0.2, abs=1e-12)
    assert advantages_curve(GRPO, rule="leave_one_out").limit == pytest.approx(0.2, abs=1e-4)


@pytest.mark.parametrize(("rule", "factor"), [("own", lambda g: 1.0), ("leave_one_out", lambda g: g / (g - 1))])
def test_the_error_of_an_advantage_by_enumeration(rule, factor):
    curve = advantages_curve(DR_GRPO, group_size=8, rule=rule)
    for size, error in zip(curve.sizes.astype(int), curve.advantage_error, strict=True):
        expected = sqrt(over_groups(0.8, size, lambda k, g=size: (factor(g) * (1 - k / g) - 0.2) ** 2))
        assert error == pytest.approx(expected, rel=0.15)
    assert curve.advantage_error_at == curve.advantage_error[2]


def test_the_error_of_the_group_s_mean_is_the_standard_error():
    curve = advantages_curve(GRPO, success_rate=0.5, group_size=9)
    assert curve.sizes.tolist() == [2, 4, 8, 9, 16, 32, 64]
    np.testing.assert_allclose(curve.mean_error * np.sqrt(curve.sizes), 0.5)
    assert curve.mean_error_at == pytest.approx(0.5 / 3)
    noisy = advantages_curve(GRPO, success_rate=0.5, group_size=9, rewards="score")
    assert noisy.mean_error_at == pytest.approx(sqrt(0.25 + 0.0625) / 3)  # variances of coin and noise add up


def test_scores_leave_no_group_dead_and_blow_up_noise():
    # G = 2: (x − mean) / unbiased std = ±1/√2 whatever the noise; undivided |x₁ − x₂| / 2 has mean .25 · (2/√π) / 2
    curve = advantages_curve(GRPO, success_rate=0.9, group_size=2, rewards="score")
    assert curve.dead_at == 0 and not curve.dead.any() and not curve.dead_share.any()
    assert curve.equal_size == pytest.approx(1 / sqrt(2), abs=1e-3)
    plain = advantages_curve(DR_GRPO, success_rate=0.9, group_size=2, rewards="score")
    assert plain.equal_size == pytest.approx(0.25 / sqrt(pi), rel=0.1)
    all_wrong = advantages_curve(
        GRPO, success_rate=0.05, group_size=16, rewards="score"
    )  # .95¹⁶ = .44, and none all right
    assert all_wrong.equal_size == pytest.approx(sqrt(2 / pi), abs=0.05)  # E|z| of a normal z
    assert advantages_curve(GRPO).equal_size == 0.0
    assert advantages_curve(GRPO, success_rate=0.5, group_size=64).equal_size is None


def test_which_advantages_depend_on_the_rest_of_the_batch():
    found = {a.name: advantages_curve(a).whole_batch for a in (GRPO, DR_GRPO, LITE_PPO, DCPO)}
    assert found == {"GRPO": False, "Dr.GRPO": False, "Lite PPO": True, "DCPO": False}


def test_a_rule_of_one_s_own():
    @dataclass  # not frozen, so not hashable
    class Against:
        baseline: float

        def __call__(self, rewards):
            return 10 * (rewards - self.baseline)

    curve = advantages_curve(replace(GRPO, name="Mine", advantage=Against(0.5)))
    assert (curve.mean_right, curve.mean_wrong, curve.limit) == (5.0, -5.0, 5.0)
    assert curve.dead_at == 0 and not curve.advantage_error.any()
    assert "0.0% of Mine's groups of 8 are dead" in AdvantagesPicture(curve).conclusion(curve)


def test_a_kl_term_in_the_reward_is_left_out():
    curve = advantages_curve(replace(GRPO, kl=KLInReward(beta=0.1)))
    np.testing.assert_array_equal(curve.right, advantages_curve(GRPO).right)


def test_a_group_is_dead_only_if_every_advantage_is_0():
    raw = replace(GRPO, name="Raw", advantage=lambda rewards: rewards)  # the rewards themselves: dead if all are wrong
    assert close_as_drawn(advantages_curve(raw, success_rate=0.6, group_size=2).dead_at, 0.16)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"success_rate": 0.0}, "success_rate must be from 0.01 to 0.99; got 0.0"),
        ({"group_size": 1}, "group_size must be from 2 to 64; got 1"),
        ({"group_size": 65}, "group_size must be from 2 to 64; got 65"),
        ({"visits": 0}, "visits must be from 1 to 10; got 0"),
        ({"rewards": "both"}, "rewards must be one of outcome, score; got 'both'"),
        ({"rule": "best"}, "rule must be one of own, leave_one_out; got 'best'"),
        ({"algorithm": PPO}, "algorithm: PPO does not learn from groups"),
        ({"algorithm": GRPO_PROCESS}, "needs step_ends"),
    ],
)
def test_refusals(wrong, says):
    with pytest.raises(ValueError, match=says):
        advantages_curve(**{"algorithm": GRPO, **wrong})


@pytest.mark.parametrize("setting", [{}, {"group_size": 64, "success_rate": 0.02}, {"rewards": "score"}])
def test_the_picture_is_the_curve(setting):
    picture = AdvantagesPicture(advantages_curve(DCPO, visits=3))
    curve = advantages_curve(GRPO, **setting)
    picture.show(curve)  # moved there, not drawn there
    for patch, shares in zip(picture.bins, (curve.right, curve.wrong, curve.dead), strict=True):
        np.testing.assert_array_equal(patch.get_data().values, shares)
        np.testing.assert_array_equal(patch.get_data().edges, curve.edges)
    np.testing.assert_array_equal(picture.equal.get_xydata(), np.column_stack([curve.rates, curve.equal_share]))
    np.testing.assert_array_equal(picture.dead.get_xydata(), np.column_stack([curve.points, curve.dead_share]))
    np.testing.assert_array_equal(picture.mean_error.get_xydata(), np.column_stack([curve.sizes, curve.mean_error]))
    np.testing.assert_array_equal(picture.error.get_xydata(), np.column_stack([curve.sizes, curve.advantage_error]))
    assert list(picture.rate.get_xdata()) == [curve.success_rate] * 2
    assert list(picture.size_rule.get_xdata()) == [curve.group_size] * 2
    assert picture.dead_here.get_xydata().tolist() == [[curve.success_rate, curve.dead_at]]
    assert picture.error_here.get_xydata().tolist() == [[curve.group_size, curve.advantage_error_at]]
    assert picture.left.get_xlim() == (curve.edges[0], curve.edges[-1])
    low, high = picture.left.get_ylim()
    assert low == 0 and max(curve.right.max(), curve.wrong.max(), curve.dead.max()) <= high <= 1
    assert len(AdvantagesPicture.alone(curve).axes) == 3


def said(*arguments, **setting):
    return explore_advantages(*arguments, **setting).caption


def test_words_at_the_ends():
    # G = 2: a right response beside a wrong one has ½ / √½ = .71; p² + (1 − p)² = .9608 at p = .98; (1 − p)/√(p(1 − p)) = .14
    words = said(GRPO, success_rate=0.98, group_size=2)
    assert words.startswith("At success rate 0.98, ")
    assert "of GRPO's groups of 2 are dead; " in words and " A = (R − mean) / std of group; averages are over" in words
    # right ones have .71 beside a wrong one, .02 of them, wrong ones −.71 beside a right one, .98 of them
    assert "on average A is +0.01 for right responses and −0.67 for wrong ones." in words
    assert "In theory 96.1% of the groups are all right or all wrong" in words
    assert "that of a very large group (+0.14)" in words
    assert "errs by 0.10." in words  # √(.98 · .02 / 2) = .099
    assert "In theory 0.0% of the groups are all right or all wrong" in said(GRPO, success_rate=0.5, group_size=64)
    assert "(+7.00)" in said(GRPO, success_rate=0.02)  # .98 / √(.02 · .98) = 7


def test_words_of_memory_noise_and_batch():
    assert said(GRPO, visits=5) == said(GRPO)
    assert "at visit 5 an all-equal group can learn from its prompt's past." in said(DCPO, visits=5)
    assert "visit" not in said(DCPO).split("over visits")[1]
    assert "nothing but noise of the scores, 0.71 in size on average" in said(GRPO, group_size=2, rewards="score")
    assert "nothing but noise" not in said(DCPO, group_size=2, rewards="score", visits=3)
    assert "nothing but noise" not in said(GRPO, group_size=2)
    assert said(LITE_PPO).endswith("The scale is that of the batch, whose prompts are all equally hard here.")
    assert "batch" not in said(GRPO)
    assert "A = R − mean of the others" in said(GRPO, rule="leave_one_out")


def test_handles_set_what_they_stand_at():
    explorer = explore_advantages()
    rate, size = explorer.picture.handles(explorer.curve)
    assert (rate.at, size.at) == (0.8, 8)
    explorer.asked = {"turn": 1, "handle": 0, "place": 0.314}  # to the slider's step, .01
    assert explorer.curve.success_rate == 0.31
    assert "At success rate 0.31, " in explorer.conclusion
    explorer.asked = {"turn": 2, "handle": 1, "place": 15.6}  # a whole number of responses
    assert explorer.curve.group_size == 16
    assert [handle.at for handle in explorer.picture.handles(explorer.curve)] == [0.31, 16]
    explorer.asked = {"turn": 3, "handle": 1, "place": 0.4}  # beyond the slider's end
    assert explorer.curve.group_size == 2
    assert " of GRPO's groups of 2 are dead" in explorer.conclusion


def test_the_conclusion_is_the_simulation_s():
    for setting in ({"group_size": 2}, {"success_rate": 0.3}):
        explorer = explore_advantages(**setting)
        curve = explorer.curve
        p, size = curve.success_rate, curve.group_size
        # G responses are all equal in p^G + (1 − p)^G of the groups, which is .68 and .058, to four standard errors
        assert close_as_drawn(curve.dead_at, p**size + (1 - p) ** size)
        assert explorer.conclusion == (
            f"At success rate {p:.2f}, {100 * curve.dead_at:.1f}% of GRPO's groups of {size} are dead; on average A is "
            f"+{curve.mean_right:.2f} for right responses and −{-curve.mean_wrong:.2f} for wrong ones."
        )
