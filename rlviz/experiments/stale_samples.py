"""Claim 9: responses of an older policy, mixed into a group, bias its mean and standard deviation."""

from __future__ import annotations

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from rlviz.experiments.base import Experiment, Part, Verdict, by_seed, judged, scaled
from rlviz.experiments.runs import FREE, copy_of, shipped
from rlviz.pieces.ratios import token_ratio
from rlviz.runs.arms import at, panels, plot_arms
from rlviz.training import TrainSettings, train
from small_models.policies import Policy
from small_models.sampling import Samples, response_logits, sample, token_logp
from small_models.tasks import Chain

LAGS = (1, 4, 12)
LOOKS = (13, 17, 21, 25)  # steps at which half of each group is taken from the policy of `lag` steps before
HALF = 8


def answered(policy: Policy, task: Chain, prompts: list[str], seed: int) -> tuple[Samples, Tensor]:
    """Return responses and which of them are right, [P, 8]."""
    longest, generator = task.max_new_tokens, torch.Generator().manual_seed(seed)
    samples = sample(policy, prompts, group_size=HALF, max_new_tokens=longest, generator=generator)
    texts = samples.texts(policy)
    right = [[task.grade(prompt, text).correct for text in row] for prompt, row in zip(prompts, texts, strict=True)]
    return samples, torch.tensor(right).double()


def worth(policy: Policy, old: Samples) -> float:
    """Return the effective sample size of an older policy's responses under this one, as a share: (Σ w)² / (n Σ w²)."""
    with torch.no_grad():
        logp = token_logp(response_logits(policy, old.prompt_ids, old.prompt_mask, old.tokens), old.tokens)
    weights = token_ratio(logp, old.logp, old.mask).double().prod(-1).flatten()
    return float(weights.sum() ** 2 / (len(weights) * weights.square().sum()))


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train, and compare groups that are half old with groups of the same size that are all new."""
    task, policy = Chain(), copy_of(shipped("chain"))
    looks, before, found = [scaled(look, scale, 13) for look in LOOKS], [policy.frozen_copy()], []
    prompts = task.held_out_prompts[: scaled(600, scale, 32)]
    settings = TrainSettings(steps=max(looks), num_prompts=16, evaluate_every=0, details_every=0, seed=seed)
    for record in train(policy, task, FREE, settings):
        before.append(policy.frozen_copy())
        if record.step not in looks:
            continue
        _, first = answered(policy, task, prompts, seed)
        _, second = answered(policy, task, prompts, seed + 1000)
        fresh = torch.cat([first, second], 1)
        for lag in LAGS:
            old, stale = answered(before[record.step - lag], task, prompts, seed + 1000)  # with the same luck
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
    last = frame[frame["lag"] == 1]
    ages = [
        f"{arm}: error of the mean {part['mean_bias'].mean():+.3f}, of the std {part['std_bias'].mean():+.3f}, worth "
        f"{part['worth'].mean():.0%} of new responses by importance weights"
        for arm, part in frame.groupby("arm", sort=False)
    ]
    return judged(
        Part(
            "by how much the mean of groups that are half of the last step is too low",
            tuple(-by_seed(last, "mean_bias")),
        ),
        Part("by how much their std is too large", tuple(by_seed(last, "std_bias"))),
        *ages,
        f"accuracy then {frame['accuracy'].mean():.2f}, where a group of 8 has a standard error of "
        f"{(frame['accuracy'] * (1 - frame['accuracy']) / 8).mean() ** 0.5:.2f}, and below ½ the std's error has the other sign",
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the bias of mean and std, and the effective sample size, by the age of the old half."""
    figure, axes = panels(3, 4.6)
    plot_arms(axes[0], frame, "mean_bias", title="Error of the group's mean", unit="reward")
    plot_arms(axes[1], frame, "std_bias", title="Error of its std", unit="reward")
    plot_arms(axes[2], frame, "worth", title="What old samples are worth", unit="effective share")
    for ax in axes[:2]:
        at(ax, 0.0)
    for ax in axes[1:]:
        ax.set_yticklabels([])
    axes[2].set_xlim(0, 1.02)
    return figure


EXPERIMENT = Experiment(
    "stale_samples",
    "Old rollouts mixed into a group bias its mean and std, so reusing last step's samples is not free.",
    "our own question; GRPO with statistics of an older policy: arXiv 2505.22257",
    12,
    trial,
    judge,
    draw,
)
