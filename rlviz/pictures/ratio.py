"""How far importance ratios stray from 1 as responses grow, and what of them an algorithm's limits cut."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator
from torch import Tensor

from rlviz.algorithms import GRPO, GSPO, PolicyGradient, numbers
from rlviz.pictures.arguments import Slider, WholeSlider
from rlviz.pictures.arrays import Array, array
from rlviz.pictures.base import BLUE, GREEN, GREY, LINE, TEXT, VERMILION, Handle, Picture, dress
from rlviz.pictures.clip import has_a_ratio
from rlviz.pictures.explore import WIDTHS, Algorithms, explorer, with_given
from rlviz.pictures.limits import width_at
from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.pieces.surrogate import is_clipped
from rlviz.types import Batch, TokenObjective
from small_models.checks import checked

RESPONSES, LONGEST, BINS = 500, 200, 41
LENGTHS = (1, 2, 3, 5, 8, 13, 20, 32, 50, 80, 126, LONGEST)
MOST = 0.9  # the share of ratios that lie nearer to 1 than the distances tell
NOISE = (0.005, 0.5)  # nats, the ends of its slider
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
    """What becomes of the ratios of responses, and what the limits of one algorithm cut of them.

    algorithm, length, drift, old_prob: as `ratio_curve` takes them.
    spread: of all kinds of ratio against length. token, sequence, product, own: distances as there at `length`, nats, the
    last of the algorithm's own ratio. lower, upper: its limits on the ratio, for the advantages that they hold back.
    edges, share, share_cut: a histogram of its own ratio: [B + 1] edges of bins, limits among them; the share of all tokens in
    each bin, and of all tokens the share that is in it with its gradient cut. clipped: share of all tokens whose gradient is
    cut. simulated: of how many tokens these shares and `own` are, 0 where they are exact.
    """

    algorithm: PolicyGradient
    length: int
    drift: float
    old_prob: float
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

    def has(self, name: str) -> bool:
        """Return whether the algorithm's limits have a width of this name."""
        return name in numbers(self.algorithm)

    def noise_at(self, distance: float) -> float:
        """Return the noise with which nine in ten token ratios lie so near to 1, by bisection: it grows with the noise."""
        low, high = NOISE
        for _ in range(24):
            noise = math.sqrt(low * high)
            near = _distances(noise, self.drift, (1,))[0][0] < distance
            low, high = (noise, high) if near else (low, noise)
        return high


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
    algorithm: PolicyGradient = GRPO,
    *,
    eps_low: float | None = None,
    eps_high: float | None = None,
    max_ratio: float | None = None,
    length: int = 100,
    noise: float = 0.06,
    drift: float = 0.0,
    old_prob: float = 0.1,
) -> RatioCurve:
    """Return how far four kinds of ratio stray from 1 with length, and a histogram of the algorithm's own in its limits.

    A token's ratio does not care for length; the geometric mean (GSPO's sequence ratio) and the arithmetic mean draw nearer to 1
    like 1/√length, the plain product runs away. So limits made for one kind of ratio are no limits for another.

    The log-ratios of all tokens are independent and normal, with mean drift − noise²/2 and standard deviation noise, nats. At
    drift 0 a token ratio has mean 1, as every ratio must under the policy that sampled; other drifts are of responses that an
    update has pushed up or down. Half of the responses, whichever, have A = +1, the others A = −1. All is exact where the log
    of a ratio is a sum of tokens' log-ratios; any other ratio is simulated. Limits are those of a response's first token, and
    cut is what `is_clipped`, which the clip fractions of training count with, says to be cut.

    eps_low, eps_high, max_ratio: of the bounds; None: the algorithm's own. length: tokens of a response, 1 to 200. noise: above
    0 and up to 2. drift: −1 to 1. old_prob: each token's probability when sampled, in (0, 1]; matters where limits depend on it.
    Raises ValueError for a value out of range, or an algorithm without a ratio.
    """
    algorithm = with_given(algorithm, eps_low=eps_low, eps_high=eps_high, max_ratio=max_ratio)
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
        algorithm=algorithm,
        length=length,
        drift=drift,
        old_prob=old_prob,
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


DOTS = (0, (1, 1))
NEAREST, FURTHEST = 1e-4, 100.0  # of the distances drawn
NOWHERE = 1e9  # of a limit that does not exist: outside of every picture


class RatioPicture(Picture[RatioCurve]):
    """Left how far ratios of each kind lie from 1 against length, right a histogram of the algorithm's own ratio."""

    size = (10, 4.6)
    alt = (
        "Left, how far four kinds of ratio lie from 1 against the length of a response, on log scales. "
        "Right, a histogram of the algorithm's own ratio with its limits."
    )

    def draw(self, curve: RatioCurve) -> list[Artist]:
        self.left, self.right = self.figure.subplots(1, 2)
        self._draw_spread()
        self._draw_histogram()
        (handles, labels), (more, their_labels) = (ax.get_legend_handles_labels() for ax in (self.left, self.right))
        self.figure.legend(
            [*handles, *more],
            [*labels, *their_labels],
            loc="outside lower center",
            ncols=3,
            fontsize=TEXT - 1,
            frameon=False,
        )
        return [self.here, *self.distances, *self.lines, self.own, self.all, self.cut, *self.limits]

    def _draw_spread(self) -> None:
        ax = self.left
        dress(
            ax,
            title="How far ratios stray from 1",
            x="length of the response, tokens",
            y="|log ratio|, nats: 9 in 10 below",
        )
        self.here = ax.axvline(1, color=GREY, linewidth=1)
        self.distances = tuple(ax.axhline(1, color="black", linestyle=DOTS, linewidth=2) for _ in range(2))
        self.product, self.token, self.arithmetic, self.sequence = self.lines = [
            ax.plot([], [], color=colour, linestyle=style, marker=marker, linewidth=LINE, markersize=8, label=name)[0]
            for name, colour, style, marker in (
                ("product of the token ratios", "black", "-.", ""),
                ("one token's ratio", BLUE, "-", ""),
                ("their arithmetic mean, simulated", GREEN, "none", "s"),
                ("their geometric mean (sequence)", VERMILION, "--", ""),
            )
        ]
        (self.own,) = ax.plot(
            [], [], "o", markersize=12, markerfacecolor="white", markeredgecolor="black", markeredgewidth=2.5
        )
        self.own.set_label("the algorithm's own ratio")
        ax.set(xscale="log", yscale="log", xlim=(1, 260), ylim=(NEAREST, FURTHEST))
        ax.set_xticks([1, 10, 100], ["1", "10", "100"])
        ax.set_yticks([1e-4, 1e-2, 1, 100], ["0.0001", "0.01", "1", "100"])
        ax.yaxis.set_minor_locator(NullLocator())

    def _draw_histogram(self) -> None:
        ax = self.right
        dress(ax, title="The algorithm's own ratio, and what is cut", x="ratio", y="how often")
        ax.axvline(1, color=GREY, linewidth=1)
        edges = np.array([0.0, 1.0])
        self.all = ax.stairs(
            [0.0], edges, fill=True, facecolor="#a6cfe8", edgecolor=BLUE, linewidth=1.5, label="all ratios"
        )
        self.cut = ax.stairs(
            [0.0],
            edges,
            fill=True,
            facecolor="white",
            edgecolor=VERMILION,
            hatch="///",
            linewidth=1.5,
            label="gradient cut",
        )
        self.limits = tuple(
            ax.axvline(1, color="black", linestyle=DOTS, linewidth=2, label=label) for label in ("limits", None)
        )
        ax.set(ylim=(0, 1.08), yticks=[])
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))

    def show(self, curve: RatioCurve) -> None:
        spread = curve.spread
        self.product.set_data(spread.lengths, spread.product)
        self.token.set_data(spread.lengths, spread.token)
        self.arithmetic.set_data(spread.lengths, spread.arithmetic)
        self.sequence.set_data(spread.lengths, spread.sequence)
        self.here.set_xdata([curve.length, curve.length])
        self.own.set_data([curve.length], [curve.own])
        for across, upright, limit in zip(self.distances, self.limits, (curve.lower, curve.upper), strict=True):
            real = 0 < limit < math.inf
            across.set_ydata([abs(math.log(limit)) if real else NOWHERE] * 2)
            upright.set_xdata([limit if real else -NOWHERE] * 2)
        low, high = curve.edges[0], curve.edges[-1]
        if self.right.get_xlim() != (low, high):
            self.right.set_xlim(low, high)
        width = np.diff(curve.edges)  # not all alike: areas are shares
        tallest = (curve.share / width).max() or 1.0
        self.all.set_data(curve.share / width / tallest, curve.edges)
        self.cut.set_data(curve.share_cut / width / tallest, curve.edges)

    def still(self, curve: RatioCurve) -> Hashable:
        return float(curve.edges[0]), float(curve.edges[-1])

    def handles(self, curve: RatioCurve) -> list[Handle]:
        def limit(name: Literal["eps_low", "eps_high"], at: float) -> Handle:
            has = curve.has(name)
            return Handle(
                self.right,
                "x",
                at if has else math.inf,
                name,
                lambda ratio: width_at(curve.algorithm, name, curve.old_prob, ratio) if has else 0.0,
            )

        return [
            Handle(self.left, "x", curve.length, "length"),
            Handle(self.left, "y", curve.token, "noise", curve.noise_at),
            limit("eps_high", curve.upper),
            limit("eps_low", curve.lower),
        ]

    def conclusion(self, curve: RatioCurve) -> str:
        limits = [_limit(limit) for limit in (curve.lower, curve.upper) if 0 < limit < math.inf]
        cut = (
            curve.clipped if curve.simulated or not limits else max(curve.clipped, 1e-300)
        )  # a normal tail is never empty
        tokens = f"{_percent(cut)} of the {f'{curve.simulated:,} simulated ' if curve.simulated else ''}tokens"
        name = curve.algorithm.name
        who = f"{name}'s limits {' and '.join(limits)} cut" if limits else f"{name} has no limits and cuts"
        return f"{who} {tokens}; nine in ten of its ratios lie within {_within(curve.own)} of 1."

    def words(self, curve: RatioCurve) -> str:
        token, sequence, product = map(_within, (curve.token, curve.sequence, curve.product))
        tokens = "1 token" if curve.length == 1 else f"{curve.length} tokens"
        words = [
            f"In responses of {tokens} nine in ten token ratios lie within {token} of 1, "
            f"sequence ratios within {sequence}, plain products within {product}."
        ]
        if curve.clipped >= 0.35:
            words.append("The limits are narrow beside the spread: most of what moved as its advantage asks is cut.")
        outside = 1 - curve.share.sum()
        if outside > 0.005:
            words.append(f"{_percent(outside)} of the ratios lie outside the right picture.")
        return " ".join(words)


def _within(distance: float) -> str:
    """Return a distance in nats as a percentage or, from a factor of 1.5 on, as a factor."""
    if distance >= math.log(1.5):
        return f"a factor {float(f'{math.exp(distance):.2g}'):g}" if distance < 7 else f"a factor e^{distance:.0f}"
    return f"{100 * math.expm1(distance):.2g} %"


def _limit(value: float) -> str:
    """Return a limit to two digits of its distance from 1: 0.8, 1.28, 1.0004."""
    return f"{1 + float(f'{value - 1:.2g}'):.10g}"


def _percent(share: float) -> str:
    if 0 < share < 1e-4:
        return "below 0.01 %"
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


explore_ratio = explorer(
    "ratio",
    ratio_curve,
    RatioPicture,
    algorithms=Algorithms(fits=has_a_ratio, parameters=WIDTHS),
    controls={
        "length": WholeSlider(1, LONGEST, "length, tokens"),
        "noise": Slider(*NOISE, 0.005, "noise, nats"),
        "drift": Slider(-0.05, 0.05, 0.001, "drift, nats", rare=True),
        "old_prob": Slider(
            0.01, 0.5, 0.01, "old probability", shown=lambda values: limits_follow_probability(values["algorithm"])
        ),
    },
    grid={
        "noise": (0.02, 0.06, 0.2),
        "algorithm": (GRPO, GSPO),
        "length": (1, 3, 10, 30, 100, 200),
    },
    twin={
        "GRPO, limits for a token's ratio": {},
        "GSPO, limits for a response's ratio": {"algorithm": GSPO},
        "GSPO, small steps": {"algorithm": GSPO, "noise": 0.005, "length": 200},
    },
)
