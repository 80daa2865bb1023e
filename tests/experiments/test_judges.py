"""Verdicts are computed: on frames made by hand, each outcome is reached, and by the stated rule."""

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlviz import experiments
from rlviz.experiments import EXPERIMENTS, NAMES, find_experiment
from rlviz.experiments.base import (
    OUTCOMES,
    Part,
    after,
    by_seed,
    doublings,
    first_reached,
    gap,
    in_words,
    judged,
    means,
    scaled,
    select,
    times,
)
from rlviz.experiments.starved import carried_on

SEEN, NOT_SEEN, REVERSED = OUTCOMES


@pytest.mark.parametrize(
    ("values", "claimed", "outcome"),
    [
        ((1.0, 2.0, 3.0), 0.0, SEEN),  # mean 2, std 1, two standard errors 2/√3 = 1.15
        ((-1.0, -2.0, -3.0), 0.0, REVERSED),
        ((1.0, -2.0, 3.0), 0.0, NOT_SEEN),
        ((0.1, 0.1, 4.0), 0.0, NOT_SEEN),  # all above 0; mean 1.4, std 2.25, two standard errors 2.6
        ((-0.1, -0.1, -4.0), 0.0, NOT_SEEN),
        ((1.0, 2.0, 3.0), 2.1, NOT_SEEN),  # too small for what was claimed
        ((1.0, 2.0, 3.0), 2.0, SEEN),
        ((-1.0, -2.0, -3.0), 2.1, REVERSED),
        ((1.0,) * 9 + (-0.1,), 0.0, NOT_SEEN),  # one seed says no; mean .89, std .35, two standard errors .22
        ((-1.0,) * 9 + (0.1,), 0.0, NOT_SEEN),
        ((0.0, 0.0), 0.0, NOT_SEEN),
        ((0.5, 0.5), 0.0, SEEN),  # no spread at all: arithmetic
        ((1.0, 2.0, math.nan), 0.0, NOT_SEEN),
        ((math.nan, 1.0, 2.0), 0.0, NOT_SEEN),
        ((-1.0, -2.0, math.nan), 0.0, NOT_SEEN),
        ((math.nan, math.nan), 0.0, NOT_SEEN),
    ],
)
def test_the_rule(values, claimed, outcome):
    part = Part("words", values, claimed)
    assert part.outcome == outcome
    assert str(part).startswith("words: ")


def test_the_words_say_numbers_spread_and_outcome():
    assert str(Part("tokens", (1.0, 2.0, 3.0))) == "tokens: +2 (by seed +1 to +3), seen"
    assert (
        str(Part("tokens", (1.0, math.nan)))
        == "tokens: +1 (by seed +1 to +1, not measurable in 1), not seen at this scale"
    )
    assert (
        str(Part("tokens", (1.0, 2.0, 3.0), claimed=2.5))
        == "tokens: +2 (by seed +1 to +3), of the claimed sign but smaller, not seen at this scale"
    )
    assert str(Part("tokens", (1.0, -2.0, 3.0), claimed=2.5)).endswith("+3), not seen at this scale")
    assert str(Part("tokens", (math.nan, math.nan))) == "tokens: nothing to measure"
    with pytest.raises(ValueError, match="two or more seeds"):
        Part("tokens", (1.0,))


def test_a_claim_is_as_good_as_its_worst_part():
    up, flat, down = Part("up", (1.0, 1.0)), Part("flat", (1.0, -1.0)), Part("down", (-1.0, -1.0))
    assert judged(up).outcome == judged(up, up).outcome == SEEN
    assert judged(up, flat).outcome == NOT_SEEN
    assert judged(up, flat, down).outcome == judged(down, up).outcome == REVERSED
    assert judged(up, flat, down, down).share == "1 of 4 seen, 2 reversed"
    assert judged(up, flat).share == "1 of 2 seen"
    assert judged(up, "more").says == f"{up}; more."
    assert judged(up, "more").outcome == SEEN


def test_arms_are_compared_seed_by_seed():
    frame = pd.DataFrame({"seed": [0, 1, 0, 1], "arm": ["b", "b", "a", "a"], "x": [3.0, 5.0, 1.0, 4.0]})
    for rows in (frame, frame.iloc[[1, 3, 0, 2]]):
        assert tuple(gap(rows, "x", "b", "a")) == (2.0, 1.0)
        assert tuple(times(rows, "x", "b", "a")) == (3.0, 1.25)
        assert tuple(doublings(rows, "x", "b", "a")) == pytest.approx((math.log2(3), math.log2(1.25)))
    lacking = gap(frame.drop(index=3), "x", "b", "a")
    assert lacking[0] == 2.0 and math.isnan(lacking[1])
    assert list(by_seed(frame, "x", arm="b")) == [3.0, 5.0]
    assert list(by_seed(frame.drop(index=0), "x", arm="b").isna()) == [
        True,
        False,
    ]  # the seed is there, its rows are not
    more = pd.concat(
        [frame, frame.assign(x=[12.0, 5.0, 1.0, 4.0])]
    )  # b of seed 0 is 3 and 12: mean 7.5, geometric mean 6
    assert times(more, "x", "b", "a")[0] == 7.5
    assert doublings(more, "x", "b", "a")[0] == pytest.approx(math.log2(6))
    assert scaled(100, 0.001) == 1 and scaled(100, 0.1) == 10 and scaled(100, 0.001, 4) == 4


def test_rows_are_chosen_by_value_and_by_step():
    frame = pd.DataFrame({"step": [1, 2, 3, 4], "arm": ["a", "b", "c", "a"]})
    assert list(select(frame, arm="a")["step"]) == [1, 4]
    assert list(select(frame, arm=("a", "b"), step=(2, 3, 4))["step"]) == [2, 4]
    assert list(after(frame, 0.5)["step"]) == [3, 4]
    assert list(after(frame, 0.25)["step"]) == [2, 3, 4]


def test_a_goal_is_reached_at_the_first_step_of_each_arm_and_seed():
    frame = pd.DataFrame(
        {
            "arm": ["b", "b", "b", "a", "a", "a"],
            "seed": [0, 0, 1, 0, 0, 0],
            "step": [3, 2, 1, 1, 2, 3],
            "right": [0.9, 0.8, 0.1, 0.1, 0.2, 0.7],
        }
    )
    found = first_reached(frame, frame["right"] >= 0.7)
    assert list(zip(found["arm"], found["seed"], strict=True)) == [("b", 0), ("b", 1), ("a", 0)]
    np.testing.assert_equal(found["step"].to_numpy(), [2, math.nan, 3])
    np.testing.assert_equal(found["right"].to_numpy(), [0.8, math.nan, 0.7])


def test_arms_in_words():
    frame = pd.DataFrame({"arm": ["b", "a", "b"], "x": [1.0, 0.5, 2.0]})
    assert means(frame, "x") == "b 1.50, a 0.50"
    assert means(frame, "x", 0) == "b 2, a 0"
    assert in_words({"dense": 1.25, "experts": 2.0}, "×{:.1f}") == "dense ×1.2, experts ×2.0"


def of_arms(column, arms, effect, **same):
    """Return rows of three seeds over 40 steps: 1 in every arm but the first, which is `effect` more (a small jitter a seed)."""
    return pd.DataFrame(
        [
            {
                "seed": seed,
                "arm": arm,
                "step": step,
                column: 1 + 0.01 * seed * (place == 0) + effect * (place == 0),
                **same,
            }
            for place, arm in enumerate(arms)
            for seed in range(3)
            for step in range(1, 41)
        ]
    )


def length_bias(effect):
    """Wrong answers grow by 2 · effect under GRPO's mean, and under no other."""
    frame = of_arms("wrong", ("GRPO's mean", "token mean", "Dr.GRPO's"), 0.0, accuracy=0.5, length=1.0)
    grown = (frame["arm"] == "GRPO's mean") & (frame["step"] > 3)
    return frame.assign(wrong=frame["wrong"] + 2 * effect * grown)


def std_weighting(effect):
    """Two arms of one edge and one half-right group a step; the edge group's pull differs."""
    arms = ("÷ std of the group", "no division")
    edge = of_arms("pull", arms, effect, kind="1 or 7 of 8 right", difficulty="d", right=0.1)
    half = of_arms("pull", arms, 0.0, kind="4", difficulty="a", right=0.5).assign(pull=1.0)
    return pd.concat([edge, half])


def dead_groups(effect):
    """Accuracy rises from .5 to .95; wasted groups, price, repeats and use rise by `effect`."""
    rows = []
    for arm in ("nothing", "dynamic sampling", "duplication", "SAS (memory)"):
        for seed in range(3):
            for step in range(1, 41):
                late = step > 20
                rows.append({"seed": seed, "arm": arm, "step": step, "accuracy": 0.95 if late else 0.5,
                             "dead": 0.5 + late * (effect + 0.001 * seed), "price": 1 + effect * (arm == "dynamic sampling"),
                             "repeats": effect * (arm == "duplication"),
                             "contributing": 0.5 + effect * (arm == "SAS (memory)")})  # fmt: skip
    return pd.DataFrame(rows)


def ratio_variance(effect):
    """The product's spread grows by 2^effect, and the geometric mean's falls by it."""
    grows = {"one token": 0.0, "product": effect, "geometric mean": -effect}
    return pd.DataFrame(
        [
            {"seed": seed, "arm": arm, "length": n, "step": 1, "spread": 0.1 * 2 ** (power * (n == 10) * (1 + 0.01 * seed))}
            for arm, power in grows.items() for seed in range(3) for n in (1, 10)
        ]
    )  # fmt: skip


def routing(effect):
    """Experts flip, and their tokens' ratios spread more than dense ones', and than their own sequences'."""
    rows = []
    for arm in ("dense", "experts"):
        for updates in (1, 8):
            for seed in range(3):
                rows.append({"seed": seed, "arm": arm, "updates": updates, "step": 1, "accuracy": 0.5, "sequence_ratio_std": 0.1,
                             "token_ratio_std": 0.1 * 2 ** (effect * (1 + 0.01 * seed) * (arm == "experts")),
                             "routing_flips": effect if arm == "experts" else math.nan})  # fmt: skip
    return pd.DataFrame(rows)


def kl_estimators(effect):
    """log2 noise of k1 and k2 above k3's, and k3's gradient error above k3+'s, by `effect`."""
    rows = []
    for arm in ("k1", "k2", "k3", "k3+"):
        for seed in range(3):
            for step in (1, 2, 3, 4):
                rows.append({"seed": seed, "arm": arm, "step": step, "kl": 0.1, "bias": 0.0,
                             "noise": 2 ** (effect * (arm in ("k1", "k2")) * (1 + 0.01 * seed)),
                             "gradient_error": 0.5 * effect * (arm == "k3")})  # fmt: skip
    return pd.DataFrame(rows)


def stale_samples(effect):
    return pd.DataFrame(
        [
            {"seed": seed, "arm": f"{lag} old", "lag": lag, "step": step, "mean_bias": -effect * (1 + 0.01 * seed),
             "std_bias": effect, "worth": 0.9, "accuracy": 0.6}
            for seed in range(3) for lag in (1, 4) for step in (13, 17)
        ]
    )  # fmt: skip


def critic_cost(effect):
    names = ("GRPO", "GRPO, learned reward", "PPO, shared critic", "PPO, separate critic, learned reward")
    return pd.DataFrame(
        [
            {"seed": seed, "name": name, "bytes": 2 + effect * (place == 3),
             "seconds_to_grpo": 2 + effect * (place == 3) * (1 + 0.01 * seed)}
            for seed in range(3) for place, name in enumerate(names)
        ]
    )  # fmt: skip


def group_size(effect):
    """Errors fall like G to the power −½ (effect 1), not at all (−1), and in between like −.4 (0, at the edge)."""
    power, rows = {1: -0.5, 0: -0.4, -1: 0.0}[effect], []
    for seed in range(3):
        for size in (2, 4, 8, 16, 32):
            error = size ** (power + 0.001 * (seed - 1))
            rows.append({"seed": seed, "arm": "measured", "size": size, "mean_error": error, "advantage_error": error,
                         "equal": effect / size, "step": math.nan, "accuracy": math.nan})  # fmt: skip
            rows.append({"seed": seed, "arm": "trained", "size": size, "step": 1, "accuracy": 0.5})
    return pd.DataFrame(rows)


def reward_hacking(effect):
    rows = []
    for arm in ("the rule", "a learned reward"):
        for seed in range(3):
            for step in range(1, 41):
                judge = arm == "a learned reward"
                rows.append({"seed": seed, "arm": arm, "step": step, "reward": (effect + 0.01 * seed) * (step > 20) * judge,
                             "held_out_accuracy": 0.5 - 0.3 * effect * judge, "kl": 1 + 0.5 * effect * judge,
                             "start_accuracy": 0.5, "judge_accuracy": 0.8, "response_length": 5, "repetition": 0.1})  # fmt: skip
    return pd.DataFrame(rows)


def entropy_knobs(effect):
    from rlviz.experiments.entropy_knobs import BENCHES, PLAIN

    return pd.DataFrame(
        [
            {"seed": seed, "bench": bench, "arm": arm, "entropy": 1 + effect * (arm != PLAIN) * (1 + 0.01 * seed),
             "accuracy": 0.5 - 0.3 * effect * (arm != PLAIN)}
            for bench, (_, knobs, _, _) in BENCHES.items() for arm in knobs for seed in range(3)
        ]
    )  # fmt: skip


def entropy_clip(effect):
    """Entropy falls from 2 to 1 under 0.2 (rises for −1), and ends `effect` higher under the others."""
    rows = []
    for setting in ("trip", "trip, a coin for a reward", "table, a coin for a reward"):
        for arm in ("0.2", "0.28", "DCPO's"):
            for seed in range(3):
                for step in range(1, 41):
                    end = 2 - effect + 0.3 * effect * (arm != "0.2") + 0.01 * seed
                    rows.append({"seed": seed, "arm": arm, "setting": setting, "step": step, "accuracy": 0.9,
                                 "entropy": end if step > 10 else 2.0})  # fmt: skip
    return pd.DataFrame(rows)


def starved(effect):
    """0.2 needs 10 · effect rollouts more than the others, everywhere."""
    from rlviz.experiments.runs import UPPER_LIMITS
    from rlviz.experiments.starved import ONCE, RARE, SETTINGS, TABLE

    rows = []
    arms = {setting: limits for setting, (_, limits, _) in SETTINGS.items()} | {TABLE: tuple(UPPER_LIMITS)}
    for setting, limits in arms.items():
        for arm in limits:
            for seed in range(3):
                needed = 20 + 10 * effect * (arm == "0.2") + seed
                for rollout in range(40):
                    rows.append({"seed": seed, "setting": setting, "arm": arm, "rollout": rollout,
                                 "rare": 0.002 * 1.1**rollout if setting == RARE else 0.5 * (setting != ONCE),
                                 "accuracy": 0.9 if rollout >= needed else 0.1})  # fmt: skip
    return pd.DataFrame(rows)


def dcpo_headline(effect):
    """DCPO clips 10^effect times fewer tokens and uses 28 % · effect more."""
    rows = []
    for arm in ("GRPO", "DCPO", "GRPO with DCPO's limits"):
        for seed in range(3):
            dcpo = arm == "DCPO"
            rows.append({"seed": seed, "arm": arm, "step": 1, "accuracy": 0.5,
                         "clipped": 0.1 * 10 ** (-effect * dcpo * (1 + 0.01 * seed)),
                         "contributing": 0.6 * (1 + 0.28 * effect * dcpo)})  # fmt: skip
    return pd.DataFrame(rows)


def race(slow, quick, effect):
    """Return runs in which `slow` needs 2^(1.25 · effect) times the 16 steps of `quick` to the goal."""
    rows = []
    for arm in (quick, slow, "GRPO" if slow != "GRPO" else "GRPO with dynamic sampling"):
        for seed in range(3):
            needed = round(16 * 2 ** (1.25 * effect)) + seed if arm == slow else 16 + seed
            rows += [
                {"seed": seed, "arm": arm, "step": step, "responses_sampled": 128, "seconds": 0.1,
                 "held_out_accuracy": (0.9 if step >= needed else 0.5) if step % 2 == 0 else math.nan}
                for step in range(1, 61)
            ]  # fmt: skip
    return pd.DataFrame(rows)


def dupo_headline(effect):
    return race("DUPO with dynamic sampling", "DUPO", effect)


def dapo_headline(effect):
    return race("GRPO", "DAPO", effect)


def overlong(effect):
    """The punishment keeps responses from being cut off and adds accuracy, and the filter adds accuracy."""
    rows = []
    for arm, cut, right in (
        ("cut off is wrong", 0.1, 0),
        ("soft punishment", 0.1 - 0.05 * effect, 1),
        ("cut off is left out", 0.1, 1),
    ):
        for seed in range(3):
            for step in range(1, 41):
                accuracy = 0.5 + 0.1 * effect * right + 0.01 * seed if step % 5 == 0 else math.nan
                rows.append({"seed": seed, "arm": arm, "step": step, "response_length": 9,
                             "truncated": cut + 0.001 * seed * (right == 0), "held_out_accuracy": accuracy})  # fmt: skip
    return pd.DataFrame(rows)


FRAMES = {name: globals()[name] for name in NAMES}  # a frame made by hand for each claim, in a function of its name


@pytest.mark.parametrize("name", [each.name for each in EXPERIMENTS])
def test_each_outcome_can_be_reached(name):
    experiment = find_experiment(name)
    for effect, outcome in ((1, SEEN), (0, NOT_SEEN), (-1, REVERSED)):
        verdict = experiment.judge(FRAMES[name](effect))
        assert verdict.outcome == outcome, verdict.says
        assert re.search(r"\d", verdict.says) and "nan" not in verdict.says


def test_each_part_of_the_claim_on_overlong_answers_looks_at_its_own_arm():
    frame = overlong(1)
    frame.loc[frame["arm"] == "cut off is left out", "held_out_accuracy"] -= 0.5
    assert find_experiment("overlong").judge(frame).parts == (SEEN, SEEN, REVERSED)


def test_a_path_that_stopped_at_the_goal_counts_on_in_the_mean():
    frame = pd.DataFrame(
        {"arm": "0.2", "rollout": [0, 1, 0, 1, 2], "seed": [0, 0, 1, 1, 1], "rare": [0.1, 0.9, 0.1, 0.2, 0.3]}
    )
    mean = carried_on(frame).groupby("rollout")["rare"].mean()
    assert mean.tolist() == pytest.approx([0.1, 0.55, 0.6])  # (.9 + .3) / 2, not .3


@pytest.mark.parametrize("name", ["dcpo_headline", "dupo_headline", "dapo_headline"])
def test_a_headline_number_is_not_seen_in_half_its_size(name):
    verdict = find_experiment(name).judge(FRAMES[name](0.5))
    assert verdict.outcome == NOT_SEEN and "of the claimed sign but smaller" in verdict.says


@pytest.mark.parametrize("name", [each.name for each in EXPERIMENTS])
def test_the_order_of_rows_does_not_matter(name):
    frame = FRAMES[name](1)
    mixed = frame.sample(frac=1, random_state=0)
    judge = find_experiment(name).judge
    numbers = [np.sort([float(x) for x in re.findall(r"[+-]?\d+\.?\d*", judge(f).says)]) for f in (frame, mixed)]
    np.testing.assert_allclose(*numbers, rtol=1e-6)


def test_names_are_found_or_offered():
    assert find_experiment("starved").name == "starved"
    with pytest.raises(ValueError, match="did you mean length_bias"):
        find_experiment("length_bais")


def test_every_module_with_a_claim_is_listed_once():
    files = Path(experiments.__file__).parent.glob("*.py")
    assert sorted(NAMES) == sorted(file.stem for file in files if "\nCLAIM = " in file.read_text(encoding="utf-8"))
    assert [each.name for each in EXPERIMENTS] == list(NAMES)
