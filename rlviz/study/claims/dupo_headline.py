"""DUPO and dynamic sampling to the same accuracy, where each round of sampling waits for its tools.

The source's speed comes from an agent whose rounds of sampling wait for web pages. Rounds and updates to a goal are measured on
lookup, whose responses use a tool, and the wait is added: time = rounds · latency + updates, in units of one update.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from rlviz.algorithms import DUPO
from rlviz.pieces.selection import DynamicSampling
from rlviz.study.effects import Claim, Effect
from rlviz.study.frames import first_reached, in_words, log2_ratio, scaled
from rlviz.study.trials import FREE, SMALL, load_shipped, train_arms
from small_models.tasks import Lookup

SAYS = "DUPO is 2 to 3 times faster than dynamic sampling at equal accuracy."
SOURCE = "WebSailor, arXiv 2507.02592"

DYNAMIC = "DUPO with dynamic sampling"
ARMS = {"DUPO": DUPO, DYNAMIC: replace(DUPO, select=DynamicSampling()), "GRPO": FREE}
GOAL, LOOKS = 0.8, 3  # held-out accuracy, the mean of so many looks
LATENCY = 10.0  # of one round of sampling, in updates


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train each arm on lookup, and record the rounds of sampling of every step."""
    settings = replace(SMALL, steps=scaled(60, scale, 6), lr=3e-4, evaluate_every=2, seed=seed)
    return train_arms(load_shipped("lookup"), Lookup(), ARMS, settings, "held_out_accuracy", "rounds")


def speed_up(frame: pd.DataFrame, goal: float = GOAL) -> pd.Series:
    """Return, for each seed, log2 of dynamic sampling's time to the goal over DUPO's."""
    frame = frame.sort_values("step", kind="stable")
    frame = frame.assign(rounds=frame.groupby(["arm", "seed"])["rounds"].cumsum())
    looks = frame.dropna(subset="held_out_accuracy")
    accuracy = looks.groupby(["arm", "seed"])["held_out_accuracy"]
    smooth = accuracy.transform(lambda run: run.rolling(LOOKS, min_periods=1).mean())
    costs = first_reached(looks, smooth >= goal)
    return log2_ratio(costs.assign(time=costs["rounds"] * LATENCY + costs["step"]), "time", DYNAMIC, "DUPO")


def effects(frame: pd.DataFrame) -> list[Effect]:
    words = (
        "log2 of dynamic sampling's time over DUPO's (claimed: 1 to 1.6) where a round waits as long as {:g} updates"
    )
    return [Effect(words.format(LATENCY), speed_up(frame), 0.1, claimed=1)]


def numbers(frame: pd.DataFrame) -> list[str]:
    times = {f"{goal:g}": 2 ** speed_up(frame, goal).mean() for goal in (0.75, 0.8, 0.84)}
    return [f"at that wait, times as fast to other goals, DUPO: {in_words(times)}"]


CLAIM = Claim("dupo_headline", SAYS, SOURCE, seconds=35, trial=trial, effects=effects, numbers=numbers)
