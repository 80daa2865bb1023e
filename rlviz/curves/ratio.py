"""How far importance ratios stray from 1 as responses grow, and what of them an algorithm's limits cut."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from rlviz.algorithms.base import PolicyGradient
from rlviz.curves.arrays import Array, array
from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.pieces.surrogate import is_clipped
from rlviz.types import Batch, TokenObjective
from small_models.checks import checked

RESPONSES, LONGEST, BINS = 500, 200, 41
LENGTHS = (1, 2, 3, 5, 8, 13, 20, 32, 50, 80, 126, LONGEST)
MOST = 0.9  # the share of ratios that lie nearer to 1 than the distances tell
CELLS, REACH = 800, 9.0  # cells of a ratio's distribution, and how many standard deviations they reach


@dataclass(frozen=True)
class RatioSpread:
    """How far ratios of each kind lie from 1: the |log ratio|, in nats, below which nine in ten of them stay.

    lengths: of the responses, tokens. token: the ratio of one token. sequence: the geometric mean of a response's token
    ratios. arithmetic: their arithmetic mean, over `RESPONSES` simulated responses; the others are exact. product: their plain
    product. All are arrays over `lengths`.
    """

    lengths: Array
    token: Array
    sequence: Array
    arithmetic: Array
    product: Array


@dataclass(frozen=True)
class RatioCurve:
    """What becomes of the ratios of responses, and what the limits of one algorithm, `name`, cut of them.

    spread: of all kinds of ratio against length. token, sequence, product, own: distances as there at `length`, nats, the
    last of the algorithm's own ratio. lower, upper: its limits on the ratio, for the advantages that they hold back.
    edges, share, share_cut: a histogram of its own ratio: [B + 1] edges of bins, limits among them; the share of all tokens in
    each bin, and of all tokens the share that is in it with its gradient cut. clipped: share of all tokens whose gradient is
    cut. simulated: of how many tokens these shares and `own` are, 0 where they are exact.
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
    simulated: int


@lru_cache(maxsize=1)
def _draws() -> Tensor:
    """Return standard normal numbers [1, N, T]."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn((1, RESPONSES, LONGEST), generator=generator, dtype=torch.double)


def _log(ratio: Callable[..., Tensor], log_ratio: Tensor, old_prob: float = 0.1) -> Tensor:
    """Return the log of this ratio on each token, [N, T], where the tokens' own log-ratios are these, [1, N, T]."""
    old_logp = torch.full_like(log_ratio, old_prob).log()
    return ratio(old_logp + log_ratio, old_logp, torch.ones_like(log_ratio, dtype=torch.bool))[0].detach().log()


@dataclass(frozen=True)
class _Own:
    """How the log of one kind of ratio is distributed: normal with this mean and standard deviation, or as a sorted sample."""

    mean: float = 0.0
    std: float = 1.0
    sample: Array | None = None

    def below(self, log_ratio: Array) -> Array:
        """Return the share of tokens with a log ratio up to each of these."""
        if self.sample is not None:
            return np.searchsorted(self.sample, log_ratio, side="right") / len(self.sample)
        return array(torch.special.ndtr(torch.from_numpy((log_ratio - self.mean) / self.std)))

    @property
    def distance(self) -> float:
        if self.sample is not None:
            return _nearest(self.sample)
        return float(_normal_distance(np.array([self.mean]), np.array([self.std]))[0])

    @property
    def span(self) -> tuple[float, float]:
        if self.sample is not None:
            return float(self.sample[0]), float(self.sample[-1])
        return self.mean - REACH * self.std, self.mean + REACH * self.std


def _nearest(log_ratio: Array) -> float:
    """Return the |log ratio| below which nine in ten of a sample lie."""
    place = math.ceil(MOST * log_ratio.size) - 1
    return float(np.partition(np.abs(log_ratio), place)[place])


def _normal_distance(mean: Array, std: Array) -> Array:
    """Return x with P(|X| < x) = .9 for normal X, by Newton's method.

    x lies between |mean| + 1.28 std (mean far from 0: one tail) and |mean| + 1.65 std (mean 0: two tails).
    """
    m, s = torch.from_numpy(np.abs(mean)), torch.from_numpy(std)
    x = m + 1.46 * s
    for _ in range(6):
        near, far = (x - m) / s, (x + m) / s
        inside = torch.special.ndtr(near) - torch.special.ndtr(-far)
        density = ((-near.square() / 2).exp() + (-far.square() / 2).exp()) / (s * math.sqrt(2 * math.pi))
        x = x - (inside - MOST) / density
    return array(x)


def _weights(ratio: Callable[..., Tensor], length: int, old_prob: float = 0.1) -> tuple[float, float] | None:
    """Return Σ w and √Σ w² if the log of this ratio is the same sum Σ w · (a token's log-ratio) on every token, else None.

    Then, where the tokens' log-ratios are independent and normal, so is it, with mean · Σ w and std · √Σ w².
    """
    one_moved = _log(ratio, torch.eye(length, dtype=torch.double).unsqueeze(0), old_prob)  # [token that moved, token]
    total, size = one_moved.sum(0), one_moved.square().sum(0).sqrt()
    some = 0.1 * _draws()[:, :8, :length]
    alike = torch.allclose(total, total[0]) and torch.allclose(size, size[0])
    if not alike or not torch.allclose(_log(ratio, some, old_prob), some[0] @ one_moved, atol=1e-12):
        return None
    return float(total[0]), float(size[0])


@lru_cache(maxsize=256)
def _known_weights(length: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the weights of the token ratio and of the sequence ratio."""
    token, sequence = (_weights(ratio, length) for ratio in (token_ratio, sequence_ratio))
    assert token is not None
    assert sequence is not None
    return token, sequence


def _distances(noise: float, drift: float, lengths: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Return the exact distances of token ratio, sequence ratio and plain product at each length."""
    token, sequence = np.array([_known_weights(length) for length in lengths]).transpose(1, 2, 0)  # [2, lengths] each
    mean = drift - noise**2 / 2
    near = _normal_distance(mean * sequence[0], noise * sequence[1])
    return _normal_distance(mean * token[0], noise * token[1]), near, np.array(lengths) * near


@lru_cache(maxsize=4)
def _spread(noise: float, drift: float) -> RatioSpread:
    log_ratio = drift - noise**2 / 2 + noise * _draws()
    sums = token_ratio(log_ratio, torch.zeros_like(log_ratio), torch.ones_like(log_ratio, dtype=torch.bool)).cumsum(-1)
    token, sequence, product = _distances(noise, drift, LENGTHS)
    return RatioSpread(
        lengths=np.array(LENGTHS, dtype=float),
        token=token,
        sequence=sequence,
        arithmetic=np.array([_nearest(array((sums[..., n - 1] / n).log())) for n in LENGTHS]),
        product=product,
    )


@checked
def ratio_curve(
    algorithm: PolicyGradient, *, length: int = 100, noise: float = 0.06, drift: float = 0.0, old_prob: float = 0.1
) -> RatioCurve:
    """Return how far ratios stray from 1 with length, and a histogram of the algorithm's own ratio at one length.

    The log-ratios of all tokens are independent and normal, with mean drift − noise²/2 and standard deviation noise, nats. At
    drift 0 a token ratio has mean 1, as every ratio must under the policy that sampled; other drifts are of responses that an
    update has pushed up or down. Half of the responses, whichever, have A = +1, the others A = −1. All is exact where the log
    of a ratio is a sum of tokens' log-ratios; any other ratio is simulated. length: tokens of a response. old_prob: each
    token's probability when sampled. Limits are those of a response's first token. Raises ValueError for a length outside 1
    to 200, a noise outside (0, 2], a drift beyond ±1, an old_prob outside (0, 1], or an algorithm without a ratio.
    """
    if not isinstance(algorithm, PolicyGradient):
        raise ValueError(f"algorithm: {algorithm.name} has no ratio")
    if not 1 <= length <= LONGEST:
        raise ValueError(f"length must be from 1 to {LONGEST} tokens; got {length}")
    if not 0 < noise <= 2:
        raise ValueError(f"noise must be above 0 and at most 2 nats; got {noise}")
    if not abs(drift) <= 1:
        raise ValueError(f"drift must be from −1 to 1 nats; got {drift}")
    limits = _limits(algorithm, length, old_prob)
    lower, upper = float(limits[1][0]), float(limits[0][1])
    own = _own(algorithm.ratio, length, noise, drift - noise**2 / 2, old_prob)
    low, high = _window(own.distance, lower, upper)
    bins = _bins(low, high, (lower, upper))
    cells = np.exp(np.linspace(*own.span, CELLS + 1))
    edges = np.unique(np.concatenate([[0.0], bins, cells, [x for x in (lower, upper) if 0 < x < math.inf]]))
    with np.errstate(divide="ignore"):
        mass = np.diff(own.below(np.log(edges)))
    cut = mass * _share_cut(algorithm, (edges[1:] + edges[:-1]) / 2, limits, old_prob)
    inside = np.searchsorted(edges, bins)
    token, sequence, product = (float(distance[0]) for distance in _distances(noise, drift, (length,)))
    return RatioCurve(
        name=algorithm.name,
        length=length,
        spread=_spread(noise, drift),
        token=token,
        sequence=sequence,
        product=product,
        own=own.distance,
        lower=lower,
        upper=upper,
        edges=bins,
        share=np.add.reduceat(np.append(mass, 0.0), inside)[:-1],
        share_cut=np.add.reduceat(np.append(cut, 0.0), inside)[:-1],
        clipped=float(cut.sum()),
        simulated=0 if own.sample is None else len(own.sample),
    )


def _bins(low: float, high: float, limits: tuple[float, float]) -> Array:
    """Return edges of equal bins, divided at the limits, so that no bin is cut in part only."""
    inside = [limit for limit in limits if low < limit < high]
    return np.unique(np.concatenate([np.linspace(low, high, BINS + 1), inside]))


def _own(ratio: Callable[..., Tensor], length: int, noise: float, mean: float, old_prob: float) -> _Own:
    """Return how the log of this ratio is distributed over the tokens of responses."""
    weights = _weights(ratio, length, old_prob)
    if weights is not None:
        return _Own(mean * weights[0], noise * weights[1])
    log_ratio = mean + noise * _draws()[..., :length]
    return _Own(sample=np.sort(array(_log(ratio, log_ratio, old_prob))))


def limits_follow_probability(algorithm: PolicyGradient) -> bool:
    """Return whether the algorithm's limits on the ratio differ between tokens of old probability .01 and .5."""
    return not torch.equal(*(_limits(algorithm, 1, old_prob) for old_prob in (0.01, 0.5)))


def _limits(algorithm: PolicyGradient, length: int, old_prob: float) -> Tensor:
    """Return the limits [for A = +1 and A = −1, lower and upper] on the first token of such a response."""
    part = _objective(algorithm, torch.zeros(1, 2, length, dtype=torch.double), old_prob)
    return torch.stack([part.lower[0, :, 0], part.upper[0, :, 0]], 1)


def _objective(algorithm: PolicyGradient, log_ratio: Tensor, old_prob: float) -> TokenObjective:
    """Return the objective without its KL term of responses [1, N, T], of which the first half has A = +1, the other A = −1."""
    if not 0 < old_prob <= 1:
        raise ValueError(f"old_prob must be above 0 and at most 1; got {old_prob}")
    old_logp = torch.full_like(log_ratio, old_prob).log()
    advantages = torch.ones_like(log_ratio)
    advantages[:, log_ratio.shape[1] // 2 :] = -1.0
    batch = Batch(old_logp, advantages, torch.ones_like(log_ratio, dtype=torch.bool))
    return algorithm.without_kl().objective(old_logp + log_ratio, batch)


def _share_cut(algorithm: PolicyGradient, ratio: Array, limits: Tensor, old_prob: float) -> Array:
    """Return for each value of the algorithm's ratio the share of tokens, 0, ½ or 1, whose gradient is cut there."""
    lower, upper = limits.repeat_interleave(len(ratio), 0).t()[..., None]
    alone = replace(algorithm, ratio=token_ratio, bounds=lambda old_logp: (lower[None], upper[None]))
    log_ratio = torch.from_numpy(np.log(ratio)).repeat(2)[
        None, :, None
    ]  # a response of one token for each value and sign
    part = _objective(alone, log_ratio, old_prob)
    low, high, dual = is_clipped(part.surrogate, part.ratio, part.advantages, part.lower, part.upper)
    return array((low | high | dual).reshape(2, -1).double().mean(0))


def _window(distance: float, lower: float, upper: float) -> tuple[float, float]:
    """Return from where to where to draw: most ratios and all limits, but no wider than keeps the limits apart, if it can be."""
    limits = [abs(limit - 1) for limit in (lower, upper) if 0 < limit < math.inf]
    size = math.expm1(min(distance, 9.0)) / 1.645  # of one standard deviation, where it is small
    reach = max(1.25 * max(limits), 2 * size, min(4 * size, 40 * min(limits))) if limits else 4 * size
    power = 10.0 ** math.floor(math.log10(reach))
    half = next(step * power for step in (1, 2, 3, 5, 10) if step * power >= reach)
    return max(0.0, 1 - half), 1 + half
