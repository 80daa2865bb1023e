"""Claim 4: dividing by the group's standard deviation gives very easy and very hard prompts more weight."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure

from rlviz.experiments.base import Experiment, Part, Verdict, gap, judged, means, scaled
from rlviz.experiments.runs import FREE, Graded, run, warmed_up
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.runs.arms import panels, plot_arms, plot_course
from rlviz.training import TrainSettings
from rlviz.types import GroupRecord

SCALES = {"÷ std of the group": GroupAdvantage(scale="group_std"), "no division": GroupAdvantage(scale="none")}
KINDS = ("1 or 7 of 8 right", "2 or 6", "3 or 5", "4")


def kind(group: GroupRecord) -> str | None:
    """Return how far a group is from half right, None for one whose rewards are all equal."""
    right = sum(response.correct for response in group.responses)
    return KINDS[min(right, len(group.responses) - right) - 1] if 0 < right < len(group.responses) else None


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train on prompts from easy (a) to hard (e), with and without the division; a row for each group of each step."""
    task = Graded()
    policy = warmed_up(task, seed, scale, target_accuracy=0.35)
    settings = TrainSettings(
        steps=scaled(50, scale), num_prompts=20, lr=1e-4, evaluate_every=0, details_groups=20, seed=seed
    )
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
    pull = (
        frame.dropna(subset="kind")
        .groupby(["arm", "kind", "seed"], sort=False)["pull"]
        .mean()
        .rename("pull")
        .reset_index()
    )
    half = pull[pull["kind"] == KINDS[-1]].set_index(["arm", "seed"])["pull"]
    keys = pd.MultiIndex.from_frame(pull[["arm", "seed"]])
    return pull.assign(relative=pull["pull"].to_numpy() / half.reindex(keys).to_numpy())


def edge_share(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each arm and seed: the share of all pull that comes from groups with 1 or 7 of 8 right."""
    whole = frame.groupby(["arm", "seed"], sort=False)["pull"].sum()
    edge = frame[frame["kind"] == KINDS[0]].groupby(["arm", "seed"], sort=False)["pull"].sum()
    return (edge / whole).rename("share").reset_index()


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare how much of all pull groups with 1 or 7 of 8 right have, with and without the division."""
    lifted = relative(frame).query("kind == @KINDS[0]").groupby("arm")["relative"].mean()
    shares, divided, plain = edge_share(frame), *SCALES
    hard = gap(frame[frame["difficulty"] >= "d"], "right", divided, plain)
    return judged(
        Part(
            "share of the pull of groups with 1 or 7 of 8 right, more with the division (arithmetic, given the groups)",
            gap(shares, "share", *SCALES),
        ),
        f"share {means(shares, 'share')}",
        f"such a group pulls {lifted[divided]:.2f} times as hard as a half-right one with it, {lifted[plain]:.2f} times "
        f"without, {lifted[divided] / lifted[plain]:.2f} times as much, which is arithmetic",
        f"accuracy on hard prompts (d, e) over the run, with minus without {min(hard):+.3f} to "
        f"{max(hard):+.3f} by seed",
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the pull of each kind of group, and the accuracy on hard and easy prompts."""
    figure, (pull, course) = panels(2)
    table = relative(frame).sort_values("kind", key=lambda kinds: kinds.map(KINDS.index), kind="stable")
    for index, (arm, part) in enumerate(table.groupby("arm", sort=False)):
        plot_arms(pull, part, "relative", by="kind", colour=index, label=str(arm))
    pull.set_title("How hard a group pulls, half-right groups = 1", fontsize=14)
    pull.set_xlabel("Σ|A| over that of half-right groups", fontsize=13)
    pull.legend(fontsize=11, framealpha=1)
    level = frame["difficulty"].map({"a": "easy", "b": "easy", "d": "hard", "e": "hard"})
    shown = frame.assign(arm=level + ", " + frame["arm"]).dropna(subset="arm").sort_values("arm", kind="stable")
    plot_course(course, shown, "step", "right", title="Accuracy on easy and hard prompts", unit="share right", smooth=7)
    course.set_ylim(0, 1.02)
    return figure


EXPERIMENT = Experiment(
    "std_weighting",
    "Dividing by the group's std over-weights very easy and very hard prompts.",
    "Dr.GRPO, arXiv 2503.20783",
    40,
    trial,
    judge,
    draw,
)
