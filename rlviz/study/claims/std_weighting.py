"""How hard groups pull by how many of their responses are right, with and without division by the group's std."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from rlviz.pieces.advantages import GroupAdvantage
from rlviz.study.claim import Panel
from rlviz.study.frames import gap, means, scaled, select
from rlviz.study.trials import FREE, SMALL, Graded, run, warmed_up
from rlviz.study.verdict import Arithmetic, Verdict, judged
from rlviz.types import GroupRecord

CLAIM = "Dividing by the group's std over-weights very easy and very hard prompts."
SOURCE = "Dr.GRPO, arXiv 2503.20783"
SECONDS = 40

SCALES = {"÷ std of the group": GroupAdvantage(scale="group_std"), "no division": GroupAdvantage(scale="none")}
KINDS = ("1 or 7 of 8 right", "2 or 6", "3 or 5", "4")


def kind(group: GroupRecord) -> str | None:
    """Return how far a group is from half right, None for one whose rewards are all equal."""
    right = sum(response.correct for response in group.responses)
    return KINDS[min(right, len(group.responses) - right) - 1] if 0 < right < len(group.responses) else None


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train on prompts from easy (a) to hard (e), with and without the division; a row for each group of each step."""
    task = Graded()
    policy = warmed_up(task, seed, scale)
    settings = replace(SMALL, steps=scaled(50, scale), num_prompts=20, lr=1e-4, details_groups=20, seed=seed)
    found = [
        {
            "arm": name,
            "step": record.step,
            "difficulty": group.prompt[0],
            "kind": kind(group),
            "right": sum(response.correct for response in group.responses) / len(group.responses),
            "pull": sum(abs(response.advantage) for response in group.responses),
        }
        for name, advantage in SCALES.items()
        for record in run(policy, task, replace(FREE, advantage=advantage), settings)
        for group in record.groups
    ]
    return pd.DataFrame(found)


def relative(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each arm, kind and seed: how hard such a group pulls, over one that is half right in the same arm."""
    pull = frame.dropna(subset="kind").groupby(["arm", "kind", "seed"], sort=False)["pull"].mean().reset_index()
    half = select(pull, kind=KINDS[-1]).drop(columns="kind")
    both = pull.merge(half, on=["arm", "seed"], how="left", suffixes=("", "_of_half"))
    return both.assign(relative=both["pull"] / both["pull_of_half"])


def edge_share(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each arm and seed: the share of all pull that comes from groups with 1 or 7 of 8 right."""
    whole = frame.groupby(["arm", "seed"], sort=False)["pull"].sum()
    edge = select(frame, kind=KINDS[0]).groupby(["arm", "seed"], sort=False)["pull"].sum()
    return (edge / whole).rename("share").reset_index()


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare how much of all pull groups with 1 or 7 of 8 right have, with and without the division."""
    lifted = select(relative(frame), kind=KINDS[0]).groupby("arm")["relative"].mean()
    shares, divided, plain = edge_share(frame), *SCALES
    hard = gap(frame[frame["difficulty"] >= "d"], "right", divided, plain)
    return judged(
        Arithmetic(
            "share of the pull of groups with 1 or 7 of 8 right, more with the division, given the groups",
            gap(shares, "share", divided, plain),
        ).titled("pull", "division gives groups with 1 or 7 of 8 right {} of the pull [more|less]", form="{:.0%}"),
        f"share {means(shares, 'share')}",
        f"such a group pulls {lifted[divided]:.2f} times as hard as a half-right one with it, {lifted[plain]:.2f} times "
        f"without, {lifted[divided] / lifted[plain]:.2f} times as much, which is arithmetic",
        f"accuracy on hard prompts (d, e) over the run, with minus without {min(hard):+.3f} to "
        f"{max(hard):+.3f} by seed",
    )


def by_kind(frame: pd.DataFrame) -> pd.DataFrame:
    return relative(frame).sort_values("kind", key=lambda kinds: kinds.map(KINDS.index), kind="stable")


def changed_by_division(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy on easy and on hard prompts with the division minus that without, a row a step and seed."""
    divided, plain = SCALES
    level = frame["difficulty"].map(dict.fromkeys("ab", "easy prompts") | dict.fromkeys("de", "hard prompts"))
    right = frame.assign(level=level).pivot_table(index=["level", "step", "seed"], columns="arm", values="right")
    return (right[divided] - right[plain]).rename("more").reset_index().rename(columns={"level": "arm"})


PANELS = [
    [
        Panel("pull", "relative", "Σ|A| of a group over that of half-right groups", by_kind, by="kind", sets="arm"),
        Panel(
            "course", "more", "accuracy, with minus without", changed_by_division, x="step", smooth=7,
            title="What the division changes in accuracy", axes={"ylim": (-0.25, 0.25)},
        ),
    ]
]  # fmt: skip
