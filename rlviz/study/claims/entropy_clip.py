"""Entropy under four upper limits: with nothing to learn, on trip, and at equal accuracy where rare good actions are many.

Policies that differ in accuracy differ in entropy for that reason alone, so limits are compared where there is nothing to learn
(a coin is the reward) and at equal accuracy, on a table of one common good action, ten rare good ones and nine wrong ones. How
much signal a rollout brings is what turns the order round: one group of 8, or 16 groups of 16, with 16 updates a rollout.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pandas as pd

from rlviz.study.effects import Claim, Effect
from rlviz.study.frames import by_seed, gap, late, means, scaled, select
from rlviz.study.trials import FREE, SMALL, UPPER_LIMITS, load_shipped, rows, train_copy
from rlviz.tabular import TableTask, random_reward, train_table
from small_models.tasks import GradedBy, Task, Trip

SAYS = "Entropy falls fast under symmetric clipping and stays higher under clip-higher and dynamic bounds."
SOURCE = "DAPO, arXiv 2503.14476; DCPO, 2509.02333"

SMALLEST = 0.02  # nats of interest
ARMS = ("0.2", "0.28", "1.0", "DCPO's")
TRIP, COIN, TABLE_COIN = "trip", "trip, a coin for a reward", "table, a coin for a reward"
ONE, MANY = "table, 1 group of 8", "table, 16 groups of 16"
TABLES = {ONE: (1, 8, 120), MANY: (16, 16, 40)}  # groups, responses in each, steps
WAYS = TableTask((1.0,) * 11 + (0.0,) * 9, start=(0.3,) + (0.01,) * 10 + (0.6 / 9,) * 9)
LEVEL, BAND = 0.95, (0.5, 0.6)  # of accuracy: exact on a table, sampled on trip
REPLICAS = 64


def coin(seed: int) -> Task:
    """Return `trip`, but a response is called right when a coin says so: there is nothing to learn, and entropy drifts."""
    toss = random.Random(seed)
    return GradedBy(Trip(), lambda *_: toss.random() < 0.5)


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train under each upper limit: on trip and on a coin's reward with 8 updates a rollout, and tables with 16."""
    policy, replicas, results = load_shipped("trip"), scaled(REPLICAS, scale, 4), []
    for name in ARMS:
        algorithm = replace(FREE, bounds=UPPER_LIMITS[name])
        for setting, task, steps in ((TRIP, Trip(), 100), (COIN, coin(seed), 50)):
            settings = replace(SMALL, steps=scaled(steps, scale), updates_per_rollout=8, seed=seed)
            records = train_copy(policy, task, algorithm, settings)
            results.append(rows(records, "entropy", "accuracy", arm=name, setting=setting))
        for setting, (groups, group_size, steps) in TABLES.items():
            table = train_table(
                algorithm, WAYS, steps=scaled(steps, scale), groups=groups, group_size=group_size,
                updates_per_rollout=16, lr=1.0, replicas=replicas, seed=seed,
            )  # fmt: skip
            reached = {"step": table.steps_to_accuracy(LEVEL), "entropy": table.entropy_at_accuracy(LEVEL)}
            results.append(pd.DataFrame(reached).mean().to_frame().T.assign(accuracy=LEVEL, arm=name, setting=setting))
        steps = scaled(200, scale)
        drift = train_table(
            algorithm, random_reward(), steps=steps, updates_per_rollout=8, replicas=replicas, seed=seed
        )
        end = {"step": steps, "entropy": drift.entropy[:, -1].mean(), "accuracy": drift.accuracy[:, -1].mean()}
        results.append(pd.DataFrame([end]).assign(arm=name, setting=TABLE_COIN))
    return pd.concat(results, ignore_index=True)


def effects(frame: pd.DataFrame) -> list[Effect]:
    """Compare entropy in the last fifth of the steps where nothing is learnt, and at equal accuracy where something is."""
    trip = select(frame, setting=TRIP)
    first, last = trip[trip["step"] <= 3], late(trip, 0.8)
    falls = {name: by_seed(first, "entropy", arm=name) - by_seed(last, "entropy", arm=name) for name in ("0.2", "0.28")}
    alike = trip.assign(entropy=trip["entropy"].where(trip["accuracy"].between(*BAND)))
    drift, one, many = (select(frame, setting=setting) for setting in (TABLE_COIN, ONE, MANY))
    places = {
        "on trip at sampled accuracy .5 to .6, a band chosen after the trials": alike,
        "with nothing to learn, on a table": drift,
        f"at accuracy {LEVEL:g}, 1 group of 8 a rollout": one,
        f"at accuracy {LEVEL:g}, 16 groups of 16": many,
    }
    faster = falls["0.2"] - falls["0.28"]
    return [
        Effect("nats by which entropy falls on trip, more under 0.2 than under 0.28", faster, SMALLEST),
        *(
            Effect(f"nats more under {name} than under 0.2, {place}", gap(rows, "entropy", name, "0.2"), SMALLEST)
            for place, rows in places.items()
            for name in ("0.28", "DCPO's")
        ),
    ]


def numbers(frame: pd.DataFrame) -> list[str]:
    coin_on_trip = late(select(frame, setting=COIN), 0.8)
    return [f"on trip, where one run wanders as far as the limits lie apart {means(coin_on_trip, 'entropy')}"]


CLAIM = Claim("entropy_clip", SAYS, SOURCE, seconds=40, trial=trial, effects=effects, numbers=numbers)
