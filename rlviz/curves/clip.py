"""One token's objective, and the push that it gives log π, against its ratio."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlviz.algorithms.base import PolicyGradient
from rlviz.curves.arrays import Array, array
from rlviz.pieces.surrogate import DualClip, is_clipped
from rlviz.types import Batch, TokenObjective
from small_models.checks import check_at_least, checked

NEAR = 1e-6  # an edge this near to a limit is the limit, and two this near to each other are none


@dataclass(frozen=True)
class ClipCurve:
    """The objective of one token against its ratio, for an advantage of one sign.

    ratio, objective, push (∂objective/∂log π, which is ratio · ∂objective/∂ratio), clipped: arrays over the grid of ratios.
    dead: the stretches of ratios without gradient, from left to right; one that reaches the end of the grid ends there.
    advantage: A. old_prob: the token's probability under the old policy. lower, upper: the limits on the ratio at that
    probability. per_token: whether the ratio is that of the token alone; if not, it is a response's, and no probability goes
    with it.
    """

    ratio: Array
    objective: Array
    push: Array
    clipped: NDArray[np.bool_]
    dead: tuple[tuple[float, float], ...]
    advantage: float
    old_prob: float
    lower: float
    upper: float
    per_token: bool


def is_per_token(algorithm: PolicyGradient) -> bool:
    """Return whether the ratio of a token stays as it is when another token of the response moves."""
    still = torch.full((1, 2, 2), -1.0, dtype=torch.double)
    one_moved = torch.eye(2, dtype=torch.double).unsqueeze(
        0
    )  # the first token of one response, the second of the other
    mask = torch.ones_like(still, dtype=torch.bool)
    other = one_moved == 0
    return torch.equal(
        algorithm.ratio(still + one_moved, still, mask)[other], algorithm.ratio(still, still, mask)[other]
    )


def limits_of(algorithm: PolicyGradient, old_prob: ArrayLike, advantage: float) -> tuple[Array, Array]:
    """Return the lower and upper limits on the ratios of tokens of these old probabilities with this advantage.

    A lower limit below 0 is told as 0, which no ratio falls below either. Raises ValueError as `PolicyGradient.limits` does.
    """
    old_logp = torch.as_tensor(old_prob, dtype=torch.double).log().reshape(-1, 1, 1)
    mask, advantages = torch.ones_like(old_logp, dtype=torch.bool), torch.full_like(old_logp, advantage)
    lower, upper = algorithm.limits(old_logp, mask, advantages)
    return array(lower.clamp(min=0.0)), array(upper)


@checked
def clip_curve(
    algorithm: PolicyGradient,
    *,
    advantage: float,
    old_prob: float = 0.6,
    max_ratio: float = 2.0,
    points: int = 401,
) -> ClipCurve:
    """Return a token's objective and push for ratios up to `max_ratio`, through the algorithm's own pieces.

    The push is autograd's ∂J/∂logp, taken through ratio, bounds and surrogate to the new log-probability: what the update adds
    to the token's log π is in proportion to it, whichever way the surrogate is written, while ∂J/∂ratio is not.
    Raises ValueError for an old_prob outside (0, 1], a max_ratio ≤ 0, and bounds that are no limits.
    """
    if not 0 < old_prob <= 1:
        raise ValueError(f"old_prob must be above 0 and at most 1; got {old_prob}")
    if max_ratio <= 0:
        raise ValueError(f"max_ratio must be above 0; got {max_ratio}")
    (lower,), (upper,) = limits_of(algorithm, old_prob, advantage)
    without_kl = algorithm.without_kl()

    def at(ratio: Tensor) -> tuple[Tensor, TokenObjective]:
        shape = (len(ratio), 1, 1)  # one response of one token for each ratio: a sequence ratio is the token's own
        old_logp = torch.full(shape, old_prob, dtype=torch.double).log()
        logp = (old_logp + ratio.log().reshape(shape)).requires_grad_()
        batch = Batch(old_logp, torch.full_like(old_logp, advantage), torch.ones(shape, dtype=torch.bool))
        return logp, without_kl.objective(logp, batch)

    def cut(part: TokenObjective) -> NDArray[np.bool_]:
        low, high, dual = is_clipped(part.surrogate, part.ratio, part.advantages, part.lower, part.upper)
        return array(low | high | dual)

    check_at_least(2, points=points)
    grid = torch.linspace(0, max_ratio, points, dtype=torch.double)[1:]
    logp, part = at(grid)
    (gradient,) = torch.autograd.grad(part.value.sum(), logp)
    clipped = cut(part)
    edges = _edges(lambda ratio: cut(at(torch.from_numpy(ratio))[1]), array(grid), clipped)
    if len(edges):
        edges = array(at(torch.from_numpy(edges))[1].ratio)
    for limit in (lower, upper):
        edges[np.abs(edges - limit) < NEAR] = limit
    touching = np.flatnonzero(np.diff(edges) < NEAR)  # around ratio 1, where nothing counts as clipped
    edges = np.delete(edges, [*touching, *touching + 1])
    ratio = array(part.ratio)
    ends = [*([0.0] if clipped[0] else []), *edges.tolist(), *([float(ratio[-1])] if clipped[-1] else [])]

    return ClipCurve(
        ratio=ratio,
        objective=array(part.value),
        push=array(gradient),
        clipped=clipped,
        dead=tuple(zip(ends[::2], ends[1::2], strict=True)),
        advantage=advantage,
        old_prob=old_prob,
        lower=float(lower),
        upper=float(upper),
        per_token=is_per_token(algorithm),
    )


def _edges(cut: Callable[[Array], NDArray[np.bool_]], ratio: Array, clipped: NDArray[np.bool_]) -> Array:
    """Return where `cut` changes, to 1 part in 90 000 of the grid's step; it changes where `clipped` does between two ratios."""
    before = np.flatnonzero(clipped[1:] != clipped[:-1])
    low, high, columns = ratio[before], ratio[before + 1], np.arange(len(before))
    for _ in range(2 if len(before) else 0):
        fine = np.linspace(low, high, 301)  # [301, edges]
        same = cut(fine.ravel()).reshape(fine.shape) == clipped[before]
        same[-1] = False
        first = same.argmin(0)
        low, high = fine[np.maximum(first - 1, 0), columns], fine[first, columns]
    return high


@dataclass(frozen=True)
class ClipComparison:
    """The clip curves of one algorithm, and of others to lie over them.

    names: of the algorithms, the explored one first. better, worse: their curves for A = +1 and for A = −1.
    """

    names: tuple[str, ...]
    better: tuple[ClipCurve, ...]
    worse: tuple[ClipCurve, ...]


@checked
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
    `up_to` widens it. beside: as `first_and_others` takes them.
    Raises ValueError for an algorithm without a ratio, and what `clip_curve` and `DualClip` raise.
    """
    for each in (algorithm, *beside):
        if not isinstance(each, PolicyGradient):
            raise ValueError(f"algorithm: {each.name} has no ratio that could be clipped")
    if dual_clip:
        algorithm = replace(algorithm, surrogate=DualClip(c=dual_clip))
        up_to = max(up_to, 1.25 * dual_clip)
    every = first_and_others(algorithm, beside)
    better, worse = (
        tuple(clip_curve(each, advantage=sign, old_prob=old_prob, max_ratio=up_to) for each in every)
        for sign in (1.0, -1.0)
    )
    return ClipComparison(tuple(each.name for each in every), better, worse)


def first_and_others(algorithm: PolicyGradient, beside: Sequence[PolicyGradient]) -> tuple[PolicyGradient, ...]:
    """Return the algorithm and those beside it that differ from it; one with its name is called the other one."""
    others = (each for each in beside if each != algorithm)
    renamed = (replace(each, name=f"the other {each.name}") if each.name == algorithm.name else each for each in others)
    return (algorithm, *renamed)
