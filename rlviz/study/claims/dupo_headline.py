"""DUPO and dynamic sampling to the same accuracy, where each round of sampling waits for its tools.

The source's speed comes from rounds of an agent that wait for web pages. Here rounds and updates to a goal are measured on
lookup, whose responses use a tool, and the wait is put in: time = rounds · latency + updates, in units of one update.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from rlviz.algorithms import DUPO
from rlviz.pieces.selection import DynamicSampling
from rlviz.study.claim import Panel
from rlviz.study.frames import doublings, first_reached, in_words, scaled
from rlviz.study.trials import FREE, SMALL, shipped, train_arms
from rlviz.study.verdict import Part, Verdict, judged
from small_models.tasks import Lookup

CLAIM = "DUPO is 2 to 3 times faster than dynamic sampling at equal accuracy."
SOURCE = "WebSailor, arXiv 2507.02592"
SECONDS = 35
SMALLEST = 0.1  # of a log2: seven per cent of the time

DYNAMIC = "DUPO with dynamic sampling"
ARMS = {"DUPO": DUPO, DYNAMIC: replace(DUPO, select=DynamicSampling()), "GRPO": FREE}
GOAL, WINDOW = 0.8, 3  # of held-out accuracy, a mean of so many looks
LATENCY = 10.0  # that is judged: a round waits as long as ten updates take


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train each arm on lookup, and note the rounds of every step."""
    settings = replace(SMALL, steps=scaled(60, scale, 6), lr=3e-4, evaluate_every=2, seed=seed)
    return train_arms(shipped("lookup"), Lookup(), ARMS, settings, "held_out_accuracy", "rounds")


def to_goal(frame: pd.DataFrame, goal: float = GOAL) -> pd.DataFrame:
    """Return for each arm and seed the rounds and updates to the goal, NaN where it was not reached."""
    frame = frame.sort_values("step", kind="stable")
    frame = frame.assign(rounds=frame.groupby(["arm", "seed"], sort=False)["rounds"].cumsum())
    looked = frame.dropna(subset="held_out_accuracy")
    right = looked.groupby(["arm", "seed"], sort=False)["held_out_accuracy"]
    smooth = right.transform(lambda of_run: of_run.rolling(WINDOW, min_periods=1).mean())
    return first_reached(looked, smooth >= goal).rename(columns={"step": "updates"})


def speed_up(costs: pd.DataFrame, latency: float, arm: str = "DUPO") -> pd.Series:
    """Return for each seed log2 of dynamic sampling's time over an arm's, where a round waits for `latency` updates."""
    timed = costs.assign(time=costs["rounds"] * latency + costs["updates"])
    return doublings(timed, "time", DYNAMIC, arm)


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare the time to the goal at the stated latency."""
    costs = to_goal(frame)
    arms = costs.groupby("arm", sort=False)[["rounds", "updates"]].mean()
    said = [f"{arm} {row['rounds']:.0f} rounds, {row['updates']:.0f} updates" for arm, row in arms.iterrows()]
    others = {f"{latency:g}": 2 ** speed_up(costs, latency).mean() for latency in (0.0, 1.0, 100.0)}
    return judged(
        Part(
            f"log2 of dynamic sampling's time over DUPO's (claimed: 1 to 1.6) where a round waits as long as {LATENCY:g} updates",
            speed_up(costs, LATENCY),
            SMALLEST,
            claimed=1,
        ).titled(
            "speed",
            f"where a round waits as long as {LATENCY:g} updates DUPO is [faster|slower], {{}} (claimed: ×2 to 3)",
            base=2,
        ),
        f"to accuracy {GOAL:g}: {', '.join(said)}",
        *(
            f"at that wait, times as fast to other goals, {arm}: "
            + in_words(
                {f"{goal:g}": 2 ** speed_up(to_goal(frame, goal), LATENCY, arm).mean() for goal in (0.75, 0.8, 0.84)}
            )
            for arm in ("DUPO", "GRPO")
        ),
        f"times as fast where a round waits for so many updates: {in_words(others)}",
    )


def by_latency(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row a seed and latency: how many times as fast DUPO is as dynamic sampling."""
    waits = {wait: speed_up(to_goal(frame), wait) for wait in np.logspace(-1, 2, 16)}
    rows = [each.rename("times").reset_index().assign(arm="DUPO", wait=wait) for wait, each in waits.items()]
    return pd.concat(rows).assign(times=lambda rows: 2 ** rows["times"])


PANELS = [
    [
        Panel("accuracy", "held_out_accuracy", "accuracy", x="step", title="Accuracy, held out", against="GRPO"),
        Panel("rounds", "rounds", "rounds of sampling", to_goal, title=f"Rounds to accuracy {GOAL:g}", from_zero=True),
        Panel(
            "speed", "times", "times as fast (claimed: 2 to 3)", by_latency, x="wait", marked=(2, 3),
            axes={"xscale": "log", "xlabel": "wait of a round, in updates", "xticks": (0.1, 1, 10, 100), "ylim": (0, 3.2)},
        ),
    ]
]  # fmt: skip
