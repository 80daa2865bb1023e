"""How far the gradient pushes a token: limits on its ratio and on its new probability, against its old probability."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rlviz.algorithms.base import PolicyGradient
from rlviz.algorithms.family import Algorithm
from rlviz.curves.arrays import Array, array
from rlviz.curves.clip import first_and_others, is_per_token, limits_of
from rlviz.types import Batch, ResponseRecord
from small_models.checks import checked

LEAST_PROB, POINTS = 1e-4, 400


@dataclass(frozen=True)
class Limits:
    """One algorithm's limits. lower, upper: on the ratio, over the grid of old probabilities, and at the one picked out.

    cuts: whether the gradient of a token that is beyond a limit there is cut; a surrogate of one's own may not care for limits.
    """

    name: str
    lower: Array
    upper: Array
    lower_at: float
    upper_at: float
    cuts: bool


@dataclass(frozen=True)
class TokenCloud:
    """Tokens of a run after an update on them: [N] each. ratio: as the algorithm's loss has it. low, high: clipped there."""

    old_prob: Array
    new_prob: Array
    ratio: Array
    low: NDArray[np.bool_]
    high: NDArray[np.bool_]

    @property
    def clipped(self) -> NDArray[np.bool_]:
        """True where the gradient is cut."""
        return self.low | self.high


@dataclass(frozen=True)
class BoundsCurve:
    """Limits against old probability. limits: of the explored algorithm first. old_prob: the grid. at: the one picked out.

    logarithmic: how it asks to be drawn. tokens: of a run, or None.
    """

    limits: tuple[Limits, ...]
    old_prob: Array
    at: float
    logarithmic: bool
    tokens: TokenCloud | None


@checked
def bounds_curve(
    algorithm: PolicyGradient,
    *,
    old_prob: float = 0.1,
    scale: str = "linear",
    beside: Sequence[PolicyGradient] = (),
    responses: Sequence[ResponseRecord] = (),
) -> BoundsCurve:
    """Return the limits of an algorithm and those beside it for every old probability, and where a run's tokens lie.

    lower is asked for A < 0 and upper for A > 0, the signs that they cut. beside: as `first_and_others` takes them. responses:
    with tokens recorded; their clipping is that of `algorithm`, whichever trained them.
    Raises ValueError for an old_prob outside [0.0001, 1], a scale that is neither "linear" nor "log", and what
    `check_limits_tokens` and `limits_of` refuse.
    """
    if not LEAST_PROB <= old_prob <= 1:
        raise ValueError(f"old_prob must be from {LEAST_PROB:g} to 1; got {old_prob}")
    if scale not in ("linear", "log"):
        raise ValueError(f"scale must be linear or log; got {scale!r}")
    for each in (algorithm, *beside):
        check_limits_tokens(each)
    grid = np.geomspace(LEAST_PROB, 1.0, POINTS)
    return BoundsCurve(
        limits=tuple(_limits(each, grid, old_prob) for each in first_and_others(algorithm, beside)),
        old_prob=grid,
        at=old_prob,
        logarithmic=scale == "log",
        tokens=_cloud(algorithm, responses) if responses else None,
    )


def check_limits_tokens(algorithm: Algorithm) -> None:
    """Raise ValueError for an algorithm that limits no ratio, or the ratio of more than one token."""
    if not isinstance(algorithm, PolicyGradient):
        raise ValueError(f"algorithm: {algorithm.name} has no ratio that could be limited")
    if not is_per_token(algorithm):
        raise ValueError(
            f"algorithm: {algorithm.name} limits the ratio of a whole response; "
            "that gives no interval for one token's probability"
        )


def _limits(algorithm: PolicyGradient, grid: Array, old_prob: float) -> Limits:
    every = [*grid, old_prob]
    lower, upper = limits_of(algorithm, every, -1.0)[0], limits_of(algorithm, every, 1.0)[1]
    at = float(lower[-1]), float(upper[-1])
    return Limits(algorithm.name, lower[:-1], upper[:-1], *at, _cuts(algorithm, old_prob, *at))


def _cuts(algorithm: PolicyGradient, old_prob: float, lower: float, upper: float) -> bool:
    """Return whether a bad token below the lower limit, or a good one above the upper one, has its gradient cut."""
    beyond = [(ratio, sign) for ratio, sign in ((lower * 0.99, -1.0), (upper * 1.01, 1.0)) if 0 < ratio < math.inf]
    if not beyond:
        return False
    ratio, signs = torch.tensor(beyond, dtype=torch.double).t().reshape(2, -1, 1, 1)
    old_logp = torch.full_like(ratio, math.log(old_prob))
    batch = Batch(old_logp, signs, torch.ones_like(ratio, dtype=torch.bool), ref_logp=old_logp)
    output = algorithm.loss(old_logp + ratio.log(), batch)
    return bool((output.clipped_low | output.clipped_high).any())


def _cloud(algorithm: PolicyGradient, responses: Sequence[ResponseRecord]) -> TokenCloud:
    longest = max(len(response.tokens) for response in responses)
    mask = torch.zeros(1, len(responses), longest, dtype=torch.bool)
    columns = {name: torch.ones(mask.shape, dtype=torch.double) for name in ("old_prob", "new_prob", "advantage")}
    for row, response in enumerate(responses):
        mask[0, row, : len(response.tokens)] = torch.tensor([not token.observed for token in response.tokens])
        for name, column in columns.items():
            column[0, row, : len(response.tokens)] = torch.tensor(
                [getattr(t, name) for t in response.tokens], dtype=torch.double
            )
    old_logp, logp = columns["old_prob"].log(), columns["new_prob"].log()
    output = algorithm.without_kl().loss(logp, Batch(old_logp, columns["advantage"], mask))
    return TokenCloud(
        old_prob=array(columns["old_prob"][mask]),
        new_prob=array(columns["new_prob"][mask]),
        ratio=array(output.ratio[mask]),
        low=array(output.clipped_low[mask]),
        high=array((output.clipped_high | output.clipped_dual)[mask]),
    )
