"""What an experiment is: a claim, a trial for each seed, a rule that judges what came out, and a picture of it.

A claim has parts, and each is tagged: measured (and then seen, negligible, not seen at this scale or reversed), arithmetic, or
not testable here. A verdict is the list of them; no claim is called seen as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from statistics import fmean, stdev
from typing import Literal, get_args

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from small_models.checks import check_number

Outcome = Literal["seen", "negligible", "not seen at this scale", "reversed"]
SEEN, NEGLIGIBLE, NOT_SEEN, REVERSED = OUTCOMES = get_args(Outcome)


@dataclass(frozen=True)
class Part:
    """One thing that a claim says, and that is measured: `values`, a number a seed, above 0 where it holds.

    smallest: the smallest effect worth speaking of, in the unit of the values, written down before they are known. claimed: the
    size that the claim names. With the mean over seeds and its band of two standard errors, a part is

    seen        above 0 in every seed, the band too, and the mean at least `smallest` and at least `claimed`
    reversed    below 0 in every seed, the band too, and the mean at most −`smallest`
    negligible  the whole band between −`smallest` and `smallest`
    not seen at this scale  else; and where a seed had nothing to measure, a NaN

    Raises ValueError for fewer than two values, which have no spread, and for a `smallest` that is not above 0.
    """

    words: str
    values: Sequence[float] | pd.Series
    _: KW_ONLY
    smallest: float
    claimed: float = 0.0

    def __post_init__(self) -> None:
        if len(self.values) < 2:
            raise ValueError(f"values must be of two or more seeds, to have a spread; got {len(self.values)}")
        check_number("smallest", self.smallest, lambda number: number > 0, "above 0")
        object.__setattr__(self, "values", tuple(map(float, self.values)))

    @property
    def sign(self) -> int:
        """1 or −1 where all seeds have it and their mean is more than two standard errors from 0, else 0."""
        if any(map(math.isnan, self.values)) or abs(fmean(self.values)) <= self._two_errors:
            return 0
        return int(min(self.values) > 0) - int(max(self.values) < 0)

    @property
    def outcome(self) -> Outcome:
        if any(map(math.isnan, self.values)):
            return "not seen at this scale"
        mean = fmean(self.values)
        if self.sign and self.sign * mean >= max(self.smallest, self.claimed if self.sign > 0 else 0.0):
            return "seen" if self.sign > 0 else "reversed"
        return "negligible" if abs(mean) + self._two_errors < self.smallest else "not seen at this scale"

    @property
    def _two_errors(self) -> float:
        return 2 * stdev(self.values) / math.sqrt(len(self.values))

    def __str__(self) -> str:
        known = [value for value in self.values if not math.isnan(value)]
        if not known:
            return f"measured: {self.words}: nothing to measure, {self.outcome}"
        smallest = f", worth speaking of from {self.smallest:g}"
        missing = f", not measurable in {len(self.values) - len(known)}" if len(known) < len(self.values) else ""
        span = f"{fmean(known):+.3g} (by seed {min(known):+.3g} to {max(known):+.3g}{missing}{smallest})"
        smaller = (
            "of the claimed sign but smaller, " if self.sign > 0 and self.outcome == "not seen at this scale" else ""
        )
        return f"measured: {self.words}: {span}, {smaller}{self.outcome}"


@dataclass(frozen=True)
class Arithmetic:
    """One thing that a claim says and that no run can contradict, since it follows from definitions; values: how much of it."""

    words: str
    values: Sequence[float] | pd.Series

    def __str__(self) -> str:
        return f"arithmetic: {self.words}: {fmean(map(float, self.values)):+.3g}"


@dataclass(frozen=True)
class NotTestable:
    """One thing that a claim says and that cannot be tested here, and why."""

    words: str
    why: str

    def __str__(self) -> str:
        return f"not testable here: {self.words}, for {self.why}"


@dataclass(frozen=True)
class Verdict:
    """What became of a claim: `parts`, what was measured came to; how many other parts it has; the numbers with their spread."""

    parts: tuple[Outcome, ...]
    arithmetic: int
    not_testable: int
    says: str

    def __str__(self) -> str:
        return in_counts([self])


def in_counts(verdicts: Sequence[Verdict]) -> str:
    """Return how many parts of these claims came to what: `2 of 3 measured parts seen, 1 reversed; 1 arithmetic`."""
    parts = [part for verdict in verdicts for part in verdict.parts]
    others = [f"{parts.count(outcome)} {outcome}" for outcome in OUTCOMES[1:] if outcome in parts]
    measured = (
        f"{parts.count(SEEN)} of {len(parts)} measured part{'s' * (len(parts) != 1)} seen"
        if parts
        else "nothing measured"
    )
    arithmetic, not_testable = (
        sum(getattr(each, name) for each in verdicts) for name in ("arithmetic", "not_testable")
    )
    kinds = [
        f"{count} {kind}" for count, kind in ((arithmetic, "arithmetic"), (not_testable, "not testable here")) if count
    ]
    return "; ".join([", ".join([measured, *others]), *kinds])


def judged(*said: Part | Arithmetic | NotTestable | str) -> Verdict:
    """Return the verdict on a claim that says all these parts. Texts are numbers beside them that do not count."""
    kinds = [type(each) for each in said]
    return Verdict(
        tuple(each.outcome for each in said if isinstance(each, Part)),
        kinds.count(Arithmetic),
        kinds.count(NotTestable),
        "; ".join(map(str, said)) + ".",
    )


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
