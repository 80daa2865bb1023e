"""Clipped tokens and responses in use: DCPO, GRPO, and GRPO with DCPO's limits, over as many updates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from rlviz.algorithms import DCPO
from rlviz.study.claim import Panel
from rlviz.study.frames import gap, in_words, means, scaled, times
from rlviz.study.trials import FREE, SMALL, shipped, train_arms
from rlviz.study.verdict import Part, Verdict, judged
from small_models.tasks import Chain

CLAIM = "DCPO clips about 10 times fewer tokens than GRPO and uses about 28 points more of its responses."
SOURCE = "DCPO, arXiv 2509.02333"
SECONDS = 50
SMALLEST, SMALLEST_SHARE = 0.1, 0.02  # of a log10, and of responses, of interest

ARMS = {"GRPO": FREE, "DCPO": DCPO, "GRPO with DCPO's limits": replace(FREE, bounds=DCPO.bounds)}
CLIPPED = ["clip_fraction_low", "clip_fraction_high", "clip_fraction_dual"]


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train with 8 updates a rollout, on a pool of prompts small enough for DCPO's memory to come to bear."""
    settings = replace(SMALL, steps=scaled(60, scale), prompt_pool=128, updates_per_rollout=8, lr=1e-4, seed=seed)
    found = train_arms(shipped("chain"), Chain(), ARMS, settings, "accuracy", *CLIPPED, "contributing")
    return found.assign(clipped=found[CLIPPED].sum(axis=1))


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare the means over the run with the paper's numbers."""
    fewer = times(frame.assign(clipped=frame["clipped"] + 1e-6), "clipped", "GRPO", "DCPO")
    more = gap(frame, "contributing", "DCPO", "GRPO")

    def use(step: int) -> float:
        return float(gap(frame[frame["step"] <= step], "contributing", "DCPO", "GRPO").mean())

    grown = {f"to step {step}": use(step) for step in (20, 30, 40, 50, 60)}
    relative = 100 * (times(frame, "contributing", "DCPO", "GRPO") - 1).mean()
    return judged(
        Part(
            "log10 of how many times fewer tokens DCPO clips (claimed: 1)", np.log10(fewer), SMALLEST, claimed=1
        ).titled("clipped", "DCPO clips [fewer|more] tokens than GRPO, {} (claimed: ×10)", base=10),
        Part("share of responses in use, more than GRPO (claimed: .28)", more, SMALLEST_SHARE, claimed=0.28).titled(
            "used", "DCPO's share of responses in use is {} [higher|lower] than GRPO's (claimed: 0.28)", form="{:.2f}"
        ),
        f"it grows with the dead groups, so with the run: {in_words(grown)}",
        f"clipped {means(frame, 'clipped', 4)}",
        f"in use {means(frame, 'contributing')}: DCPO {relative:.0f} per cent more than GRPO (the paper: 64)",
        f"accuracy over the run {means(frame, 'accuracy')}",
    )


def in_percent(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(clipped=100 * frame["clipped"])


PANELS = [
    [
        Panel("clipped", "clipped", "clipped tokens, per cent", in_percent, x="step", smooth=7, axes={"yscale": "log"}),
        Panel("used", "contributing", "responses in use, share", x="step", smooth=7, axes={"ylim": (0, 1.02)}),
    ]
]
