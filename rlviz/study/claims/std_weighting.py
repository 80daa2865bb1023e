"""How hard groups pull by how many of their responses are right, with and without division by the group's std."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from rlviz.pieces.advantages import GroupAdvantage
from rlviz.study.effects import Claim, Effect, arithmetic
from rlviz.study.frames import gap, scaled, select
from rlviz.study.trials import FREE, SMALL, Graded, train_copy, warm_start_policy
from rlviz.types import GroupRecord

SAYS = "Dividing by the group's std over-weights very easy and very hard prompts."
SOURCE = "Dr.GRPO, arXiv 2503.20783"

SCALES = {"÷ std of the group": GroupAdvantage(scale="group_std"), "no division": GroupAdvantage(scale="none")}
KINDS = ("1 or 7 of 8 right", "2 or 6", "3 or 5", "4")


def classify_group(group: GroupRecord) -> str | None:
    """Return the distance of a group from half right, as one of KINDS; None where all rewards are equal."""
    right = sum(bool(response.correct) for response in group.responses)
    return KINDS[min(right, len(group.responses) - right) - 1] if 0 < right < len(group.responses) else None


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train on prompts from easy (a) to hard (e), with and without the division; a row for each group of each step."""
    task = Graded()
    policy = warm_start_policy(task, seed, scale)
    settings = replace(SMALL, steps=scaled(50, scale), num_prompts=20, lr=1e-4, details_groups=20, seed=seed)
    results = [
        {
            "arm": name,
            "step": record.step,
            "difficulty": group.prompt[0],
            "kind": classify_group(group),
            "right": sum(bool(response.correct) for response in group.responses) / len(group.responses),
            "pull": sum(abs(response.advantage) for response in group.responses),
        }
        for name, advantage in SCALES.items()
        for record in train_copy(policy, task, replace(FREE, advantage=advantage), settings)
        for group in record.groups
    ]
    return pd.DataFrame(results)


def edge_share(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each arm and seed: the share of all pull that comes from groups with 1 or 7 of 8 right."""
    total = frame.groupby(["arm", "seed"], sort=False)["pull"].sum()
    edge = select(frame, kind=KINDS[0]).groupby(["arm", "seed"], sort=False)["pull"].sum()
    return (edge / total).rename("share").reset_index()


def effects(frame: pd.DataFrame) -> list[Effect]:
    """How much of all pull have groups with 1 or 7 of 8 right, with and without the division?"""
    words = "share of the pull of groups with 1 or 7 of 8 right, more with the division, given the groups"
    return [arithmetic(words, gap(edge_share(frame), "share", *SCALES))]


def numbers(frame: pd.DataFrame) -> list[str]:
    hard = gap(frame[frame["difficulty"] >= "d"], "right", *SCALES)
    return [
        f"accuracy on hard prompts (d, e) over the run, with minus without {min(hard):+.3f} to {max(hard):+.3f} by seed"
    ]


CLAIM = Claim("std_weighting", SAYS, SOURCE, seconds=40, trial=trial, effects=effects, numbers=numbers)
