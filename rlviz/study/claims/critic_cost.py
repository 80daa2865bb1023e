"""Bytes and seconds of a training step with a critic and without, as they were measured side by side."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from rlviz.study.claim import Panel, read
from rlviz.study.frames import times
from rlviz.study.verdict import Arithmetic, Part, Verdict, judged

CLAIM = "PPO's critic costs memory and time."
SOURCE = "PPO, arXiv 1707.06347; GRPO, 2402.03300"
SECONDS = 0.1
SMALLEST = 0.05  # of GRPO's bytes and seconds

FOUR, THREE, GRPO = "PPO, separate critic, learned reward", "GRPO, learned reward", "GRPO"

RLVIZ = Path(__file__).parents[2]
COURSES = RLVIZ / "course", RLVIZ.parent / "notebooks"  # of an installed package, and of a checkout


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Return what was measured with this seed, 0 to 4, a row a setting: bytes, and medians of seconds; no row of another seed.

    Real updates of the shipped policy of chain on a quiet core: the settings took turns, nine rounds each, on the same 32
    prompts × 8 responses, of which every second counted as right, with one update a rollout and a learning rate next to 0.
    activations: what an update had in memory at its peak on top of weights, gradients and optimizer state.
    seconds_to_grpo: the median of a step over GRPO's of the same round.
    """
    table = next(course for course in COURSES if course.is_dir()) / "experiments/critic_cost.csv"
    measured = read(table)
    return measured[measured["seed"] == seed].drop(columns="seed").reset_index(drop=True)


def in_megabytes(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(megabytes=frame["bytes"] / 1e6)


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare PPO with its critic against GRPO, both with reference and learned reward."""

    def ratios(one: str, other: str) -> list[pd.Series]:
        return [times(frame, column, one, other, by="name") for column in ("bytes", "seconds_to_grpo")]

    memory, time = ratios(FOUR, THREE)
    to_rule, shared = ([ratio.mean() for ratio in ratios(name, GRPO)] for name in (FOUR, "PPO, shared critic"))
    return judged(
        Arithmetic("bytes of PPO's four models over GRPO's three, less 1", memory - 1).titled(
            "memory", "PPO's four models take {} [more|fewer] bytes than GRPO's three", form="{:.0%}"
        ),
        Part("seconds of a step, likewise", time - 1, SMALLEST).titled(
            "time", "they take {} [more|fewer] seconds a step", form="{:.0%}"
        ),
        f"against GRPO on a rule four models take {to_rule[0]:.2f} times the bytes and {to_rule[1]:.2f} times the seconds",
        f"with a critic on the actor's trunk {shared[0]:.2f} and {shared[1]:.2f} times",
    )


PANELS = [
    [
        Panel("memory", "megabytes", "MB at the peak of an update", in_megabytes, by="name", from_zero=True),
        Panel("time", "seconds_to_grpo", "seconds of a step, over GRPO's", by="name", from_zero=True),
    ]
]
