"""One cell of a regime map: two algorithms trained from the same draws, on tables of logits, and what is measured of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean

import numpy as np
from numpy.typing import NDArray

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.pieces.aggregation import token_mean
from rlviz.settings import SEEDS
from rlviz.study.difference import Difference, standard_error
from rlviz.study.regime import MapSettings, PolicyRegime, Regime
from rlviz.tabular import TableRun, TableTask, at_accuracy, steps_to, train_table

Array = NDArray[np.float64]
MEASURED = 0.5  # share of the runs in which both algorithms must have reached the level
FACTORS = (1.0, 0.25, 0.5, 2.0, 4.0)  # on the learning rate, among which a tuned one is; of equals the first
TUNED_ON = 4  # of so many replicas one is run to tune it, from another seed
POINTS = 13  # of a cell's curves that are kept
RARE_WAYS, WRONG_WAYS = 10, 9


@dataclass(frozen=True)
class Course:
    """What is measured of R runs of an algorithm.

    rollouts: after which there is something to see, from 0 to the last one, [N]. accuracy, entropy (nats a position): there,
    [R, N]. dead: the share of groups whose rewards are all equal, in each rollout, [R, S].
    """

    rollouts: NDArray[np.int64]
    accuracy: Array
    entropy: Array
    dead: Array

    @classmethod
    def of(cls, runs: Sequence[Course]) -> Course:
        """Return several courses, which were seen after the same rollouts, as one."""
        parts = (np.concatenate([getattr(run, name) for run in runs]) for name in ("accuracy", "entropy", "dead"))
        return cls(runs[0].rollouts, *parts)


def measures(course: Course, level: float) -> dict[str, Array]:
    """Return the measures of each run, [R] each; a run that never reaches the level counts with all of its rollouts."""
    first = steps_to(course.accuracy, level)
    return {
        "accuracy": course.accuracy[:, -1],
        "entropy": at_accuracy(course.entropy, course.accuracy, level),
        "rollouts": course.rollouts[np.where(np.isfinite(first), first, -1).astype(int)].astype(float),
        "dead": course.dead.mean(1),
    }


@dataclass(frozen=True)
class Measured:
    """One measure in one cell. mine, other: means; difference: mine − other, its mean over pairs of replicas.

    error: the standard error of that mean, of the pairs' differences: both algorithms begin with the same draws. counted: the
    share of pairs in which both could be measured.
    """

    mine: float
    other: float
    difference: float
    error: float
    counted: float

    @property
    def sign(self) -> float:
        """1 or −1 where |difference| > 2 standard errors, 0 where it is not, NaN where less than half could be measured."""
        if self.counted < MEASURED or math.isnan(self.difference):
            return math.nan
        return Difference.around(self.difference, self.error).sign


def compared(mine: Array, other: Array) -> Measured:
    """Return what two algorithms' replicas, pair by pair, say of a measure."""
    both = np.isfinite(mine) & np.isfinite(other)
    if both.sum() < 2:
        return Measured(math.nan, math.nan, math.nan, math.nan, float(both.mean()))
    gaps = (mine - other)[both].tolist()
    means = fmean(mine[both]), fmean(other[both]), fmean(gaps)
    return Measured(*means, standard_error(gaps), float(both.mean()))


@dataclass(frozen=True)
class Cell:
    """What is kept of a cell. measured: by the measure's name. rollouts: after which there are points of curves, [N].

    rates: the learning rate of the algorithm, and of the one against it. accuracy, entropy: of the algorithm, then of the one
    against it, mean and standard error over replicas, [2, 2, N].
    """

    measured: Mapping[str, Measured]
    rates: tuple[float, float]
    rollouts: Array
    accuracy: Array
    entropy: Array


def run_pair(
    algorithm: GroupPolicyGradient, against: GroupPolicyGradient, regime: Regime | PolicyRegime, settings: MapSettings
) -> Cell:
    """Train both algorithms in a cell and return what is kept of them."""
    tuned = settings.rates == "tuned"
    rates = [best_rate(each, regime, settings) if tuned else regime.lr for each in (algorithm, against)]
    mine, other = (
        train_cell(each, replace(regime, lr=rate), settings)
        for each, rate in zip((algorithm, against), rates, strict=True)
    )
    found, against_it = measures(mine, settings.level), measures(other, settings.level)
    at = kept_points(len(mine.rollouts))
    return Cell(
        {name: compared(found[name], against_it[name]) for name in found},
        (rates[0], rates[1]),
        mine.rollouts[at].astype(float),
        *(np.stack([_curve(getattr(one, name)[:, at]) for one in (mine, other)]) for name in ("accuracy", "entropy")),
    )


def train_cell(algorithm: GroupPolicyGradient, regime: Regime | PolicyRegime, settings: MapSettings) -> Course:
    """Train all runs of one algorithm in a cell, and return what is measured of them."""
    if isinstance(regime, PolicyRegime):
        # it brings all of training, which a map that is only drawn does without
        from rlviz.study.policies import train_policies

        return train_policies(algorithm, regime, settings)
    return train_tables(algorithm, regime, settings)


def best_rate(algorithm: GroupPolicyGradient, regime: Regime | PolicyRegime, settings: MapSettings) -> float:
    """Return lr times the factor with the highest accuracy, a mean over rollouts and a quarter as many replicas.

    Those have draws of their own, or the best of five by luck would be best in the map by the same luck.
    """
    fewer = replace(settings, replicas=max(2, settings.replicas // TUNED_ON), seed=(settings.seed + 1) % SEEDS)
    rates = [regime.lr * factor for factor in FACTORS]
    return max(rates, key=lambda rate: train_cell(algorithm, replace(regime, lr=rate), fewer).accuracy.mean())


def kept_points(count: int) -> NDArray[np.int64]:
    """Return which of so many points of a curve a map keeps: at most 13, closer together at first, where most happens."""
    return np.unique(np.rint((count - 1) * np.linspace(0, 1, POINTS) ** 1.6).astype(np.int64))


def _curve(values: Array) -> Array:
    return np.stack([values.mean(0), values.std(0, ddof=1) / math.sqrt(len(values))])


def table_task(regime: Regime) -> TableTask:
    """Return the table of this regime: one common good action, ten rare ones, nine wrong ones, those of probability 0 left out.

    A prompt's success rate σ(logit(success) + spread · z), with z at the prompt's quantile of a normal distribution, is that
    of a whole response: each position's is its T-th root. A check that is a coin's throw passes so often that half of all
    responses would.
    """
    normal = NormalDist()
    starts = []
    for place in range(regime.prompts):
        odds = math.log(regime.success / (1 - regime.success))
        odds += regime.spread * normal.inv_cdf((place + 0.5) / regime.prompts)
        right = (1 / (1 + math.exp(-odds))) ** (1 / regime.positions)
        ways = [right * (1 - regime.rare), *[right * regime.rare / RARE_WAYS] * RARE_WAYS]
        starts.append((*filter(None, ways), *[(1 - right) / WRONG_WAYS] * WRONG_WAYS))
    coin = 0.5 ** (1 / regime.positions)
    good = len(starts[0]) - WRONG_WAYS
    checks = [(1 - regime.noise) * right + regime.noise * coin for right in [1.0] * good + [0.0] * WRONG_WAYS]
    return TableTask(
        tuple(checks), regime.prompts, regime.positions, starts[0] if regime.prompts == 1 else tuple(starts)
    )


def course(run: TableRun, task: TableTask, group_size: int) -> Course:
    """Return what is measured of these runs of a task of `table_task`.

    accuracy: the exact probability of good actions at every position, whatever the noise of the reward. dead: expected,
    p^G + (1 − p)^G.
    """
    good = len(task.success) - WRONG_WAYS
    by_prompt = run.probabilities[..., :good].sum(-1).prod(-1)  # [R, S + 1, prompts]
    rewarded = (run.probabilities * np.array(task.success)).sum(-1).prod(-1)
    dead = (rewarded**group_size + (1 - rewarded) ** group_size).mean(-1)[:, :-1]
    return Course(np.arange(by_prompt.shape[1]), by_prompt.mean(-1), run.entropy, dead)


def train_tables(algorithm: GroupPolicyGradient, regime: Regime, settings: MapSettings) -> Course:
    """Train all replicas of one algorithm in a cell, and return what is measured of them.

    It aggregates by the token mean: a table's responses are equally long, so its own aggregation would only be a factor on the
    learning rate.
    """
    task = table_task(regime)
    run = train_table(
        replace(algorithm, aggregate=token_mean),
        task,
        steps=settings.rollouts(regime),
        group_size=regime.group_size,
        groups=regime.groups,
        updates_per_rollout=regime.updates_per_rollout,
        lr=regime.lr,
        replicas=settings.replicas,
        seed=settings.seed,
    )
    return course(run, task, regime.group_size)
