"""How far does the gradient push a token before it is cut, against the token's old probability?"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import DAPO, DCPO, GRPO, Algorithm, PolicyGradient
from rlviz.algorithms.base import with_tensors
from rlviz.page.picture import Area, Axis, Beside, Choice, Line, Panel, Picture, Points, Rule, Say, Slider
from rlviz.page.tracing import Curve
from rlviz.pictures.clip import is_per_token
from rlviz.pictures.idea import WIDTHS, Algorithms, explorer
from rlviz.pieces.surrogate import is_clipped
from rlviz.training import TrainSettings
from rlviz.types import Batch, ResponseRecord, StepRecord

LEAST_PROB = 1e-4
RARE = 0.1
FAR = 130.0  # stands for ∞ in a line, out of sight
AXES = {  # end of an axis → where it is on linear and on logarithmic axes
    "left": (0.0, LEAST_PROB),
    "prob_bottom": (0.0, 5e-5),
    "prob_top": (1.12, 2.0),
    "ratio_bottom": (0.0, 0.3),
    "ratio_top": (3.0, 13.0),
}


def limits_tokens(algorithm: Algorithm) -> bool:
    """Return whether the algorithm limits the ratio of each token by itself."""
    return isinstance(algorithm, PolicyGradient) and is_per_token(algorithm)


def check_limits_tokens(algorithm: Algorithm) -> None:
    """Raise ValueError for an algorithm that limits no ratio, or the ratio of more than one token."""
    if not isinstance(algorithm, PolicyGradient):
        raise ValueError(f"algorithm: {algorithm.name} has no ratio that could be limited")
    if not is_per_token(algorithm):
        raise ValueError(
            f"algorithm: {algorithm.name} limits the ratio of a whole response; "
            "that gives no interval for one token's probability"
        )


def records_of(run: str | os.PathLike[str] | Sequence[StepRecord] | None) -> Sequence[StepRecord] | None:
    """Return the records of a run, read from its folder where a path is given."""
    if not isinstance(run, str | os.PathLike):
        return run
    from rlviz.training import RunFolder  # which a picture without a run does not wait for

    return RunFolder.open(run).records()


def responses_of(run: str | os.PathLike[str] | Sequence[StepRecord]) -> tuple[ResponseRecord, ...]:
    """Return the responses of a run whose tokens were recorded. Raises ValueError when there are none."""
    records = records_of(run) or ()
    found = tuple(r for record in records for group in record.groups for r in group.responses if r.tokens)
    if not found:
        every = TrainSettings().details_every
        raise ValueError(
            f"run: none of its {len(records)} steps recorded tokens, as every {every}th does unless details_every says "
            f"otherwise; train for {every} steps or more, or with TrainSettings(details_every=1)"
        )
    return found


def tokens_of(run: str | os.PathLike[str] | Sequence[StepRecord] | None) -> dict[str, Any]:
    """Return a run's recorded tokens as data, [responses, tokens] with NaN behind each: probabilities and advantages.

    Without a run there are some that are nowhere.
    """
    responses = [] if run is None else [[t for t in each.tokens if not t.observed] for each in responses_of(run)]
    shape = (
        max(5, len(responses)),
        max(7, *map(len, responses), 0),
    )  # sizes that a program can change are none of 0 or 1
    data = {name: torch.full(shape, math.nan, dtype=torch.double) for name in ("old_prob", "new_prob", "advantage")}
    for row, tokens in enumerate(responses):
        for name, values in data.items():
            values[row, : len(tokens)] = torch.tensor([getattr(token, name) for token in tokens], dtype=torch.double)
    named = dict(zip(("tokens_old", "tokens_new", "tokens_A"), data.values(), strict=True))
    return {**named, "has_run": float(run is not None)}


def bounds(algorithm: PolicyGradient) -> Curve:
    """Return the curve: the limits on the ratio, lower asked for A < 0 and upper for A > 0, the signs that they cut.

    Which of a run's tokens are clipped is for this algorithm to say, whichever trained them.
    """
    own = algorithm.without_kl()

    def curve(
        old_prob: Tensor, scale: Tensor, tokens_old: Tensor, tokens_new: Tensor, tokens_A: Tensor, **widths: Tensor
    ) -> dict[str, Tensor]:
        rule = with_tensors(own, widths)
        rare = torch.exp(torch.arange(90, dtype=torch.double) / 89 * -math.log(LEAST_PROB)) * LEAST_PROB
        common = (torch.arange(50, dtype=torch.double) + 1) / 50
        q = torch.cat([rare, common, old_prob.reshape(1), torch.ones(1, dtype=torch.double)])
        grid = q[:140].sort().values
        limits = [_limits(rule, values) for values in (grid, q[140:])]
        (lower, upper), (ends_low, ends_high) = limits
        low, high = ends_low[0], ends_high[0]
        cuts = _cuts(rule, old_prob, low, high)
        up_to = high * old_prob
        flags = {
            "held": (low > 0) | (up_to < 1),
            "endless": torch.isinf(high),
            "beyond": ~torch.isinf(high) & (up_to >= 1),
            "inside": up_to < 1,
        }
        flags |= {"cut_there": flags["held"] & cuts, "not_cut": flags["held"] & ~cuts}
        return {
            "q": grid,
            "lower": lower,
            "upper": upper.clamp(max=FAR),
            "low_prob": lower * grid,
            "high_prob": (upper * grid).clamp(max=FAR),
            **{name: linear + (log - linear) * (scale > 0).double() for name, (linear, log) in AXES.items()},
            **{f"has_{name}": old_prob * 0 + (name in widths) for name in WIDTHS},
            "low_at": low,
            "high_at": high,
            "ends_q": old_prob.expand(2),
            "ends_prob": torch.stack([low, high.clamp(max=FAR)]) * old_prob,
            "ends_ratio": torch.stack([low, high.clamp(max=FAR)]),
            "down_to": low * old_prob,
            "up_to": up_to,
            "low_at_1": ends_low[1],
            "high_at_1": ends_high[1],
            **flags,
            **_tokens(rule, tokens_old, tokens_new, tokens_A),
        }

    return curve


def _limits(rule: PolicyGradient, old_prob: Tensor) -> tuple[Tensor, Tensor]:
    old_logp = old_prob.log().reshape(-1, 1, 1)
    mask = torch.ones_like(old_logp, dtype=torch.bool)
    lower = rule.limits(old_logp, mask, -torch.ones_like(old_logp))[0]
    upper = rule.limits(old_logp, mask, torch.ones_like(old_logp))[1]
    return lower.flatten().clamp(min=0.0), upper.flatten()


def _cuts(rule: PolicyGradient, old_prob: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return whether a bad token below the lower limit, or a good one above the upper one, has its gradient cut."""
    ratio = torch.stack([low * 0.99, high * 1.01]).reshape(-1, 1, 1)
    is_some = (ratio > 0) & torch.isfinite(ratio)
    ratio = torch.where(is_some, ratio, 1.0)
    signs = (torch.arange(2, dtype=torch.double) * 2 - 1).reshape(-1, 1, 1)
    old_logp = old_prob.log().expand(ratio.shape)
    part = rule.objective(old_logp + ratio.log(), Batch(old_logp, signs, torch.ones_like(ratio, dtype=torch.bool)))
    cut_low, cut_high, _ = is_clipped(part.surrogate, part.ratio, part.advantages, part.lower, part.upper)
    return ((cut_low | cut_high) & is_some).any()


def _tokens(rule: PolicyGradient, old: Tensor, new: Tensor, advantages: Tensor) -> dict[str, Tensor]:
    """Return a run's tokens: their ratios, and which of them are clipped."""
    mask = ~old.isnan()
    logp, old_logp, A = (
        values.masked_fill(~mask, fill).unsqueeze(0)
        for values, fill in ((new.log(), 0.0), (old.log(), 0.0), (advantages, 0.0))
    )
    part = rule.objective(logp, Batch(old_logp, A, mask.unsqueeze(0)))
    low, high, dual = (
        cut.squeeze(0) & mask for cut in is_clipped(part.surrogate, part.ratio, part.advantages, part.lower, part.upper)
    )
    high, cut = high | dual, low | high | dual
    return {
        "tokens_ratio": part.ratio.squeeze(0).masked_fill(~mask, math.nan).clamp(max=FAR),
        "tokens_cut": cut.double(),
        "tokens_free": (mask & ~cut).double(),
        "tokens_count": mask.double().sum(),
        "cut_low": low.double().sum(),
        "cut_high": high.double().sum(),
        "rare_count": (mask & (old < RARE)).double().sum(),
        "rare_cut": (cut & (old < RARE)).double().sum(),
    }


def _panel(title: str, y: str, what: str, low: str, high: str) -> Panel:
    """Return a panel: the band between the limits as one quantity, others' limits as lines, a run's tokens."""
    looks = (("green", "5 2 1 2"), ("ink", "1 2"), ("purple", "7 3"))
    others = tuple(
        Line(
            f"b{i}_q",
            f"b{i}_{name}",
            dash,
            2,
            colour=colour,
            when=f"b{i}_q",
            label=f"{{b{i}_name}}",
            direct=name == high,
        )
        for i, (colour, dash) in enumerate(looks, start=1)
        for name in (low, high)
    )
    tokens: dict[str, Any] = {
        "when": "has_run",
        "x": "tokens_old",
        "y": "tokens_ratio" if what == "ratio" else "tokens_new",
    }
    ends = (("low_at_1", "eps_low"), ("high_at_1", "eps_high")) if what == "ratio" else ()
    return Panel(
        title,
        Axis("old probability", "left", 1, log="scale=log"),
        Axis(y, f"{what}_bottom", f"{what}_top", log="scale=log"),
        (
            Area("q", low, high, label="pushed either way"),
            Line("q", low),
            Line("q", high, label="{name}", direct=True),
            Rule(1.0, axis="y", dash="", width=1, colour="ink"),
            *others,
            Rule("old_prob", dash="6 2 1 2", width=1.5, colour="ink", drag="old_prob"),
            Points("ends_q", f"ends_{what}", colour="ink", size=9, label="at {old_prob}"),
            Points(**tokens, size=4, colour="grey", where="tokens_free", label="token of the run"),
            Points(**tokens, shape="x", size=8, colour="vermilion", where="tokens_cut", label="clipped token"),
            *(Rule(at, axis="y", dash="1 5", width=1, drag=width, when=f"has_{width}") for at, width in ends),
        ),
    )


_RANGE = "(ratio {low_at:r} to {high_at:r})"
BOUNDS = Picture(
    title="How far is a token pushed, common or rare?",
    look="Drag the old probability to a rare token.",
    notice=(
        "Fixed limits on the ratio leave a rare token almost no room: ±20 % of a small probability is next to nothing. "
        "Compare DCPO's band, which is widest for rare tokens, with DAPO's."
    ),
    alt="Two graphs against a token's old probability: left the band of new probabilities inside which the gradient pushes "
    "it either way, right the limits on its ratio.",
    panels=(
        _panel("How far the gradient pushes a token", "new probability", "prob", "low_prob", "high_prob"),
        _panel("The same as limits on the ratio", "ratio", "ratio", "lower", "upper"),
    ),
    controls={
        "old_prob": Slider(
            value=0.1,
            stops=(1e-4, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0),
            label="old probability",
            plays=True,
        ),
        "scale": Choice({"linear": "linear", "log": "log"}, "linear", "axes"),
        "beside": Beside(3, value=(DAPO.name,)),
    },
    conclusion=(
        Say(
            "{name}: a token of old probability {old_prob} is pushed down to {down_to:.3g} and up to {up_to:.3g}.",
            "inside",
        ),
        Say("{name}: a token of old probability {old_prob} is pushed down to {down_to:.3g} and up as far as it goes."),
    ),
    says=(
        Say("Its ratio may go from {low_at:r} to {high_at:r}.", "inside"),
        Say(f"There is no upper limit {_RANGE}.", "endless"),
        Say(f"The upper limit {{up_to:.3g}} lies beyond probability 1 {_RANGE}.", "beyond"),
        Say(
            "Beyond that its gradient is cut; a large step, or other tokens' gradients, may still carry it there.",
            "cut_there",
        ),
        Say("But its surrogate cuts no gradient there: these limits hold nothing back.", "not_cut"),
        *(
            Say(f"Under {{b{i}_name}} it is pushed down to {{b{i}_down_to:.3g}} and {up}.", f"b{i}_{flag}")
            for i in (1, 2, 3)
            for flag, up in (
                ("inside", f"up to {{b{i}_up_to:.3g}}"),
                ("beyond", "up as far as it goes"),
                ("endless", "up as far as it goes"),
            )
        ),
        Say(
            "Of the run's {tokens_count:d} recorded tokens {name} clips {cut_low:d} below and {cut_high:d} above; of the "
            "{rare_count:d} with old probability under 0.1 it clips {rare_cut:d}.",
            "has_run",
        ),
    ),
)

explore_bounds = explorer(
    "bounds",
    BOUNDS,
    bounds,
    algorithms=Algorithms(limits_tokens, DCPO, WIDTHS, check=check_limits_tokens),
    fixed={"run": tokens_of},
    free=True,
    named={
        "GRPO": {"algorithm": GRPO, "beside": ()},
        "DAPO, clip-higher": {"algorithm": DAPO, "beside": (GRPO,)},
        "DCPO, a rare token": {"beside": (GRPO,), "scale": "log", "old_prob": 0.01},
    },
)
