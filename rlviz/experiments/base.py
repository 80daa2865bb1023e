"""What an experiment is: a claim, a trial for each seed, a rule that judges what came out, and a picture of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

Outcome = Literal["seen", "not seen at this scale", "reversed"]
SEEN, NOT_SEEN, REVERSED = OUTCOMES = ("seen", "not seen at this scale", "reversed")


@dataclass(frozen=True)
class Part:
    """One thing that a claim says: `values`, a number a seed, above 0 where it holds and below 0 where its opposite does.

    Seen: above 0 in every seed, the mean more than two standard errors above 0, and at least `claimed`, where the claim names a
    size. Reversed: below 0 in every seed, and the mean more than two standard errors below. A NaN, of a seed in which there was
    nothing to measure, is neither.
    Raises ValueError for fewer than two values, which have no spread.
    """

    words: str
    values: Sequence[float] | pd.Series
    claimed: float = 0.0

    def __post_init__(self) -> None:
        if len(self.values) < 2:
            raise ValueError(f"values must be of two or more seeds, to have a spread; got {len(self.values)}")
        object.__setattr__(self, "values", tuple(map(float, self.values)))

    @property
    def sign(self) -> int:
        """1 or −1 where all seeds have it and their mean is more than two standard errors from 0, else 0."""
        if any(map(math.isnan, self.values)):
            return 0
        if abs(fmean(self.values)) <= 2 * stdev(self.values) / math.sqrt(len(self.values)):
            return 0
        return int(min(self.values) > 0) - int(max(self.values) < 0)

    @property
    def outcome(self) -> Outcome:
        if self.sign > 0:
            return "seen" if fmean(self.values) >= self.claimed else "not seen at this scale"
        return "reversed" if self.sign < 0 else "not seen at this scale"

    def __str__(self) -> str:
        known = [value for value in self.values if not math.isnan(value)]
        if not known:
            return f"{self.words}: nothing to measure"
        missing = f", not measurable in {len(self.values) - len(known)}" if len(known) < len(self.values) else ""
        span = f"{fmean(known):+.3g} (by seed {min(known):+.3g} to {max(known):+.3g}{missing})"
        smaller = "of the claimed sign but smaller, " if self.sign > 0 and self.outcome != "seen" else ""
        return f"{self.words}: {span}, {smaller}{self.outcome}"


@dataclass(frozen=True)
class Verdict:
    """What became of a claim, of each thing that it says, and the numbers with their spread."""

    outcome: Outcome
    parts: tuple[Outcome, ...]
    says: str

    @property
    def share(self) -> str:
        """How many of the things that the claim says were seen, and reversed."""
        turned = f", {self.parts.count('reversed')} reversed" if "reversed" in self.parts else ""
        return f"{self.parts.count('seen')} of {len(self.parts)} seen{turned}"


def judged(*said: Part | str) -> Verdict:
    """Return the verdict on a claim that says all these parts: seen if all are, reversed if one is. Texts are numbers that do
    not count."""
    parts = tuple(each.outcome for each in said if isinstance(each, Part))
    outcome: Outcome = "not seen at this scale"
    if "reversed" in parts:
        outcome = "reversed"
    elif all(one == "seen" for one in parts):
        outcome = "seen"
    return Verdict(outcome, parts, "; ".join(map(str, said)) + ".")


@dataclass(frozen=True)
class Experiment:
    """A claim and its test. name: as on the command line. claim, source: in words. seconds: of a trial, on one quiet core.

    trial: (seed, scale) → a tidy DataFrame without the seed; scale 1 is the real experiment, less of it a shorter one.
    judge, draw: of the trials of all seeds in one DataFrame, with a column `seed`.
    """

    name: str
    claim: str
    source: str
    seconds: float
    trial: Callable[[int, float], pd.DataFrame]
    judge: Callable[[pd.DataFrame], Verdict]
    draw: Callable[[pd.DataFrame], Figure]

    def run(self, seeds: Iterable[int], scale: float = 1.0) -> pd.DataFrame:
        """Return the trials of these seeds, one after the other."""
        return pd.concat([self.trial(seed, scale).assign(seed=seed) for seed in seeds], ignore_index=True)


def select(frame: pd.DataFrame, **values: object) -> pd.DataFrame:
    """Return the rows whose columns have these values, or one of them where a tuple is given."""
    for column, value in values.items():
        frame = frame[frame[column].isin(value if isinstance(value, tuple) else (value,))]
    return frame


def after(frame: pd.DataFrame, share: float) -> pd.DataFrame:
    """Return the rows of the steps after this share of them."""
    return frame[frame["step"] > share * frame["step"].max()]


def by_seed(frame: pd.DataFrame, column: str, **where: object) -> pd.Series:
    """Return the mean of a column for each seed, of the rows `where` selects; NaN for a seed that has none of them."""
    seeds = sorted(frame["seed"].unique())
    return select(frame, **where).groupby("seed")[column].mean().reindex(seeds)


def gap(frame: pd.DataFrame, column: str, more: object, less: object, by: str = "arm") -> pd.Series:
    """Return for each seed the mean of a column in arm `more` minus that in arm `less`."""
    return by_seed(frame, column, **{by: more}) - by_seed(frame, column, **{by: less})


def times(frame: pd.DataFrame, column: str, more: object, less: object, by: str = "arm") -> pd.Series:
    """Return for each seed how many times the mean of a column in arm `less` that in arm `more` is."""
    return by_seed(frame, column, **{by: more}) / by_seed(frame, column, **{by: less})


def doublings(frame: pd.DataFrame, column: str, more: object, less: object, by: str = "arm") -> pd.Series:
    """Return for each seed log2 of how many times as large a column is in arm `more` as in arm `less`: of geometric means."""
    return gap(frame.assign(**{column: np.log2(frame[column])}), column, more, less, by)


def first_reached(frame: pd.DataFrame, goal: pd.Series, x: str = "step") -> pd.DataFrame:
    """Return for each arm and seed its first row, by `x`, for which `goal` is true; one of NaN where there is none."""
    runs, reached = ["arm", "seed"], frame[goal].sort_values(x)
    return frame[runs].drop_duplicates().merge(reached.drop_duplicates(runs), on=runs, how="left")


def in_words(values: Mapping[str, object] | pd.Series, form: str = "{:.2f}") -> str:
    """Return names and their values in a row: `dense 0.72, experts 0.72`."""
    return ", ".join(f"{name} {form.format(value)}" for name, value in values.items())


def means(frame: pd.DataFrame, column: str, digits: int = 2) -> str:
    """Return the mean of a column in each arm, in words."""
    return in_words(frame.groupby("arm", sort=False)[column].mean(), f"{{:.{digits}f}}")


def scaled(count: float, scale: float, least: int = 1) -> int:
    """Return so much of a count, but at least `least`."""
    return max(least, round(count * scale))
