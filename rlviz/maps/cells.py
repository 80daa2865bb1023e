"""One cell of a regime map: two algorithms trained from the same draws, and what is kept of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.maps.measures import Array, Course, Measured, measures, paired
from rlviz.maps.regime import MapSettings, PolicyRegime, Regime
from rlviz.maps.tables import train_tables
from rlviz.settings import SEEDS

FACTORS = (1.0, 0.25, 0.5, 2.0, 4.0)  # on the learning rate, among which a tuned one is; of equals the first
TUNED_ON = 4  # of so many replicas one is run to tune it, from another seed
POINTS = 13  # of a cell's curves that are kept


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
        {name: paired(found[name], against_it[name]) for name in found},
        (rates[0], rates[1]),
        mine.rollouts[at].astype(float),
        *(np.stack([_curve(getattr(one, name)[:, at]) for one in (mine, other)]) for name in ("accuracy", "entropy")),
    )


def train_cell(algorithm: GroupPolicyGradient, regime: Regime | PolicyRegime, settings: MapSettings) -> Course:
    """Train all runs of one algorithm in a cell, and return what is measured of them."""
    if isinstance(regime, PolicyRegime):
        # it brings all of training, which a map that is only drawn does without
        from rlviz.maps.policies import train_policies

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
