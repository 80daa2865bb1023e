"""Trials made by hand for each claim: its rule must see every part at effect 1, none at 0, and all reversed at −1."""

import itertools

import numpy as np
import pandas as pd

from rlviz.study.claims.entropy_clip import ARMS as ENTROPY_ARMS
from rlviz.study.claims.entropy_knobs import BENCHES, PLAIN
from rlviz.study.claims.starved import ONCE, RARE, SETTINGS, TABLE
from rlviz.study.claims.two_engines import ARMS as TWO_ENGINES
from rlviz.study.trials import UPPER_LIMITS


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
    """With old routes flipped tokens jump by `effect` less, log r spreads and another engine differs 2^effect times less, and
    accuracy is .1 · effect higher.
    """
    free = "new routes"
    jumps = grid(of=("flipped tokens", "the other tokens"), arm=(free, "old routes put back"))
    moved = (jumps["of"] == "flipped tokens") & (jumps["arm"] == free)
    spreads = grid(of=("token ratio", "sequence ratio"), arm=(free, "old routes put back"))
    wider = (spreads["of"] == "token ratio") & (spreads["arm"] == free)
    found = [
        jumps.assign(jump=2 + effect * moved * (1 + 0.01 * jumps["seed"])),
        spreads.assign(spread=0.1 * 2 ** (effect * wider * (1 + 0.01 * spreads["seed"]))),
    ]
    engine, learnt = (grid(of=(of,), arm=(free, "old routes put back")) for of in ("another engine", "learnt"))
    less = (engine["arm"] == free) * (1 + 0.01 * engine["seed"])
    more = (learnt["arm"] != free) * (1 + 0.01 * learnt["seed"])
    found += [engine.assign(jump=0.1 * 2 ** (effect * less)), learnt.assign(accuracy=0.5 + 0.1 * effect * more)]
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
    """DCPO clips 10^effect times fewer tokens and uses 28 points · effect more."""
    frame = grid(arm=("GRPO", "DCPO", "GRPO with DCPO's limits"), step=(1,))
    dcpo = frame["arm"] == "DCPO"
    clipped = 0.1 * 10 ** (-effect * dcpo * (1 + 0.01 * frame["seed"]))
    return frame.assign(accuracy=0.5, clipped=clipped, contributing=0.6 + 0.29 * effect * dcpo)


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
    plain, soft = "no remedy", "soft punishment"
    frame = grid(arm=(plain, soft, "double punishment", "filter"), step=STEPS)
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


def sharpening(effect):
    """GRPO gains .3 · effect at one sample and .1 at sixteen, also where nothing was right; the others .1 more than it."""
    frame = grid(
        arm=("start", "GRPO", "Pass@k", "RFT", "MaxRL"), k=(1, 2, 4, 8, 16), setting=("chain", "sort", "trip", "never")
    )
    frame["setting"] = frame["setting"].replace("never", "chain, from the policy of sort")
    trained, better = frame["arm"] != "start", frame["arm"].isin(["MaxRL", "Pass@k", "RFT"])
    gain = effect * (0.1 + 0.2 * (frame["k"] == 1)) + 0.001 * frame["seed"]
    return frame.assign(share=0.5 + trained * gain + 0.1 * effect * better)


def turn_credit(effect):
    """Right calls gain .2 · effect on every other arm; any call loses as much, and makes 2 · effect calls more than three."""
    frame = grid(arm=("the answer alone", "each right call", "the same, at the end", "any call"), step=STEPS)
    by_arm = {"each right call": 0.2 * effect, "any call": -0.2 * effect}
    accuracy = 0.5 + frame["arm"].map(by_arm).fillna(0.0) * (1 + 0.01 * frame["seed"])
    return frame.assign(held_out_accuracy=accuracy, calls=3 + 2 * effect * (frame["arm"] == "any call"))


def observations(effect):
    """ECHO reaches .9 in 2^effect times fewer steps than GRPO's 12, and then gains .08 · effect; .2 · effect without the tool."""
    frame = grid(arm=("GRPO", "ECHO"), world=("one table", "tables never seen"), step=STEPS)
    gain = effect * (frame["arm"] == "ECHO") * (1 + 0.01 * frame["seed"])
    reached = frame["step"] >= 12 / 2.0 ** (effect * (frame["arm"] == "ECHO"))
    later = frame["step"] > 30
    return frame.assign(held_out_accuracy=0.5 + 0.4 * reached + 0.08 * gain * later, alone=0.1 + 0.2 * gain, nats=1.0)


def teacher(effect):
    """Both ends .1 · effect above the reward alone, the teacher alone and the teacher's own .5, from either start."""
    frame = grid(arm=("reward", "reward and teacher", "teacher"), start=("right: 1 in 11", "right: 1 in 3"), step=STEPS)
    gain = 0.1 * effect * (frame["arm"] == "reward and teacher") * (1 + 0.01 * frame["seed"])
    return frame.assign(held_out_accuracy=0.5 + gain, teacher=0.5)


def made(name, effect):
    """Return the frame made by hand for a claim."""
    assert name in globals(), f"write a function {name}(effect) in this file, which returns trials made by hand"
    return globals()[name](effect)
