"""Claim 10: PPO's critic costs memory and time."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from rlviz.experiments.base import Experiment, Part, Verdict, by_seed, judged, scaled
from rlviz.experiments.runs import shipped
from rlviz.runs.cost import plot_costs
from rlviz.training import cost_table, model_costs
from small_models.tasks import Chain

FOUR, THREE, GRPO = "PPO, separate critic, learned reward", "GRPO, learned reward", "GRPO"


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Measure bytes and seconds of each setting, side by side on the same responses."""
    costs = model_costs(
        shipped("chain"), Chain(), num_prompts=scaled(32, scale), repeats=scaled(9, scale, 1), seed=seed
    )
    return cost_table(costs)


def ratio(frame: pd.DataFrame, column: str, one: str, other: str) -> pd.Series:
    """Return for each seed how many times the other setting's number the one's is."""
    return by_seed(frame, column, name=one) / by_seed(frame, column, name=other)


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare PPO with its critic against GRPO, both with reference and learned reward."""
    memory, time = (ratio(frame, column, FOUR, THREE) for column in ("bytes", "seconds_to_grpo"))
    to_rule = [ratio(frame, column, FOUR, GRPO).mean() for column in ("bytes", "seconds_to_grpo")]
    shared = [ratio(frame, column, "PPO, shared critic", GRPO).mean() for column in ("bytes", "seconds_to_grpo")]
    return judged(
        Part("bytes of PPO's four models over GRPO's three, less 1", tuple(memory - 1)),
        Part("seconds of a step, likewise", tuple(time - 1)),
        f"against GRPO on a rule four models take {to_rule[0]:.2f} times the bytes and {to_rule[1]:.2f} times the seconds",
        f"with a critic on the actor's trunk {shared[0]:.2f} and {shared[1]:.2f} times",
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the costs of each setting, medians over the seeds."""
    names = frame["name"].unique()
    medians = frame.groupby("name", sort=False).median(numeric_only=True).loc[names].reset_index()
    return plot_costs(medians)


EXPERIMENT = Experiment(
    "critic_cost",
    "PPO's critic costs memory and time.",
    "PPO, arXiv 1707.06347; GRPO, 2402.03300",
    20,
    trial,
    judge,
    draw,
)
