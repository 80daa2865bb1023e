"""How often each value of an algorithm's ratio occurs, and which share of the tokens with it has its gradient cut."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlviz.algorithms import PolicyGradient
from rlviz.pieces.surrogate import is_clipped
from rlviz.types import Batch

BINS, CELLS = 41, 10  # bins of the histogram, and the cells of a bin in which it is asked whether the gradient is cut
REACH = 9.0  # standard deviations of a log-ratio up to which ratios are counted


def histogram(
    single: PolicyGradient,
    limits: tuple[Tensor, Tensor],
    old_prob: Tensor,
    distance: Tensor,
    center: Tensor,
    std: Tensor,
) -> dict[str, Tensor]:
    """Return the limits, and shares of all tokens in bins of their ratio, whose log is normal: equal bins, divided at the limits.

    distance: as in `ratio`; a bin is as high as its share is dense.
    """
    holding = torch.stack(
        [limits[0][1], limits[1][0]]
    )  # the limits that hold back: the lower for A = −1, the upper for A = +1
    is_real = (holding > 0) & torch.isfinite(holding)
    low, high = window_of_ratios(distance, holding, is_real)
    bins = low + (high - low) * torch.arange(BINS + 1, dtype=torch.double) / BINS
    edges = torch.cat([bins, holding.clamp(min=low, max=high)]).sort().values
    starts = torch.cat([torch.zeros(1, dtype=torch.double), edges])
    ends = torch.cat([edges, torch.maximum(high, (center + REACH * std).exp()).reshape(1)])
    steps = torch.arange(CELLS + 1, dtype=torch.double) / CELLS
    cells = starts[:, None] + (ends - starts)[:, None] * steps
    mass = torch.special.ndtr((cells.log() - center) / std).diff(dim=-1)
    cut = share_cut(single, (cells[:, 1:] + cells[:, :-1]) / 2, limits, old_prob)
    width, share, cut_share = (ends - starts)[1:-1], mass.sum(-1)[1:-1], (mass * cut).sum(-1)[1:-1]
    density = torch.where(width > 0, share / width, 0.0)
    tallest = density.amax().clamp(min=1e-300)
    lower, upper = torch.where(is_real, holding, math.nan)
    return {
        "lower": lower,
        "upper": upper,
        "low": low,
        "high": high,
        "middle": (starts + ends)[1:-1] / 2,
        "width": width,
        "height": density / tallest,
        "height_cut": torch.where(width > 0, cut_share / width, 0.0) / tallest,
        "cut_percent": 100 * (mass * cut).sum(),
    }


def share_cut(single: PolicyGradient, ratio: Tensor, limits: tuple[Tensor, Tensor], old_prob: Tensor) -> Tensor:
    """Return the share of tokens, 0, ½ or 1, whose gradient is cut, at each value of the algorithm's ratio."""
    ratios = torch.cat([ratio.flatten(), ratio.flatten()]).reshape(2, -1, 1)  # a prompt a sign, a response a value
    lower, upper = (limit.reshape(2, 1, 1).expand(ratios.shape) for limit in limits)
    old_logp = old_prob.log().expand(ratios.shape)
    signs = torch.tensor([1.0, -1.0], dtype=torch.double).reshape(2, 1, 1).expand(ratios.shape)
    part = single.objective(old_logp + ratios.log(), Batch(old_logp, signs, torch.ones_like(ratios, dtype=torch.bool)))
    low, high, dual = is_clipped(part.surrogate, part.ratio, part.advantages, lower, upper)
    return (low | high | dual).double().mean(0).reshape(ratio.shape)


def window_of_ratios(distance: Tensor, limits: Tensor, is_real: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ends of the axis: most ratios and all limits, but no wider than keeps the limits apart, if it can be."""
    away = (limits - 1).abs()
    furthest, nearest = torch.where(is_real, away, 0.0).amax(), torch.where(is_real, away, torch.inf).amin()
    size = distance.clamp(max=9.0).expm1() / 1.645  # of one standard deviation, where it is small
    narrow = torch.maximum(2 * size, torch.minimum(4 * size, 40 * nearest))
    reach = torch.maximum(1.25 * furthest, narrow) * (1 - 1e-9)  # a size that rounding makes no other step
    halves = 10 ** reach.log10().floor() * torch.tensor([1, 2, 3, 5, 10], dtype=torch.double)
    half = torch.where(halves >= reach, halves, torch.inf).amin()
    return (1 - half).clamp(min=0.0), 1 + half
