"""Verdicts are computed: on frames made by hand, each outcome is reached, and by the stated rule."""

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from rlviz import experiments
from rlviz.experiments import EXPERIMENTS, NAMES, find_experiment
from rlviz.experiments.base import after, by_seed, doublings, first_reached, gap, in_words, means, scaled, select, times
from rlviz.experiments.entropy_clip import ARMS as ENTROPY_ARMS
from rlviz.experiments.entropy_knobs import BENCHES, PLAIN
from rlviz.experiments.overlong import ARMS as OVERLONG_ARMS, ROOM
from rlviz.experiments.parts import OUTCOMES, Arithmetic, Part, titles
from rlviz.experiments.runs import UPPER_LIMITS
from rlviz.experiments.starved import ONCE, RARE, SETTINGS, TABLE, carried_on
from rlviz.experiments.two_engines import ARMS as TWO_ENGINES

SEEN, NEGLIGIBLE, NOT_SEEN, REVERSED = OUTCOMES


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


def grid(**axes):
    """Return a row for each combination of these values, of seeds 0 to 2 where the axes have none."""
    axes = {"seed": range(3)} | axes
    return pd.DataFrame(itertools.product(*axes.values()), columns=list(axes))


STEPS = range(1, 41)


def length_bias(effect):
    """Wrong answers grow by 2 · effect tokens, or dots, under GRPO's mean, and under no other."""
    frame = grid(arm=("GRPO's mean", "token mean", "Dr.GRPO's"), step=STEPS)
    grpo = frame["arm"] == "GRPO's mean"
    wrong = 1 + grpo * (0.01 * frame["seed"] + 2 * effect * (frame["step"] > 3))
    return pd.concat(
        [
            frame.assign(start=start, tokens=wrong, dots=wrong, accuracy=0.5)
            for start in ("half guesses at first", "sums from the first")
        ]
    )


def std_weighting(effect):
    """Two arms of one edge and one half-right group a step; the edge group's pull differs."""
    frame = grid(arm=("÷ std of the group", "no division"), step=STEPS)
    more = (effect + 0.01 * frame["seed"]) * (frame["arm"] == "÷ std of the group")
    edge = frame.assign(pull=1 + more, kind="1 or 7 of 8 right", difficulty="d", right=0.1)
    return pd.concat([edge, frame.assign(pull=1.0, kind="4", difficulty="a", right=0.5)])


def dead_groups(effect):
    """Accuracy rises from .5 to .95; wasted groups, price, repeats and use rise by `effect`."""
    frame = grid(arm=("nothing", "dynamic sampling", "duplication", "SAS (memory)"), step=STEPS)
    arm, late = frame["arm"], frame["step"] > 20
    return frame.assign(
        accuracy=0.5 + 0.45 * late,
        dead=0.5 + late * (effect + 0.001 * frame["seed"]),
        price=1 + effect * (arm == "dynamic sampling"),
        repeats=effect * (arm == "duplication"),
        contributing=0.5 + effect * (arm == "SAS (memory)"),
    )


def ratio_variance(effect):
    """The product's spread grows by 2^effect, and the geometric mean's falls by it."""
    frame = grid(arm=("one token", "product", "geometric mean"), length=(1, 10), step=(1,))
    power = frame["arm"].map({"one token": 0.0, "product": effect, "geometric mean": -effect})
    return frame.assign(spread=0.1 * 2 ** (power * (frame["length"] == 10) * (1 + 0.01 * frame["seed"])))


def routing(effect):
    """Flipped tokens jump by `effect` less once old routes are put back, and log r spreads 2^effect times less."""
    free = "new routes"
    jumps = grid(of=("flipped tokens", "the other tokens"), arm=(free, "old routes put back"))
    moved = (jumps["of"] == "flipped tokens") & (jumps["arm"] == free)
    spreads = grid(of=("token ratio", "sequence ratio"), arm=(free, "old routes put back"))
    wider = (spreads["of"] == "token ratio") & (spreads["arm"] == free)
    found = [
        jumps.assign(jump=2 + effect * moved * (1 + 0.01 * jumps["seed"])),
        spreads.assign(spread=0.1 * 2 ** (effect * wider * (1 + 0.01 * spreads["seed"]))),
    ]
    return pd.concat(found, ignore_index=True).assign(flips=effect)


def kl_estimators(effect):
    """log2 noise of k1 and k2 above k3's, and k3's gradient error above k3+'s, by `effect`."""
    frame = grid(arm=("k1", "k2", "k3", "k3+"), step=(1, 2, 3, 4))
    return frame.assign(
        kl=0.1,
        bias=0.0,
        noise=2 ** (effect * frame["arm"].isin(("k1", "k2")) * (1 + 0.01 * frame["seed"])),
        gradient_error=0.5 * effect * (frame["arm"] == "k3"),
    )


def stale_samples(effect):
    """The mean of groups that are half old is `effect` too low, and their std as much too large."""
    frame = grid(lag=(1, 4), step=(13, 17))
    too_low = effect * (1 + 0.01 * frame["seed"])
    arm = [f"{lag} old" for lag in frame["lag"]]
    return frame.assign(arm=arm, mean_bias=-too_low, std_bias=effect, worth=0.9, accuracy=0.6)


def critic_cost(effect):
    """PPO with a critic of its own takes `effect` more bytes, and as many seconds more."""
    four = "PPO, separate critic, learned reward"
    frame = grid(name=("GRPO", "GRPO, learned reward", "PPO, shared critic", four))
    more = effect * (frame["name"] == four)
    return frame.assign(bytes=2 + more, seconds_to_grpo=2 + more * (1 + 0.01 * frame["seed"]))


def group_size(effect):
    """Errors fall like G to the power −½ (effect 1), not at all (−1), and in between like −.4 (0, at the edge)."""
    frame = grid(size=(2, 4, 8, 16, 32))
    error = frame["size"] ** ({1: -0.5, 0: -0.4, -1: 0.0}[effect] + 0.001 * (frame["seed"] - 1))
    measured = frame.assign(arm="measured", mean_error=error, advantage_error=error, equal=effect / frame["size"])
    trained = frame.assign(arm="trained", step=1, accuracy=0.5 + 0.1 * effect * (frame["size"] > 2))
    return pd.concat([measured, trained], ignore_index=True)


def reward_hacking(effect):
    """The learned reward rises by `effect`; accuracy falls by .3 of it, and KL rises by half of it."""
    frame = grid(arm=("the rule", "a learned reward"), step=STEPS)
    hacked = frame["arm"] == "a learned reward"
    return frame.assign(
        reward=(effect + 0.01 * frame["seed"]) * (frame["step"] > 20) * hacked,
        held_out_accuracy=0.5 - 0.3 * effect * hacked,
        kl=1 + 0.5 * effect * hacked,
        start_accuracy=0.5,
        judge_accuracy=0.8,
        response_length=5,
        repetition=0.1,
    )


def entropy_knobs(effect):
    """Every knob keeps `effect` nats more, and costs .3 of it in accuracy."""
    arms = [(bench, arm) for bench, (_, knobs, _, _) in BENCHES.items() for arm in knobs]
    frame = grid(of=arms)
    frame = frame.assign(bench=frame["of"].str[0], arm=frame["of"].str[1])
    turned = frame["arm"] != PLAIN
    entropy = 1 + effect * turned * (1 + 0.01 * frame["seed"])
    return frame.assign(entropy=entropy, accuracy=0.5 - 0.3 * effect * turned)


def entropy_clip(effect):
    """Entropy falls from 2 to 1 under 0.2 on trip (rises for −1), and is `effect` higher under the others where it counts."""
    frame = grid(setting=("trip", "trip, a coin for a reward"), arm=ENTROPY_ARMS, step=STEPS)
    end = 2 - effect + 0.3 * effect * (frame["arm"] != "0.2") + 0.01 * frame["seed"]
    course = frame.assign(accuracy=0.55, entropy=end.where(frame["step"] > 10, 2.0))
    settings = ("table, 1 group of 8", "table, 16 groups of 16", "table, a coin for a reward")
    tables = grid(setting=settings, arm=ENTROPY_ARMS)
    kept = 1 + 0.3 * effect * (tables["arm"] != "0.2") + 0.01 * tables["seed"]
    return pd.concat([course, tables.assign(step=5.0, accuracy=0.95, entropy=kept)], ignore_index=True)


def starved(effect):
    """0.2 needs 10 · effect rollouts more than the others, everywhere."""
    limits = {setting: arms for setting, (_, arms, _) in SETTINGS.items()} | {TABLE: tuple(UPPER_LIMITS)}
    frame = grid(of=[(setting, arm) for setting, arms in limits.items() for arm in arms], rollout=range(40))
    frame = frame.assign(setting=frame["of"].str[0], arm=frame["of"].str[1])
    needed = 20 + 10 * effect * (frame["arm"] == "0.2") + frame["seed"]
    growing = 0.002 * 1.1 ** frame["rollout"]
    return frame.assign(
        rare=growing.where(frame["setting"] == RARE, 0.5 * (frame["setting"] != ONCE)),
        accuracy=np.where(frame["rollout"] >= needed, 0.9, 0.1),
    )


def dcpo_headline(effect):
    """DCPO clips 10^effect times fewer tokens and uses 28 % · effect more."""
    frame = grid(arm=("GRPO", "DCPO", "GRPO with DCPO's limits"), step=(1,))
    dcpo = frame["arm"] == "DCPO"
    clipped = 0.1 * 10 ** (-effect * dcpo * (1 + 0.01 * frame["seed"]))
    return frame.assign(accuracy=0.5, clipped=clipped, contributing=0.6 * (1 + 0.28 * effect * dcpo))


def race(slow, quick, effect):
    """Return runs in which `slow` needs 2^(1.25 · effect) times the 16 steps of `quick` to the goal."""
    frame = grid(arm=(quick, slow, "GRPO" if slow != "GRPO" else "GRPO with dynamic sampling"), step=range(1, 61))
    needed = np.where(frame["arm"] == slow, round(16 * 2 ** (1.25 * effect)), 16) + frame["seed"]
    accuracy = pd.Series(np.where(frame["step"] >= needed, 0.9, 0.5)).where(frame["step"] % 2 == 0)
    return frame.assign(responses_sampled=128, seconds=0.1, held_out_accuracy=accuracy)


def dupo_headline(effect):
    """Dynamic sampling needs 2^(1.25 · effect) times DUPO's 20 updates to the goal, of a round each."""
    frame = grid(arm=("DUPO", "DUPO with dynamic sampling", "GRPO"), step=range(1, 61))
    slow = frame["arm"] == "DUPO with dynamic sampling"
    needed = np.where(slow, round(20 * 2 ** (1.25 * effect)), 20) + 2 * frame["seed"]
    accuracy = pd.Series(np.where(frame["step"] >= needed, 1.0, 0.3)).where(frame["step"] % 2 == 0)
    return frame.assign(rounds=1, held_out_accuracy=accuracy)


def dapo_headline(effect):
    return race("GRPO", "DAPO", effect)


def overlong(effect):
    """The punishment keeps responses from being cut off and adds accuracy, and the filter adds accuracy."""
    plain, soft = "cut off is wrong", "soft punishment"
    frame = grid(arm=(plain, soft, "twice the punishment", "cut off is left out"), step=STEPS)
    arm, jitter = frame["arm"], frame["seed"]
    accuracy = 0.5 + 0.1 * effect * (arm != plain) + 0.01 * jitter
    return frame.assign(
        response_length=9,
        truncated=0.1 - 0.05 * effect * (arm == soft) + 0.001 * jitter * (arm == plain),
        held_out_accuracy=accuracy.where(frame["step"] % 5 == 0),
    )


def two_engines(effect):
    """Another sampler costs .2 · effect, and each correction gives half of it back."""
    frame = grid(of=[(arm, correction) for arm, correction, _ in TWO_ENGINES], look=("before", "end"))
    frame = frame.assign(arm=frame["of"].str[0], correction=frame["of"].str[1])
    lost = 0.2 * effect * (frame["arm"] != "one engine") * np.where(frame["correction"] == "nothing", 1, 0.5)
    return frame.assign(step=60, outside=0.1, accuracy=0.6 - lost + 0.001 * frame["seed"])


def made(name, effect):
    """Return the frame made by hand for a claim: its rule must see it at effect 1, not at 0, and reversed at −1."""
    assert name in globals(), f"write a function {name}(effect) in this file, which returns trials made by hand"
    return globals()[name](effect)


@pytest.mark.parametrize("name", [each.name for each in EXPERIMENTS])
def test_each_outcome_can_be_reached(name):
    judge = find_experiment(name).judge
    for effect, outcome in ((1, {SEEN}), (0, {NOT_SEEN, NEGLIGIBLE}), (-1, {REVERSED})):
        verdict = judge(made(name, effect))
        assert set(verdict.parts) <= outcome, verdict.says
        assert re.search(r"\d", verdict.says) and "nan" not in verdict.says
    assert verdict.parts or name == "std_weighting"  # of which nothing is measured: given the groups, it is arithmetic


@pytest.mark.parametrize("name", [each.name for each in EXPERIMENTS])
def test_titles_say_of_every_part_what_the_verdict_says_and_the_opposite_of_the_opposite(name):
    up, down = (find_experiment(name).judge(made(name, effect)) for effect in (1, -1))
    assert all(each.shown for each in up.said if isinstance(each, Part))
    said = {each.shown.panel for each in up.said if isinstance(each, Part | Arithmetic) and each.shown}
    assert titles(up).keys() == titles(down).keys() == said
    for panel, title in titles(up).items():
        seen, opposite = (
            [line for line in of.lines if not line.endswith("arithmetic")] for of in (title, titles(down)[panel])
        )
        assert len(seen) == len(opposite) and not set(seen) & set(opposite)
        assert all(SEEN in line and REVERSED not in line for line in seen)
        assert all(REVERSED in line and f": {SEEN}" not in line for line in opposite)
        assert set(title.rows.values()) <= {SEEN} and set(titles(down)[panel].rows.values()) <= {REVERSED}


def test_each_part_of_the_claim_on_overlong_answers_looks_at_its_own_arm():
    frame = overlong(1)
    for arm, reversed_too in (("cut off is left out", 5), ("twice the punishment", 3), ("soft punishment", 1)):
        frame.loc[frame["arm"] == arm, "held_out_accuracy"] -= 0.5
        expected = [SEEN] * reversed_too + [REVERSED] * (6 - reversed_too)
        assert find_experiment("overlong").judge(frame).parts == tuple(expected)


def test_the_soft_punishment_weighs_what_the_paper_s_does_and_the_contrast_twice_as_much():
    rewards, longest = torch.tensor([[1.0, 0.0]]), torch.full((1, 2), ROOM)
    paper = 1 / (1 - -1)  # the most that is taken off, over how far apart right and wrong are
    for arm, weight in (("soft punishment", paper), ("twice the punishment", 2 * paper)):
        taken = rewards - OVERLONG_ARMS[arm].shape(rewards, longest)
        assert taken.tolist() == [[weight, weight]]


def test_a_path_that_stopped_at_the_goal_counts_on_in_the_mean():
    frame = pd.DataFrame(
        {"arm": "0.2", "rollout": [0, 1, 0, 1, 2], "seed": [0, 0, 1, 1, 1], "rare": [0.1, 0.9, 0.1, 0.2, 0.3]}
    )
    mean = carried_on(frame).groupby("rollout")["rare"].mean()
    assert mean.tolist() == pytest.approx([0.1, 0.55, 0.6])  # (.9 + .3) / 2, not .3


@pytest.mark.parametrize("name", ["dcpo_headline", "dupo_headline", "dapo_headline"])
def test_a_headline_number_is_not_seen_in_half_its_size(name):
    verdict = find_experiment(name).judge(made(name, 0.5))
    assert set(verdict.parts) == {NOT_SEEN} and "of the claimed sign but smaller" in verdict.says


@pytest.mark.parametrize("name", [each.name for each in EXPERIMENTS])
def test_the_order_of_rows_does_not_matter(name):
    frame = made(name, 1)
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
