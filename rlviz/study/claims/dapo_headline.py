"""Updates that DAPO and GRPO need to the same held-out accuracy on easy and hard prompts, and what else they spend until then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from rlviz.algorithms import DAPO
from rlviz.pieces.selection import DynamicSampling
from rlviz.study.claim import Panel
from rlviz.study.frames import doublings, first_reached, scaled
from rlviz.study.trials import FREE, SMALL, Graded, train_arms, warmed_up
from rlviz.study.verdict import NotTestable, Part, Verdict, judged

CLAIM = "DAPO needs half of the training steps of DeepSeek-R1-Zero-Qwen-32B, which others trained."
SOURCE = "DAPO, arXiv 2503.14476"
SECONDS = 45
SMALLEST = 0.1  # of a log2: seven per cent of the updates

ARMS = {"DAPO": DAPO, "GRPO": FREE, "GRPO with dynamic sampling": replace(FREE, select=DynamicSampling())}
GOAL = 0.9  # held-out accuracy; looked at after every second step


class Steep(Graded):
    """`graded`, with easy prompts that are nearly always right from the start, and hard ones."""

    name = "steep"
    shown: Mapping[str, float] = {"a": 0.97, "b": 0.97, "c": 0.97, "d": 0.2, "e": 0.1}


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Let DAPO run against GRPO, with dynamic sampling and without, and note what every step cost."""
    task = Steep()
    policy = warmed_up(task, seed, scale, target_accuracy=0.65)
    settings = replace(SMALL, steps=scaled(70, scale), lr=1e-4, evaluate_every=2, seed=seed)
    return train_arms(policy, task, ARMS, settings, "held_out_accuracy", "responses_sampled", "seconds")


def to_goal(frame: pd.DataFrame) -> pd.DataFrame:
    """Return for each arm and seed the steps, responses and seconds to the goal, NaN where it was not reached."""
    frame = frame.sort_values("step", kind="stable")
    runs = frame.groupby(["arm", "seed"], sort=False)
    responses, seconds = runs["responses_sampled"].cumsum(), runs["seconds"].cumsum()
    spent = frame.assign(steps=runs.cumcount() + 1, responses=responses, seconds=seconds)
    return first_reached(spent, spent["held_out_accuracy"] >= GOAL)


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare the updates that GRPO and DAPO need."""
    costs = to_goal(frame)
    updates, responses = (doublings(costs, column, "GRPO", "DAPO") for column in ("steps", "responses"))
    return judged(
        NotTestable("half of the steps of DeepSeek-R1-Zero-Qwen-32B", "that run of another laboratory cannot be had"),
        Part(
            "log2 of GRPO's updates over DAPO's on one task, at the claimed size", updates, SMALLEST, claimed=1
        ).titled("steps", "DAPO needs [fewer|more] updates than GRPO, {} (claimed: ×2)", base=2),
        f"log2 of responses {responses.mean():+.2f}",
        "with one update and short answers DAPO's limits and its overlong punishment do nothing here",
        *(
            f"to accuracy {GOAL:g} {arm} {part['steps'].mean():.0f} steps, {part['responses'].mean():.0f} responses, "
            f"{part['seconds'].mean():.1f} s"
            for arm, part in costs.groupby("arm", sort=False)
        ),
    )


TIME = f"Seconds to accuracy {GOAL:g}"
PANELS = [
    [
        Panel("accuracy", "held_out_accuracy", "accuracy", x="step", title="Accuracy, held out", against="GRPO"),
        Panel("steps", "steps", f"updates to accuracy {GOAL:g}", to_goal, from_zero=True),
        Panel("seconds", "seconds", "seconds of training", to_goal, title=TIME, from_zero=True),
    ]
]
