"""How far importance ratios stray from 1 as responses grow, and what of them an algorithm's limits cut."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from rlviz.algorithms.base import PolicyGradient
from rlviz.curves.arrays import Array
from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.pieces.surrogate import is_clipped
from rlviz.types import Batch, TokenObjective

RESPONSES, LONGEST, BINS = 1000, 200, 41
LENGTHS = (1, 2, 3, 5, 8, 13, 20, 32, 50, 80, 126, LONGEST)
MOST = 0.9  # the share of ratios that lie nearer to 1 than the distances tell


@dataclass(frozen=True)
class RatioSpread:
    """How far ratios of each kind lie from 1: the |log ratio|, in nats, below which nine in ten of them stay.

    lengths: of the responses, tokens. token: the ratio of one token. sequence: the geometric mean of a response's token
    ratios. arithmetic: their arithmetic mean. product: their plain product. All are arrays over `lengths`.
    """

    lengths: Array
    token: Array
    sequence: Array
    arithmetic: Array
    product: Array


@dataclass(frozen=True)
class RatioCurve:
    """What became of the ratios of many responses, and what the limits of one algorithm, `name`, cut of them.

    spread: of all kinds of ratio against length. token, sequence, product, own: distances as there at `length`, nats, the
    last of the algorithm's own ratio. lower, upper: its limits on the ratio, for the advantages that they hold back.
    edges, share, share_cut: a histogram of its own ratio: [B + 1] edges of bins, the share of all tokens in each bin, and of
    all tokens the share that is in it with its gradient cut. clipped: share of all tokens whose gradient is cut.
    """

    name: str
    length: int
    spread: RatioSpread
    token: float
    sequence: float
    product: float
    own: float
    lower: float
    upper: float
    edges: Array
    share: Array
    share_cut: Array
    clipped: float


@lru_cache(maxsize=1)
def _draws() -> tuple[Tensor, Tensor]:
    """Return standard normal numbers [1, N, T] and an advantage of +1 or −1 for each response, [1, N, 1]."""
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn((1, RESPONSES, LONGEST), generator=generator, dtype=torch.double)
    good = torch.rand((1, RESPONSES, 1), generator=generator, dtype=torch.double) < 0.5
    return normal, torch.where(good, 1.0, -1.0).double()


def _log_ratios(noise: float, drift: float, length: int) -> Tensor:
    return drift - noise**2 / 2 + noise * _draws()[0][..., :length]


def _distance(log_ratio: Tensor) -> float:
    far = log_ratio.abs().flatten().numpy()
    place = math.ceil(MOST * far.size) - 1
    return float(np.partition(far, place)[place])


def _sequence(log_ratio: Tensor) -> Tensor:
    """Return the log of each response's sequence ratio, [N]."""
    mask = torch.ones_like(log_ratio, dtype=torch.bool)
    return sequence_ratio(log_ratio, torch.zeros_like(log_ratio), mask)[0, :, 0].log()


@lru_cache(maxsize=4)
def _spread(noise: float, drift: float) -> RatioSpread:
    log_ratio = _log_ratios(noise, drift, LONGEST)
    token = token_ratio(log_ratio, torch.zeros_like(log_ratio), torch.ones_like(log_ratio, dtype=torch.bool))
    sums = token.cumsum(-1)
    sequences = [_sequence(log_ratio[..., :length]) for length in LENGTHS]
    return RatioSpread(
        lengths=np.array(LENGTHS, dtype=float),
        token=np.full(len(LENGTHS), _distance(token.log())),
        sequence=np.array([_distance(sequence) for sequence in sequences]),
        arithmetic=np.array([_distance((sums[..., length - 1] / length).log()) for length in LENGTHS]),
        product=np.array([_distance(n * sequence) for n, sequence in zip(LENGTHS, sequences, strict=True)]),
    )


def ratio_curve(
    algorithm: PolicyGradient, *, length: int = 100, noise: float = 0.06, drift: float = 0.0, old_prob: float = 0.1
) -> RatioCurve:
    """Return how far ratios stray from 1 with length, and a histogram of the algorithm's own ratio at one length.

    The log-ratios of all tokens are independent and normal, with mean drift − noise²/2 and standard deviation noise, nats,
    always from the same random numbers. At drift 0 a token ratio has mean 1, as every ratio must under the policy that
    sampled; other drifts are of responses that an update has pushed up or down. About half of the responses, at random, have
    A = +1, the others A = −1. length: tokens of a response. old_prob: each token's probability when sampled; only the limits
    look at it. Raises ValueError for a length outside 1 to 200, a noise outside (0, 2], a drift beyond ±1, an old_prob
    outside (0, 1], or an algorithm without a ratio.
    """
    if not isinstance(algorithm, PolicyGradient):
        raise ValueError(f"algorithm: {algorithm.name} has no ratio")
    if not 1 <= length <= LONGEST:
        raise ValueError(f"length must be from 1 to {LONGEST} tokens; got {length}")
    if not 0 < noise <= 2:
        raise ValueError(f"noise must be above 0 and at most 2 nats; got {noise}")
    if not abs(drift) <= 1:
        raise ValueError(f"drift must be from −1 to 1 nats; got {drift}")
    log_ratio = _log_ratios(noise, drift, length)
    part, cut = _objective(algorithm, log_ratio, old_prob)
    ratio, good = part.ratio.detach(), part.advantages > 0
    lower, upper = float(part.lower[~good][0]), float(part.upper[good][0])
    low, high = _window(ratio, lower, upper)
    share, share_cut = (torch.histc(values, BINS, low, high) / ratio.numel() for values in (ratio, ratio[cut]))
    spread, sequence = _spread(noise, drift), _sequence(log_ratio)
    return RatioCurve(
        name=algorithm.name,
        length=length,
        spread=spread,
        token=float(spread.token[0]),
        sequence=_distance(sequence),
        product=_distance(length * sequence),
        own=_distance(ratio.log()),
        lower=lower,
        upper=upper,
        edges=np.linspace(low, high, BINS + 1),
        share=share.numpy(),
        share_cut=share_cut.numpy(),
        clipped=int(cut.sum()) / cut.numel(),
    )


def limits_follow_probability(algorithm: PolicyGradient) -> bool:
    """Return whether the algorithm's limits on the ratio differ between tokens of old probability .01 and .5."""
    rare, common = (_objective(algorithm, _log_ratios(0.1, 0.0, 1), q)[0] for q in (0.01, 0.5))
    return not (torch.equal(rare.lower, common.lower) and torch.equal(rare.upper, common.upper))


def _objective(algorithm: PolicyGradient, log_ratio: Tensor, old_prob: float) -> tuple[TokenObjective, Tensor]:
    """Return the objective without its KL term, and where its gradient is cut."""
    if not 0 < old_prob <= 1:
        raise ValueError(f"old_prob must be above 0 and at most 1; got {old_prob}")
    old_logp = torch.full_like(log_ratio, old_prob).log()
    batch = Batch(old_logp, _draws()[1].expand(log_ratio.shape), torch.ones_like(log_ratio, dtype=torch.bool))
    part = replace(algorithm, kl=None).objective(old_logp + log_ratio, batch)
    low, high, dual = is_clipped(part.surrogate, part.ratio, part.advantages, part.lower, part.upper)
    return part, low | high | dual


def _window(ratio: Tensor, lower: float, upper: float) -> tuple[float, float]:
    """Return from where to where to draw: most ratios and all limits, but no wider than keeps the limits apart, if it can be."""
    limits = [abs(limit - 1) for limit in (lower, upper) if 0 < limit < math.inf]
    size = float((ratio - 1).square().mean().sqrt())
    reach = max(1.25 * max(limits), 2 * size, min(4 * size, 40 * min(limits))) if limits else 4 * size
    power = 10.0 ** math.floor(math.log10(reach))
    half = next(step * power for step in (1, 2, 3, 5, 10) if step * power >= reach)
    return max(0.0, 1 - half), 1 + half
