"""One token's objective and slope against its ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from rlviz.algorithms.base import PolicyGradient
from rlviz.curves.arrays import Array, array
from rlviz.pieces.surrogate import DualClip, is_clipped
from rlviz.types import Batch


@dataclass(frozen=True)
class ClipCurve:
    """The objective of one token against its ratio, for an advantage of one sign.

    ratio, objective, slope (∂objective/∂ratio), clipped: arrays over the grid of ratios. advantage: A. old_prob: the
    token's probability under the old policy. lower, upper: the limits on the ratio at that probability.
    """

    ratio: Array
    objective: Array
    slope: Array
    clipped: NDArray[np.bool_]
    advantage: float
    old_prob: float
    lower: float
    upper: float


def clip_curve(
    algorithm: PolicyGradient,
    *,
    advantage: float,
    old_prob: float = 0.6,
    max_ratio: float = 2.0,
    points: int = 401,
) -> ClipCurve:
    """Return a token's objective and slope for ratios up to `max_ratio`, through the algorithm's own pieces.

    The slope is autograd's, taken through ratio, bounds and surrogate to the new log-probability: ∂J/∂r = (∂J/∂logp) / r.
    Raises ValueError for an old_prob outside (0, 1] or a max_ratio ≤ 0.
    """
    if not 0 < old_prob <= 1:
        raise ValueError(f"old_prob must be above 0 and at most 1; got {old_prob}")
    if max_ratio <= 0:
        raise ValueError(f"max_ratio must be above 0; got {max_ratio}")
    shape = (points - 1, 1, 1)  # one response of one token for each ratio: a sequence ratio is the token's own
    grid = torch.linspace(0, max_ratio, points, dtype=torch.double)[1:].reshape(shape)
    old_logp = torch.full(shape, old_prob, dtype=torch.double).log()
    logp = (old_logp + grid.log()).requires_grad_()
    advantages = torch.full(shape, advantage, dtype=torch.double)
    without_kl = replace(algorithm, kl=None)
    part = without_kl.objective(logp, Batch(old_logp, advantages, torch.ones(shape, dtype=torch.bool)))
    (gradient,) = torch.autograd.grad(part.value.sum(), logp)
    clipped = is_clipped(part.surrogate, part.ratio, advantages, part.lower, part.upper)

    return ClipCurve(
        ratio=array(part.ratio),
        objective=array(part.value),
        slope=array(gradient / grid),
        clipped=array(clipped[0] | clipped[1] | clipped[2]),
        advantage=advantage,
        old_prob=old_prob,
        lower=float(part.lower[0, 0, 0]),
        upper=float(part.upper[0, 0, 0]),
    )


@dataclass(frozen=True)
class ClipComparison:
    """The clip curves of one algorithm, and of others to lie over them.

    names: of the algorithms, the explored one first. better, worse: their curves for A = +1 and for A = −1.
    """

    names: tuple[str, ...]
    better: tuple[ClipCurve, ...]
    worse: tuple[ClipCurve, ...]


def clip_comparison(
    algorithm: PolicyGradient,
    *,
    old_prob: float = 0.6,
    dual_clip: float = 0.0,
    up_to: float = 2.0,
    beside: Sequence[PolicyGradient] = (),
) -> ClipComparison:
    """Return both signs' curves of an algorithm and of those beside it, for ratios up to `up_to`.

    dual_clip: c of a `DualClip` in place of the algorithm's surrogate; 0 leaves the surrogate as it is. A c further out than
    `up_to` widens it.
    Raises ValueError for an algorithm without a ratio, and what `clip_curve` and `DualClip` raise.
    """
    for each in (algorithm, *beside):
        if not isinstance(each, PolicyGradient):
            raise ValueError(f"algorithm: {each.name} has no ratio that could be clipped")
    if dual_clip:
        algorithm = replace(algorithm, surrogate=DualClip(c=dual_clip))
        up_to = max(up_to, 1.25 * dual_clip)
    every = (algorithm, *beside)
    better, worse = (
        tuple(clip_curve(each, advantage=sign, old_prob=old_prob, max_ratio=up_to) for each in every)
        for sign in (1.0, -1.0)
    )
    return ClipComparison(tuple(each.name for each in every), better, worse)
