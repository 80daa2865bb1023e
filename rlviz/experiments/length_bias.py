"""Filler in wrong answers under three means over tokens, from a policy that always reasons.

Length itself grows for another reason: writing the running sums makes answers right. Filler, dots that help nothing, is what a
mean over tokens may leave standing; so it is what is counted, and the policy at the start already writes its sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import pandas as pd
from matplotlib.figure import Figure
from torch import Tensor

from rlviz.experiments.base import Part, Verdict, after, by_seed, gap, judged, means, scaled
from rlviz.experiments.runs import FREE, SMALL, run, warmed_up
from rlviz.pieces.aggregation import Constant, sequence_mean, token_mean
from rlviz.runs.arms import panels, plot_arms, plot_course
from rlviz.types import StepRecord
from small_models.tasks import Ramble

CLAIM = "GRPO's 1/|o| under-punishes long wrong answers, so wrong answers grow longer; Dr.GRPO and the token mean remove that."
SOURCE = "Dr.GRPO, arXiv 2503.20783"
SECONDS = 25
SMALLEST = 0.1  # dots of filler worth speaking of

MEANS: dict[str, Callable[[Tensor], Tensor]] = {
    "GRPO's mean": sequence_mean,
    "token mean": token_mean,
    "Dr.GRPO's": Constant(24),
}


def filler(record: StepRecord, *, right: bool) -> float:
    """Return the mean number of dots in a step's right, or wrong, responses."""
    responses = (response for group in record.groups for response in group.responses)
    dots = [response.text.count(".") for response in responses if response.correct == right]
    return fmean(dots) if dots else float("nan")


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train the same warm start, which always writes its sums, under three means; only the weights of the tokens differ."""
    task = Ramble(reasoning=1.0)
    policy = warmed_up(task, seed, scale, look_every=2)  # once sums are written, accuracy rises in a few updates
    settings = replace(SMALL, steps=scaled(100, scale), lr=3e-4, details_groups=16, seed=seed)
    found = [
        {
            "arm": name,
            "step": r.step,
            "accuracy": r.accuracy,
            "wrong": filler(r, right=False),
            "right": filler(r, right=True),
        }
        for name, aggregate in MEANS.items()
        for r in run(policy, task, replace(FREE, aggregate=aggregate), settings)
    ]
    return pd.DataFrame(found)


def judge(frame: pd.DataFrame) -> Verdict:
    """Does filler in wrong answers grow under GRPO's mean, and is less of it left under the others, in the second half?"""
    first, late = frame[frame["step"] <= 3], after(frame, 0.5)
    grpo, *others = MEANS
    growth = by_seed(late, "wrong", arm=grpo) - by_seed(first, "wrong", arm=grpo)
    left = "dots fewer left in wrong answers under {} than under GRPO's mean"
    return judged(
        Part("dots by which filler in wrong answers grows under GRPO's mean", growth, smallest=SMALLEST),
        *(
            Part(
                left.format("the token mean" if name == "token mean" else f"{name} constant"),
                gap(late, "wrong", grpo, name),
                smallest=SMALLEST,
            )
            for name in others
        ),
        f"dots in wrong answers at first {first['wrong'].mean():.2f}, later {means(late, 'wrong')}",
        f"in right answers later {means(late, 'right')}",
        f"accuracy later {means(late, 'accuracy')}",
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the filler in wrong answers over the steps and in the second half."""
    figure, (course, late) = panels(2)
    plot_course(course, frame, "wrong", title="Filler in wrong answers", unit="dots", smooth=7)
    title, unit = "In the second half, a dot a seed", "dots in a wrong answer"
    plot_arms(late, after(frame, 0.5), "wrong", title=title, unit=unit)
    return figure
