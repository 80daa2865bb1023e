"""What is measured of two algorithms' runs in one cell of a regime map, pair by pair of runs, and when its sign is certain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlviz.tabular import at_accuracy, steps_to

Array = NDArray[np.float64]
CERTAIN = 2.0  # standard errors that a mean difference must exceed
MEASURED = 0.5  # share of the runs in which both algorithms must have reached the level


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
        return math.copysign(1, self.difference) if abs(self.difference) > CERTAIN * self.error else 0.0


def paired(mine: Array, other: Array) -> Measured:
    """Return what two algorithms' replicas, pair by pair, say of a measure."""
    both = np.isfinite(mine) & np.isfinite(other)
    if both.sum() < 2:
        return Measured(math.nan, math.nan, math.nan, math.nan, float(both.mean()))
    gaps = mine[both] - other[both]
    error = gaps.std(ddof=1) / math.sqrt(len(gaps))
    return Measured(*map(float, (mine[both].mean(), other[both].mean(), gaps.mean(), error, both.mean())))
