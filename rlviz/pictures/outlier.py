"""One outlier among the token ratios of a response: three means of them, and which tokens GRPO's and GSPO's limits clip."""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.algorithms import GRPO, GSPO, GroupPolicyGradient
from rlviz.algorithms.base import with_tensors
from rlviz.page.picture import Axis, Bars, Choice, Draws, Panel, Picture, Points, Rule, Say, Slider, Text
from rlviz.page.tracing import Curve
from rlviz.pictures.spec import explorer
from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.types import Batch

LONGEST = 100  # tokens of a response
OLD_PROB = 0.1  # of every token; the ratios alone count


def token_weights(rule: GroupPolicyGradient, logp: Tensor, batch: Batch) -> Tensor:
    """Return what a rule multiplies A · ∇log π of each token by, times |o|, for one response [1, 1, T]: 0 where it is clipped."""
    logp = logp.detach().requires_grad_()
    J = (rule.objective(logp, batch).value * rule.aggregate(batch.mask)).sum()
    return torch.autograd.grad(J, logp)[0].flatten() * batch.mask.sum() / batch.advantages.flatten()


def outlier_curve() -> Curve:
    """Return the curve: the ratios of a response whose first token is the outlier, their means, and both rules' weights.

    outlier: its log-ratio, nats; those of the other tokens are normal around 0, with standard deviation noise. sign: 0 for a
    right answer, A = 1, and 1 for a wrong one, A = −1. A width is of both limits of a rule.
    """
    plain = GRPO.without_kl()

    def curve(
        outlier: Tensor, noise: Tensor, sign: Tensor, grpo_width: Tensor, gspo_width: Tensor, chain: Tensor
    ) -> dict[str, Tensor]:
        index = torch.arange(chain.shape[-1])
        log_ratio = torch.where(index == 0, outlier, noise * chain)
        old_logp = torch.full_like(log_ratio, OLD_PROB).log()
        logp, mask = old_logp + log_ratio, torch.ones_like(log_ratio, dtype=torch.bool)
        batch = Batch(old_logp, (1 - 2 * sign).expand(logp.shape), mask)
        grpo, gspo = (
            token_weights(with_tensors(rule, {"eps_low": width, "eps_high": width}), logp, batch)
            for rule, width in ((plain, grpo_width), (GSPO, gspo_width))
        )
        ratios = token_ratio(logp, old_logp, mask).flatten()
        s = sequence_ratio(logp, old_logp, mask).flatten()[0]
        means = torch.stack([ratios.log().sum().exp(), ratios.mean(), s])
        # Axes are logarithmic and even around 1, so s is the mean height of the bars.
        reach, reach_of_means = (
            1.15 * torch.cat([values.log().abs(), 0.5 * torch.ones_like(values)]).amax() for values in (ratios, means)
        )
        return {
            "token": index + 1.0,
            "end": torch.ones_like(ratios).sum() + 0.6,
            "ratio": ratios,
            "is_clipped": (grpo == 0).double(),
            "means": means,
            "grpo_lower": 1 - grpo_width,
            "grpo_upper": 1 + grpo_width,
            "gspo_lower": 1 - gspo_width,
            "gspo_upper": 1 + gspo_width,
            "least": (-reach).exp(),
            "most": reach.exp(),
            "least_mean": (-reach_of_means).exp(),
            "most_mean": reach_of_means.exp(),
            "foot": (-0.9 * reach_of_means).exp(),
            "grpo": grpo,
            "gspo": gspo,
            "heaviest": 1.1 * torch.cat([grpo, gspo, torch.ones_like(grpo)]).amax(),
            "far": ratios[0],
            "product": means[0],
            "arithmetic": means[1],
            "s": s,
            "grpo_clips": (grpo == 0).sum().double(),
            "gspo_clips": (gspo == 0).sum().double(),
        }

    return curve


OUTLIER = Picture(
    title="One token moves far. What becomes of the whole response?",
    look="Drag the first bar, then make the response longer.",
    notice="On this axis s is the mean height of the bars, so every token's log-ratio counts the same. GRPO clips the outlier "
    "alone; GSPO clips all tokens of a response, or none.",
    alt="A bar of the ratio of each token, with GRPO's limits; the product, the arithmetic and the geometric mean of these "
    "ratios, with GSPO's limits; and the weight that each token's gradient gets.",
    panels=(
        Panel(
            "Each token's ratio r",
            Axis("token", 0.4, "end", whole=True),
            Axis("r = new / old probability", "least", "most", log=1),
            (
                Rule(1.0, axis="y", dash="", width=1),
                Bars("token", "ratio", base=1.0, label="ratio"),
                Bars(1.0, "far", base=1.0, drag="outlier"),
                Bars(
                    "token", "ratio", 0.8, 1.0, "hatch", colour="vermilion", where="is_clipped", label="clipped by GRPO"
                ),
                Rule("grpo_upper", axis="y", colour="ink", width=1.5, drag="grpo_width"),
                Rule("grpo_lower", axis="y", colour="ink", width=1.5, label="GRPO's limits"),
            ),
            tall=0.65,
            wide=2,
        ),
        Panel(
            "Three means of these ratios",
            Axis("", 0.4, 3.6, names="kinds"),
            Axis("mean", "least_mean", "most_mean", log=1),
            (
                Rule(1.0, axis="y", dash="", width=1),
                Points("place", "means", "D", 12),
                Rule("gspo_upper", axis="y", colour="vermilion", width=1.5, drag="gspo_width"),
                Rule("gspo_lower", axis="y", colour="vermilion", width=1.5, label="GSPO's limits"),
                Text("{product:.3g}", 1.0, "foot"),
                Text("{arithmetic:r}", 2.0, "foot"),
                Text("{s:r}", 3.0, "foot"),
            ),
            tall=0.8,
        ),
        Panel(
            "Weight of each token's gradient",
            Axis("token", 0.4, "end", whole=True),
            Axis("weight; 0: clipped", -0.05, "heaviest"),
            (
                Points("token", "grpo", "o", 6, label="GRPO: r"),
                Points("token", "gspo", "D", 6, colour="vermilion", label="GSPO: s"),
            ),
            tall=0.8,
        ),
    ),
    controls={
        "outlier": Slider(-4.6, 4.6, 0.1, 1.5, "log r of the outlier"),
        "length": Slider(1, LONGEST, 1, 20, "tokens", plays=True),
        "noise": Slider(0.0, 0.3, 0.01, 0.05, "noise of the others, nats"),
        "sign": Choice(
            {"a right answer, A = 1": "right", "a wrong answer, A = −1": "wrong"},
            "a right answer, A = 1",
            "the response is",
        ),
        "grpo_width": Slider(value=0.2, stops=(0.03, 0.1, 0.2), label="GRPO's width"),
        "gspo_width": Slider(value=0.03, stops=(0.0003, 0.003, 0.01, 0.03, 0.1, 0.2), label="GSPO's width"),
    },
    data={
        "chain": Draws("normal", (1, 1, "length"), 0),
        "kinds": ["product", "arithmetic", "geometric: s"],
        "place": [1.0, 2.0, 3.0],
    },
    conclusion=(
        Say(
            "One of {length:d} tokens has r = {far:.3g}. s is {s:r}, beyond GSPO's limits: all {length:d} are clipped. "
            "GRPO clips {grpo_clips:d}.",
            "gspo_clips",
        ),
        Say(
            "One of {length:d} tokens has r = {far:.3g}. s is {s:r}, and no token is clipped by GSPO. GRPO clips {grpo_clips:d}."
        ),
    ),
)

explore_outlier = explorer(
    "outlier",
    OUTLIER,
    outlier_curve,
    free=True,
    example={"length": 7},
    named={
        "one of 20 up": {},
        "one of 100 up, no noise": {"length": 100, "noise": 0.0},
        "one of 10 down to 1/100": {"outlier": -4.6, "length": 10, "noise": 0.0, "sign": "wrong"},
        "the paper's limits": {"gspo_width": 0.0003, "outlier": 0.0},
    },
)
