"""Entropy under three upper limits, on trip, which has many right answers, and where a coin is the reward.

The claim is of training, so trip counts; where a coin is the reward, with nothing to learn, limits do part, which is said only.
Looked at besides, with two or three seeds each, and at equal accuracy not different under 0.2 and 0.28: a third and a sixth of
the learning rate (200 steps), 16 updates on quarters of 16 × 16 responses, 64 prompts, and the tasks sort and chain. DCPO's
limits left as much there, or less.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rlviz.experiments.base import Part, Verdict, after, by_seed, first_reached, gap, judged, means, scaled, select
from rlviz.experiments.runs import FREE, SMALL, UPPER_LIMITS, rows, run, shipped
from rlviz.runs.arms import panels, plot_arms, plot_course
from rlviz.tabular import random_reward, train_table
from small_models.tasks import Grade, Trip

CLAIM = "Entropy falls fast under symmetric clipping and stays higher under clip-higher and dynamic bounds."
SOURCE = "DAPO, arXiv 2503.14476; DCPO, 2509.02333"
SECONDS = 60

ARMS = ("0.2", "0.28", "DCPO's")
TRIP, COIN, TABLE = "trip", "trip, a coin for a reward", "table, a coin for a reward"
LEVEL, WINDOW = 0.75, 5  # of accuracy, sampled, over so many steps


class Coin(Trip):
    """`trip`, but a response is called right when a coin says so: there is nothing to learn, and entropy drifts."""

    def __init__(self, seed: int) -> None:
        self.toss = random.Random(seed)

    def grade(self, prompt: str, response: str) -> Grade:
        return Grade(format=True, correct=self.toss.random() < 0.5)


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train with 8 updates a rollout under each upper limit: on trip, on a coin's reward, and on a table for a coin's reward."""
    policy, found = shipped("trip"), []
    for name in ARMS:
        algorithm = replace(FREE, bounds=UPPER_LIMITS[name])
        for setting, task, steps in ((TRIP, Trip(), 100), (COIN, Coin(seed), 50)):
            settings = replace(SMALL, steps=scaled(steps, scale), updates_per_rollout=8, seed=seed)
            records = run(policy, task, algorithm, settings)
            found.append(rows(records, "entropy", "accuracy", arm=name, setting=setting))
        steps, replicas = scaled(200, scale), scaled(16, scale)
        table = train_table(
            algorithm, random_reward(), steps=steps, updates_per_rollout=8, replicas=replicas, seed=seed
        )
        entropy = table.entropy.mean(0)
        found.append(pd.DataFrame({"step": np.arange(len(entropy)), "entropy": entropy, "arm": name, "setting": TABLE}))
    return pd.concat(found, ignore_index=True)


def at_equal_accuracy(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each arm and seed: the entropy on trip when accuracy first reaches the level, NaN where it does not."""
    trip = select(frame, setting=TRIP).sort_values("step")
    smooth = trip.groupby(["arm", "seed"], sort=False)[["accuracy", "entropy"]].rolling(WINDOW, min_periods=1).mean()
    trip = trip.assign(**smooth.reset_index(["arm", "seed"])[["accuracy", "entropy"]])
    return first_reached(trip, trip["accuracy"] >= LEVEL)


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare the last fifth of the steps; beside it at equal accuracy, because what learns faster has less entropy."""
    last = {setting: after(select(frame, setting=setting), 0.8) for setting in (TRIP, COIN, TABLE)}
    trip, first = last[TRIP], frame[frame["step"] <= 3]
    fall = by_seed(first, "entropy", setting=TRIP, arm="0.2") - by_seed(trip, "entropy", arm="0.2")
    return judged(
        Part("nats by which entropy falls under 0.2", fall),
        *(Part(f"nats kept in the end by {name} beyond 0.2", gap(trip, "entropy", name, "0.2")) for name in ARMS[1:]),
        f"entropy in the end on trip {means(trip, 'entropy')}",
        f"at accuracy {means(trip, 'accuracy')}",
        f"entropy when accuracy reaches {LEVEL:g}: {means(at_equal_accuracy(frame), 'entropy')}",
        *(f"{setting}, entropy in the end {means(last[setting], 'entropy')}" for setting in (COIN, TABLE)),
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw entropy over the steps, at equal accuracy, and with nothing to learn."""
    figure, (course, equal, coin) = panels(3, 4.9)
    trip, tossed = select(frame, setting=TRIP), select(frame, setting=COIN)
    plot_course(course, trip, "entropy", title="trip", unit="nats per token", smooth=5)
    plot_arms(equal, at_equal_accuracy(frame), "entropy", title=f"At accuracy {LEVEL:g}", unit="nats per token")
    plot_course(coin, tossed, "entropy", title="Nothing to learn", unit="nats per token", smooth=5)
    return figure
