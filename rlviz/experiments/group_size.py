"""Claim 11: GRPO's advantage needs a group: its error falls like 1/√G, and small groups are often all alike."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from rlviz.experiments.base import Experiment, Part, Verdict, by_seed, gap, judged, scaled
from rlviz.experiments.runs import FREE, rows, run, shipped
from rlviz.pictures.groups import group_advantages
from rlviz.pieces.advantages import all_equal
from rlviz.runs.arms import panels, plot_arms, plot_course
from rlviz.training import TrainSettings
from small_models.sampling import sample
from small_models.tasks import Chain

SIZES, LARGE, RESPONSES = (2, 4, 8, 16, 32), 256, 128
NEAR = 0.1  # how far from −½ a slope may be


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Cut very large groups into small ones, and train with some sizes on the same number of responses a step."""
    task, policy = Chain(), shipped("chain")
    prompts, generator = task.held_out_prompts[: scaled(96, scale, 8)], torch.Generator().manual_seed(seed)
    texts = sample(policy, prompts, group_size=LARGE, max_new_tokens=task.max_new_tokens, generator=generator).texts(
        policy
    )
    rewards = torch.tensor(
        [[task.grade(p, text).correct for text in row] for p, row in zip(prompts, texts, strict=True)]
    )
    rewards = rewards.double()
    whole, found = group_advantages(FREE, rewards).double(), []
    for size in SIZES:
        groups = rewards.view(-1, size)
        means = groups.mean(1).view(-1, 2)  # two groups of one prompt each
        off = (group_advantages(FREE, groups).double() - whole.view(-1, size))[groups > 0]
        found.append(
            {
                "arm": "measured",
                "size": size,
                "mean_error": float(((means[:, 0] - means[:, 1]).square().mean() / 2).sqrt()),
                "advantage_error": float(off.square().mean().sqrt()),
                "equal": float(all_equal(groups).double().mean()),
            }
        )
    learned = []
    for size in SIZES[::2]:
        settings = TrainSettings(
            steps=scaled(40, scale),
            num_prompts=RESPONSES // size,
            group_size=size,
            lr=1e-4,
            evaluate_every=0,
            details_groups=1,
            seed=seed,
        )
        learned.append(rows(run(policy, task, FREE, settings), "accuracy", arm="trained", size=size))
    return pd.concat([pd.DataFrame(found), *learned], ignore_index=True)


def slopes(frame: pd.DataFrame, column: str) -> tuple[float, ...]:
    """Return for each seed the slope of log error by log G."""
    groups = frame[frame["arm"] == "measured"].groupby("seed")
    return tuple(float(np.polyfit(np.log(part["size"]), np.log(part[column]), 1)[0]) for _, part in groups)


def judge(frame: pd.DataFrame) -> Verdict:
    """Is the slope near −½, and do fewer large groups go to waste?"""
    found, trained = frame[frame["arm"] == "measured"], frame[frame["arm"] == "trained"]
    of_mean, of_advantage = slopes(frame, "mean_error"), slopes(frame, "advantage_error")
    late = trained[trained["step"] > trained["step"].max() - 10]
    reached = ", ".join(f"G {size} {by_seed(late, 'accuracy', size=size).mean():.2f}" for size in SIZES[::2])
    waste = ", ".join(f"G {size} {share:.2f}" for size, share in found.groupby("size")["equal"].mean().items())
    return judged(
        Part(
            f"error of the group's mean: how much nearer than {NEAR:g} its slope by log G is to −½",
            tuple(NEAR - abs(s + 0.5) for s in of_mean),
        ),
        Part("the same of a right response's advantage", tuple(NEAR - abs(s + 0.5) for s in of_advantage)),
        Part("share of groups all alike, G 2 minus G 16", gap(found, "equal", 2, 16, by="size")),
        f"slopes of log error by log G {fmean(of_mean):.2f} and {fmean(of_advantage):.2f}",
        "the mean's slope and the share of groups alike are arithmetic of independent draws",
        f"groups all alike {waste}",
        f"accuracy over the last ten of {trained['step'].max():.0f} steps, {RESPONSES} responses each, {reached}",
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw errors and wasted groups against G, and the accuracy of runs on the same number of responses."""
    figure, (error, equal, course) = panels(3, 4.8)
    found, trained = frame[frame["arm"] == "measured"], frame[frame["arm"] == "trained"]
    words = {"mean_error": "group's mean", "advantage_error": "advantage when right"}
    both = pd.concat([found.assign(arm=name, error=found[column]) for column, name in words.items()])
    half = both[both["arm"] == "group's mean"]
    line = half.assign(arm="1/√G", error=half[half["size"] == 2]["error"].mean() * (2 / half["size"]) ** 0.5)
    plot_course(error, pd.concat([both, line]), "size", "error", title="Error", unit="standard error")
    error.set(xscale="log", yscale="log", xlabel="G", xticks=SIZES, xticklabels=SIZES)
    error.minorticks_off()
    plot_arms(equal, found, "equal", by="size", title="Groups all alike", unit="share")
    equal.set_ylabel("G", fontsize=13)
    plot_course(
        course,
        trained.assign(arm=[f"G {size}" for size in trained["size"]]),
        "step",
        "accuracy",
        title=f"Trained, {RESPONSES} a step",
        unit="share right",
        smooth=5,
    )
    course.set_ylim(0, 1.02)
    return figure


EXPERIMENT = Experiment(
    "group_size",
    "GRPO's advantage needs G: its standard error falls like 1/√G; small G makes it noisy and often zero.",
    "GRPO, arXiv 2402.03300",
    25,
    trial,
    judge,
    draw,
)
