"""Errors of a group's mean and of its advantages by the group's size, and runs on as many responses a step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from rlviz.pieces.advantages import all_equal
from rlviz.study.claim import Panel
from rlviz.study.frames import gap, means, scaled, select
from rlviz.study.trials import FREE, SMALL, answered, rows, run, shipped
from rlviz.study.verdict import Arithmetic, Part, Verdict, judged
from small_models.tasks import Chain

CLAIM = "GRPO's advantage needs G: its standard error falls like 1/√G; small G makes it noisy and often zero."
SOURCE = "GRPO, arXiv 2402.03300"
SECONDS = 25
SMALLEST, SMALLEST_SHARE = 0.01, 0.02  # of a slope, by which it is nearer to −½ than the limit, and of responses

SIZES, LARGE, RESPONSES = (2, 4, 8, 16, 32), 256, 128
NEAR = 0.1  # how far from −½ a slope may be


def advantages(rewards: Tensor) -> Tensor:
    """Return GRPO's advantages [P, G] of rewards [P, G]."""
    return FREE.advantages(rewards, torch.ones(*rewards.shape, 1, dtype=torch.bool))[0].squeeze(-1).double()


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Cut very large groups into small ones, and train with some sizes on the same number of responses a step."""
    task, policy, found = Chain(), shipped("chain"), []
    prompts = task.held_out_prompts[: scaled(96, scale, 8)]
    _, rewards = answered(policy, task, prompts, group_size=LARGE, seed=seed)
    whole = advantages(rewards)
    for size in SIZES:
        groups = rewards.view(-1, size)
        means = groups.mean(1).view(-1, 2)  # two groups of one prompt each
        off = (advantages(groups) - whole.view(-1, size))[groups > 0]
        found.append(
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
        learned.append(rows(run(policy, task, FREE, settings), "accuracy", arm="trained", size=size))
    return pd.concat([pd.DataFrame(found), *learned], ignore_index=True)


def arms_by_size(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what was measured and what was trained, each with an arm a size."""
    named = frame.assign(kind=frame["arm"], arm=[f"G {size}" for size in frame["size"]])
    return select(named, kind="measured"), select(named, kind="trained")


def slopes(measured: pd.DataFrame, column: str) -> pd.Series:
    """Return for each seed the slope of log error by log G."""
    of = {seed: np.polyfit(np.log(part["size"]), np.log(part[column]), 1)[0] for seed, part in measured.groupby("seed")}
    return pd.Series(of)


def judge(frame: pd.DataFrame) -> Verdict:
    """Is the slope near −½, and do fewer large groups go to waste?"""

    def near(slope: pd.Series) -> pd.Series:
        return NEAR - (slope + 0.5).abs()

    measured, trained = arms_by_size(frame)
    of_mean, of_advantage = slopes(measured, "mean_error"), slopes(measured, "advantage_error")
    last = trained[trained["step"] > trained["step"].max() - 10]
    return judged(
        Arithmetic(
            f"error of the group's mean: how much nearer than {NEAR:g} its slope by log G is to −½", near(of_mean)
        ).titled("error", f"the error of the mean [falls|does not fall] like 1/√G, to {NEAR:g} of a slope"),
        Part("the same of a right response's advantage", near(of_advantage), SMALLEST).titled(
            "error", "that of a right answer's advantage [does|does not], too"
        ),
        *(
            Part(
                f"accuracy over the last ten steps, with as many responses, {more} minus G 2",
                gap(last, "accuracy", more, "G 2"),
                SMALLEST_SHARE,
            ).titled("course", "in the end G 2 is right [less|more] often than {}", more)
            for more in ("G 8", "G 32")
        ),
        Arithmetic("share of groups all alike, G 2 minus G 16", gap(measured, "equal", "G 2", "G 16")).titled(
            "equal", "{} of the groups [more|fewer] are all alike with G 2 than with G 16", form="{:.0%}"
        ),
        f"slopes of log error by log G {of_mean.mean():.2f} and {of_advantage.mean():.2f}",
        "the mean's slope and the share of groups alike follow from independent draws",
        f"groups all alike {means(measured, 'equal')}",
        f"accuracy over the last ten of {trained['step'].max():.0f} steps, {RESPONSES} responses each, "
        f"{means(last, 'accuracy')}",
    )


def errors(frame: pd.DataFrame) -> pd.DataFrame:
    """Return both errors as arms, and as a guide how an error that falls like 1/√G would go on from the first."""
    measured, _ = arms_by_size(frame)
    mean = measured.assign(arm="group's mean", error=measured["mean_error"])
    advantage = measured.assign(arm="advantage when right", error=measured["advantage_error"])
    sizes = np.array(SIZES)
    first = mean.loc[mean["size"] == SIZES[0], "error"].mean()
    line = pd.DataFrame({"arm": "1/√G", "size": sizes, "error": first * (sizes[0] / sizes) ** 0.5})
    return pd.concat([mean, advantage, line])


PANELS = [
    [
        Panel(
            "error", "error", "standard error", errors, x="size",
            axes={"xscale": "log", "yscale": "log", "xlabel": "G, responses a group", "xticks": SIZES},
        ),
        Panel("equal", "equal", "share of groups all alike", lambda frame: arms_by_size(frame)[0]),
        Panel(
            "course", "accuracy", f"accuracy of {RESPONSES} a step", lambda frame: arms_by_size(frame)[1], x="step", smooth=5
        ),
    ]
]  # fmt: skip
