"""The tidy frame of a study, a row for each step, arm and seed: rows of it, means per seed, arms against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd


def select(frame: pd.DataFrame, **values: object) -> pd.DataFrame:
    """Return the rows whose columns have these values, or one of them where a tuple is given."""
    for column, value in values.items():
        frame = frame[frame[column].isin(value if isinstance(value, tuple) else (value,))]
    return frame


def late(frame: pd.DataFrame, share: float) -> pd.DataFrame:
    """Return the rows of the steps after this share of the run."""
    return frame[frame["step"] > share * frame["step"].max()]


def by_seed(frame: pd.DataFrame, column: str, **where: object) -> pd.Series:
    """Return the mean of a column for each seed, over the rows that `where` selects; NaN for a seed without such a row."""
    seeds = sorted(frame["seed"].unique())
    return select(frame, **where).groupby("seed")[column].mean().reindex(seeds)


def gap(frame: pd.DataFrame, column: str, more: object, less: object, by: str = "arm", **where: object) -> pd.Series:
    """Return, for each seed, the mean of a column in arm `more` minus that in arm `less`. by: the column of the arms."""
    return by_seed(frame, column, **{by: more}, **where) - by_seed(frame, column, **{by: less}, **where)


def ratio(frame: pd.DataFrame, column: str, more: object, less: object, by: str = "arm", **where: object) -> pd.Series:
    """Return, for each seed, the mean of a column in arm `more` over that in arm `less`. by: the column of the arms."""
    return by_seed(frame, column, **{by: more}, **where) / by_seed(frame, column, **{by: less}, **where)


def log2_ratio(
    frame: pd.DataFrame, column: str, more: object, less: object, by: str = "arm", **where: object
) -> pd.Series:
    """Return, for each seed, log2 of the ratio of geometric means: arm `more` over arm `less`. by: the column of the arms."""
    return gap(frame.assign(**{column: np.log2(frame[column])}), column, more, less, by, **where)


def first_reached(
    frame: pd.DataFrame, goal: pd.Series, x: str = "step", runs: Sequence[str] = ("arm", "seed")
) -> pd.DataFrame:
    """Return for each arm and seed its first row, by `x`, for which `goal` is true; a row of NaN where there is none."""
    runs, reached = list(runs), frame[goal].sort_values(x)
    return frame[runs].drop_duplicates().merge(reached.drop_duplicates(runs), on=runs, how="left")


def in_words(values: Mapping[str, object] | pd.Series, form: str = "{:.2f}") -> str:
    """Return names and their values in a row: `dense 0.72, experts 0.72`."""
    return ", ".join(f"{name} {form.format(value)}" for name, value in values.items())


def means(frame: pd.DataFrame, column: str, digits: int = 2) -> str:
    """Return the mean of a column in each arm, in words."""
    return in_words(frame.groupby("arm", sort=False)[column].mean(), f"{{:.{digits}f}}")


def scaled(count: float, scale: float, least: int = 1) -> int:
    """Return round(count · scale), but at least `least`."""
    return max(least, round(count * scale))
