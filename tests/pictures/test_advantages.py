"""Advantages over simulated groups, against enumeration and closed forms."""

from dataclasses import dataclass, replace
from math import comb, pi, sqrt

import numpy as np
import pytest
import torch

from rlviz.algorithms import DAPO, DCPO, DR_GRPO, GRPO, GSPO, LITE_PPO, MAX_RL
from rlviz.pictures.advantages import FEWER, GROUPS, POINTS, SIZES, explore_advantages, interpolated, texts
from rlviz.pictures.groups import memory
from rlviz.pieces.advantages import PromptHistory
from rlviz.pieces.kl import KLInReward


def shown(*arguments, **setting):
    """Return what the curve gives at a setting, by name: a number, or an array."""
    explorer = explore_advantages(*arguments, **setting)
    outputs = explorer._outputs(explorer.key(), explorer.values)
    return {name: value.numpy() if value.numel() > 1 else value.item() for name, value in outputs.items()}


def close_as_drawn(share, expected, draws=GROUPS):
    """Return whether a simulated share lies within four standard errors of the expected one."""
    return abs(share - expected) <= 4 * sqrt(expected * (1 - expected) / draws) + 1e-12


def over_groups(p, size, value):
    """Return the mean of value(number right) over the right responses of all groups, by enumeration."""
    weights = [comb(size, k) * p**k * (1 - p) ** (size - k) * k for k in range(size + 1)]
    return sum(w * value(k) for k, w in enumerate(weights) if w) / sum(weights)


@pytest.mark.parametrize("algorithm", [GRPO, DR_GRPO, LITE_PPO, DAPO, GSPO, MAX_RL], ids=lambda a: a.name)
@pytest.mark.parametrize(("p", "size"), [(0.8, 8), (0.95, 4), (0.5, 2)])
def test_without_a_memory_exactly_the_all_equal_groups_are_dead(algorithm, p, size):
    seen = shown(algorithm, success_rate=p, group_size=size, visits=4)
    assert close_as_drawn(seen["dead_at"], p**size + (1 - p) ** size)
    assert seen["equal_at"] == pytest.approx(p**size + (1 - p) ** size, rel=1e-12)
    assert seen["dead"].sum() == pytest.approx(seen["dead_at"])
    for q, share in zip(POINTS, seen["dead_share"], strict=True):
        assert close_as_drawn(share, q**size + (1 - q) ** size, draws=FEWER)
    np.testing.assert_allclose(seen["equal_share"][[0, 100, 200]], [1.0, 2 * 0.5**size, 1.0])


@pytest.mark.parametrize(("p", "size", "visits"), [(0.95, 2, 5), (0.9, 4, 3), (0.9, 4, 2), (0.9, 4, 1)])
def test_with_a_memory_a_group_is_dead_while_its_prompt_never_earned_another_reward(p, size, visits):
    # at visit i the group learns as soon as one of the i·G rewards differs, so that p^(iG) + (1 − p)^(iG) are dead
    seen, q = shown(DCPO, success_rate=p, group_size=size, visits=visits), POINTS[0]
    assert close_as_drawn(seen["dead_at"], p ** (visits * size) + (1 - p) ** (visits * size))
    assert close_as_drawn(seen["dead_share"][0], q ** (visits * size) + (1 - q) ** (visits * size), draws=FEWER)
    assert seen["learned"] == (visits > 1)


def test_the_distribution_is_that_of_the_enumerated_groups():
    # G = 4, p = ½, divided by the unbiased std: 1 right of 4: ¾ / ½ = 1.5 and −.5; 2: ±√¾ = ±.866; 3: .5 and −1.5
    seen = shown(GRPO, success_rate=0.5, group_size=4)
    assert seen["reach"] == -seen["reach_low"] == 2.0
    for value, groups, part in ((1.5, 4 / 16, 1 / 4), (0.866, 6 / 16, 1 / 2), (0.5, 4 / 16, 3 / 4)):
        bin_ = int(np.argmin(np.abs(seen["middle"] - value)))
        assert close_as_drawn(seen["right"][bin_] / part, groups)
        assert close_as_drawn(seen["wrong"][len(seen["middle"]) - 1 - bin_] / part, groups)
    assert seen["dead"][20] == pytest.approx(seen["dead_at"]) and seen["middle"][20] == pytest.approx(0, abs=1e-12)
    assert (seen["right"] + seen["wrong"] + seen["dead"]).sum() == pytest.approx(1.0)
    assert np.count_nonzero(seen["right"]) == np.count_nonzero(seen["wrong"]) == 3


def test_the_bins_hold_what_lies_on_their_limit():
    # DCPO, population std, G = 5, one right: .8 / √.16 = 2, but for rounding; MaxRL, G = 9, one right: 1 / (1/9) − 1 = 8
    assert shown(DCPO, success_rate=0.2, group_size=5)["reach"] == 3.0
    assert shown(MAX_RL, success_rate=0.2, group_size=9)["reach"] == 16.0


def test_mean_advantages_by_enumeration():
    # Dr.GRPO: right responses of groups with k right have 1 − k/G; as the mean counts the response itself, (1 − p)(1 − 1/G)
    seen = shown(DR_GRPO, success_rate=0.5, group_size=4)
    assert over_groups(0.5, 4, lambda k: 1 - k / 4) == pytest.approx(0.375)
    assert seen["mean_right"] == pytest.approx(0.375, abs=0.045)  # four standard errors, ¼ / √512 each
    assert seen["mean_wrong"] == pytest.approx(-0.375, abs=0.045)
    # the mean of the others does not know of the response: 1 − p, what it is in a very large group, however small the group
    assert shown(DR_GRPO, success_rate=0.5, group_size=4, rule="leave_one_out")["mean_right"] == pytest.approx(
        0.5, abs=0.06
    )


def test_a_large_group_gives_the_advantage_of_the_whole_population():
    # p = .8: mean .8, std √(.8 · .2) = .4, so a right response has (1 − .8) / .4 = ½, undivided .2, by the mean ¼
    for algorithm, limit in ((GRPO, 0.5), (LITE_PPO, 0.5), (DCPO, 0.5), (DR_GRPO, 0.2), (MAX_RL, 0.25)):
        assert shown(algorithm, visits=3)["limit"] == pytest.approx(limit, abs=1e-4)
    assert shown(GRPO, rule="leave_one_out")["limit"] == pytest.approx(0.2, abs=1e-4)


@pytest.mark.parametrize(("rule", "factor"), [("own", lambda g: 1.0), ("leave_one_out", lambda g: g / (g - 1))])
def test_errors_by_enumeration(rule, factor):
    seen = shown(DR_GRPO, group_size=9, rule=rule)
    assert seen["sizes"].tolist() == sorted([*SIZES, 9])
    for size, error in zip(seen["sizes"].astype(int), seen["advantage_error"], strict=True):
        expected = sqrt(over_groups(0.8, size, lambda k, g=size: (factor(g) * (1 - k / g) - 0.2) ** 2))
        assert error == pytest.approx(expected, rel=0.2)
    assert seen["advantage_error_at"] == seen["advantage_error"][3]
    np.testing.assert_allclose(seen["mean_error"] * np.sqrt(seen["sizes"]), 0.4)  # √(p (1 − p))
    noisy = shown(GRPO, success_rate=0.5, group_size=9, rewards="score")
    assert noisy["mean_error_at"] == pytest.approx(sqrt(0.25 + 0.0625) / 3)  # variances of coin and noise add up


def test_means_and_error_are_over_the_same_responses():
    # G = 2, p = .8: beside a wrong one A = ½ / √½ = .7071, in dead groups 0; .5 in a very large group
    seen = shown(GRPO, group_size=2)
    mean = seen["mean_right"] / sqrt(0.5)  # the share of right responses in groups that are not dead
    square = mean * (sqrt(0.5) - 0.5) ** 2 + (1 - mean) * 0.25
    assert seen["advantage_error_at"] ** 2 == pytest.approx(square, rel=1e-3)


def test_scores_leave_no_group_dead_and_blow_up_noise():
    # G = 2: (x − mean) / unbiased std = ±1/√2 whatever the noise; undivided |x₁ − x₂| / 2 has mean .25 · (2/√π) / 2
    seen = shown(GRPO, success_rate=0.9, group_size=2, rewards="score")
    assert seen["dead_at"] == 0 and not seen["dead"].any() and not seen["dead_share"].any()
    assert seen["equal_size"] == pytest.approx(1 / sqrt(2), abs=1e-3) and seen["only_noise"]
    plain = shown(DR_GRPO, success_rate=0.9, group_size=2, rewards="score")
    assert plain["equal_size"] == pytest.approx(0.25 / sqrt(pi), rel=0.1)
    assert not shown(GRPO, success_rate=0.5, group_size=64, rewards="score")["only_noise"]  # there is no such group
    assert not shown(DCPO, group_size=2, rewards="score", visits=3)["only_noise"]
    # MaxRL refuses scores, so it is shown with 1 and 0
    refused = explore_advantages(MAX_RL, rewards="score")
    assert refused.names().one("dead_at") > 0 and "MaxRL refuses a group whose mean is not above 0" in refused.caption


@pytest.mark.usefixtures("untraced")
def test_what_an_algorithm_fixes():
    flags = {a.name: [texts(a, "own")[n] for n in ("remembers", "whole_batch")] for a in (GRPO, LITE_PPO, DCPO)}
    assert flags == {"GRPO": ["", ""], "Lite PPO": ["", "yes"], "DCPO": ["yes", ""]}
    assert texts(DCPO, "leave_one_out")["remembers"] == ""
    np.testing.assert_array_equal(
        shown(replace(GRPO, name="Mine", kl=KLInReward(beta=0.1)))["right"], shown(GRPO)["right"]
    )


@pytest.mark.usefixtures("untraced")
def test_a_rule_of_one_s_own():
    @dataclass  # not frozen, so not hashable
    class Against:
        baseline: float

        def __call__(self, rewards):
            return 10 * (rewards - self.baseline)

    seen = shown(replace(GRPO, name="Mine", advantage=Against(0.5)))
    assert (seen["mean_right"], seen["mean_wrong"], seen["limit"]) == (5.0, -5.0, 5.0)
    assert seen["dead_at"] == 0 and seen["advantage_error_at"] == 0


def test_a_memory_that_does_not_pool_is_told_of_each_visit_and_asks_the_kernel():
    def forgetful(rewards, history=None):  # knows the last visit alone
        return rewards - history.mean.unsqueeze(1), replace(PromptHistory.empty(len(rewards)).after(rewards))

    mine = replace(DCPO, name="Mine", advantage=forgetful)
    earlier = torch.tensor([[[1.0, 1.0], [0.0, 0.0]]], dtype=torch.double)  # the latest visit first
    assert memory(mine)(earlier, torch.tensor(3.0)).mean.tolist() == [1.0]
    assert memory(DCPO)(earlier, torch.tensor(3.0)).mean.tolist() == [0.5]
    explorer = explore_advantages(mine, visits=3)
    assert explorer.given()["variants"][explorer.key()]["program"] is None


def test_interpolation_is_numpy_s():
    xs, ys = np.array([0.0, 0.0, 0.5, 1.0, 1.0]), np.array([3.0, 3.0, 1.0, 4.0, 4.0])
    x = np.linspace(-0.5, 1.5, 41)
    found = interpolated(*(torch.from_numpy(each) for each in (x, xs, ys))).numpy()
    np.testing.assert_allclose(found, np.interp(x, xs, ys))
