"""Claim 7: in a mixture of experts routing flips make token ratios jump; sequence ratios hardly move."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rlviz.experiments.base import Experiment, Part, Verdict, by_seed, gap, judged, means, scaled
from rlviz.experiments.runs import FREE, rows, run, shipped
from rlviz.runs.arms import from_zero, panels, plot_arms, plot_course
from rlviz.training import TrainSettings
from small_models.tasks import Chain

DENSE, EXPERTS = "dense", "experts"
POLICIES = {DENSE: "chain", EXPERTS: "chain-experts"}
COLUMNS = ("accuracy", "token_ratio_std", "sequence_ratio_std", "routing_flips")


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train a dense policy and one of experts with 1 and with 8 updates a rollout."""
    settings = TrainSettings(num_prompts=16, evaluate_every=0, details_groups=1, seed=seed)
    found = []
    for name, source in POLICIES.items():
        policy = shipped(source)
        for updates, steps in ((1, 30), (8, 30)):
            own = replace(settings, updates_per_rollout=updates, steps=scaled(steps, scale))
            found.append(rows(run(policy, Chain(), FREE, own), *COLUMNS, arm=name, updates=updates))
    return pd.concat(found, ignore_index=True)


def judge(frame: pd.DataFrame) -> Verdict:
    """Where a rollout serves 8 updates: do experts spread token ratios, and less so sequence ratios?"""
    token, sequence = "token_ratio_std", "sequence_ratio_std"
    eight = frame[frame["updates"] == 8]
    flips = frame[frame["arm"] == EXPERTS].groupby("updates")["routing_flips"].mean()
    logs = eight.assign(**{column: np.log2(eight[column]) for column in (token, sequence)})
    wider, of_sequences = (np.array(gap(logs, column, EXPERTS, DENSE)) for column in (token, sequence))
    return judged(
        Part(
            "share of routing decisions that 8 updates flip (any update flips some)",
            tuple(by_seed(eight, "routing_flips", arm=EXPERTS)),
        ),
        Part("log2 of how much wider token ratios spread with experts than dense", tuple(wider)),
        Part("the same less that of sequence ratios", tuple(wider - of_sequences)),
        f"flips {flips[1]:.1%} after 1 update, {flips[8]:.1%} after 8",
        f"median over seeds of the std of the token ratio {medians(eight, token)}",
        f"of the sequence ratio {medians(eight, sequence)}",
        f"accuracy over the run {means(eight, 'accuracy')}",
    )


def medians(frame: pd.DataFrame, column: str) -> str:
    """Return the median over seeds of a column's mean in each arm, in words: a single seed may lie far off."""
    arms = frame.groupby(["arm", "seed"], sort=False)[column].mean().groupby("arm", sort=False).median()
    return ", ".join(f"{arm} {value:.3f}" for arm, value in arms.items())


def draw(frame: pd.DataFrame) -> Figure:
    """Draw flips over the steps, and the spread of both ratios, dense and with experts."""
    figure, (flips, spread) = panels(2)
    experts = frame[frame["arm"] == EXPERTS]
    words = [f"{updates} update{'s'[: updates > 1]} a rollout" for updates in experts["updates"]]
    plot_course(
        flips,
        experts.assign(arm=words),
        "step",
        "routing_flips",
        title="Routing decisions that a step flips",
        unit="share",
        smooth=5,
    )
    flips.set_ylim(0, None)
    eight = frame[frame["updates"] == 8]
    for index, column in enumerate(("token_ratio_std", "sequence_ratio_std")):
        plot_arms(
            spread,
            eight,
            column,
            title="Spread of the ratio, 8 updates",
            unit="std",
            colour=index,
            label=column.split("_")[0],
        )
    from_zero(spread)
    spread.legend(fontsize=11, framealpha=1, loc="lower right")
    return figure


EXPERIMENT = Experiment(
    "routing",
    "In a mixture of experts, routing flips make token ratios jump between π_old and π_θ; sequence ratios hardly move.",
    "GSPO, arXiv 2507.18071",
    30,
    trial,
    judge,
    draw,
)
