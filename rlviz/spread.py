"""What several seeds are worth: the interquartile mean, and bootstrap intervals of it and of a difference."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 10_000
OUTSIDE = 0.05  # of the bootstrap's results lie outside an interval


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
