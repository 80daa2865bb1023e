"""Headline numbers: DUPO is 2 to 3 times as fast as dynamic sampling, DAPO needs half of another model's training steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from rlviz.algorithms import DAPO, DUPO
from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.experiments.base import Experiment, Part, Verdict, judged, scaled
from rlviz.experiments.runs import FREE, Graded, rows, run, warmed_up
from rlviz.pieces.selection import DynamicSampling
from rlviz.runs.arms import from_zero, panels, plot_arms, plot_course
from rlviz.training import TrainSettings

DYNAMIC = "DUPO with dynamic sampling"
OF_DUPO = {"DUPO": DUPO, DYNAMIC: replace(DUPO, select=DynamicSampling()), "GRPO": FREE}
OF_DAPO = {"DAPO": DAPO, "GRPO": FREE, "GRPO with dynamic sampling": replace(FREE, select=DynamicSampling())}
GOAL = 0.9  # held-out accuracy; looked at after every second step


class Steep(Graded):
    """`graded`, with easy prompts that are nearly always right from the start, and hard ones."""

    name = "steep"
    shown: Mapping[str, float] = {"a": 0.97, "b": 0.97, "c": 0.97, "d": 0.2, "e": 0.1}


def trial(arms: Mapping[str, GroupPolicyGradient], seed: int, scale: float) -> pd.DataFrame:
    """Train each arm on easy and hard prompts, and note what every step cost."""
    task = Steep()
    policy = warmed_up(task, seed, scale, target_accuracy=0.65)
    settings = TrainSettings(
        steps=scaled(70, scale), num_prompts=16, lr=1e-4, evaluate_every=2, details_groups=1, seed=seed
    )
    found = []
    for name, algorithm in arms.items():
        records = run(policy, task, algorithm, settings)
        found.append(rows(records, "held_out_accuracy", "responses_sampled", "seconds", arm=name))
    return pd.concat(found, ignore_index=True)


def to_goal(frame: pd.DataFrame) -> pd.DataFrame:
    """Return for each arm and seed the steps, responses and seconds to the goal, NaN where it was not reached."""
    found = []
    for (arm, seed), part in frame.groupby(["arm", "seed"], sort=False):
        reached = part[part["held_out_accuracy"] >= GOAL]["step"]
        until = part[part["step"] <= (reached.min() if len(reached) else -1)]
        costs = {"steps": len(until), "responses": until["responses_sampled"].sum(), "seconds": until["seconds"].sum()}
        found.append({"arm": arm, "seed": seed} | {name: value or float("nan") for name, value in costs.items()})
    return pd.DataFrame(found)


def times(costs: pd.DataFrame, column: str, more: str, less: str) -> tuple[float, ...]:
    """Return for each seed log2 of how many times as much the one arm needs as the other."""
    by_arm = costs.set_index(["arm", "seed"])[column]
    return tuple((by_arm[more] / by_arm[less]).sort_index().map(math.log2))


def words(costs: pd.DataFrame) -> list[str]:
    """Return what each arm needed, in words."""
    return [
        f"to accuracy {GOAL:g} {arm} {part['steps'].mean():.0f} steps, {part['responses'].mean():.0f} responses, "
        f"{part['seconds'].mean():.1f} s"
        for arm, part in costs.groupby("arm", sort=False)
    ]


def judge_dupo(frame: pd.DataFrame) -> Verdict:
    """Compare DUPO with itself under dynamic sampling, at equal accuracy."""
    costs = to_goal(frame)
    return judged(
        Part(
            "log2 of dynamic sampling's seconds over DUPO's (claimed: 1 to 1.6)",
            times(costs, "seconds", DYNAMIC, "DUPO"),
            claimed=1,
        ),
        f"not counted, {Part('log2 of responses', times(costs, 'responses', DYNAMIC, 'DUPO'))}",
        "the source's rollouts wait for tools, these do not",
        *words(costs),
    )


def judge_dapo(frame: pd.DataFrame) -> Verdict:
    """Compare the updates that GRPO and DAPO need."""
    costs = to_goal(frame)
    return judged(
        Part("log2 of GRPO's updates over DAPO's (claimed: 1)", times(costs, "steps", "GRPO", "DAPO"), claimed=1),
        f"not counted, {Part('log2 of responses', times(costs, 'responses', 'GRPO', 'DAPO'))}",
        "that other training of a large model cannot be had here: tested is half of GRPO's updates on the same task",
        "with one update and short answers DAPO's limits and its overlong punishment do nothing here",
        *words(costs),
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw accuracy against steps, and what the goal cost in steps, responses and seconds."""
    figure, axes = panels(3, 5.2)
    looked = frame.dropna(subset="held_out_accuracy")
    plot_course(axes[0], looked, "step", "held_out_accuracy", title="Accuracy, held out", unit="share right")
    costs = to_goal(frame)
    plot_arms(axes[1], costs, "steps", title=f"Steps to accuracy {GOAL:g}", unit="steps, one update each")
    plot_arms(axes[2], costs, "seconds", title=f"Seconds to accuracy {GOAL:g}", unit="seconds of training")
    axes[2].set_yticklabels([])
    for ax in axes[1:]:
        from_zero(ax)
    return figure


DUPO_HEADLINE = Experiment(
    "dupo_headline",
    "DUPO is 2 to 3 times faster than dynamic sampling at equal accuracy.",
    "WebSailor, arXiv 2507.02592",
    45,
    partial(trial, OF_DUPO),
    judge_dupo,
    draw,
)
DAPO_HEADLINE = Experiment(
    "dapo_headline",
    "DAPO needs half of the training steps of DeepSeek-R1-Zero-Qwen-32B, which others trained.",
    "DAPO, arXiv 2503.14476",
    45,
    partial(trial, OF_DAPO),
    judge_dapo,
    draw,
)
