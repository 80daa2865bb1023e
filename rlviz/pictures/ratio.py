"""How far do ratios stray from 1 as responses grow, and what of them do an algorithm's limits cut?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import GRPO, GSPO, PolicyGradient
from rlviz.algorithms.base import with_tensors
from rlviz.page.picture import Axis, Bars, Draws, Line, Panel, Picture, Points, Rule, Say, Slider
from rlviz.page.tracing import Curve, repeated
from rlviz.pictures.clip import has_a_ratio
from rlviz.pictures.idea import WIDTHS, Algorithms, explorer
from rlviz.pieces.bounds import no_bounds
from rlviz.pieces.ratios import token_ratio
from rlviz.pieces.surrogate import is_clipped
from rlviz.types import Batch

RESPONSES, LONGEST = 300, 200
FEWER = 200  # responses for a ratio of one's own: all of their tokens are sorted at each move
LENGTHS = (1, 2, 3, 5, 8, 13, 20, 32, 50, 80, 126, LONGEST)
MOST = 0.9  # the share of ratios that lie nearer to 1 than the distances tell
BINS, CELLS = 41, 10  # bins of the histogram, and the cells of a bin that are asked whether they are cut
REACH = 9.0  # up to how many standard deviations ratios are counted
TOO_FAR = 6.0  # nats from which on a distance is told as a power of e


def ratio(algorithm: PolicyGradient) -> Curve:
    """Return the curve: distances of four kinds of ratio against length, a histogram of the algorithm's own, what is cut of it.

    The log-ratios of all tokens are independent and normal, with mean drift − noise²/2 and standard deviation noise, nats. At
    drift 0 a token ratio has mean 1, as every ratio must under the policy that sampled; other drifts are of responses that an
    update has pushed up or down. Half of the responses, whichever, have A = +1, the others A = −1. All is exact where the log of
    a ratio is a sum of tokens' log-ratios; the arithmetic mean, and a ratio of one's own that is no such sum, are simulated.
    Limits are those of a response's first token. A distance is the |log ratio| below which nine in ten lie.
    """
    own = algorithm.without_kl()
    alone = replace(own, ratio=token_ratio, bounds=no_bounds)  # asked about one value at a time, with limits told to it
    is_exact = is_sum(own.ratio)

    def curve(
        noise: Tensor, drift: Tensor, old_prob: Tensor, each: Tensor, draws: Tensor, **widths: Tensor
    ) -> dict[str, Tensor]:
        rule = with_tensors(own, widths)
        mean, length = drift - noise.square() / 2, torch.ones_like(each[0, 0]).sum()
        lengths = torch.tensor(LENGTHS, dtype=torch.double)
        one = torch.ones(1, dtype=torch.double)
        tokens = torch.cat([one, length.reshape(1), lengths])  # of which one takes the mean
        means, stds = mean.expand(tokens.shape), noise / tokens.sqrt()
        if is_exact:
            total, size = _weights(rule.ratio, each, old_prob)
            center, std = mean * total, noise * size
            near = _distances(torch.cat([center.reshape(1), means]), torch.cat([std.reshape(1), stds]))
            distance, near, end = near[0], near[1:], center + REACH * std

            def below(log_ratio: Tensor) -> Tensor:
                return torch.special.ndtr((log_ratio - center) / std)
        else:
            near = _distances(means, stds)
            sample = _log(rule.ratio, mean + noise * each, old_prob).flatten().sort().values
            count = torch.ones_like(sample).sum()
            distance = sample.abs().sort().values[((MOST * count).ceil() - 1).long().reshape(1)][0]
            end = sample[-1]

            def below(log_ratio: Tensor) -> Tensor:
                return torch.searchsorted(sample, log_ratio.contiguous(), right=True) / count

        sums = token_ratio(mean + noise * draws, torch.zeros_like(draws), torch.ones_like(draws, dtype=torch.bool))
        means_of_some = sums[0].cumsum(-1)[:, torch.tensor(LENGTHS) - 1] / lengths
        arithmetic = means_of_some.log().abs().sort(dim=0).values[math.ceil(MOST * RESPONSES) - 1]
        limits = _limits(rule, each, old_prob)
        found = _histogram(alone, limits, old_prob, distance, end, below)
        token, sequence, line = near[0], near[1], near[2:]
        return {
            **found,
            **_sayings(found, length * (0 if is_exact else FEWER)),
            **_told("own", distance),
            **_told("token", token),
            **_told("sequence", sequence),
            **_told("product", length * sequence),
            "product_nats": length * sequence,
            "product_is_near": (length * sequence < TOO_FAR).double(),
            **{f"{name}_limit_far": _percent(found[name].log().abs()) for name in ("lower", "upper")},
            "cap": found["upper"] * (1.0 if "max_ratio" in widths and "eps_high" not in widths else math.nan),
            "lengths": lengths,
            "token_line": _percent(token.expand(lengths.shape)),
            "sequence_line": _percent(line),
            "arithmetic_line": _percent(arithmetic),
            "product_line": _percent(lengths * line),
        }

    return curve


def is_sum(ratio: Callable[..., Tensor]) -> bool:
    """Return whether the log of this ratio is a sum Σ w · (a token's log-ratio), with Σ w and Σ w² the same on every token.

    Then, where the tokens' log-ratios are independent and normal, so is it, with mean · Σ w and std · √Σ w².
    """
    some = 0.1 * torch.randn((1, 8, 7), generator=torch.Generator().manual_seed(0), dtype=torch.double)
    old_prob = torch.tensor(0.1, dtype=torch.double)
    one_moved = _log(ratio, torch.eye(7, dtype=torch.double).unsqueeze(0), old_prob)  # [token that moved, token]
    total, size = one_moved.sum(0), one_moved.square().sum(0)
    alike = torch.allclose(total, total[0]) and torch.allclose(size, size[0])
    return alike and torch.allclose(_log(ratio, some, old_prob), some[0] @ one_moved, atol=1e-12)


def _log(ratio: Callable[..., Tensor], log_ratio: Tensor, old_prob: Tensor) -> Tensor:
    """Return the log of this ratio on each token, [N, T], where the tokens' own log-ratios are these, [1, N, T]."""
    old_logp = old_prob.log().expand(log_ratio.shape)
    return ratio(old_logp + log_ratio, old_logp, torch.ones_like(log_ratio, dtype=torch.bool))[0].detach().log()


def _weights(ratio: Callable[..., Tensor], each: Tensor, old_prob: Tensor) -> tuple[Tensor, Tensor]:
    """Return Σ w and √Σ w² of the first token's ratio in a response of as many tokens as there are in `each`."""
    place = torch.arange(each.shape[-1])
    moved = _log(ratio, (place[:, None] == place[None, :]).double().unsqueeze(0), old_prob)[:, 0]
    return moved.sum(), moved.square().sum().sqrt()


def _distances(mean: Tensor, std: Tensor) -> Tensor:
    """Return x with P(|X| < x) = .9 for normal X, by Newton's method.

    x lies between |mean| + 1.28 std (mean far from 0: one tail) and |mean| + 1.65 std (mean 0: two tails).
    """
    mean = mean.abs()

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        near, far = (x - mean) / std, (x + mean) / std
        inside = torch.special.ndtr(near) - torch.special.ndtr(-far)
        density = ((-near.square() / 2).exp() + (-far.square() / 2).exp()) / (std * math.sqrt(2 * math.pi))
        x = x - (inside - MOST) / density
        return x, x

    return repeated(step, mean + 1.46 * std, 5)[-1]


def _limits(rule: PolicyGradient, each: Tensor, old_prob: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lower and the upper limits, [for A = +1 and A = −1], on the first token of such a response."""
    signs = torch.tensor([1.0, -1.0], dtype=torch.double).reshape(1, 2, 1).expand(1, 2, each.shape[-1])
    old_logp = old_prob.log().expand(signs.shape)
    lower, upper = rule.limits(old_logp, torch.ones_like(old_logp, dtype=torch.bool), signs)
    return lower[0, :, 0], upper[0, :, 0]


def limits_follow_probability(algorithm: PolicyGradient) -> bool:
    """Return whether the algorithm's limits on the ratio differ between tokens of old probability .01 and .5."""
    each = torch.zeros((1, 1, 1), dtype=torch.double)
    rare, common = (_limits(algorithm, each, torch.tensor(q, dtype=torch.double)) for q in (0.01, 0.5))
    return not all(map(torch.equal, rare, common))


def _histogram(
    alone: PolicyGradient,
    limits: tuple[Tensor, Tensor],
    old_prob: Tensor,
    distance: Tensor,
    end: Tensor,
    below: Callable[[Tensor], Tensor],
) -> dict[str, Tensor]:
    """Return the limits, and shares of all tokens in bins of their ratio: equal bins, divided at the limits, and all beyond.

    below: the share of log ratios up to each of these; end: a log ratio beyond which there are none.
    """
    both = torch.stack([limits[0][1], limits[1][0]])  # those that hold back: the lower for A = −1, the upper for A = +1
    is_real = (both > 0) & torch.isfinite(both)
    low, high = _window(distance, both, is_real)
    bins = low + (high - low) * torch.arange(BINS + 1, dtype=torch.double) / BINS
    edges = torch.cat([bins, both.clamp(min=low, max=high)]).sort().values
    starts = torch.cat([torch.zeros(1, dtype=torch.double), edges])
    ends = torch.cat([edges, torch.maximum(high, end.exp()).reshape(1)])
    steps = torch.arange(CELLS + 1, dtype=torch.double) / CELLS
    cells = starts[:, None] + (ends - starts)[:, None] * steps
    mass = below(cells.log()).diff(dim=-1)
    cut = _share_cut(alone, (cells[:, 1:] + cells[:, :-1]) / 2, limits, old_prob)
    width, share, share_cut = (ends - starts)[1:-1], mass.sum(-1)[1:-1], (mass * cut).sum(-1)[1:-1]
    density = torch.where(width > 0, share / width, 0.0)
    tallest = density.amax().clamp(min=1e-300)
    lower, upper = torch.where(is_real, both, math.nan)
    return {
        "lower": lower,
        "upper": upper,
        "low": low,
        "high": high,
        "middle": (starts + ends)[1:-1] / 2,
        "width": width,
        "share": share,
        "share_cut": share_cut,
        "height": density / tallest,
        "height_cut": torch.where(width > 0, share_cut / width, 0.0) / tallest,
        "clipped": (mass * cut).sum(),
        "cuts": (cut > 0).any().double(),
    }


def _share_cut(alone: PolicyGradient, ratio: Tensor, limits: tuple[Tensor, Tensor], old_prob: Tensor) -> Tensor:
    """Return for each value of the algorithm's ratio the share of tokens, 0, ½ or 1, whose gradient is cut there."""
    both = torch.cat([ratio.flatten(), ratio.flatten()]).reshape(2, -1, 1)  # a prompt a sign, a response a value
    lower, upper = (limit.reshape(2, 1, 1).expand(both.shape) for limit in limits)
    old_logp = old_prob.log().expand(both.shape)
    signs = torch.tensor([1.0, -1.0], dtype=torch.double).reshape(2, 1, 1).expand(both.shape)
    part = alone.objective(old_logp + both.log(), Batch(old_logp, signs, torch.ones_like(both, dtype=torch.bool)))
    low, high, dual = is_clipped(part.surrogate, part.ratio, part.advantages, lower, upper)
    return (low | high | dual).double().mean(0).reshape(ratio.shape)


def _window(distance: Tensor, limits: Tensor, is_real: Tensor) -> tuple[Tensor, Tensor]:
    """Return from where to where to draw: most ratios and all limits, but no wider than keeps the limits apart, if it can be."""
    away = (limits - 1).abs()
    furthest, nearest = torch.where(is_real, away, 0.0).amax(), torch.where(is_real, away, torch.inf).amin()
    size = distance.clamp(max=9.0).expm1() / 1.645  # of one standard deviation, where it is small
    narrow = torch.maximum(2 * size, torch.minimum(4 * size, 40 * nearest))
    reach = torch.maximum(1.25 * furthest, narrow) * (1 - 1e-9)  # a size that rounding makes no other step
    halves = 10 ** reach.log10().floor() * torch.tensor([1, 2, 3, 5, 10], dtype=torch.double)
    half = torch.where(halves >= reach, halves, torch.inf).amin()
    return (1 - half).clamp(min=0.0), 1 + half


def _percent(distance: Tensor) -> Tensor:
    """Return by how many percent a ratio this far from 1, in nats, is larger, or the other way round smaller, than 1."""
    return 100 * distance.expm1()


def _told(name: str, distance: Tensor) -> dict[str, Tensor]:
    """Return a distance in percent, and the two ratios that are this far from 1."""
    return {f"{name}_far": _percent(distance), f"{name}_from": (-distance).exp(), f"{name}_to": distance.exp()}


LIMITS = {
    "both": "its limits, {lower:r} and {upper:r}, cut ",
    "one": "its limit, {limit:r}, cuts ",
    "none": "it has no limits, and cuts ",
}
CUT = {
    "some": "{clipped_percent:.3g} % of the tokens.",
    "few": "less than 0.01 % of the tokens.",
    "never": "no gradient.",
}


def _sayings(found: dict[str, Tensor], simulated: Tensor) -> dict[str, Tensor]:
    """Return what the sentences need: which of them holds, and their numbers."""
    lower, upper, clipped = (found[name] for name in ("lower", "upper", "clipped"))
    count = (~lower.isnan()).double() + (~upper.isnan()).double()
    limits = {"both": count == 2, "one": count == 1, "none": count == 0}
    cuts = found["cuts"] > 0
    few = (clipped < 1e-4) & (simulated == 0)  # of a sample none may be cut; a normal tail is never empty
    cut = {"some": cuts & ~few, "few": cuts & few, "never": ~cuts}
    outside = 1 - found["share"].sum()
    return {
        **{f"{a}_{b}": (limits[a] & cut[b]).double() for a, b in product(LIMITS, CUT)},
        "limit": torch.where(upper.isnan(), lower, upper),
        "clipped_percent": 100 * clipped,
        "mostly": (clipped >= 0.35).double(),
        "outside_percent": 100 * outside,
        "leaves": (outside > 0.005).double(),
        "simulated": simulated,
    }


def texts(algorithm: PolicyGradient) -> dict[str, str]:
    """Return what the algorithm fixes: whether the old probability has a part."""
    return {"by_probability": "yes" if limits_follow_probability(algorithm) else ""}


def data(algorithm: PolicyGradient) -> dict[str, Draws]:
    """Return, for a ratio that is simulated, normal numbers for the tokens of `FEWER` responses in place of one."""
    return {} if is_sum(algorithm.ratio) else {"each": Draws("normal", (1, FEWER, "length"), 0, LONGEST)}


_LIMIT: dict[str, Any] = {"colour": "ink", "width": 2}
RATIO = Picture(
    title="How far do ratios stray from 1 as responses grow?",
    look="Drag the length: a token's ratio stays, a mean over the response comes nearer to 1, a product runs away.",
    notice=(
        "A product of token ratios strays further from 1 the longer the response is, and a geometric mean (GSPO's) "
        "less. See which share of tokens the limits cut."
    ),
    alt="Left, how far four kinds of ratio lie from 1 against the length of a response, on logarithmic axes. Right, a "
    "histogram of the algorithm's own ratio with its limits.",
    panels=(
        Panel(
            "How far ratios stray from 1",
            Axis("length of the response, tokens", 1, 260, log=1, ticks=(1, 10, 100)),
            Axis("nine in ten ratios lie within … % of 1", 0.01, 1000, log=1, ticks=(0.01, 0.1, 1, 10, 100, 1000)),
            (
                Rule("length", dash="6 2 1 2", width=1.5, drag="length"),
                Rule("upper_limit_far", axis="y", label="limit {upper:r}", direct=True, **_LIMIT),
                Rule("lower_limit_far", axis="y", label="limit {lower:r}", direct=True, **_LIMIT),
                Rule("token_far", axis="y", dash="", colour="blue", drag="noise"),
                Line("lengths", "product_line", "5 2 1 2", colour="purple", label="product", direct=True),
                Line("lengths", "token_line", width=3.5, label="one token", direct=True),
                Points("lengths", "arithmetic_line", "s", 7, colour="green", label="arithmetic mean, simulated"),
                Line("lengths", "sequence_line", "7 3", colour="vermilion", label="geometric mean", direct=True),
                Points("length", "own_far", size=13, fill="none", colour="ink", label="{name}'s own ratio"),
            ),
        ),
        Panel(
            "{name}'s own ratio, and what is cut",
            Axis("ratio", "low", "high"),
            Axis("how often", 0, 1.15, ticks=None),
            (
                Rule(1, dash="", width=1),
                Bars("middle", "height", "width", label="all ratios"),
                Bars("middle", "height_cut", "width", fill="hatch", colour="vermilion", label="gradient cut"),
                Rule("upper", drag="eps_high", label="{upper:r}", direct=True, **_LIMIT),
                Rule("lower", drag="eps_low", label="{lower:r}", direct=True, **_LIMIT),
                Rule("cap", drag="max_ratio", **_LIMIT),
            ),
        ),
    ),
    controls={
        "length": Slider(1, LONGEST, 1, 100, "length, tokens", plays=True),
        "noise": Slider(0.005, 0.5, 0.005, 0.06, "noise, nats"),
        "drift": Slider(-0.05, 0.05, 0.001, 0.0, "drift, nats", rare=True),
        "old_prob": Slider(0.01, 0.5, 0.01, 0.1, "old probability", when="by_probability"),
    },
    data={"draws": Draws("normal", (1, RESPONSES, LONGEST), 0), "each": Draws("normal", (1, 1, "length"), 0)},
    conclusion=tuple(
        Say(f"Nine in ten of {{name}}'s ratios lie between {{own_from:r}} and {{own_to:r}}; {limits}{cut}", f"{a}_{b}")
        for (a, limits), (b, cut) in product(LIMITS.items(), CUT.items())
    ),
    says=(
        Say(
            "In responses of length {length:d}, nine in ten token ratios lie between {token_from:r} and {token_to:r}, their "
            "geometric means (sequence ratios) between {sequence_from:r} and {sequence_to:r},"
        ),
        Say("their products between {product_from:r} and {product_to:r}.", "product_is_near"),
        Say("their products within a factor e^{product_nats:.0f}.", "!product_is_near"),
        Say("The limits are narrow beside the spread: most of what moved as its advantage asks is cut.", "mostly"),
        Say("{outside_percent:.2g} % of the ratios lie outside the right graph.", "leaves"),
        Say("Its ratios are those of {simulated:d} simulated tokens.", "simulated"),
        Say("On the left, within 25 % is from 1 / 1.25 = 0.8 to 1.25."),
    ),
)

explore_ratio = explorer(
    "ratio",
    RATIO,
    ratio,
    algorithms=Algorithms(has_a_ratio, GRPO, WIDTHS),
    texts=texts,
    data=data,
    free=True,
    example={"length": 7},
    named={
        "GRPO, limits for a token": {},
        "large steps": {"noise": 0.3},
        "GSPO, limits for a response": {"algorithm": GSPO},
        "GSPO, small steps": {"algorithm": GSPO, "noise": 0.005, "length": 200},
    },
)
