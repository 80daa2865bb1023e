"""The family: a report of a race that takes the best evaluation on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlviz.lessons.puzzles import Bug

if TYPE_CHECKING:
    import pandas as pd


def race(scores: pd.DataFrame) -> pd.Series:
    # scores: a row for each evaluation of each run, on the way and at the end
    runs = scores.groupby(["contender", "seed"], sort=False)
    of_each_run = runs["held_out_accuracy"].last()
    return of_each_run.groupby("contender", sort=False).mean()


BUG = Bug(
    race,
    ".last() → .max()",
    choices=(
        "an arm that is evaluated more often, or fluctuates more, scores higher",
        "the contender with more seeds scores higher",
        "one seed alone decides",
        "longer runs count more in the mean",
    ),
    does="an arm that is evaluated more often, or fluctuates more, scores higher",
    why="the maximum over a run's evaluations can only rise with their number and with their noise, and it need not be at the "
    "budget: take the last evaluation within the budget.",
)
