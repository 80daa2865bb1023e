"""Errors of a group's mean and of its advantages by the group's size, and runs on as many responses a step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from rlviz.pieces.advantages import all_equal
from rlviz.study.effects import Claim, Effect, arithmetic
from rlviz.study.frames import gap, scaled, select
from rlviz.study.trials import FREE, SMALL, load_shipped, rows, sample_and_grade, train_copy
from small_models.tasks import Chain

SAYS = "GRPO's advantage needs G: its standard error falls like 1/√G; small G makes it noisy and often zero."
SOURCE = "GRPO, arXiv 2402.03300"

SIZES, LARGE, RESPONSES = (2, 4, 8, 16, 32), 256, 128
NEAR = 0.1  # how far from −½ a slope may be


def advantages(rewards: Tensor) -> Tensor:
    """Return GRPO's advantages [P, G] of rewards [P, G]."""
    return FREE.advantages(rewards, torch.ones(*rewards.shape, 1, dtype=torch.bool))[0].squeeze(-1).double()


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Cut very large groups into small ones, and train with some sizes on the same number of responses a step."""
    task, policy, results = Chain(), load_shipped("chain"), []
    prompts = task.held_out_prompts[: scaled(96, scale, 8)]
    _, rewards = sample_and_grade(policy, task, prompts, group_size=LARGE, seed=seed)
    all_groups = advantages(rewards)
    for size in SIZES:
        groups = rewards.view(-1, size)
        means = groups.mean(1).view(-1, 2)  # two groups of one prompt each
        off = (advantages(groups) - all_groups.view(-1, size))[groups > 0]
        results.append(
            {
                "arm": "measured",
                "size": size,
                "mean_error": float(((means[:, 0] - means[:, 1]).square().mean() / 2).sqrt()),
                "advantage_error": float(off.square().mean().sqrt()),
                "equal": float(all_equal(groups).double().mean()),
            }
        )
    learned, settings = [], replace(SMALL, steps=scaled(40, scale), lr=1e-4, seed=seed)
    for size in SIZES[::2]:
        settings = replace(settings, num_prompts=RESPONSES // size, group_size=size)
        learned.append(rows(train_copy(policy, task, FREE, settings), "accuracy", arm="trained", size=size))
    return pd.concat([pd.DataFrame(results), *learned], ignore_index=True)


def slopes(measured: pd.DataFrame, column: str) -> pd.Series:
    """Return for each seed the slope of log error by log G."""
    logs = measured.assign(size=np.log(measured["size"]), error=np.log(measured[column]))
    return pd.Series({seed: np.polyfit(rows["size"], rows["error"], 1)[0] for seed, rows in logs.groupby("seed")})


def effects(frame: pd.DataFrame) -> list[Effect]:
    """Is the slope near −½, and do fewer large groups go to waste?"""

    def nearness(column: str) -> pd.Series:
        return NEAR - (slopes(measured, column) + 0.5).abs()

    measured, trained = (select(frame, arm=arm) for arm in ("measured", "trained"))
    end = trained[trained["step"] > trained["step"].max() - 10]
    near_mean, near_advantage = nearness("mean_error"), nearness("advantage_error")
    better = {size: gap(end, "accuracy", size, 2, by="size") for size in (8, 32)}
    return [
        arithmetic(f"error of the group's mean: how much nearer than {NEAR:g} its slope by log G is to −½", near_mean),
        Effect("the same of a right response's advantage", near_advantage, 0.01),
        *(
            Effect(f"accuracy over the last ten steps, with as many responses, G {size} minus G 2", values, 0.02)
            for size, values in better.items()
        ),
        arithmetic("share of groups all alike, G 2 minus G 16", gap(measured, "equal", 2, 16, by="size")),
    ]


CLAIM = Claim("group_size", SAYS, SOURCE, seconds=25, trial=trial, effects=effects)
