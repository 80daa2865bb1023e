"""Claim 2: entropy falls fast under symmetric clipping, and stays higher under clip-higher and dynamic bounds.

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

from rlviz.experiments.base import Experiment, Part, Verdict, by_seed, gap, judged, means, scaled
from rlviz.experiments.runs import FREE, UPPER_LIMITS, rows, run, shipped
from rlviz.runs.arms import panels, plot_arms, plot_course
from rlviz.tabular import random_reward, train_table
from rlviz.training import TrainSettings
from small_models.tasks import Grade, Trip

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
    """Train with 8 updates a rollout under each upper limit: on trip, which has many right answers, and with nothing to learn."""
    settings = TrainSettings(num_prompts=16, updates_per_rollout=8, evaluate_every=0, details_groups=1, seed=seed)
    policy, found = shipped("trip"), []
    for name in ARMS:
        algorithm = replace(FREE, bounds=UPPER_LIMITS[name])
        for setting, task, steps in ((TRIP, Trip(), 100), (COIN, Coin(seed), 50)):
            records = run(policy, task, algorithm, replace(settings, steps=scaled(steps, scale)))
            found.append(rows(records, "entropy", "accuracy", arm=name, setting=setting))
        table = train_table(
            algorithm,
            random_reward(),
            steps=scaled(200, scale),
            updates_per_rollout=8,
            replicas=scaled(16, scale),
            seed=seed,
        )
        entropy = table.entropy.mean(0)
        found.append(pd.DataFrame({"step": np.arange(len(entropy)), "entropy": entropy, "arm": name, "setting": TABLE}))
    return pd.concat(found, ignore_index=True)


def at_equal_accuracy(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each arm and seed: the entropy on trip when accuracy first reaches the level, NaN where it does not."""
    found = []
    for (arm, seed), part in frame[frame["setting"] == TRIP].groupby(["arm", "seed"], sort=False):
        smooth = part.sort_values("step")[["accuracy", "entropy"]].rolling(WINDOW, min_periods=1).mean()
        reached = smooth[smooth["accuracy"] >= LEVEL]
        found.append(
            {"arm": arm, "seed": seed, "entropy": reached["entropy"].iloc[0] if len(reached) else float("nan")}
        )
    return pd.DataFrame(found)


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare the last fifth of the steps; beside it at equal accuracy, because what learns faster has less entropy."""
    last = frame[frame["step"] > 0.8 * frame.groupby("setting")["step"].transform("max")]
    trip = last[last["setting"] == TRIP]
    fall = by_seed(frame[frame["step"] <= 3], "entropy", setting=TRIP, arm="0.2") - by_seed(trip, "entropy", arm="0.2")
    coins = (last[last["setting"] == setting] for setting in (COIN, TABLE))
    return judged(
        Part("nats by which entropy falls under 0.2", tuple(fall)),
        *(Part(f"nats kept in the end by {name} beyond 0.2", gap(trip, "entropy", name, "0.2")) for name in ARMS[1:]),
        f"entropy in the end on trip {means(trip, 'entropy')}",
        f"at accuracy {means(trip, 'accuracy')}",
        f"entropy when accuracy reaches {LEVEL:g}: {means(at_equal_accuracy(frame), 'entropy')}",
        *(f"{part['setting'].iloc[0]}, entropy in the end {means(part, 'entropy')}" for part in coins),
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw entropy over the steps, at equal accuracy, and with nothing to learn."""
    figure, (course, equal, coin) = panels(3, 4.9)
    plot_course(
        course, frame[frame["setting"] == TRIP], "step", "entropy", title="trip", unit="nats per token", smooth=5
    )
    plot_arms(equal, at_equal_accuracy(frame), "entropy", title=f"At accuracy {LEVEL:g}", unit="nats per token")
    plot_course(
        coin,
        frame[frame["setting"] == COIN],
        "step",
        "entropy",
        title="Nothing to learn",
        unit="nats per token",
        smooth=5,
    )
    return figure


EXPERIMENT = Experiment(
    "entropy_clip",
    "Entropy falls fast under symmetric clipping and stays higher under clip-higher and dynamic bounds.",
    "DAPO, arXiv 2503.14476; DCPO, 2509.02333",
    60,
    trial,
    judge,
    draw,
)
