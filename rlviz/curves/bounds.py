"""How far a token may move: limits on its ratio and on its new probability, against its old probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from rlviz.algorithms.base import PolicyGradient
from rlviz.curves.arrays import Array, array
from rlviz.types import Batch, ResponseRecord, StepRecord

LEAST_PROB, POINTS = 1e-4, 400


@dataclass(frozen=True)
class Limits:
    """One algorithm's limits. lower, upper: on the ratio, over the grid of old probabilities, and at the one picked out."""

    name: str
    lower: Array
    upper: Array
    lower_at: float
    upper_at: float


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


def bounds_curve(
    algorithm: PolicyGradient,
    *,
    old_prob: float = 0.1,
    scale: str = "linear",
    beside: Sequence[PolicyGradient] = (),
    responses: Sequence[ResponseRecord] = (),
) -> BoundsCurve:
    """Return the limits of an algorithm and those beside it for every old probability, and where a run's tokens lie.

    lower is asked for A < 0 and upper for A > 0, the signs that they cut. responses: with tokens recorded, as `responses_of`
    takes them from a run; their clipping is that of `algorithm`, whichever trained them.
    Raises ValueError for an old_prob outside [0.0001, 1], a scale that is neither "linear" nor "log", and an algorithm without
    a ratio.
    """
    if not LEAST_PROB <= old_prob <= 1:
        raise ValueError(f"old_prob must be from {LEAST_PROB:g} to 1; got {old_prob}")
    if scale not in ("linear", "log"):
        raise ValueError(f"scale must be linear or log; got {scale!r}")
    every = (algorithm, *beside)
    for each in every:
        if not isinstance(each, PolicyGradient):
            raise ValueError(f"algorithm: {each.name} has no ratio that could be limited")
    grid = np.geomspace(LEAST_PROB, 1.0, POINTS)
    return BoundsCurve(
        limits=tuple(_limits(each, grid, old_prob) for each in every),
        old_prob=grid,
        at=old_prob,
        logarithmic=scale == "log",
        tokens=_cloud(algorithm, responses) if responses else None,
    )


def _limits(algorithm: PolicyGradient, grid: Array, old_prob: float) -> Limits:
    old_logp = torch.tensor([*grid, old_prob], dtype=torch.double).log().view(-1, 1, 1)
    everything = torch.ones_like(old_logp, dtype=torch.bool)
    algorithm = replace(algorithm, kl=None)
    lower, upper = (
        array(getattr(algorithm.objective(old_logp, Batch(old_logp, sign.expand_as(old_logp), everything)), side))
        for side, sign in (("lower", torch.tensor(-1.0)), ("upper", torch.tensor(1.0)))
    )
    return Limits(algorithm.name, lower[:-1], upper[:-1], float(lower[-1]), float(upper[-1]))


def responses_of(records: Sequence[StepRecord]) -> tuple[ResponseRecord, ...]:
    """Return the responses of a run whose tokens were recorded. Raises ValueError when there are none."""
    found = tuple(r for record in records for group in record.groups for r in group.responses if r.tokens)
    if not found:
        raise ValueError(f"run: none of its {len(records)} steps recorded tokens; train with details_every=1 or more")
    return found


def _cloud(algorithm: PolicyGradient, responses: Sequence[ResponseRecord]) -> TokenCloud:
    longest = max(len(response.tokens) for response in responses)
    mask = torch.zeros(1, len(responses), longest, dtype=torch.bool)
    columns = {name: torch.ones(mask.shape, dtype=torch.double) for name in ("old_prob", "new_prob", "advantage")}
    for row, response in enumerate(responses):
        mask[0, row, : len(response.tokens)] = True
        for name, column in columns.items():
            column[0, row, : len(response.tokens)] = torch.tensor(
                [getattr(t, name) for t in response.tokens], dtype=torch.double
            )
    old_logp, logp = columns["old_prob"].log(), columns["new_prob"].log()
    output = replace(algorithm, kl=None).loss(logp, Batch(old_logp, columns["advantage"], mask))
    return TokenCloud(
        old_prob=array(columns["old_prob"][mask]),
        new_prob=array(columns["new_prob"][mask]),
        ratio=array(output.ratio[mask]),
        low=array(output.clipped_low[mask]),
        high=array((output.clipped_high | output.clipped_dual)[mask]),
    )
