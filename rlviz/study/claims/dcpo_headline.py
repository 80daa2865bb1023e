"""Clipped tokens and responses in use: DCPO, GRPO, and GRPO with DCPO's limits, over as many updates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from rlviz.algorithms import DCPO
from rlviz.study.effects import Claim, Effect
from rlviz.study.frames import gap, in_words, means, ratio, scaled
from rlviz.study.trials import FREE, SMALL, load_shipped, train_arms
from small_models.tasks import Chain

SAYS = "DCPO clips about 10 times fewer tokens than GRPO and uses about 28 points more of its responses."
SOURCE = "DCPO, arXiv 2509.02333"

ARMS = {"GRPO": FREE, "DCPO": DCPO, "GRPO with DCPO's limits": replace(FREE, bounds=DCPO.bounds)}
CLIPPED = ["clip_fraction_low", "clip_fraction_high", "clip_fraction_dual"]


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train with 8 updates per rollout on a pool of prompts small enough for DCPO's memory to matter."""
    steps = scaled(60, scale)
    settings = replace(SMALL, steps=steps, prompt_pool=128, updates_per_rollout=8, lr=1e-4, seed=seed)
    frame = train_arms(load_shipped("chain"), Chain(), ARMS, settings, "accuracy", *CLIPPED, "contributing")
    return frame.assign(clipped=frame[CLIPPED].sum(axis=1))


def in_use_more(frame: pd.DataFrame) -> pd.Series:
    """Return, for each seed, DCPO's share of responses in use minus GRPO's."""
    return gap(frame, "contributing", "DCPO", "GRPO")


def effects(frame: pd.DataFrame) -> list[Effect]:
    fewer = ratio(frame.assign(clipped=frame["clipped"] + 1e-6), "clipped", "GRPO", "DCPO")
    return [
        Effect("log10 of how many times fewer tokens DCPO clips (claimed: 1)", np.log10(fewer), 0.1, claimed=1),
        Effect("share of responses in use, more than GRPO (claimed: .28)", in_use_more(frame), 0.02, claimed=0.28),
    ]


def numbers(frame: pd.DataFrame) -> list[str]:
    relative = 100 * (ratio(frame, "contributing", "DCPO", "GRPO") - 1).mean()
    grown = {f"to step {step}": in_use_more(frame[frame["step"] <= step]).mean() for step in (20, 30, 40, 50, 60)}
    return [
        f"it grows with the dead groups, so with the run: {in_words(grown)}",
        f"clipped {means(frame, 'clipped', 4)}",
        f"in use {means(frame, 'contributing')}: DCPO {relative:.0f} per cent more than GRPO (the paper: 64)",
    ]


CLAIM = Claim("dcpo_headline", SAYS, SOURCE, seconds=50, trial=trial, effects=effects, numbers=numbers)
