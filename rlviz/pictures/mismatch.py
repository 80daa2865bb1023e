"""Two engines: how likely a sampler and the trainer find the same tokens, and what a correction makes of where they disagree."""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.algorithms import GRPO, TIS, TWO_ENGINES, Algorithm, GroupPolicyGradient, numbers
from rlviz.algorithms.base import with_tensors
from rlviz.page.names import formatted
from rlviz.page.picture import Axis, Bars, Line, Panel, Picture, Points, Rule, Say, Slider, Text
from rlviz.page.tracing import Curve
from rlviz.pictures.mismatch_tokens import BITS, LAGS, STEPS, load_tokens
from rlviz.pictures.spec import Algorithms, explorer
from rlviz.pieces.ratios import token_ratio
from rlviz.types import Batch
from small_models.host import check_lazily

NEAR = 0.8, 1.2  # of w, as records of a run count them
SAME = 1e-6  # by which two weights may differ through rounding
LEAST = 0.003  # of a probability that is drawn; below it a token stands at the edge
WEIGHTS = 0.1, 10.0  # of w, likewise
LOWEST = 0.6  # of the axis of tokens, which is logarithmic
BINS = 41  # of w, all as wide on its logarithmic axis; 1 is in the middle of one
LIMITS = ("cap", "lowest", "highest")  # on a token's own w
DIAGONAL = (LEAST / 10, 2.0)
LOOKS = {  # what the loss makes of a token → colour, sign and its size, filling of bars, label
    "as_drawn": ("blue", ("o", 5.0), "solid", "weight 1 or w"),
    "changed": ("green", ("^", 7.0), "none", "weight changed"),
    "left_out": ("vermilion", ("x", 7.0), "hatch", "left out"),
}


def needs_no_more(algorithm: Algorithm) -> bool:
    """Return whether rewards and log-probabilities under sampler and trainer are enough for the advantages."""
    known = {"mask", "old_logp", "sampler_logp"}
    return isinstance(algorithm, GroupPolicyGradient) and set(algorithm.can.asks["advantage"]) <= known


def mismatch_curve(algorithm: GroupPolicyGradient) -> Curve:
    """Return the curve: one sampler's real tokens, and what the loss makes of each, by the algorithm's own pieces.

    The sampler is a copy of a small policy (task chain, GRPO, after 24 steps), of `bits` bits and `lag` steps ago; it answered 16
    prompts four times. Tokens count that are of groups whose rewards differ. `used` is a token's push in the first update over
    what it would be if the trainer itself had sampled: 1 where nothing is corrected, w where w is taken as it is.
    """
    without_kl = algorithm.without_kl()

    def curve(
        bits: Tensor,
        lag: Tensor,
        trainer_logp: Tensor,
        log_weight: Tensor,
        lengths: Tensor,
        right: Tensor,
        **parameters: Tensor,
    ) -> dict[str, Tensor]:
        sampler_index = (index_among("bits", bits, BITS) * len(LAGS) + index_among("lag", lag, LAGS)).long()
        trainer = trainer_logp[sampler_index] * STEPS["trainer_logp"]
        sampler = trainer - log_weight[sampler_index] * STEPS["log_weight"]
        mask = torch.arange(sampler.shape[-1]) < lengths[sampler_index].unsqueeze(-1)
        rule = with_tensors(without_kl, parameters)
        plain = token_pushes(rule, right[sampler_index], trainer, mask, None)
        counts = mask & (plain != 0)
        weight = token_ratio(trainer, sampler, mask)
        used = token_pushes(rule, right[sampler_index], trainer, mask, sampler) / torch.where(counts, plain, 1.0)
        as_drawn = ((used - weight).abs() < SAME * weight) | ((used - 1).abs() < SAME)
        kinds = {"as_drawn": as_drawn & (used != 0), "changed": ~as_drawn & (used != 0), "left_out": used == 0}
        kinds = {name: kind & counts for name, kind in kinds.items()}
        diagonal = torch.tensor(DIAGONAL, dtype=torch.double)

        # How many tokens of each kind have which w, those beyond the axis in its last bins; NaN for a bin without any.
        low, high = (torch.tensor(end, dtype=torch.double).log() for end in WEIGHTS)
        edges = (low + (high - low) * torch.arange(BINS + 1, dtype=torch.double) / BINS).exp()
        bins = ((weight.flatten().log() - low) / (high - low) * BINS).floor().clamp(0, BINS - 1)
        inside = (bins == torch.arange(BINS, dtype=torch.double).unsqueeze(1)).double()  # [bins, tokens]
        heights = {f"count_{name}": (inside * kind.flatten()).sum(1) for name, kind in kinds.items()}
        heights = {name: torch.where(height > 0, height, torch.nan) for name, height in heights.items()}

        def mean(values: Tensor) -> Tensor:
            return (values * counts).sum() / counts.sum()

        return {
            "sampler_prob": sampler.exp().clamp(LEAST, 1.0).flatten(),
            "trainer_prob": trainer.exp().clamp(LEAST, 1.0).flatten(),
            **{f"is_{name}": kind.double().flatten() for name, kind in kinds.items()},
            **{f"{name}_line": parameters[name] * diagonal for name in LIMITS if name in parameters},
            **heights,
            "middle": (edges[1:] + edges[:-1]) / 2,
            "width": edges[1:] - edges[:-1],
            "share_changed": mean(kinds["changed"].double()),
            "share_left_out": mean(kinds["left_out"].double()),
            "outside": mean(((weight < NEAR[0]) | (weight > NEAR[1])).double()),
            # (Σ used)² / (N Σ used²): how many equal weights these are worth, as a share of their number
            "effective": mean(used) ** 2 / mean(used**2).clamp(min=1e-300),
        }

    return curve


def index_among(name: str, value: Tensor, options: tuple[float, ...]) -> Tensor:
    """Return the index of a value. Raises ValueError for one that is no option: nothing was sampled in between."""
    sampled = torch.tensor(options, dtype=torch.double)
    check_lazily(
        (value != sampled).all(),
        lambda: f"{name} must be one of {', '.join(map(str, options))}; got {formatted(float(value), 'g')}",
    )
    return (value > sampled).double().sum()


def token_pushes(
    rule: GroupPolicyGradient, rewards: Tensor, old_logp: Tensor, mask: Tensor, sampler_logp: Tensor | None
) -> Tensor:
    """Return ∂J/∂log π of each token before the first update, [P, G, T]."""
    advantages, _ = rule.advantages(rewards, mask, old_logp=old_logp, sampler_logp=sampler_logp)
    leaf = old_logp.detach().clone().requires_grad_()
    value = rule.objective(leaf, Batch(old_logp, advantages, mask, sampler_logp=sampler_logp)).value
    return torch.autograd.grad(value.masked_fill(~mask, 0.0).sum(), leaf)[0]


def texts(algorithm: GroupPolicyGradient) -> dict[str, str]:
    """Return flags of the limits on w that the algorithm has; one at 0 counts, for it can be moved."""
    return {f"has_{name}": "yes" * (name in numbers(algorithm)) for name in LIMITS}


_PROBABILITY = (LEAST * 0.8, 1.3, 1, (0.003, 0.01, 0.03, 0.1, 0.3, 1))
MISMATCH = Picture(
    title="What if one engine samples and another one trains?",
    look="Take weights of fewer bits, or older ones: dots leave the diagonal. Drag the limit of the correction.",
    notice="Each dot is a token. Compare what TIS caps, what IcePop leaves out, and which responses the sequence mask drops.",
    alt="Left, a point for each token: its probability under the trainer against that under the sampler, with a diagonal where "
    "they agree. Right, how many tokens have which weight w, by what the correction does with them.",
    panels=(
        Panel(
            "The same tokens, by both engines",
            Axis("probability under the sampler", *_PROBABILITY),
            Axis("under the trainer", *_PROBABILITY),
            (
                Line("diagonal", "diagonal", width=1.5, colour="grey"),
                *(Line("diagonal", f"{name}_line", "6 4", 2, colour="ink", when=f"has_{name}") for name in LIMITS),
                *(
                    Points("sampler_prob", "trainer_prob", *sign, colour=colour, where=f"is_{kind}")
                    for kind, (colour, sign, *_) in LOOKS.items()
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
                    Bars("middle", f"count_{kind}", "width", LOWEST, fill, colour=colour, label=label)
                    for kind, (colour, _, fill, label) in LOOKS.items()
                ),
                *(
                    Rule(name, dash="6 4", colour="ink", when=f"has_{name}", drag=name, label=f"{name} {{{name}}}")
                    for name in LIMITS
                ),
            ),
        ),
    ),
    controls={
        "bits": Slider(value=4, stops=BITS, label="bits of the sampler's weights"),
        "lag": Slider(value=8, stops=LAGS, label="age of the sampler, steps", plays=True),
    },
    data={**load_tokens(), "diagonal": list(DIAGONAL)},
    conclusion=(
        Say(
            "{outside:.1%} of the tokens have a w outside 0.8 to 1.2; {name} changes the weight of {share_changed:.1%} and "
            "leaves {share_left_out:.1%} out: an effective sample size of {effective:.0%}."
        ),
    ),
)

explore_mismatch = explorer(
    "mismatch",
    MISMATCH,
    mismatch_curve,
    algorithms=Algorithms(needs_no_more, TIS, (*LIMITS, "delta"), among=(*TWO_ENGINES, GRPO)),
    texts=texts,
    named={
        "TIS, weights of 4 bits": {"lag": 0},
        "and 8 steps old": {},
        "IcePop, weights of 3 bits": {"algorithm": TWO_ENGINES[1], "bits": 3},
        "the sequence mask": {"algorithm": TWO_ENGINES[3], "bits": 3},
    },
)
