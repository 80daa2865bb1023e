"""Groups that are half of an older policy's responses: the errors of their mean and std, and what such responses are worth."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import torch

from rlviz.pieces.ratios import token_ratio
from rlviz.study.effects import Claim, Effect
from rlviz.study.frames import by_seed, scaled, select
from rlviz.study.trials import FREE, SMALL, load_shipped, sample_and_grade, score_samples
from rlviz.training import train
from small_models.policies import Policy
from small_models.sampling import Samples
from small_models.tasks import Chain

SAYS = "Old rollouts mixed into a group bias its mean and std, so reusing last step's samples is not free."
SOURCE = "our own question; GRPO with statistics of an older policy: arXiv 2505.22257"

LAGS = (1, 4, 12)
LOOKS = (13, 17, 21, 25)  # steps at which half of each group is taken from the policy of `lag` steps before
HALF = 8


def effective_sample_share(policy: Policy, old: Samples) -> float:
    """Return the effective sample size of an older policy's responses under this one, as a share: (Σ w)² / (n Σ w²)."""
    weights = token_ratio(score_samples(policy, old), old.logp, old.mask).double().prod(-1).flatten()
    return float(weights.sum() ** 2 / (len(weights) * weights.square().sum()))


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train, and compare groups that are half old with groups of the same size that are all new."""
    task, policy = Chain(), load_shipped("chain")
    looks, before, results = [scaled(look, scale, 13) for look in LOOKS], [policy.frozen_copy()], []
    prompts = task.held_out_prompts[: scaled(600, scale, 32)]
    for record in train(policy, task, FREE, replace(SMALL, steps=max(looks), seed=seed)):
        before.append(policy.frozen_copy())
        if record.step not in looks:
            continue
        _, first = sample_and_grade(policy, task, prompts, group_size=HALF, seed=seed)
        _, second = sample_and_grade(policy, task, prompts, group_size=HALF, seed=seed + 1000)
        fresh = torch.cat([first, second], 1)
        for lag in LAGS:
            then = before[record.step - lag]
            old, stale = sample_and_grade(then, task, prompts, group_size=HALF, seed=seed + 1000)  # with the same luck
            mixed = torch.cat([first, stale], 1)
            results.append(
                {
                    "arm": f"{lag} step{'s'[: lag > 1]} old",
                    "lag": lag,
                    "step": record.step,
                    "mean_bias": float(mixed.mean() - fresh.mean()),
                    "std_bias": float(mixed.std(1).mean() - fresh.std(1).mean()),
                    "worth": effective_sample_share(policy, old),
                    "accuracy": float(fresh.mean()),
                }
            )
    return pd.DataFrame(results)


def effects(frame: pd.DataFrame) -> list[Effect]:
    """Look at groups that are half of an older policy's: the policy improves, so old rewards are lower.

    Smallest effect of interest: .01 of a reward of 0 or 1, where a group of 8 has a standard error of up to .18.
    """
    last, old = select(frame, lag=LAGS[0]), select(frame, lag=LAGS[-1])
    too_low = -by_seed(last, "mean_bias")
    return [
        Effect("by how much the mean of groups that are half of the last step is too low", too_low, 0.01),
        Effect(f"of groups that are half from {LAGS[-1]} steps before", -by_seed(old, "mean_bias"), 0.01),
        Effect("by how much the std is too large with the last step's", by_seed(last, "std_bias"), 0.01),
        Effect(f"with those of {LAGS[-1]} steps before", by_seed(old, "std_bias"), 0.01),
    ]


def numbers(frame: pd.DataFrame) -> list[str]:
    means = frame.groupby("arm", sort=False)[["mean_bias", "std_bias", "worth"]].mean()
    return [
        f"{arm}: error of the mean {mean:+.3f}, of the std {std:+.3f}, worth {worth:.0%} of new responses by importance weights"
        for arm, mean, std, worth in means.itertuples()
    ]


CLAIM = Claim("stale_samples", SAYS, SOURCE, seconds=12, trial=trial, effects=effects, numbers=numbers)
