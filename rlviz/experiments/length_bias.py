"""Length of wrong answers under three means over tokens, on a task where filler may be written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import pandas as pd
from matplotlib.figure import Figure
from torch import Tensor

from rlviz.experiments.base import Part, Verdict, after, by_seed, judged, means, scaled
from rlviz.experiments.runs import FREE, SMALL, run, warmed_up
from rlviz.pieces.aggregation import Constant, sequence_mean, token_mean
from rlviz.runs.arms import panels, plot_arms, plot_course
from rlviz.types import StepRecord
from small_models.tasks import Ramble

CLAIM = "GRPO's 1/|o| under-punishes long wrong answers, so wrong answers grow longer; Dr.GRPO and the token mean remove that."
SOURCE = "Dr.GRPO, arXiv 2503.20783"
SECONDS = 45

MEANS: dict[str, Callable[[Tensor], Tensor]] = {
    "GRPO's mean": sequence_mean,
    "token mean": token_mean,
    "Dr.GRPO's": Constant(24),
}


def wrong_length(record: StepRecord) -> float:
    """Return the mean length of a step's wrong responses."""
    lengths = [response.length for group in record.groups for response in group.responses if not response.correct]
    return fmean(lengths) if lengths else float("nan")


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train the same warm start under three means; only the weights of the tokens differ."""
    task = Ramble()
    policy = warmed_up(task, seed, scale)
    settings = replace(SMALL, steps=scaled(60, scale), lr=1e-4, details_groups=16, seed=seed)
    found = [
        {"arm": name, "step": r.step, "accuracy": r.accuracy, "length": r.response_length, "wrong": wrong_length(r)}
        for name, aggregate in MEANS.items()
        for r in run(policy, task, replace(FREE, aggregate=aggregate), settings)
    ]
    return pd.DataFrame(found)


def judge(frame: pd.DataFrame) -> Verdict:
    """How much do wrong answers grow until the second half of the steps, and what part of it do the other means take away?"""
    first, late = frame[frame["step"] <= 3], after(frame, 0.5)
    growth = {name: by_seed(late, "wrong", arm=name) - by_seed(first, "wrong", arm=name) for name in MEANS}
    grpo, *others = MEANS
    takes_away = "share of that growth which {} takes away (claimed: all, half would do)"
    right = late.assign(right=(late["length"] - (1 - late["accuracy"]) * late["wrong"]) / late["accuracy"])
    return judged(
        Part("tokens by which wrong answers grow under GRPO's mean", growth[grpo]),
        *(Part(takes_away.format(name), 1 - growth[name] / growth[grpo], claimed=0.5) for name in others),
        f"length of wrong answers at first {first['wrong'].mean():.1f}, later {means(late, 'wrong', 1)}",
        f"of right answers later {means(right, 'right', 1)}",
        f"accuracy later {means(late, 'accuracy')}",
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the length of wrong answers over the steps and in the second half."""
    figure, (course, late) = panels(2)
    plot_course(course, frame, "wrong", title="Wrong answers", unit="tokens", smooth=7)
    title, unit = "In the second half, a dot a seed", "tokens of a wrong answer"
    plot_arms(late, after(frame, 0.5), "wrong", title=title, unit=unit)
    return figure
