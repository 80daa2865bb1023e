"""A race to the same held-out accuracy on easy and hard prompts, and what each arm spent until it was there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.experiments.base import first_reached, scaled
from rlviz.experiments.runs import SMALL, Graded, train_arms, warmed_up
from rlviz.runs.arms import from_zero, panels, plot_against, plot_arms

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


def draw_race(frame: pd.DataFrame) -> Figure:
    """Draw accuracy against GRPO's, and what the goal cost in steps and seconds."""
    figure, (accuracy, steps, seconds) = panels(("accuracy", "steps", "seconds"))
    looked = frame.dropna(subset="held_out_accuracy")
    plot_against(accuracy, looked, "held_out_accuracy", "GRPO", title="Accuracy, held out", unit="share right")
    costs = to_goal(frame)
    plot_arms(steps, costs, "steps", unit=f"updates to accuracy {GOAL:g}")
    title = f"Seconds to accuracy {GOAL:g}"
    plot_arms(seconds, costs, "seconds", title=title, unit="seconds of training")
    for ax in (steps, seconds):
        from_zero(ax)
    return figure
