"""Limits on a ratio as the pictures that matplotlib moves ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from numpy.typing import ArrayLike

from rlviz.algorithms import PolicyGradient
from rlviz.pictures.arrays import Array, array
from rlviz.pictures.base import GREEN
from rlviz.pictures.explore import RANGES

BESIDE = ((GREEN, (0, (5, 2, 1, 2))), ("black", (0, (1, 1.2))), ("#AA4499", (0, (7, 2))))  # of up to three algorithms


def limits_of(algorithm: PolicyGradient, old_prob: ArrayLike, advantage: float) -> tuple[Array, Array]:
    """Return the lower and upper limits on the ratios of tokens of these old probabilities with this advantage.

    A lower limit below 0 is told as 0, which no ratio falls below either. Raises ValueError as `PolicyGradient.limits` does.
    """
    old_logp = torch.as_tensor(old_prob, dtype=torch.double).log().reshape(-1, 1, 1)
    mask, advantages = torch.ones_like(old_logp, dtype=torch.bool), torch.full_like(old_logp, advantage)
    lower, upper = algorithm.limits(old_logp, mask, advantages)
    return array(lower.clamp(min=0.0)), array(upper)


def width_at(algorithm: PolicyGradient, name: Literal["eps_low", "eps_high"], old_prob: float, ratio: float) -> float:
    """Return the width with which the algorithm's limit of that side, at this old probability, is a ratio, by bisection."""
    low, high = 1e-5, RANGES[name][1]
    for _ in range(24):
        width = (low + high) / 2
        limits = limits_of(algorithm.with_parameters(**{name: width}), old_prob, 1.0)
        short = limits[1].item() < ratio if name == "eps_high" else limits[0].item() > ratio
        low, high = (width, high) if short else (low, width)
    return (low + high) / 2


def first_and_others(algorithm: PolicyGradient, beside: Sequence[PolicyGradient]) -> tuple[PolicyGradient, ...]:
    """Return the algorithm and those beside it that differ from it; one with its name is called the other one."""
    others = (each for each in beside if each != algorithm)
    renamed = (replace(each, name=f"the other {each.name}") if each.name == algorithm.name else each for each in others)
    return (algorithm, *renamed)
