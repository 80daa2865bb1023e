"""Entropy under four upper limits: with nothing to learn, on trip, and at equal accuracy where rare good actions are many.

Policies that differ in accuracy differ in entropy for that reason alone, so limits are compared where there is nothing to learn
(a coin is the reward) and at equal accuracy, on a table of one common good action, ten rare good ones and nine wrong ones. How
much signal a rollout brings is what turns the order round: one group of 8, or 16 groups of 16, with 16 updates a rollout.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pandas as pd

from rlviz.study.claim import Panel
from rlviz.study.frames import after, by_seed, gap, means, scaled, select
from rlviz.study.trials import FREE, SMALL, UPPER_LIMITS, rows, run, shipped
from rlviz.study.verdict import Part, Verdict, judged
from rlviz.tabular import TableTask, random_reward, train_table
from small_models.tasks import GradedBy, Task, Trip

CLAIM = "Entropy falls fast under symmetric clipping and stays higher under clip-higher and dynamic bounds."
SOURCE = "DAPO, arXiv 2503.14476; DCPO, 2509.02333"
SECONDS = 40
SMALLEST = 0.02  # nats of interest

ARMS = ("0.2", "0.28", "1.0", "DCPO's")
TRIP, COIN, TABLE_COIN = "trip", "trip, a coin for a reward", "table, a coin for a reward"
ONE, MANY = "table, 1 group of 8", "table, 16 groups of 16"
TABLES = {ONE: (1, 8, 120), MANY: (16, 16, 40)}  # groups, responses in each, steps
WAYS = TableTask((1.0,) * 11 + (0.0,) * 9, start=(0.3,) + (0.01,) * 10 + (0.6 / 9,) * 9)
LEVEL, BAND = 0.95, (0.5, 0.6)  # of accuracy: exact on a table, sampled on trip
REPLICAS = 64
WHERE = {  # panel → what is drawn in it
    "band": "on trip at equal accuracy",
    "coin": "with nothing to learn",
    "one": "with 1 group of 8",
    "many": "with 16 groups of 16",
}


def coin(seed: int) -> Task:
    """Return `trip`, but a response is called right when a coin says so: there is nothing to learn, and entropy drifts."""
    toss = random.Random(seed)
    return GradedBy(Trip(), lambda *_: toss.random() < 0.5)


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train under each upper limit: on trip and on a coin's reward with 8 updates a rollout, and tables with 16."""
    policy, replicas, found = shipped("trip"), scaled(REPLICAS, scale, 4), []
    for name in ARMS:
        algorithm = replace(FREE, bounds=UPPER_LIMITS[name])
        for setting, task, steps in ((TRIP, Trip(), 100), (COIN, coin(seed), 50)):
            settings = replace(SMALL, steps=scaled(steps, scale), updates_per_rollout=8, seed=seed)
            records = run(policy, task, algorithm, settings)
            found.append(rows(records, "entropy", "accuracy", arm=name, setting=setting))
        for setting, (groups, group_size, steps) in TABLES.items():
            table = train_table(
                algorithm, WAYS, steps=scaled(steps, scale), groups=groups, group_size=group_size,
                updates_per_rollout=16, lr=1.0, replicas=replicas, seed=seed,
            )  # fmt: skip
            there = {"step": table.steps_to_accuracy(LEVEL), "entropy": table.entropy_at_accuracy(LEVEL)}
            found.append(pd.DataFrame(there).mean().to_frame().T.assign(accuracy=LEVEL, arm=name, setting=setting))
        steps = scaled(200, scale)
        drift = train_table(
            algorithm, random_reward(), steps=steps, updates_per_rollout=8, replicas=replicas, seed=seed
        )
        end = {"step": steps, "entropy": drift.entropy[:, -1].mean(), "accuracy": drift.accuracy[:, -1].mean()}
        found.append(pd.DataFrame([end]).assign(arm=name, setting=TABLE_COIN))
    return pd.concat(found, ignore_index=True)


def at_equal_accuracy(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the steps on trip, with the entropy of those whose sampled accuracy lies in the band, NaN of the others."""
    steps = select(frame, setting=TRIP)
    return steps.assign(entropy=steps["entropy"].where(steps["accuracy"].between(*BAND)))


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare entropy in the last fifth of the steps where nothing is learnt, and at equal accuracy where something is."""
    trip, coin = (after(select(frame, setting=setting), 0.8) for setting in (TRIP, COIN))
    one, many, drift = (select(frame, setting=setting) for setting in (ONE, MANY, TABLE_COIN))
    first = select(frame[frame["step"] <= 3], setting=TRIP)
    falls = {name: by_seed(first, "entropy", arm=name) - by_seed(trip, "entropy", arm=name) for name in ARMS}
    alike = at_equal_accuracy(frame)

    def kept(panel: str, where: str, part: pd.DataFrame, name: str) -> Part:
        return Part(
            f"nats more under {name} than under 0.2, {where}", gap(part, "entropy", name, "0.2"), SMALLEST
        ).titled(panel, f"{WHERE[panel]}, 0.2 keeps [less|more] entropy than {{}}", name)

    limits = ARMS[1], ARMS[3]
    return judged(
        Part(
            "nats by which entropy falls on trip, more under 0.2 than under 0.28",
            falls["0.2"] - falls["0.28"],
            SMALLEST,
        ).titled("course", "on trip entropy falls [more|less] under 0.2 than under {}", "0.28"),
        *(
            kept(panel, where, part, name)
            for panel, where, part in (
                ("band", "on trip at sampled accuracy .5 to .6, a band chosen after the trials", alike),
                ("coin", "with nothing to learn, on a table", drift),
                ("one", f"at accuracy {LEVEL:g}, 1 group of 8 a rollout", one),
                ("many", f"at accuracy {LEVEL:g}, 16 groups of 16", many),
            )
            for name in limits
        ),
        f"nothing to learn, on a table {means(drift, 'entropy')}",
        f"on trip, where one run wanders as far as the limits lie apart {means(coin, 'entropy')}",
        f"1 group of 8, at accuracy {LEVEL:g} {means(one, 'entropy', 3)}",
        f"16 groups of 16 {means(many, 'entropy', 3)}",
        f"trip, in the end {means(trip, 'entropy')}, at unequal accuracy {means(trip, 'accuracy')}",
    )


PANELS = [
    [
        Panel("course", "entropy", "entropy on trip, nats", partial(select, setting=TRIP), x="step", smooth=9),
        Panel("band", "entropy", "nats, at sampled accuracy {:g} to {:g}".format(*BAND), at_equal_accuracy),
    ],
    [
        Panel("coin", "entropy", "nats in the end, a coin for a reward", partial(select, setting=TABLE_COIN)),
        Panel("one", "entropy", f"nats when accuracy reaches {LEVEL:g}", partial(select, setting=ONE)),
        Panel("many", "entropy", f"nats when accuracy reaches {LEVEL:g}", partial(select, setting=MANY)),
    ],
]
