"""Two engines: how likely a sampler and the trainer find the same tokens, and what a correction makes of where they disagree."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import GRPO, TIS, TWO_ENGINES, Algorithm, GroupPolicyGradient, numbers
from rlviz.algorithms.base import with_tensors
from rlviz.page.names import formatted
from rlviz.page.picture import Axis, Bars, Line, Panel, Picture, Points, Rule, Say, Slider, Text
from rlviz.page.tracing import Curve
from rlviz.pictures.idea import Algorithms, explorer
from rlviz.pictures.mismatch_tokens import BITS, LAGS, STEPS, stored
from rlviz.pieces.kl import k3
from rlviz.pieces.ratios import token_ratio
from rlviz.types import Batch
from small_models.host import refuse

NEAR = 0.8, 1.2  # of w, as records of a run count them
SAME = 1e-6  # by which two weights may differ through rounding
LEAST = 0.003  # of a probability that is drawn; below it a token stands at the edge
WEIGHTS = 0.1, 10.0  # of w, likewise
LOWEST = 0.6  # of the axis of tokens, which is logarithmic
LENGTHS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)  # tokens of a response
BINS = 41  # of w, all as wide on its logarithmic axis; 1 is in the middle of one
LIMITS = ("cap", "lowest", "highest")  # on a token's own w
KINDS = "as_drawn", "changed", "left_out"  # what the loss makes of a token


def _named(kind: str, label: str) -> dict[str, Any]:
    return {"label": label, "when": f"share_{kind}"}


LOOKS = {  # kind → colour, sign and its size, filling of bars, and that it is named while there are such tokens
    "as_drawn": ("blue", ("o", 5.0), "solid", _named("as_drawn", "weight 1 or w")),
    "changed": ("green", ("^", 7.0), "none", _named("changed", "weight changed")),
    "left_out": ("vermilion", ("x", 7.0), "hatch", _named("left_out", "left out")),
}


def needs_no_more(algorithm: Algorithm) -> bool:
    """Return whether the algorithm makes a token's push of rewards and of log-probabilities under sampler and trainer alone."""
    known = {"mask", "old_logp", "sampler_logp"}
    return isinstance(algorithm, GroupPolicyGradient) and set(algorithm.can.asks["advantage"]) <= known


def mismatch(algorithm: GroupPolicyGradient) -> Curve:
    """Return the curve: one sampler's real tokens, and what the loss makes of each, by the algorithm's own pieces.

    The sampler is a copy of a small policy (task chain, GRPO, after 24 steps), of `bits` bits and `lag` steps ago; it answered 16
    prompts four times. Tokens count that are of groups whose rewards differ. used: a token's push in the first update over what
    it would be if the trainer itself had sampled: 1 where nothing is corrected, w where w is taken as it is.
    """
    own = algorithm.without_kl()

    def curve(
        bits: Tensor,
        lag: Tensor,
        length: Tensor,
        limit: Tensor,
        trainer_logp: Tensor,
        log_weight: Tensor,
        lengths: Tensor,
        right: Tensor,
        **parameters: Tensor,
    ) -> dict[str, Tensor]:
        place = (_place("bits", bits, BITS) * len(LAGS) + _place("lag", lag, LAGS)).long()
        trainer = trainer_logp[place] * STEPS["trainer_logp"]
        sampler = trainer - log_weight[place] * STEPS["log_weight"]
        mask = torch.arange(sampler.shape[-1]) < lengths[place].unsqueeze(-1)
        rule = with_tensors(own, parameters)
        plain = _pushes(rule, right[place], trainer, mask, None)
        there = mask & (plain != 0)
        weight = token_ratio(trainer, sampler, mask)
        used = _pushes(rule, right[place], trainer, mask, sampler) / torch.where(there, plain, 1.0)
        as_drawn = ((used - weight).abs() < SAME * weight) | ((used - 1).abs() < SAME)
        left_out = used == 0
        kinds = {"as_drawn": as_drawn & ~left_out, "changed": ~as_drawn & ~left_out, "left_out": left_out}
        kinds = {name: kind & there for name, kind in kinds.items()}

        def mean(values: Tensor) -> Tensor:
            return (values * there).sum() / there.sum()

        share = {f"share_{name}": mean(kind.double()) for name, kind in kinds.items()}
        lost = 1 - mean(used) / mean(weight)
        out, changed = share["share_left_out"] > 0, share["share_changed"] > 0
        by_w = mean((used - 1).abs() * (used - 1).abs().ge(SAME)) > 0
        flags = {
            "leaves_out": out,
            "changes": changed & ~out,
            "by_w": by_w & ~changed & ~out,
            "smaller": lost >= 0.0005,
            "larger": lost <= -0.0005,
            "as_large": lost.abs() < 0.0005,
            "fresh": lag == 0,
            "older": lag == 1,
            "old": lag > 1,
        }
        return {
            "sampler_prob": sampler.exp().clamp(LEAST, 1.0).flatten(),
            "trainer_prob": trainer.exp().clamp(LEAST, 1.0).flatten(),
            "weight": weight.flatten(),
            "used": used.flatten(),
            "there": there.double().flatten(),
            **{f"is_{name}": kind.double().flatten() for name, kind in kinds.items()},
            **_histogram(weight.flatten(), kinds),
            **_responses(weight.log(), length, limit, mean),
            **share,
            **{f"{name}_line": parameters[name] * _diagonal() for name in LIMITS if name in parameters},
            "diagonal": _diagonal(),
            "count": there.double().sum(),
            "outside": mean(((weight < NEAR[0]) | (weight > NEAR[1])).double()),
            "kl": mean(k3(sampler, trainer)),
            "w_mean": mean(weight),
            "w_spread": (mean(weight**2) - mean(weight) ** 2).clamp(min=0.0).sqrt(),
            "difference": lost.abs(),
            "worth_used": _effective(used, mean),
            "worth_w": _effective(weight, mean),
            **flags,
        }

    return curve


def _place(name: str, value: Tensor, among: tuple[int, ...]) -> Tensor:
    """Return which of these values it is. Raises ValueError for another: nothing was sampled in between."""
    each = torch.tensor(among, dtype=torch.double)
    refuse(
        (value != each).all(),
        lambda: f"{name} must be one of {', '.join(map(str, among))}; got {formatted(float(value), 'g')}",
    )
    return (value > each).double().sum()


def _pushes(
    rule: GroupPolicyGradient, rewards: Tensor, old_logp: Tensor, mask: Tensor, sampler_logp: Tensor | None
) -> Tensor:
    """Return ∂J/∂log π of each token before the first update, [P, G, T]."""
    advantages, _ = rule.advantages(rewards, mask, old_logp=old_logp, sampler_logp=sampler_logp)
    leaf = old_logp.detach().clone().requires_grad_()
    value = rule.objective(leaf, Batch(old_logp, advantages, mask, sampler_logp=sampler_logp)).value
    return torch.autograd.grad(value.masked_fill(~mask, 0.0).sum(), leaf)[0]


def _effective(weights: Tensor, mean: Callable[[Tensor], Tensor]) -> Tensor:
    """Return how many equal weights these are worth, as a share of their number: (Σ w)² / (N Σ w²), 0 where all are 0."""
    return mean(weights) ** 2 / mean(weights**2).clamp(min=1e-300)


def _histogram(weight: Tensor, kinds: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return how many tokens of each kind have which w, those beyond the axis in its last bins: NaN for a bin without any."""
    low, high = (torch.tensor(end, dtype=torch.double).log() for end in WEIGHTS)
    edges = (low + (high - low) * torch.arange(BINS + 1, dtype=torch.double) / BINS).exp()
    bin_ = ((weight.log() - low) / (high - low) * BINS).floor().clamp(0, BINS - 1)
    inside = (bin_ == torch.arange(BINS, dtype=torch.double).unsqueeze(1)).double()  # [bins, tokens]
    counts = {f"count_{name}": (inside * kind.flatten()).sum(1) for name, kind in kinds.items()}
    counts = {name: torch.where(count > 0, count, torch.nan) for name, count in counts.items()}
    return {**counts, "middle": (edges[1:] + edges[:-1]) / 2, "width": edges[1:] - edges[:-1]}


def _responses(
    log_weight: Tensor, length: Tensor, limit: Tensor, mean: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """Return the mean weight W = Π w of a response by its length T: with W above the limit masked (0), or cut to the limit.

    log W is a sum of T such tokens' log w, taken as independent, so nearly normal with variance T σ²; its mean is −T σ²/2, since
    E[W] = 1 for any two engines. Then E[W; W ≤ c] = Φ((log c − T σ²/2) / (σ √T)), and P(W > c) = Φ(−(log c + T σ²/2) / (σ √T)).
    """
    variance = (mean(log_weight**2) - mean(log_weight) ** 2).clamp(min=1e-12)
    grid = torch.arange(41, dtype=torch.double) / 40 * math.log(LENGTHS[-1])
    lengths = torch.cat([grid.exp(), length.reshape(1)])
    half, spread = variance * lengths / 2, (variance * lengths).sqrt()
    masked = torch.special.ndtr((limit.log() - half) / spread)
    beyond = torch.special.ndtr(-(limit.log() + half) / spread)
    cut = masked + limit * beyond
    at = {"masked_here": masked[-1], "cut_here": cut[-1], "beyond_here": beyond[-1]}
    return {"lengths": lengths[:-1], "masked": masked[:-1], "cut": cut[:-1], **at}


def _diagonal() -> Tensor:
    return torch.tensor([LEAST / 10, 2.0], dtype=torch.double)


def texts(algorithm: GroupPolicyGradient) -> dict[str, str]:
    """Return which limits on w the algorithm has, and what it does to a weight beyond them."""
    has = numbers(algorithm)
    return {"changes_it": "caps" if "cap" in has else "changes", **{f"has_{n}": "yes" * (n in has) for n in LIMITS}}


MISMATCH = Picture(
    title="What if another engine samples than the one that trains?",
    look="Take weights of fewer bits, or older ones; drag the limit of the correction.",
    notice=(
        "Each dot is a token. Take weights of fewer bits or of more steps ago, and dots leave the diagonal: the trainer "
        "would have drawn other tokens. Compare what TIS caps, what IcePop leaves out, and which responses the sequence "
        "mask drops. Then lengthen the responses: a product of many weights near 1 is far from 1."
    ),
    alt="Three graphs. Left, a point for each token: its probability under the trainer against that under the sampler, both "
    "logarithmic, with a diagonal where they agree. Middle, how many tokens have which weight w, by what the correction does. "
    "Right, the mean weight of a whole response by its length, if it is masked above a limit or cut to it: it falls from 1.",
    panels=(
        Panel(
            "The same tokens, by both engines",
            Axis("probability under the sampler", LEAST * 0.8, 1.3, 1, (0.003, 0.01, 0.03, 0.1, 0.3, 1)),
            Axis("under the trainer", LEAST * 0.8, 1.3, 1, (0.003, 0.01, 0.03, 0.1, 0.3, 1)),
            (
                Line("diagonal", "diagonal", width=1.5, colour="grey"),
                *(
                    Line("diagonal", f"{name}_line", "6 4", 2, colour="ink", when=f"has_{name}", label="w at its limit")
                    for name in LIMITS
                ),
                *(
                    Points("sampler_prob", "trainer_prob", *sign, colour=colour, where=f"is_{kind}", **shown)
                    for kind, (colour, sign, _, shown) in LOOKS.items()
                ),
                Text("likelier to the trainer", corner="nw", colour="grey"),
            ),
        ),
        Panel(
            "How far they are apart",
            Axis("weight w = trainer / sampler", *WEIGHTS, 1, (0.1, 0.2, 0.5, 1, 2, 5, 10)),
            Axis("tokens", LOWEST, 700, 1, (1, 10, 100)),
            (
                Rule(1.0, dash="", width=1.5),
                *(
                    Bars("middle", f"count_{kind}", "width", LOWEST, fill, colour=colour, **shown)
                    for kind, (colour, _, fill, shown) in LOOKS.items()
                ),
                *(
                    Rule(name, dash="6 4", colour="ink", when=f"has_{name}", drag=name, label=f"{name} {{{name}}}")
                    for name in LIMITS
                ),
            ),
        ),
        Panel(
            "What is left of whole responses",
            Axis("tokens of a response", LENGTHS[0], LENGTHS[-1], 1, LENGTHS[::2]),
            Axis("mean weight", 0.0, 1.1),
            (
                Line("lengths", "cut", colour="green", label="cut to {limit}"),
                Line("lengths", "masked", "6 3", colour="vermilion", label="masked above {limit}"),
                Rule("length", dash="6 2 1 2", width=1.5, colour="ink"),
                Points("length", "cut_here", "^", colour="green"),
                Points("length", "masked_here", "x", colour="vermilion"),
            ),
        ),
    ),
    columns=3,
    controls={
        "bits": Slider(value=4, stops=BITS, label="bits of the sampler's weights"),
        "lag": Slider(value=8, stops=LAGS, label="steps that they are old", plays=True),
        "length": Slider(value=30, stops=LENGTHS, label="tokens of a response"),
        "limit": Slider(1.1, 10.0, 0.1, 3.0, "limit on a response's weight"),
    },
    data=stored(),
    conclusion=tuple(
        Say(f"{{name}} {what}, where {{outside:.1%}} have a w outside 0.8 to 1.2.", when)
        for when, what in (
            ("leaves_out", "leaves {share_left_out:.1%} of the tokens out"),
            ("changes", "{changes_it} the weight of {share_changed:.1%} of the tokens"),
            ("by_w", "weighs every token with its w"),
            ("", "takes every token with weight 1"),
        )
    ),
    says=(
        *(
            Say(
                f"The sampler has weights of {{bits}} bits, {age}: its KL to the trainer is {{kl:.2g}} nats per token, and w "
                "spreads by {w_spread:.2f} around {w_mean:.2f}.",
                when,
            )
            for when, age in (
                ("fresh", "as old as the trainer"),
                ("older", "1 step old"),
                ("old", "{lag} steps old"),
            )
        ),
        *(
            Say(f"The sum of the loss's weights is {what} w's.", when)
            for when, what in (
                ("smaller", "{difference:.1%} smaller than"),
                ("larger", "{difference:.1%} larger than"),
                ("as_large", "as large as"),
            )
        ),
        Say("Their effective sample size is {worth_used:.0%} of the tokens; that of w itself is {worth_w:.0%}."),
        Say(
            "The weight of a response is the product of its tokens' w. Of {length:d} such tokens, {beyond_here:.1%} of the "
            "responses are above {limit}: where they are masked the mean weight is {masked_here:.2f} in place of 1, where they "
            "are cut to it {cut_here:.2f}."
        ),
        Say("{count:d} tokens of 64 real responses; those beyond the axes stand at their edges."),
    ),
)

explore_mismatch = explorer(
    "mismatch",
    MISMATCH,
    mismatch,
    algorithms=Algorithms(needs_no_more, TIS, (*LIMITS, "delta"), among=(*TWO_ENGINES, GRPO)),
    texts=texts,
    named={
        "TIS, weights of 4 bits": {"lag": 0},
        "and 8 steps old": {},
        "IcePop, weights of 3 bits": {"algorithm": TWO_ENGINES[1], "bits": 3},
        "long responses, nearly equal engines": {"bits": 6, "lag": 1, "length": 3000},
        "the sequence mask": {"algorithm": TWO_ENGINES[3], "bits": 3},
    },
)
