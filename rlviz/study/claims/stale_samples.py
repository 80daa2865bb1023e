"""Groups that are half of an older policy's responses: the errors of their mean and std, and what such responses are worth."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import torch

from rlviz.pieces.ratios import token_ratio
from rlviz.study.claim import Panel
from rlviz.study.frames import by_seed, scaled, select
from rlviz.study.trials import FREE, SMALL, answered, logp_under, shipped
from rlviz.study.verdict import Part, Verdict, judged
from rlviz.training import train
from small_models.policies import Policy
from small_models.sampling import Samples
from small_models.tasks import Chain

CLAIM = "Old rollouts mixed into a group bias its mean and std, so reusing last step's samples is not free."
SOURCE = "our own question; GRPO with statistics of an older policy: arXiv 2505.22257"
SECONDS = 12
SMALLEST = 0.01  # of a reward of 0 or 1: a group of 8 has a standard error of up to .18

LAGS = (1, 4, 12)
LOOKS = (13, 17, 21, 25)  # steps at which half of each group is taken from the policy of `lag` steps before
HALF = 8


def worth(policy: Policy, old: Samples) -> float:
    """Return the effective sample size of an older policy's responses under this one, as a share: (Σ w)² / (n Σ w²)."""
    weights = token_ratio(logp_under(policy, old), old.logp, old.mask).double().prod(-1).flatten()
    return float(weights.sum() ** 2 / (len(weights) * weights.square().sum()))


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train, and compare groups that are half old with groups of the same size that are all new."""
    task, policy = Chain(), shipped("chain")
    looks, before, found = [scaled(look, scale, 13) for look in LOOKS], [policy.frozen_copy()], []
    prompts = task.held_out_prompts[: scaled(600, scale, 32)]
    for record in train(policy, task, FREE, replace(SMALL, steps=max(looks), seed=seed)):
        before.append(policy.frozen_copy())
        if record.step not in looks:
            continue
        _, first = answered(policy, task, prompts, group_size=HALF, seed=seed)
        _, second = answered(policy, task, prompts, group_size=HALF, seed=seed + 1000)
        fresh = torch.cat([first, second], 1)
        for lag in LAGS:
            then = before[record.step - lag]
            old, stale = answered(then, task, prompts, group_size=HALF, seed=seed + 1000)  # with the same luck
            mixed = torch.cat([first, stale], 1)
            found.append(
                {
                    "arm": f"{lag} step{'s'[: lag > 1]} old",
                    "lag": lag,
                    "step": record.step,
                    "mean_bias": float(mixed.mean() - fresh.mean()),
                    "std_bias": float(mixed.std(1).mean() - fresh.std(1).mean()),
                    "worth": worth(policy, old),
                    "accuracy": float(fresh.mean()),
                }
            )
    return pd.DataFrame(found)


def judge(frame: pd.DataFrame) -> Verdict:
    """Look at groups that are half of the last step's policy: the policy improves, so old rewards are lower."""
    oldest = frame["lag"].max()
    last, old = select(frame, lag=1), select(frame, lag=oldest)
    ages = [
        f"{arm}: error of the mean {part['mean_bias'].mean():+.3f}, of the std {part['std_bias'].mean():+.3f}, worth "
        f"{part['worth'].mean():.0%} of new responses by importance weights"
        for arm, part in frame.groupby("arm", sort=False)
    ]
    too_low = -by_seed(last, "mean_bias")
    low, large = (f"a group's {of} if half is {{}}" for of in ("mean is too [low|high]", "std is too [large|small]"))
    return judged(
        Part("by how much the mean of groups that are half of the last step is too low", too_low, SMALLEST).titled(
            "mean", low, "1 step old"
        ),
        Part(f"of groups that are half from {oldest} steps before", -by_seed(old, "mean_bias"), SMALLEST).titled(
            "mean", low, f"{oldest} steps old"
        ),
        Part("by how much the std is too large with the last step's", by_seed(last, "std_bias"), SMALLEST).titled(
            "std", large, "1 step old"
        ),
        Part(f"with those of {oldest} steps before", by_seed(old, "std_bias"), SMALLEST).titled(
            "std", large, f"{oldest} steps old"
        ),
        *ages,
        f"accuracy then {frame['accuracy'].mean():.2f}, where a group of 8 has a standard error of "
        f"{(frame['accuracy'] * (1 - frame['accuracy']) / 8).mean() ** 0.5:.2f}, and below ½ the std's error has the other sign",
    )


WORTH = "What old samples are worth"
PANELS = [
    [
        Panel("mean", "mean_bias", "error of a group's mean, rewards 0 or 1", marked=(0,)),
        Panel("std", "std_bias", "error of a group's std, rewards 0 or 1", marked=(0,)),
        Panel("worth", "worth", "effective share of new ones", title=WORTH, axes={"xlim": (0, 1.05)}),
    ]
]
