"""Reports that run and mislead: of a race, and of a rule whose constant was tuned. Lessons show their source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def best_evaluation(scores: pd.DataFrame) -> pd.Series:
    # scores: a row for each evaluation of each run, on the way and at the end
    runs = scores.groupby(["contender", "seed"], sort=False)
    of_each_run = runs["held_out_accuracy"].max()
    return of_each_run.groupby("contender", sort=False).mean()


def judged_on_the_seeds_that_chose(gain: Callable[[float, int], float], seeds: Iterable[int]) -> tuple[float, float]:
    # gain: share right with the rule at this c and seed, minus GRPO's
    tried = {c: [gain(c, seed) for seed in seeds] for c in (0.1, 0.2, 0.3, 0.5, 0.8)}
    best = max(tried, key=lambda c: fmean(tried[c]))
    gains = tried[best]
    return best, fmean(gains)
