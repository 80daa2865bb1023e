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
from rlviz.page.picture import Area, Axis, Beside, Line, Mark, Panel, Picture, Points, Rule, Say, Slider
from rlviz.page.tracing import Curve
from rlviz.pictures.clip import beside_lines, is_cut, is_per_token
from rlviz.pictures.spec import WIDTHS, Algorithms, explorer
from rlviz.training import TrainSettings
from rlviz.types import Batch, StepRecord

LEAST_PROB = 1e-4
LIMITS_NEEDS = "limits on the ratio of each token by itself"
FAR = 130.0  # stands for ∞ in a line, out of sight
AXES = {"prob": ("new probability", 5e-5, 2.0), "ratio": ("ratio", 0.3, 13.0)}
Run = str | os.PathLike[str] | Sequence[StepRecord]


def limits_tokens(algorithm: Algorithm) -> bool:
    """Return whether the algorithm limits the ratio of each token by itself."""
    return isinstance(algorithm, PolicyGradient) and is_per_token(algorithm)


def token_data(run: Run | None) -> dict[str, Any]:
    """Return a run's recorded tokens as data, [responses, tokens] with NaN behind each: probabilities and advantages.

    Without a run all are NaN. Raises ValueError for a run that recorded no tokens.
    """
    if isinstance(run, str | os.PathLike):
        from rlviz.training import RunFolder  # which a picture without a run does not wait for

        run = RunFolder.open(run).records()
    responses = [r for record in run or () for group in record.groups for r in group.responses if r.tokens]
    if run is not None and not responses:
        every = TrainSettings().details_every
        raise ValueError(
            f"run: none of its {len(run)} steps recorded tokens, as every {every}th does unless details_every says "
            f"otherwise; train for {every} steps or more, or with TrainSettings(details_every=1)"
        )
    rows = [[token for token in response.tokens if not token.observed] for response in responses]
    shape = max(5, len(rows)), max(7, *map(len, rows), 0)  # sizes that a program can change are none of 0 or 1
    data: dict[str, Any] = {"has_run": float(run is not None)}
    for name, column in {"tokens_old": "old_prob", "tokens_new": "new_prob", "tokens_A": "advantage"}.items():
        data[name] = torch.full(shape, math.nan, dtype=torch.double)
        for values, tokens in zip(data[name], rows, strict=False):
            values[: len(tokens)] = torch.tensor([getattr(token, column) for token in tokens], dtype=torch.double)
    return data


def bounds_curve(algorithm: PolicyGradient) -> Curve:
    """Return the curve: the limits on the ratio, the lower one for A < 0 and the upper one for A > 0, and what they cut.

    Which of a run's tokens are clipped is for this algorithm to say, whichever trained them.
    """
    plain = algorithm.without_kl()

    def limits(rule: PolicyGradient, old_prob: Tensor) -> tuple[Tensor, Tensor]:
        old_logp = old_prob.log().reshape(-1, 1, 1)
        mask = torch.ones_like(old_logp, dtype=torch.bool)
        lower = rule.limits(old_logp, mask, -torch.ones_like(old_logp))[0]
        upper = rule.limits(old_logp, mask, torch.ones_like(old_logp))[1]
        return lower.flatten().clamp(min=0.0), upper.flatten()

    def curve(
        old_prob: Tensor,
        new_prob: Tensor,
        tokens_old: Tensor,
        tokens_new: Tensor,
        tokens_A: Tensor,
        **widths: Tensor,
    ) -> dict[str, Tensor]:
        rule = with_tensors(plain, widths)
        q = torch.exp(torch.arange(140, dtype=torch.double) / 139 * -math.log(LEAST_PROB)) * LEAST_PROB
        (lower, upper), (low, high) = (limits(rule, probs) for probs in (q, torch.stack([old_prob, old_prob * 0 + 1])))

        # Is a bad token cut just below the lower limit, and a good one just above the upper?
        ratio = torch.stack([low[0] * 0.99, high[0] * 1.01]).reshape(-1, 1, 1)
        exists = (ratio > 0) & torch.isfinite(ratio)
        signs = (torch.arange(2, dtype=torch.double) * 2 - 1).reshape(-1, 1, 1)
        old_logp = old_prob.log().expand(ratio.shape)
        logp = old_logp + torch.where(exists, ratio, 1.0).log()
        part = rule.objective(logp, Batch(old_logp, signs, torch.ones_like(ratio, dtype=torch.bool)))
        cut = is_cut(part) & exists
        cuts_low, cuts_high = cut[0, 0, 0], cut[1, 0, 0]
        ends = torch.stack([low[0], high[0].clamp(max=FAR)])
        outputs = {
            "q": q,
            "lower": lower,
            "upper": upper.clamp(max=FAR),
            "low_prob": lower * q,
            "high_prob": (upper * q).clamp(max=FAR),
            "low_at": low[0],
            "high_at": high[0],
            "ends_q": old_prob.expand(2),
            "ends_prob": ends * old_prob,
            "ends_ratio": ends,
            "down_to": torch.where(cuts_low, low[0] * old_prob, 0.0),
            "up_to": torch.where(cuts_high, high[0] * old_prob, torch.inf).clamp(max=1.0),
            "low_at_1": low[1] * (1.0 if "eps_low" in widths else math.nan),
            "high_at_1": high[1] * (1.0 if "eps_high" in widths else math.nan),
        }

        # Has the gradient let go of the token at hand: a good one that has risen, or a bad one that has fallen?
        place = (1, 1, 1)
        sign = torch.where(new_prob >= old_prob, 1.0, -1.0).double().reshape(place)
        at_hand = Batch(old_prob.log().reshape(place), sign, torch.ones(place, dtype=torch.bool))
        is_token_cut = is_cut(rule.objective(new_prob.log().reshape(place), at_hand))[0, 0, 0].double()
        outputs |= {"ratio": new_prob / old_prob, "token_cut": is_token_cut, "token_pushed": 1 - is_token_cut}

        # Which of a run's tokens are clipped, NaN being no token?
        mask = ~tokens_old.isnan()
        columns = (tokens_new.log(), tokens_old.log(), tokens_A)
        logp, old_logp, A = (values.masked_fill(~mask, 0.0).unsqueeze(0) for values in columns)
        part = rule.objective(logp, Batch(old_logp, A, mask.unsqueeze(0)))
        clipped = is_cut(part)[0] & mask
        return outputs | {
            "tokens_ratio": part.ratio[0].masked_fill(~mask, math.nan).clamp(max=FAR),
            "tokens_cut": clipped.double(),
            "tokens_free": (mask & ~clipped).double(),
        }

    return curve


def _panel(title: str, quantity: str, low: str, high: str, *extra: Mark, at: str) -> Panel:
    """Return a panel: the bands between the limits as one quantity, of all algorithms, the token at hand, a run's tokens."""
    tokens_y = "tokens_new" if quantity == "prob" else f"tokens_{quantity}"
    tokens: dict[str, Any] = {"x": "tokens_old", "y": tokens_y, "when": "has_run"}
    return Panel(
        title,
        Axis("old probability", LEAST_PROB, 1, log=1),
        Axis(*AXES[quantity], log=1),
        (
            Area("q", low, high, label="pushed up and down"),
            *(Area("q", f"b{i}_{low}", f"b{i}_{high}", colour=colour, when=f"b{i}_q") for i, colour in BESIDE),
            Line("q", low),
            Line("q", high, label="{name}", direct=True),
            Rule(1.0, axis="y", dash="", width=1, colour="ink"),
            *beside_lines("q", low, high),
            Rule("old_prob", dash="6 2 1 2", width=1.5, colour="ink", drag="old_prob"),
            Points("ends_q", f"ends_{quantity}", colour="ink", size=9, label=at),
            Points(**tokens, size=4, colour="grey", where="tokens_free", label="token of the run"),
            Points(**tokens, shape="x", size=8, colour="vermilion", where="tokens_cut", label="clipped token"),
            *extra,
        ),
        tall=1.25,
    )


STOPS = (1e-4, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
AT_1: dict[str, Any] = {"axis": "y", "dash": "1 5", "width": 1}
BESIDE = tuple(enumerate(("green", "ink", "purple"), start=1))  # as beside_lines has them
AT_HAND = ("old_prob", "new_prob")
RINGS = tuple(  # around the token at hand, one for each algorithm that has cut it
    Points(*AT_HAND, "o", 16 + 6 * i, "none", colour=colour, when=f"b{i}_token_cut", label=f"cut by {{b{i}_name}}")
    for i, colour in BESIDE
)
TOKEN = (
    Rule("new_prob", axis="y", dash="6 2 1 2", width=1.5, colour="ink", drag="new_prob"),
    *reversed(RINGS),  # the widest below
    Points(*AT_HAND, size=11, colour="vermilion", when="token_pushed", label="ratio {ratio:r}: pushed by {name}"),
    Points(*AT_HAND, "x", 12, colour="vermilion", when="token_cut", label="ratio {ratio:r}: cut by {name}"),
)
WIDTH_GRIPS = (
    Rule("low_at_1", drag="eps_low", when="low_at_1", **AT_1),
    Rule("high_at_1", drag="eps_high", when="high_at_1", **AT_1),
)
BOUNDS = Picture(
    title="How far is a token pushed, common or rare?",
    look="Drag the token up and down: a ring around it says which algorithm has cut its gradient.",
    notice="Fixed limits on the ratio leave a rare token almost no room; DCPO's band is widest there. Beyond a limit the "
    "gradient is cut, but a large step may still carry the token there.",
    alt="Two graphs against a token's old probability: left the band of new probabilities inside which the gradient pushes "
    "it either way, right the limits on its ratio.",
    panels=(
        _panel(
            *("How far a token is pushed", "prob", "low_prob", "high_prob"),
            *TOKEN,
            at="limits at {old_prob}",
        ),
        _panel(
            *("The same as limits on the ratio", "ratio", "lower", "upper", *WIDTH_GRIPS),
            at="limits {low_at:r} and {high_at:r}",
        ),
    ),
    controls={
        "old_prob": Slider(value=0.01, stops=STOPS, label="old probability", plays=True),
        "new_prob": Slider(value=0.03, stops=STOPS, label="new probability"),
        "beside": Beside(3, value=(DAPO.name,)),
    },
    conclusion=(
        Say(
            "{name} lets a token of probability {old_prob} fall to {down_to:.3g} and rise to {up_to:.3g}; {b1_name} to "
            "{b1_down_to:.3g} and {b1_up_to:.3g}.",
            "b1_up_to",
        ),
        Say("{name} lets a token of probability {old_prob} fall to {down_to:.3g} and rise to {up_to:.3g}."),
    ),
)

explore_bounds = explorer(
    "bounds",
    BOUNDS,
    bounds_curve,
    algorithms=Algorithms(limits_tokens, DCPO, WIDTHS, needs=LIMITS_NEEDS),
    fixed={"run": token_data},
    free=True,
    named={
        "a rare token": {},
        "a common token": {"old_prob": 0.9, "new_prob": 1.0},
        "GRPO": {"algorithm": GRPO, "beside": ()},
    },
)
