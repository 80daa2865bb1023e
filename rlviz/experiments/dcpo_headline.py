"""DCPO's headline numbers: about 10 times fewer clipped tokens than GRPO, and about 28 % more responses in use."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure

from rlviz.algorithms import DCPO
from rlviz.experiments.base import Experiment, Part, Verdict, by_seed, judged, means, scaled
from rlviz.experiments.runs import FREE, rows, run, shipped
from rlviz.runs.arms import panels, plot_course
from rlviz.training import TrainSettings
from small_models.tasks import Chain

GRPO_ARM, DCPO_ARM, MIXED = "GRPO", "DCPO", "GRPO with DCPO's limits"
ARMS = {GRPO_ARM: FREE, DCPO_ARM: DCPO, MIXED: replace(FREE, bounds=DCPO.bounds)}
COLUMNS = ("accuracy", "clip_fraction_low", "clip_fraction_high", "clip_fraction_dual", "contributing")


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train with 8 updates a rollout, on a pool of prompts small enough for DCPO's memory to come to bear."""
    settings = TrainSettings(
        steps=scaled(60, scale),
        num_prompts=16,
        prompt_pool=128,
        updates_per_rollout=8,
        lr=1e-4,
        evaluate_every=0,
        details_groups=1,
        seed=seed,
    )
    policy = shipped("chain")
    found = pd.concat(
        [rows(run(policy, Chain(), a, settings), *COLUMNS, arm=name) for name, a in ARMS.items()], ignore_index=True
    )
    return found.assign(clipped=found[[name for name in found if str(name).startswith("clip_")]].sum(axis=1))


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare the means over the run with the paper's numbers."""
    clipped, used = ({arm: by_seed(frame, column, arm=arm) for arm in ARMS} for column in ("clipped", "contributing"))
    fewer = (clipped[GRPO_ARM] + 1e-6) / (clipped[DCPO_ARM] + 1e-6)
    more = used[DCPO_ARM] / used[GRPO_ARM] - 1
    return judged(
        Part("log10 of how many times fewer tokens DCPO clips (claimed: 1)", tuple(fewer.map(math.log10)), claimed=1),
        Part("share of responses in use, more than GRPO (claimed: .28)", tuple(more), claimed=0.28),
        f"clipped {means(frame, 'clipped', 4)}",
        f"in use {means(frame, 'contributing')}: DCPO {100 * (used[DCPO_ARM] - used[GRPO_ARM]).mean():.0f} points more",
        f"accuracy over the run {means(frame, 'accuracy')}",
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw clipped tokens, and responses in use, over the steps."""
    figure, (clipped, used) = panels(2)
    plot_course(clipped, frame, "step", "clipped", title="Tokens whose gradient is clipped", unit="share", smooth=7)
    clipped.set(yscale="log")
    plot_course(used, frame, "step", "contributing", title="Responses in use", unit="share of those sampled", smooth=7)
    used.set_ylim(0, 1.02)
    return figure


EXPERIMENT = Experiment(
    "dcpo_headline",
    "DCPO clips about 10 times fewer tokens than GRPO and uses about 28 % more responses.",
    "DCPO, arXiv 2509.02333",
    50,
    trial,
    judge,
    draw,
)
