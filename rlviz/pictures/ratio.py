"""How far do ratios stray from 1 as responses grow, and what of them do an algorithm's limits cut?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import GRPO, GSPO, Algorithm, PolicyGradient
from rlviz.algorithms.base import with_tensors
from rlviz.page.picture import Axis, Bars, Draws, Line, Panel, Picture, Points, Rule, Say, Slider
from rlviz.page.tracing import Curve, repeated
from rlviz.pictures.ratio_histogram import histogram
from rlviz.pictures.spec import WIDTHS, Algorithms, explorer
from rlviz.pieces.bounds import no_bounds
from rlviz.pieces.ratios import token_ratio

LONGEST = 200
LENGTHS = (1, 2, 3, 5, 8, 13, 20, 32, 50, 80, 126, LONGEST)
SHARE = 0.9  # of the ratios lies nearer to 1 than a distance


def ratio_curve(algorithm: PolicyGradient) -> Curve:
    """Return the curve: distances of three kinds of ratio against length, a histogram of the algorithm's own, what is cut of it.

    The log-ratios of all tokens are independent and normal, with mean drift − noise²/2 and standard deviation noise, nats. At
    drift 0 a token ratio has mean 1, as every ratio must under the policy that sampled; other drifts are of responses that an
    update has pushed up or down. Half of the responses, whichever, have A = +1, the others A = −1. Limits are those of a
    response's first token. A distance is the |log ratio| below which nine in ten lie.
    """
    plain = algorithm.without_kl()
    single = replace(plain, ratio=token_ratio, bounds=no_bounds)  # one value at a time, with limits from outside

    def curve(noise: Tensor, drift: Tensor, old_prob: Tensor, tokens: Tensor, **widths: Tensor) -> dict[str, Tensor]:
        rule = with_tensors(plain, widths)
        mean, length = drift - noise.square() / 2, torch.ones_like(tokens[0, 0]).sum()
        # Σ w and √Σ w² of the first token's ratio in a response of as many tokens.
        index = torch.arange(tokens.shape[-1])
        weights = log_of_ratio(rule.ratio, (index[:, None] == index[None, :]).double().unsqueeze(0), old_prob)[:, 0]
        total, size = weights.sum(), weights.square().sum().sqrt()
        center, std = mean * total, noise * size
        lengths = torch.tensor(LENGTHS, dtype=torch.double)
        averaged = torch.cat([torch.ones(1, dtype=torch.double), length.reshape(1), lengths])  # tokens in each mean
        distances = nine_in_ten(
            torch.cat([center.reshape(1), mean.expand(averaged.shape)]),
            torch.cat([std.reshape(1), noise / averaged.sqrt()]),
        )
        distance, token, sequence, by_length = distances[0], distances[1], distances[2], distances[3:]
        bars = histogram(single, limits_on_signs(rule, tokens, old_prob), old_prob, distance, center, std)
        return {
            **bars,
            "own_far": to_percent(distance),
            "own_from": (-distance).exp(),
            "own_to": distance.exp(),
            "token_far": to_percent(token),
            "product_to": (length * sequence).exp(),
            **{f"{name}_limit_far": to_percent(bars[name].log().abs()) for name in ("lower", "upper")},
            "cap": bars["upper"] * (1.0 if "max_ratio" in widths and "eps_high" not in widths else math.nan),
            "lengths": lengths,
            "token_line": to_percent(token.expand(lengths.shape)),
            "sequence_line": to_percent(by_length),
            "product_line": to_percent(lengths * by_length),
        }

    return curve


def is_sum(ratio: Callable[..., Tensor]) -> bool:
    """Return whether the log of this ratio is a sum Σ w · (a token's log-ratio), with Σ w and Σ w² the same on every token.

    Then, where the tokens' log-ratios are independent and normal, so is it, with mean · Σ w and std · √Σ w².
    """
    moves = 0.1 * torch.randn((1, 8, 7), generator=torch.Generator().manual_seed(0), dtype=torch.double)
    old_prob = torch.tensor(0.1, dtype=torch.double)
    one_moved = log_of_ratio(
        ratio, torch.eye(7, dtype=torch.double).unsqueeze(0), old_prob
    )  # [token that moved, token]
    total, size = one_moved.sum(0), one_moved.square().sum(0)
    alike = torch.allclose(total, total[0]) and torch.allclose(size, size[0])
    return alike and torch.allclose(log_of_ratio(ratio, moves, old_prob), moves[0] @ one_moved, atol=1e-12)


def has_normal_log(algorithm: Algorithm) -> bool:
    """Return whether the log of the algorithm's ratio is normal where the tokens' log-ratios are."""
    return isinstance(algorithm, PolicyGradient) and is_sum(algorithm.ratio)


def log_of_ratio(ratio: Callable[..., Tensor], log_ratio: Tensor, old_prob: Tensor) -> Tensor:
    """Return the log of this ratio on each token, [N, T], where the tokens' own log-ratios are these, [1, N, T]."""
    old_logp = old_prob.log().expand(log_ratio.shape)
    return ratio(old_logp + log_ratio, old_logp, torch.ones_like(log_ratio, dtype=torch.bool))[0].detach().log()


def nine_in_ten(mean: Tensor, std: Tensor) -> Tensor:
    """Return x with P(|X| < x) = .9 for normal X, by Newton's method.

    x lies between |mean| + 1.28 std (mean far from 0: one tail) and |mean| + 1.65 std (mean 0: two tails).
    """
    mean = mean.abs()

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        near, far = (x - mean) / std, (x + mean) / std
        inside = torch.special.ndtr(near) - torch.special.ndtr(-far)
        density = ((-near.square() / 2).exp() + (-far.square() / 2).exp()) / (std * math.sqrt(2 * math.pi))
        x = x - (inside - SHARE) / density
        return x, x

    return repeated(step, mean + 1.46 * std, 5)[-1]


def limits_on_signs(rule: PolicyGradient, tokens: Tensor, old_prob: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lower and the upper limits, [for A = +1 and A = −1], on the first token of such a response."""
    signs = torch.tensor([1.0, -1.0], dtype=torch.double).reshape(1, 2, 1).expand(1, 2, tokens.shape[-1])
    old_logp = old_prob.log().expand(signs.shape)
    lower, upper = rule.limits(old_logp, torch.ones_like(old_logp, dtype=torch.bool), signs)
    return lower[0, :, 0], upper[0, :, 0]


def limits_follow_probability(algorithm: PolicyGradient) -> bool:
    """Return whether the algorithm's limits on the ratio differ between tokens of old probability .01 and .5."""
    tokens = torch.zeros((1, 1, 1), dtype=torch.double)
    rare, common = (limits_on_signs(algorithm, tokens, torch.tensor(q, dtype=torch.double)) for q in (0.01, 0.5))
    return not all(map(torch.equal, rare, common))


def to_percent(distance: Tensor) -> Tensor:
    """Return by how many percent a ratio this far from 1, in nats, is larger, or the other way round smaller, than 1."""
    return 100 * distance.expm1()


def texts(algorithm: PolicyGradient) -> dict[str, str]:
    """Return a flag: whether the limits depend on the old probability."""
    return {"by_probability": "yes" if limits_follow_probability(algorithm) else ""}


_LIMIT: dict[str, Any] = {"colour": "ink", "width": 2}
RATIO = Picture(
    title="How far do ratios stray from 1 as responses grow?",
    look="Drag the length: a token's ratio stays, a mean over the response comes nearer to 1, a product runs away.",
    notice="A product of token ratios strays further from 1 the longer the response is, a geometric mean (GSPO's) less. "
    "Raise the noise, and see which share of tokens the limits cut.",
    alt="Left, how far three kinds of ratio lie from 1 against the length of a response, on logarithmic axes. Right, a "
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
    data={"tokens": Draws("normal", (1, 1, "length"), 0)},
    conclusion=(
        Say(
            "At length {length}, nine in ten of {name}'s ratios lie between {own_from:r} and {own_to:r}, products of token "
            "ratios within a factor of {product_to:.3g}; {cut_percent:.2f} % of the tokens are cut."
        ),
    ),
)

explore_ratio = explorer(
    "ratio",
    RATIO,
    ratio_curve,
    algorithms=Algorithms(
        has_normal_log, GRPO, WIDTHS, needs="a ratio whose log is a weighted sum of its tokens' log-ratios"
    ),
    texts=texts,
    free=True,
    example={"length": 7},
    named={
        "GRPO, limits for a token": {},
        "large steps": {"noise": 0.3},
        "GSPO, limits for a response": {"algorithm": GSPO},
        "GSPO, small steps": {"algorithm": GSPO, "noise": 0.005, "length": 200},
    },
)
