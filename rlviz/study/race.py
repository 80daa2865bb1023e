"""A race to the same held-out accuracy on easy and hard prompts, and what each arm spent until it was there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.study.claim import Panel
from rlviz.study.frames import first_reached, scaled
from rlviz.study.trials import SMALL, Graded, train_arms, warmed_up

GOAL = 0.9  # held-out accuracy; looked at after every second step


class Steep(Graded):
    """`graded`, with easy prompts that are nearly always right from the start, and hard ones."""

    name = "steep"
    shown: Mapping[str, float] = {"a": 0.97, "b": 0.97, "c": 0.97, "d": 0.2, "e": 0.1}


def race(arms: Mapping[str, GroupPolicyGradient], seed: int, scale: float) -> pd.DataFrame:
    """Train each arm on easy and hard prompts, and note what every step cost."""
    task = Steep()
    policy = warmed_up(task, seed, scale, target_accuracy=0.65)
    settings = replace(SMALL, steps=scaled(70, scale), lr=1e-4, evaluate_every=2, seed=seed)
    return train_arms(policy, task, arms, settings, "held_out_accuracy", "responses_sampled", "seconds")


def to_goal(frame: pd.DataFrame) -> pd.DataFrame:
    """Return for each arm and seed the steps, responses and seconds to the goal, NaN where it was not reached."""
    frame = frame.sort_values("step", kind="stable")
    runs = frame.groupby(["arm", "seed"], sort=False)
    responses, seconds = runs["responses_sampled"].cumsum(), runs["seconds"].cumsum()
    spent = frame.assign(steps=runs.cumcount() + 1, responses=responses, seconds=seconds)
    return first_reached(spent, spent["held_out_accuracy"] >= GOAL)


def costs_in_words(costs: pd.DataFrame) -> list[str]:
    """Return what each arm needed, in words."""
    return [
        f"to accuracy {GOAL:g} {arm} {part['steps'].mean():.0f} steps, {part['responses'].mean():.0f} responses, "
        f"{part['seconds'].mean():.1f} s"
        for arm, part in costs.groupby("arm", sort=False)
    ]


RACE_PANELS = [
    [
        Panel("accuracy", "held_out_accuracy", "accuracy", x="step", title="Accuracy, held out", against="GRPO"),
        Panel("steps", "steps", f"updates to accuracy {GOAL:g}", to_goal, from_zero=True),
        Panel(
            "seconds", "seconds", "seconds of training", to_goal, title=f"Seconds to accuracy {GOAL:g}", from_zero=True
        ),
    ]
]
