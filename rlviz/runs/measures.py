"""The numbers of a run that the rules of `diagnose` look at: columns smoothed over a window of steps, and measures of them.

`RunSeries` holds the columns, with what `DERIVED` makes of them; a `Condition` compares a measure of one column with a limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlviz.types import PART

Values = NDArray[np.float64]

WINDOWS = 8  # in a run: long enough for a median, short enough to see a turn
SHORTEST, LONGEST = 5, 25  # steps of a window
FEWEST_ROWS = 3  # of a window: a median of two is no defence against an odd one
APART = 4  # windows, so that a beginning and an end are apart
EQUAL = 1e-6  # rewards that differ by less are equal; float32 rounds a constant's standard deviation to 1e-8
TINY = 1e-12  # in place of no noise
CLEAR = 2  # standard deviations of one step, from which on a fall of a median is no noise
KL_AT_FIRST = 0.01  # nats a token: below it the KL of a first row is rounding, and no measure of growth
SOLVED = 0.99  # of a reward whose largest value is 1
SCALE = 1.4826 / 2**0.5  # from the median size of steps' differences to the standard deviation of one normal value
NAN = {
    kind: f"nan {kind}:" for kind in ("critic", "measured")
}  # before the name of what was logged as no finite number


class RunSeries:
    """The numbers of a run over its S rows. steps: the number of the step that each was logged at. settings: known ones, by name.

    columns: name → [S], not a number where there is none, with what `DERIVED` makes of them. every: steps from one row to the
    next; done: steps that the rows tell of; window: rows of a median.
    """

    def __init__(self, columns: Mapping[str, Values], settings: Mapping[str, Any]) -> None:
        self.settings, self.steps = settings, columns["step"]
        rows = len(self.steps)
        self.every = max(1.0, float((self.steps[-1] - self.steps[0]) / (rows - 1) if rows > 1 else self.steps[0]))
        # of rows picked from a log, the steps between them are guessed
        self.done = min(self.steps_since(0), int(self.steps[-1]))
        window = int(np.clip(self.done // WINDOWS, SHORTEST, LONGEST))
        self.window = max(FEWEST_ROWS, math.ceil(window / self.every))
        self.columns = dict(columns)
        self.smooth = cache(self._smooth)
        self.lost_part = ""  # the reward function that pays less than at first, filled by `_part_lost`
        self.not_numbers = {kind: ", ".join(self.with_prefix(prefix)) for kind, prefix in NAN.items()}
        with np.errstate(all="ignore"):
            for name, derive in DERIVED.items():
                self.columns[name] = derive(self)

    def __getitem__(self, name: str) -> Values:
        """Return a column as it was measured, nothing but not-a-numbers where the run has none."""
        return self.columns.get(name, np.full(len(self.steps), np.nan))

    def with_prefix(self, prefix: str) -> dict[str, Values]:
        """Return the columns whose names begin with a prefix, by what follows it."""
        return {name.removeprefix(prefix): self[name] for name in self.columns if name.startswith(prefix)}

    def steps_since(self, row: int) -> int:
        """Return how many steps the rows from this one on tell of."""
        return round(float(self.steps[-1] - self.steps[row]) + self.every)

    @property
    def is_long(self) -> bool:
        """Whether a beginning and an end are apart."""
        return len(self.steps) >= APART * self.window

    def setting(self, name: str) -> float:
        """Return a setting that is a number; not a number where it is not known."""
        value = self.settings.get(name)
        return float(value) if isinstance(value, int | float) else np.nan

    def constant(self, value: float) -> Values:
        """Return the same number for each row."""
        return np.full(len(self.steps), value)

    def latest(self, name: str) -> Values:
        """Return for each row the number measured last."""
        values = self[name]
        return pd.Series(np.where(np.isfinite(values), values, np.nan)).ffill().to_numpy()

    def _smooth(self, name: str) -> Values:
        """Return the median over the window that ends with each row, over fewer rows at first."""
        return pd.Series(self.latest(name)).rolling(self.window, min_periods=1).median().to_numpy()

    def first(self, name: str) -> float:
        """Return the median over the first full window."""
        return float(self.smooth(name)[self.window - 1]) if len(self.steps) >= self.window else np.nan


def _ratio(above: Values, below: Values) -> Values:
    return np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)


def _noise(values: Values) -> float:
    """Return the standard deviation of a single step about its neighbours, whatever the trend; 0 where there is none."""
    jumps = np.abs(np.diff(values[np.isfinite(values)]))
    return SCALE * float(np.median(jumps)) if len(jumps) else 0.0


# --- columns that are made of others ---


def _not_finite(run: RunSeries) -> Values:
    """Return 1 where a step of training has a loss or a gradient's norm that is no finite number, though these were recorded."""
    logged = [run.columns[name] for name in ("loss", "grad_norm") if name in run.columns]
    trained = np.isfinite([run[name] for name in ("reward", "lr", "loss", "grad_norm")]).any(0)
    broken = ~np.isfinite(logged).all(0) if logged else np.zeros(len(run.steps), dtype=bool)
    return (trained & broken).astype(float)


def _nan(run: RunSeries, kind: str) -> Values:
    """Return 1 where a metric of this kind was logged as no finite number, else 0."""
    return np.asarray(np.fmax.reduce([run.constant(0.0), *run.with_prefix(NAN[kind]).values()]))


def _all_equal(run: RunSeries) -> Values:
    """Return 1 where all rewards of a step were the same, 0 where they were not, for logs that do not count such groups."""
    spread = np.where(np.isnan(run["reward_std"]), run["reward_max"] - run["reward_min"], run["reward_std"])
    return np.where(np.isnan(spread), np.nan, (spread <= EQUAL).astype(float))


def _part_lost(run: RunSeries) -> Values:
    """Return how much less the reward function that lost most pays than at first, as a share, where that is no noise."""
    lost = run.constant(np.nan)
    for part in run.with_prefix(PART):
        first, noise = run.first(PART + part), _noise(run.latest(PART + part))
        fall = first - run.smooth(PART + part)
        share = np.where(fall >= CLEAR * noise, _ratio(fall, run.constant(abs(first))), 0.0)
        if np.isnan(lost).all() or share[-1] > lost[-1]:
            lost, run.lost_part = share, part
    return lost


def _differing(run: RunSeries) -> Values:
    """Return the share of groups whose rewards differ; 1 or 0 where a log has only their mean standard deviation."""
    by_spread = np.where(np.isnan(run["reward_std"]), np.nan, run["reward_std"] > EQUAL)
    return np.where(np.isnan(run["zero_variance_groups"]), by_spread, 1 - run["zero_variance_groups"])


def _all_earned(run: RunSeries) -> Values:
    """Return 1 where groups are equal because all responses earn what there is: 1 of each part, 0 of one that only punishes."""
    parts = [*run.with_prefix(PART).values()] or [run["reward"]]
    most = [0.0 if (part < 0).any() and not (part > 0).any() else 1.0 for part in parts]
    earned = np.all([part >= top - 1 + SOLVED for part, top in zip(parts, most, strict=True)], axis=0)
    return np.where(np.isnan(run["dead"]), np.nan, (earned & (run["dead"] >= SOLVED)).astype(float))


def _kl_growth(run: RunSeries) -> Values:
    """Return how many times the KL is what it was in the first row, where that was more than rounding."""
    measured = run["kl"][np.isfinite(run["kl"])]
    return run["kl"] / max(float(measured[0]), KL_AT_FIRST) if len(measured) else run["kl"]


def _around_resumption(run: RunSeries) -> tuple[Values, Values]:
    """Return the median reward of a window before and after the log was last taken up again, from there on."""
    before, after = np.full((2, len(run.steps)), np.nan)
    rows = np.flatnonzero(run["resumed"] == 1)
    if len(rows) and (row := rows[-1]) > 0:
        reward = run.latest("reward")
        before[row:] = np.median(reward[max(0, row - run.window) : row])
        after[row:] = np.median(reward[row : row + run.window])
    return before, after


def _lost_on_resumption(run: RunSeries) -> Values:
    """Return how far the reward fell there, in standard deviations of responses, 0 where it is no more than noise."""
    fall = np.subtract(*_around_resumption(run))
    clear = fall >= CLEAR * _noise(run.latest("reward"))
    return np.where(np.isnan(fall), np.nan, np.where(clear, fall / _reward_spread(run), 0.0))


def _reward_spread(run: RunSeries) -> float:
    """Return how far rewards of responses lie apart; where a log has no word of it, as if each were 0 or 1."""
    half_range = (run["reward_max"] - run["reward_min"]) / 2
    for values in (run["reward_std"], half_range, np.sqrt(run["reward"] * (1 - run["reward"]))):
        if (values > EQUAL).any():
            return float(values[values > EQUAL][0])
    return np.nan


DERIVED: Mapping[str, Callable[[RunSeries], Values]] = {
    "earned": lambda run: run["reward"] if np.isnan(run["accuracy"]).all() else run.constant(np.nan),
    "ill_formed": lambda run: np.where(np.isnan(run["well_formed"]), 1.0, 1 - run["well_formed"]),
    "earned_in_std": lambda run: run["earned"] / _reward_spread(run),
    "dead": lambda run: np.where(np.isnan(run["zero_variance_groups"]), _all_equal(run), run["zero_variance_groups"]),
    "differing": _differing,
    "all_earned": _all_earned,
    "kl_growth": _kl_growth,
    "kl_peak": lambda run: run.constant(float(np.fmax.accumulate(run.smooth("kl"))[-1])),
    "engine_gap": lambda run: np.where(
        np.isnan(run["sampler_logp_gap"]), run["sampler_prob_gap"], run["sampler_logp_gap"]
    ),
    "weight_lost": lambda run: 1 - run["importance_ratio"],
    "part_lost": _part_lost,
    "reward_before": lambda run: _around_resumption(run)[0],
    "reward_after": lambda run: _around_resumption(run)[1],
    "lost_on_resumption": _lost_on_resumption,
    "clipped_high": lambda run: run["clip_fraction_high"] + run["clip_fraction_dual"],
    "clipped": lambda run: run["clip_fraction_low"] + run["clip_fraction_high"] + run["clip_fraction_dual"],
    "clipped_low_share": lambda run: _ratio(run["clip_fraction_low"], run["clip_fraction_low"] + run["clipped_high"]),
    "clipped_high_share": lambda run: _ratio(run["clipped_high"], run["clip_fraction_low"] + run["clipped_high"]),
    "cut_off_right": lambda run: run["accuracy"] + run["truncated"] - 1,
    "not_finite": _not_finite,
    "nan_critic": lambda run: _nan(run, "critic") * np.isfinite(run["loss"]),
    "nan_measured": lambda run: np.fmax.accumulate(_nan(run, "measured")),
    "end_tokens_so_far": lambda run: np.fmax.accumulate(run["end_tokens"]),
    "loss_size": lambda run: np.abs(run["loss"]),
    "loss_over_kl": lambda run: _ratio(run["loss"], run["beta"] * run["kl"]),
    # 1 where the loss takes the tokens' ratios
    "own_ratio": lambda run: _ratio(run["ratio_std"], run["token_ratio_std"]),
    "sampled_gap": lambda run: run.smooth("accuracy") - run["held_out_accuracy"],
    "held_out_gap": lambda run: run["held_out_accuracy"] - run.smooth("accuracy"),
    "chosen_loss": lambda run: -run["chosen_gain"],
    "evaluations": lambda run: np.cumsum(
        np.isfinite(run["held_out_accuracy"]) | np.isfinite(run["held_out_reward"])
    ).astype(float),
    "steps_left": lambda run: run.setting("steps") - run.steps,
    "lr_rise": lambda run: np.diff(run["lr"], prepend=np.nan),
}


# --- measures of a column ---


@dataclass(frozen=True)
class Condition:
    """A measure of a column of a run held against a limit; because: why the limit is what it is."""

    column: str
    measure: str  # a key of `MEASURES`
    sign: str  # "≥" or "≤"
    limit: float
    because: str

    @property
    def words(self) -> str:
        """What must hold of the column, as rules.md says it."""
        return f"{self.measure} {self.sign} {self.limit:g}"

    def measured(self, run: RunSeries) -> Values:
        """Return the measure at each row, [S]."""
        return MEASURES[self.measure](run, self.column)

    def holds(self, measured: Values) -> NDArray[np.bool_]:
        """Return where numbers of the measure are what they must be."""
        return np.asarray(measured >= self.limit if self.sign == "≥" else measured <= self.limit)


def _first_row(run: RunSeries, x: str) -> Values:
    measured = run[x][np.isfinite(run[x])]
    return run.constant(measured[0] if len(measured) else np.nan)


def _drift(run: RunSeries, x: str) -> Values:
    values = run.latest(x)
    sums, steps = np.concatenate([[0.0], np.cumsum(values)]), np.arange(1, len(values) + 1)
    third = np.maximum(1, steps // 3)
    moved = (sums[steps] - sums[steps - third] - sums[third]) / third
    return _ratio(moved, _noise(values) * np.sqrt(2 / third))


def _most(run: RunSeries, x: str) -> Values:
    return np.asarray(np.fmax.accumulate(run.smooth(x)))


def _last_quarter(run: RunSeries, x: str) -> Values:
    smooth, rows = run.smooth(x), np.arange(len(run.steps))
    return smooth - smooth[rows - (rows + 1) // 4]


MEASURES: Mapping[str, Callable[[RunSeries, str], Values]] = {  # (run, column) → [S], as rules.md calls them
    # the median over the last window
    "now": lambda run, x: run.smooth(x),
    # as measured last, not smoothed: what has no noise, or an evaluation of a thousand prompts
    "last": lambda run, x: run.latest(x),
    # the median over the first window, the same at all steps
    "first": lambda run, x: run.constant(run.first(x)),
    # its largest median so far
    "most": _most,
    # as measured at step 1, before the first update; not a number where that step was not logged by itself
    "at step 1": lambda run, x: run.constant(run[x][0] if run.steps[0] == 1 else np.nan),
    # as measured first, the same at all steps: what was there before any update, or in the first steps that were logged
    "in the first row": _first_row,
    "times its first row": lambda run, x: _ratio(run.smooth(x), _first_row(run, x)),
    # how far it is below its largest median so far; the same in standard deviations of a single step, next to nothing for none
    "below its best": lambda run, x: _most(run, x) - run.smooth(x),
    "below its best in noise": lambda run, x: (_most(run, x) - run.smooth(x)) / max(_noise(run.latest(x)), TINY),
    # how far it is above the first window, and below it; the first in standard deviations of a single step about its neighbours
    "above its start": lambda run, x: run.smooth(x) - run.first(x),
    "below its start": lambda run, x: run.first(x) - run.smooth(x),
    "risen in noise": lambda run, x: _ratio(run.smooth(x) - run.first(x), run.constant(_noise(run.latest(x)))),
    "times its start": lambda run, x: _ratio(run.smooth(x), run.constant(run.first(x))),
    # mean of the last third of the steps so far minus that of the first third, in standard errors of this difference
    "drift": _drift,
    # how far it is above its smallest median so far
    "above its least": lambda run, x: run.smooth(x) - np.fmin.accumulate(run.smooth(x)),
    # how far the last evaluation is below the best one so far
    "last below its best": lambda run, x: np.fmax.accumulate(run.latest(x)) - run.latest(x),
    # how much it rose over the last quarter of the steps so far
    "risen in the last quarter": _last_quarter,
}
