"""What a rule of `diagnose` looks at: the numbers of a run, smoothed over a window of steps, and measures made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlviz.ranges import HOLDS

Values = NDArray[np.float64]

WINDOWS, SHORTEST, LONGEST = (
    8,
    5,
    25,
)  # windows a run, and steps a window: long enough for a median, short enough to see a turn
FEWEST_ROWS = 3  # of a window: a median of two is no defence against an odd one
APART = 4  # windows, so that a beginning and an end are apart
FIRST = 3  # steps of the first median: a learning rate that is far too large breaks a policy before a window is full
EQUAL = 1e-6  # rewards that differ by less are equal; float32 rounds a constant's standard deviation to 1e-8
TINY = 1e-12  # in place of no noise
CLEAR = 2  # standard deviations of one step, from which on a fall of a median is no noise
KL_AT_FIRST = 0.01  # nats a token: below it the KL of a first row is rounding, and no measure of growth
SOLVED = 0.99  # of a reward whose largest value is 1
SCALE = 1.4826 / 2**0.5  # from the median size of steps' differences to the standard deviation of one normal value


class Course:
    """The numbers of a run over its S rows. steps: the number of the step that each was logged at. settings: known ones, by name.

    columns: name → [S], not a number where there is none, with what `DERIVED` makes of them. every: steps from one row to the
    next; done: steps that the rows tell of; window: rows of a median.
    """

    def __init__(self, columns: Mapping[str, Values], settings: Mapping[str, Any]) -> None:
        self.settings, self.steps = settings, columns["step"]
        rows = len(self.steps)
        self.every = max(1.0, float((self.steps[-1] - self.steps[0]) / (rows - 1) if rows > 1 else self.steps[0]))
        self.done = min(
            self.since(0), int(self.steps[-1])
        )  # of rows picked from a log, the steps between them are guessed
        window = int(np.clip(self.done // WINDOWS, SHORTEST, LONGEST))
        self.window = max(FEWEST_ROWS, math.ceil(window / self.every))
        self._smooth: dict[str, Values] = {}
        self.columns = dict(columns)
        self.lost_part = ""  # the reward function that pays less than at first, filled by `_part_lost`
        # the measurements that were logged as no number, of clips with those of the KL, which have the same cause
        nan = {kind: [c.removeprefix(begin) for c in columns if c.startswith(begin)] for kind, begin in NAN.items()}
        self.not_numbers = {k: ", ".join([*(nan["kl"] if k == "clip" else []), *names]) for k, names in nan.items()}
        with np.errstate(all="ignore"):
            for name, make in DERIVED.items():
                self.columns[name] = make(self)

    def __getitem__(self, name: str) -> Values:
        """Return a column as it was measured, nothing but not-a-numbers where the run has none."""
        return self.columns.get(name, np.full(len(self.steps), np.nan))

    def since(self, place: int) -> int:
        """Return how many steps the rows from this place on tell of."""
        return round(float(self.steps[-1] - self.steps[place]) + self.every)

    @property
    def first_median(self) -> int:
        """The place of the first median: of a log with one or two rows the last, so that a rule which needs no more can speak."""
        return min(FIRST, len(self.steps)) - 1

    @property
    def long_enough(self) -> bool:
        """Whether a beginning and an end are apart."""
        return len(self.steps) >= APART * self.window

    def setting(self, name: str) -> float:
        """Return a setting that is a number; not a number where it is not known."""
        value = self.settings.get(name)
        return float(value) if isinstance(value, int | float) else np.nan

    def latest(self, name: str) -> Values:
        """Return for each step the number measured last."""
        values = self[name]
        places = np.where(np.isfinite(values), np.arange(len(values)), -1)
        last = np.maximum.accumulate(places)
        return np.where(last < 0, np.nan, values[last])

    def smooth(self, name: str) -> Values:
        """Return the median over the window that ends with each step, over fewer steps at first, from the first median on."""
        if name not in self._smooth:
            values, smoothed = self.latest(name), np.full(len(self.steps), np.nan)
            for place in range(self.first_median, min(len(values), self.window)):
                smoothed[place] = np.median(values[: place + 1])
            if len(values) >= self.window:
                windows = np.lib.stride_tricks.sliding_window_view(values, self.window)
                smoothed[self.window - 1 :] = np.median(windows, axis=-1)
            self._smooth[name] = smoothed
        return self._smooth[name]

    def first(self, name: str) -> float:
        """Return the median over the first whole window."""
        values = self.latest(name)[: self.window]
        return float(np.median(values)) if len(values) == self.window else np.nan


def _ratio(above: Values, below: Values) -> Values:
    return np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)


def _not_finite(run: Course) -> Values:
    """Return 1 where a step of training has a loss or a gradient's norm that is no finite number, though these were recorded."""
    there = [run.columns[name] for name in ("loss", "grad_norm") if name in run.columns]
    trained = np.isfinite([run[name] for name in ("reward", "lr", "loss", "grad_norm")]).any(0)
    broken = ~np.isfinite(there).all(0) if there else np.zeros(len(run.steps), dtype=bool)
    return (trained & broken).astype(float)


NAN = {kind: f"nan {kind}:" for kind in ("critic", "kl", "clip", "other")}  # what was no number, `log_names.not_finite`
PART = "part:"  # before the name of a reward function, whose mean a log has


def _nan(run: Course, kind: str) -> Values:
    """Return 1 where a metric of this kind was logged as no finite number, else 0."""
    columns = [run[name] for name in run.columns if name.startswith(NAN[kind])]
    return np.asarray(np.fmax.reduce([np.zeros(len(run.steps)), *columns]))


def _kl_unmeasured(run: Course) -> Values:
    """Return 1 if the KL alone was no number in each row that has it, else 0."""
    columns = [run[name] for name in run.columns if name.startswith(NAN["kl"])]
    always = bool(columns) and not _nan(run, "clip").any() and all(np.nanmin(each) == 1 for each in columns)
    return _everywhere(run, float(always))


def _spread(run: Course) -> Values:
    """Return the distance between the largest and the smallest reward of a step."""
    return run["reward_max"] - run["reward_min"]


def _all_equal(run: Course) -> Values:
    """Return 1 where all rewards of a step were the same, 0 where they were not, for logs that do not count such groups."""
    spread = np.where(np.isnan(run["reward_std"]), _spread(run), run["reward_std"])
    return np.where(np.isnan(spread), np.nan, (spread <= EQUAL).astype(float))


def _first_positive(*candidates: Values) -> float:
    """Return the first positive number of the first column that has one: how far the rewards of responses lie apart."""
    for values in candidates:
        there = values[values > EQUAL]
        if len(there):
            return float(there[0])
    return np.nan


def _part_lost(run: Course) -> Values:
    """Return how much less the reward function that lost most pays than at first, as a share, where that is no noise."""
    lost = np.full(len(run.steps), np.nan)
    for name in [each for each in run.columns if each.startswith(PART)]:
        first, noise = run.first(name), _noise(run.latest(name))
        fall = first - run.smooth(name)
        share = np.where(fall >= CLEAR * noise, _ratio(fall, np.full(len(fall), abs(first))), 0.0)
        if np.isnan(lost).all() or share[-1] > lost[-1]:
            lost, run.lost_part = share, name.removeprefix(PART)
    return lost


def _differing(run: Course) -> Values:
    """Return the share of groups whose rewards differ; 1 or 0 where a log has only their mean standard deviation."""
    by_spread = np.where(np.isnan(run["reward_std"]), np.nan, run["reward_std"] > EQUAL)
    return np.where(np.isnan(run["zero_variance_groups"]), by_spread, 1 - run["zero_variance_groups"])


def _all_earned(run: Course) -> Values:
    """Return 1 where groups are equal because all responses earn what there is: 1 of each part, 0 of one that only punishes."""
    parts = [run[name] for name in run.columns if name.startswith(PART)] or [run["reward"]]
    most = [0.0 if (part < 0).any() and not (part > 0).any() else 1.0 for part in parts]
    earned = np.all([part >= top - 1 + SOLVED for part, top in zip(parts, most, strict=True)], axis=0)
    return np.where(np.isnan(run["dead"]), np.nan, (earned & (run["dead"] >= SOLVED)).astype(float))


def _kl_growth(run: Course) -> Values:
    """Return how many times the KL is what it was in the first row, where that was more than rounding."""
    measured = run["kl"][np.isfinite(run["kl"])]
    return run["kl"] / max(float(measured[0]), KL_AT_FIRST) if len(measured) else run["kl"]


def _around_resumption(run: Course) -> tuple[Values, Values]:
    """Return the median reward of a window before and after the log was last taken up again, from there on."""
    before, after = np.full((2, len(run.steps)), np.nan)
    places = np.flatnonzero(run["resumed"] == 1)
    if len(places) and (place := places[-1]) > 0:
        reward = run.latest("reward")
        before[place:] = np.median(reward[max(0, place - run.window) : place])
        after[place:] = np.median(reward[place : place + run.window])
    return before, after


def _lost_on_resumption(run: Course) -> Values:
    """Return how far the reward fell there, in standard deviations of responses, 0 where it is no more than noise."""
    fall = np.subtract(*_around_resumption(run))
    clear = fall >= CLEAR * _noise(run.latest("reward"))
    return np.where(np.isnan(fall), np.nan, np.where(clear, fall / _spread_of_responses(run), 0.0))


def _spread_of_responses(run: Course) -> float:
    """Return how far rewards of responses lie apart; where a log has no word of it, as if each were 0 or 1."""
    return _first_positive(run["reward_std"], _spread(run) / 2, np.sqrt(run["reward"] * (1 - run["reward"])))


def _above(run: Course) -> Values:
    return run["clip_fraction_high"] + run["clip_fraction_dual"]


DERIVED: Mapping[str, Callable[[Course], Values]] = {
    "earned": lambda run: run["reward"] if np.isnan(run["accuracy"]).all() else np.full(len(run.steps), np.nan),
    "earned_in_std": lambda run: run["earned"] / _spread_of_responses(run),
    "dead": lambda run: np.where(np.isnan(run["zero_variance_groups"]), _all_equal(run), run["zero_variance_groups"]),
    "differing": _differing,
    "all_earned": _all_earned,
    "kl_growth": _kl_growth,
    "kl_peak": lambda run: _everywhere(run, float(np.fmax.accumulate(run.smooth("kl"))[-1])),
    "engine_gap": lambda run: np.where(
        np.isnan(run["sampler_logp_gap"]), run["sampler_prob_gap"], run["sampler_logp_gap"]
    ),
    "weight_lost": lambda run: 1 - run["importance_ratio"],
    "part_lost": _part_lost,
    "reward_before": lambda run: _around_resumption(run)[0],
    "reward_after": lambda run: _around_resumption(run)[1],
    "lost_on_resumption": _lost_on_resumption,
    "clipped": lambda run: run["clip_fraction_low"] + run["clip_fraction_high"] + run["clip_fraction_dual"],
    "clipped_low_share": lambda run: _ratio(run["clip_fraction_low"], run["clip_fraction_low"] + _above(run)),
    "clipped_high_share": lambda run: _ratio(_above(run), run["clip_fraction_low"] + _above(run)),
    "cut_off_right": lambda run: run["accuracy"] + run["truncated"] - 1,
    "not_finite": _not_finite,
    "nan_critic": lambda run: _nan(run, "critic") * np.isfinite(run["loss"]),
    "nan_clip": lambda run: np.fmax.accumulate(_nan(run, "clip")),
    "nan_other": lambda run: np.fmax.accumulate(_nan(run, "other")),
    "end_tokens_so_far": lambda run: np.fmax.accumulate(run["end_tokens"]),
    "kl_unmeasured": _kl_unmeasured,
    "loss_size": lambda run: np.abs(run["loss"]),
    "loss_over_kl": lambda run: _ratio(run["loss"], run["beta"] * run["kl"]),
    "own_ratio": lambda run: _ratio(
        run["ratio_std"], run["token_ratio_std"]
    ),  # 1 where the loss takes the tokens' ratios
    "sampled_gap": lambda run: run.smooth("accuracy") - run["held_out_accuracy"],
    "held_out_gap": lambda run: run["held_out_accuracy"] - run.smooth("accuracy"),
    "chosen_loss": lambda run: -run["chosen_gain"],
    "evaluations": lambda run: np.cumsum(np.isfinite(run["held_out_accuracy"])).astype(float),
    "steps_left": lambda run: run.setting("steps") - run.steps,
    "lr_rise": lambda run: np.diff(run["lr"], prepend=np.nan),
}


@dataclass(frozen=True)
class Measure:
    """A number a step, made of one column.

    of: (run, column) → [S]. at_first: the same where there is no median yet, (run, column, place) → the number there; as
    measured unless given. is_change: whether it compares with what was before, so that it is 0 at the first step.
    """

    of: Callable[[Course, str], Values]
    at_first: Callable[[Course, str, int], float] = lambda run, x, place: float(run.latest(x)[place])
    is_change: bool = False


def _change(
    of: Callable[[Course, str], Values], at_first: Callable[[Course, str, int], float] = lambda run, x, place: 0.0
) -> Measure:
    return Measure(of, at_first, is_change=True)


@dataclass(frozen=True)
class Condition:
    """A measure of a column of a run held against a limit; because: why the limit is what it is."""

    column: str
    measure: str  # a key of `MEASURES`
    holds: str  # a key of `rlviz.ranges.HOLDS`
    limit: float
    because: str

    @property
    def words(self) -> str:
        """What must hold of the column, as rules.md says it."""
        return f"{self.measure} {'≥' if self.holds == 'at least' else '≤'} {self.limit:g}"

    @property
    def is_change(self) -> bool:
        """Whether it is about a change, which is seen at the step after the first one."""
        return MEASURES[self.measure].is_change

    def of(self, course: Course) -> Values:
        """Return the measure at each step, [S]."""
        return MEASURES[self.measure].of(course, self.column)

    def met(self, measured: Values | float) -> NDArray[np.bool_]:
        """Return where numbers of the measure are what they must be."""
        return np.asarray(HOLDS[self.holds](measured, self.limit))

    def met_at_first(self, course: Course, place: int) -> bool:
        """Return whether it holds at a place where no median is yet."""
        return bool(self.met(MEASURES[self.measure].at_first(course, self.column, place)))


def _noise(values: Values) -> float:
    """Return the standard deviation of a single step about its neighbours, whatever the trend; 0 where there is none."""
    jumps = np.abs(np.diff(values[np.isfinite(values)]))
    return SCALE * float(np.median(jumps)) if len(jumps) else 0.0


def _everywhere(run: Course, value: float) -> Values:
    return np.full(len(run.steps), value)


def _after_first(run: Course, x: str) -> Values:
    """Return the medians without those before the end of the first window."""
    return np.where(np.arange(len(run.steps)) < run.window - 1, np.nan, run.smooth(x))


def _first_row(run: Course, x: str) -> Values:
    there = run[x][np.isfinite(run[x])]
    return _everywhere(run, there[0] if len(there) else np.nan)


def _from_start(run: Course, x: str) -> Values:
    return _after_first(run, x) - run.first(x)


def _drift(run: Course, x: str) -> Values:
    values = run.latest(x)
    sums, steps = np.concatenate([[0.0], np.cumsum(values)]), np.arange(1, len(values) + 1)
    third = np.maximum(1, steps // 3)
    moved = (sums[steps] - sums[steps - third] - sums[third]) / third
    return _ratio(moved, _noise(values) * np.sqrt(2 / third))


def _best(run: Course, x: str) -> Values:
    return np.fmax(np.fmax.accumulate(run.smooth(x)), run.latest(x)[:1])


def _below_first(run: Course, x: str, place: int) -> float:
    """Return how far it is below its first step: a policy may be lost before there is a median."""
    return float(run.latest(x)[0] - run.latest(x)[place])


def _noise_of(run: Course, x: str) -> float:
    """Return a column's noise, next to nothing where there is none, so that a fall is without end in it."""
    return max(_noise(run.latest(x)), TINY)


def _last_quarter(run: Course, x: str) -> Values:
    smooth, places = run.smooth(x), np.arange(len(run.steps))
    return smooth - smooth[places - (places + 1) // 4]


MEASURES: Mapping[str, Measure] = {  # as rules.md calls them
    # the median over the last window
    "now": Measure(lambda run, x: run.smooth(x)),
    # as measured last, not smoothed: what has no noise, or an evaluation of a thousand prompts
    "last": Measure(lambda run, x: run.latest(x)),
    # the median over the first window, the same at all steps
    "first": Measure(lambda run, x: _everywhere(run, run.first(x))),
    # its largest median so far
    "most": Measure(lambda run, x: np.fmax.accumulate(run.smooth(x))),
    # as measured at step 1, before the first update; not a number where that step was not logged by itself
    "at step 1": Measure(lambda run, x: _everywhere(run, run[x][0] if run.steps[0] == 1 else np.nan)),
    # as measured first, the same at all steps: what was there before any update, or in the first steps that were logged
    "in the first row": Measure(_first_row),
    "times its first row": Measure(lambda run, x: _ratio(run.smooth(x), _first_row(run, x))),
    # its largest median so far, or its first step
    "best": Measure(_best),
    # how far it is below that
    "below its best": _change(lambda run, x: _best(run, x) - run.smooth(x), _below_first),
    # the same in standard deviations of a single step
    "below its best in noise": _change(
        lambda run, x: (_best(run, x) - run.smooth(x)) / _noise_of(run, x),
        lambda run, x, place: _below_first(run, x, place) / _noise_of(run, x),
    ),
    # how far it is above the first window, and below it
    "above its start": _change(_from_start),
    "below its start": _change(lambda run, x: -_from_start(run, x)),
    "times its start": Measure(lambda run, x: _ratio(_after_first(run, x), _everywhere(run, run.first(x)))),
    # how far it is above the first window, in standard deviations of a single step about its neighbours
    "risen in noise": _change(lambda run, x: _ratio(_from_start(run, x), _everywhere(run, _noise(run.latest(x))))),
    # mean of the last third of the steps so far minus that of the first third, in standard errors of this difference
    "drift": _change(_drift),
    # how far it is above its smallest median so far
    "above its least": _change(lambda run, x: run.smooth(x) - np.fmin.accumulate(run.smooth(x))),
    # how far the last evaluation is below the best one so far
    "last below its best": _change(lambda run, x: np.fmax.accumulate(run.latest(x)) - run.latest(x)),
    # how much it rose over the last quarter of the steps so far
    "risen in the last quarter": _change(_last_quarter),
}
