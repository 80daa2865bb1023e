"""What a difference is worth: its size over seeds, the interval around it, whether that is clear of 0 or of a smallest effect.

Begin at `Difference`: claims, maps and comparisons all read it. `paired` makes one of a number per seed (mean ± 2
standard errors), `unpaired` one of two sides of seeds (interquartile means, bootstrap).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
from numpy.typing import ArrayLike, NDArray

ERRORS = 2.0  # standard errors of a mean on each side of it: with five seeds an interval of 88 %
RESAMPLES = 10_000
OUTSIDE = 0.05  # of the bootstrap's results lie outside an interval
FEWEST = 3  # seeds of a side, of which a bootstrap says something


@dataclass(frozen=True)
class Difference:
    """How much more one arm has than another. size: over the seeds. low, high: its interval, NaN where seeds are too few."""

    size: float
    low: float
    high: float

    @property
    def sign(self) -> float:
        """1 or −1 where the interval lies above or below 0, 0 where it holds 0, NaN where there is none."""
        if math.isnan(self.low) or math.isnan(self.high):
            return math.nan
        return float((self.low > 0) - (self.high < 0))

    def is_within(self, smallest: float) -> bool:
        """Return True if the interval lies within ± the smallest effect of interest."""
        return -smallest < self.low and self.high < smallest


def standard_error(values: Iterable[float]) -> float:
    """Return s/√n of n values; NaN of fewer than two, and where one is not finite."""
    values = list(values)
    has_spread = len(values) > 1 and all(map(math.isfinite, values))
    return stdev(values) / math.sqrt(len(values)) if has_spread else math.nan


def paired(gaps: Iterable[float]) -> Difference:
    """Return the mean of a number a seed ± 2 standard errors; of fewer than two numbers it has no interval, of none no size."""
    gaps = list(gaps)
    mean, error = fmean(gaps) if gaps else math.nan, standard_error(gaps)
    return Difference(mean, mean - ERRORS * error, mean + ERRORS * error)


def unpaired(scores: ArrayLike, others: ArrayLike) -> Difference:
    """Return the IQM of scores minus that of others, in the 95 % interval of `bootstrap_of_the_difference`.

    Of two equals (normal scores, simulated) the interval lies off 0 for 12 % of pairs with 3 seeds each, 5 % with 4 or 5, 4 %
    with 10; with fewer than 3 of a side there is none.
    """
    few = min(np.size(scores), np.size(others)) < FEWEST
    ends = (math.nan, math.nan) if few else interval(bootstrap_of_the_difference(scores, others))
    return Difference(float(iqm(scores) - iqm(others)), *ends)


def iqm(scores: ArrayLike) -> NDArray[np.float64]:
    """Return the interquartile mean along the last axis: the mean without the lowest and the highest ⌊n/4⌋ of n scores.

    Of 5 scores the middle 3, of up to 3 all. Source: Agarwal et al., arXiv 2108.13264, whose rliable trims like this.
    """
    ordered = np.sort(np.asarray(scores, dtype=float), axis=-1)
    cut = ordered.shape[-1] // 4
    return ordered[..., cut : ordered.shape[-1] - cut].mean(-1)


def bootstrap(scores: ArrayLike, *, seed: int = 0) -> NDArray[np.float64]:
    """Return the IQMs of RESAMPLES draws of n of the n scores, with repeats."""
    values = np.asarray(scores, dtype=float)
    drawn = np.random.default_rng(seed).integers(len(values), size=(RESAMPLES, len(values)))
    return iqm(values[drawn])


def bootstrap_of_the_difference(scores: ArrayLike, others: ArrayLike) -> NDArray[np.float64]:
    """Return the IQM of `scores` minus that of `others` over draws from each on its own, spread as far as so few ask for.

    n draws of n scores vary less than n new scores would, in variance by (n − 1)/n: each side's draws are moved away from its
    IQM by √(n/(n − 1)), which takes two scores or more.
    """
    sides = []
    for seed, side in enumerate((scores, others)):
        n, centre = len(np.asarray(side)), iqm(side)
        sides.append(centre + (n / (n - 1)) ** 0.5 * (bootstrap(side, seed=seed) - centre))
    return sides[0] - sides[1]


def interval(results: NDArray[np.float64]) -> tuple[float, float]:
    """Return the percentiles between which 95 % of a bootstrap's results lie."""
    low, high = np.quantile(results, [OUTSIDE / 2, 1 - OUTSIDE / 2])
    return float(low), float(high)
