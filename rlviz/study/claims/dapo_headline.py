"""Updates that DAPO and GRPO need to the same held-out accuracy on easy and hard prompts, and what else they spend until then.

With one update per rollout and short answers DAPO's limits and its overlong punishment do nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from rlviz.algorithms import DAPO
from rlviz.pieces.selection import DynamicSampling
from rlviz.study.effects import Claim, Effect
from rlviz.study.frames import first_reached, log2_ratio, scaled
from rlviz.study.trials import FREE, SMALL, Graded, train_arms, warm_start_policy

SAYS = "DAPO needs half of the training steps of DeepSeek-R1-Zero-Qwen-32B, which others trained."
SOURCE = "DAPO, arXiv 2503.14476"

ARMS = {"DAPO": DAPO, "GRPO": FREE, "GRPO with dynamic sampling": replace(FREE, select=DynamicSampling())}
GOAL = 0.9  # held-out accuracy, measured after every second step


class Steep(Graded):
    """`graded`, with easy prompts that are nearly always right from the start, and hard ones."""

    name = "steep"
    shares: Mapping[str, float] = {"a": 0.97, "b": 0.97, "c": 0.97, "d": 0.2, "e": 0.1}


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train DAPO, and GRPO with dynamic sampling and without, and record what every step costs."""
    task = Steep()
    policy = warm_start_policy(task, seed, scale, target_accuracy=0.65)
    settings = replace(SMALL, steps=scaled(70, scale), lr=1e-4, evaluate_every=2, seed=seed)
    return train_arms(policy, task, ARMS, settings, "held_out_accuracy", "responses_sampled", "seconds")


def to_goal(frame: pd.DataFrame) -> pd.DataFrame:
    """Return, for each arm and seed, the step of the goal, with responses and seconds until then; NaN if never reached."""
    frame = frame.sort_values("step", kind="stable")
    runs = frame.groupby(["arm", "seed"])
    spent = frame.assign(responses=runs["responses_sampled"].cumsum(), seconds=runs["seconds"].cumsum())
    return first_reached(spent, spent["held_out_accuracy"] >= GOAL)


def effects(frame: pd.DataFrame) -> list[Effect]:
    fewer = log2_ratio(to_goal(frame), "step", "GRPO", "DAPO")
    return [Effect("log2 of GRPO's updates over DAPO's on one task, at the claimed size", fewer, 0.1, claimed=1)]


def numbers(frame: pd.DataFrame) -> list[str]:
    costs = to_goal(frame).groupby("arm", sort=False)[["step", "responses", "seconds"]].mean()
    return [
        f"to accuracy {GOAL:g} {arm} {cost['step']:.0f} steps, {cost['responses']:.0f} responses, {cost['seconds']:.1f} s"
        for arm, cost in costs.iterrows()
    ]


NOTES = ("half of the steps of DeepSeek-R1-Zero-Qwen-32B, for that run of another laboratory cannot be had",)
CLAIM = Claim("dapo_headline", SAYS, SOURCE, seconds=45, trial=trial, effects=effects, numbers=numbers, notes=NOTES)
