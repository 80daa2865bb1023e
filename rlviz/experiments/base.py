"""What an experiment is: a claim, a trial for each seed, a rule that judges what came out, and a picture of it.

What a claim says, and what becomes of it, is in `parts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rlviz.experiments.parts import Verdict, titles
from rlviz.runs.arms import state


@dataclass(frozen=True)
class Experiment:
    """A claim and its test. name: as on the command line. claim, source: in words. seconds: of a trial, on one quiet core.

    trial: (seed, scale) → a tidy DataFrame without the seed; scale 1 is the real experiment, less of it a shorter one.
    judge, draw: of the trials of all seeds in one DataFrame, with a column `seed`. draw names its axes, and gives no title to
    those in which a part of the claim is shown.
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

    def picture(self, frame: pd.DataFrame) -> Figure:
        """Draw the trials, and write above each panel what the verdict on them says of the parts that it shows."""
        figure = self.draw(frame)
        state(figure, titles(self.judge(frame)))
        return figure


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
