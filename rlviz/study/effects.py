"""Claims of papers, tested over seeds: effects with their intervals, one rule for what became of each, one forest plot for all.

A claim is a module of `claims/` that ends with `CLAIM = Claim(...)`. Its `trial(seed, scale)` returns a tidy frame for one seed,
its `effects(frame)` one `Effect` for each statement: one number per seed, positive where the statement holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import fill

import pandas as pd
from matplotlib.figure import Figure

from rlviz.page.style import FAINT, GREEN, GREY, LINE, TEXT, VERMILION, dress, new_figure
from rlviz.study.difference import Difference, paired
from small_models.checks import check_number

SEEN, NEGLIGIBLE, NOT_SEEN, REVERSED = OUTCOMES = ("seen", "negligible", "not seen at this scale", "reversed")
MEASURED, ARITHMETIC, NOT_TESTABLE = "measured", "arithmetic", "not testable here"
COLOURS = {SEEN: GREEN, REVERSED: VERMILION}  # of an outcome in the forest plot; the other outcomes are grey


@dataclass(frozen=True)
class Effect:
    """One statement of a claim. values: one number per seed. smallest: the smallest effect of interest, fixed beforehand.

    claimed: the size that the source states. kind: "measured", or "arithmetic" where the result follows from definitions.
    Raises ValueError for a measured effect of fewer than two seeds, which has no spread, or whose `smallest` is not above 0.
    """

    words: str
    values: Sequence[float] | pd.Series
    smallest: float = math.nan
    claimed: float = 0.0
    kind: str = MEASURED

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(map(float, self.values)))
        if self.kind == MEASURED:
            if len(self.values) < 2:
                raise ValueError(f"values must be of two or more seeds, to have a spread; got {len(self.values)}")
            check_number("smallest", self.smallest, lambda number: number > 0, "above 0")

    @property
    def known(self) -> list[float]:
        """The values of the seeds in which there was something to measure."""
        return [value for value in self.values if not math.isnan(value)]

    @property
    def interval(self) -> Difference:
        """Mean ± 2 standard errors over the seeds in which there was something to measure; NaN where there was nothing."""
        return paired(self.known)

    @property
    def mean(self) -> float:
        return self.interval.size

    @property
    def outcome(self) -> str:
        """What became of the statement.

        seen        every seed and the interval lie above 0, and the mean is at least `smallest` and at least `claimed`
        reversed    every seed and the interval lie below 0, and the mean is at most −`smallest`
        negligible  the interval lies between −`smallest` and `smallest`
        not seen at this scale  otherwise; also where a seed had nothing to measure (NaN)
        """
        if self.kind != MEASURED:
            return self.kind
        values, interval = self.known, self.interval
        if len(values) < len(self.values):
            return NOT_SEEN
        if interval.low > 0 and min(values) > 0 and self.mean >= max(self.smallest, self.claimed):
            return SEEN
        if interval.high < 0 and max(values) < 0 and self.mean <= -self.smallest:
            return REVERSED
        return NEGLIGIBLE if interval.is_within(self.smallest) else NOT_SEEN

    def __str__(self) -> str:
        if self.kind == ARITHMETIC:
            return f"{ARITHMETIC}: {self.words}: {self.mean:+.3g}"
        known, missing = self.known, len(self.values) - len(self.known)
        if not known:
            return f"{MEASURED}: {self.words}: nothing to measure, {self.outcome}"
        seeds = f"by seed {min(known):+.3g} to {max(known):+.3g}"
        seeds += f", not measurable in {missing}" if missing else ""
        smallest = f"smallest effect of interest {self.smallest:g}"
        return f"{MEASURED}: {self.words}: {self.mean:+.3g} ({seeds}, {smallest}), {self.outcome}"


def arithmetic(words: str, values: Sequence[float] | pd.Series) -> Effect:
    """Return an effect that follows from definitions: no run can contradict it."""
    return Effect(words, values, kind=ARITHMETIC)


def no_numbers(frame: pd.DataFrame) -> list[str]:
    return []


@dataclass(frozen=True)
class Claim:
    """A claim and its test. name: on the command line, and of its module. says, source: in words. seconds: of one trial.

    trial: (seed, scale) → a tidy frame of one seed, without a column for it; scale 1 is the real experiment, less is shorter.
    effects: of the frame of all seeds, which has a column `seed`. notes: what cannot be tested here, and why, a line each.
    numbers: of the same frame, lines with further numbers that a lesson quotes.
    """

    name: str
    says: str
    source: str
    seconds: float
    trial: Callable[[int, float], pd.DataFrame]
    effects: Callable[[pd.DataFrame], list[Effect]]
    notes: tuple[str, ...] = ()
    numbers: Callable[[pd.DataFrame], list[str]] = no_numbers

    def run(self, seeds: Sequence[int], scale: float = 1.0) -> pd.DataFrame:
        """Return the trials of these seeds, one after the other."""
        return pd.concat([self.trial(seed, scale).assign(seed=seed) for seed in seeds], ignore_index=True)


def counts(effects: Sequence[Effect], notes: Sequence[str] = ()) -> str:
    """Return the number of effects with each outcome: "2 of 3 measured parts seen, 1 reversed; 1 arithmetic"."""
    outcomes = [effect.outcome for effect in effects]
    measured = sum(effect.kind == MEASURED for effect in effects)
    parts = f"measured part{'s' * (measured != 1)}"
    seen = f"{outcomes.count(SEEN)} of {measured} {parts} seen" if measured else "nothing measured"
    others = [f"{outcomes.count(outcome)} {outcome}" for outcome in OUTCOMES[1:] if outcome in outcomes]
    tags = {ARITHMETIC: outcomes.count(ARITHMETIC), NOT_TESTABLE: len(notes)}
    return "; ".join([", ".join([seen, *others]), *(f"{count} {tag}" for tag, count in tags.items() if count)])


def forest(claim: Claim, effects: Sequence[Effect]) -> Figure:
    """Draw a row for each effect: if measured, a dot per seed and mean ± 2 standard errors, ÷ its smallest effect of interest.

    The axis is linear to ± 2 and logarithmic beyond; in the grey band an effect is too small to matter. At the right stand
    the mean and the outcome.
    """
    figure = new_figure(13, 2.0 + 0.6 * len(effects))
    ax = figure.add_subplot()
    ax.axvspan(-1, 1, color=FAINT)
    ax.axvline(0, color=GREY, linewidth=1)
    for row, effect in enumerate(effects):
        size = f"{effect.mean:+.3g}" if effect.known else "nothing to measure"
        colour, words = COLOURS.get(effect.outcome, "0.35"), f"{size}  {effect.outcome}"
        if effect.kind == MEASURED:
            unit, interval = effect.smallest, effect.interval
            seeds = [value / unit for value in effect.known]
            ax.plot(seeds, [row] * len(seeds), "o", color=colour, alpha=0.5, markersize=9)
            ax.plot([interval.low / unit, interval.high / unit], [row, row], color="black", linewidth=LINE)
            ax.plot(effect.mean / unit, row, "|", color="black", markersize=18, markeredgewidth=LINE)
        ax.text(1.01, row, words, transform=ax.get_yaxis_transform(), va="center", fontsize=TEXT, color=colour)
    ax.set_xscale("symlog", linthresh=2)
    low, high = ax.get_xlim()
    ax.set_xlim(min(low, -2), max(high, 2))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_ylim(len(effects) - 0.5, -0.5)
    dress(ax, title="", x="effect ÷ smallest effect of interest (grey: too small to matter)", y="")
    ax.set_yticks(range(len(effects)), [fill(effect.words, 52) for effect in effects])
    figure.suptitle(fill(claim.says, 95), fontsize=TEXT + 1)
    return figure
