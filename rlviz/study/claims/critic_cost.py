"""Bytes and seconds of a training step with a critic and without, measured side by side."""

from __future__ import annotations

import pandas as pd

from rlviz.study.claim import Panel
from rlviz.study.frames import scaled, times
from rlviz.study.trials import shipped
from rlviz.study.verdict import Arithmetic, Part, Verdict, judged
from rlviz.training import cost_table, model_costs
from small_models.tasks import Chain

CLAIM = "PPO's critic costs memory and time."
SOURCE = "PPO, arXiv 1707.06347; GRPO, 2402.03300"
SECONDS = 20
SMALLEST = 0.05  # of GRPO's bytes and seconds

FOUR, THREE, GRPO = "PPO, separate critic, learned reward", "GRPO, learned reward", "GRPO"


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Measure bytes and seconds of each setting, side by side on the same responses."""
    prompts, repeats = scaled(32, scale), scaled(9, scale)
    return cost_table(model_costs(shipped("chain"), Chain(), num_prompts=prompts, repeats=repeats, seed=seed))


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
