"""Bytes and seconds of a training step with a critic and without, as they were measured side by side."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from rlviz.study.effects import Claim, Effect, arithmetic
from rlviz.study.frames import ratio

SAYS = "PPO's critic costs memory and time."
SOURCE = "PPO, arXiv 1707.06347; GRPO, 2402.03300"

FOUR, THREE = "PPO, separate critic, learned reward", "GRPO, learned reward"
RLVIZ = Path(__file__).parents[2]
COURSES = RLVIZ / "course", RLVIZ.parent / "notebooks"  # of an installed package, and of a checkout


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Return the measurements with this seed, 0 to 4, a row a setting: bytes, and medians of seconds; no row of another seed.

    Real updates of the shipped policy of chain on a quiet core: the settings took turns, nine rounds each, on the same 32
    prompts × 8 responses, of which every second counted as right, with one update a rollout and a learning rate next to 0.
    activations: what an update had in memory at its peak on top of weights, gradients and optimizer state.
    seconds_to_grpo: the median of a step over GRPO's of the same round.
    """
    table = next(course for course in COURSES if course.is_dir()) / "experiments/critic_cost.csv"
    measured = pd.read_csv(table)
    return measured[measured["seed"] == seed].drop(columns="seed").reset_index(drop=True)


def effects(frame: pd.DataFrame) -> list[Effect]:
    memory, time = (ratio(frame, column, FOUR, THREE, by="name") - 1 for column in ("bytes", "seconds_to_grpo"))
    return [
        arithmetic("bytes of PPO's four models over GRPO's three, less 1", memory),
        Effect("seconds of a step, likewise", time, 0.05),
    ]


CLAIM = Claim("critic_cost", SAYS, SOURCE, seconds=0.1, trial=trial, effects=effects)
