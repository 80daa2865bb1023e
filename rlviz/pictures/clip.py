"""When does clipping stop a token? Its objective and its push on log π against its ratio, for both signs of A."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import DAPO, DCPO, GRPO, GSPO, Algorithm, PolicyGradient
from rlviz.algorithms.base import with_tensors
from rlviz.page.picture import Area, Axis, Beside, Line, Panel, Picture, Rule, Runs, Say, Slider, Span, Text
from rlviz.page.tracing import Curve
from rlviz.pictures.spec import WIDTHS, Algorithms, explorer
from rlviz.pieces.surrogate import is_clipped
from rlviz.types import Batch, TokenObjective

SIGNS = {"good": 1.0, "bad": -1.0}  # of the advantage
AXES = {"good": (-0.3, 2.4), "bad": (-2.2, 1.4)}  # objectives that the axis covers at least
PAST = 0.01  # of a limit, how far beyond it one asks whether it cuts


def has_a_ratio(algorithm: Algorithm) -> bool:
    """Return whether the algorithm has a ratio that could be clipped."""
    return isinstance(algorithm, PolicyGradient)


def is_per_token(algorithm: PolicyGradient) -> bool:
    """Return whether a token's ratio stays 1 when another token of its response moves."""
    old_logp = torch.full((1, 2, 2), -1.0, dtype=torch.double)
    moves = torch.eye(2, dtype=torch.bool).unsqueeze(0)  # the first token of one response, the second of the other
    ratio = algorithm.ratio(old_logp + moves, old_logp, torch.ones_like(moves))
    return bool((ratio[~moves] == 1).all())


def is_cut(part: TokenObjective) -> Tensor:
    """Return the mask of tokens that the clip leaves without a gradient, as the clip fractions of training count them."""
    return torch.stack(is_clipped(part.surrogate, part.ratio, part.advantages, part.lower, part.upper)).any(0)


def beside_lines(x: str, *ys: str, width: float = 2.5, direct: bool = True) -> tuple[Line, ...]:
    """Return lines of up to three algorithms beside the chosen one; the last of each is named."""
    looks = (("green", "5 2 1 2"), ("ink", "1 2"), ("purple", "7 3"))
    lines = []
    for i, (colour, dash) in enumerate(looks, start=1):
        for y in ys:
            name: dict[str, Any] = {"label": f"{{b{i}_name}}", "direct": direct} if y == ys[-1] else {}
            lines.append(Line(f"b{i}_{x}", f"b{i}_{y}", dash, width, colour=colour, when=f"b{i}_{x}", **name))
    return tuple(lines)


def clip_curve(algorithm: PolicyGradient, points: int = 400) -> Curve:
    """Return the curve: ratios of one token, each a response of its own, through the algorithm's objective.

    push = ∂J/∂log π by autograd: what an update adds to the token's log π is in proportion to it. Ratios lie half a step off the
    limits, on which rounding would decide the slope. good_end and bad_end are the ratios at which a token that moves as its
    advantage asks loses its gradient, in sight or not.
    """
    plain = algorithm.without_kl()
    per_token = is_per_token(algorithm)

    def objective(rule: PolicyGradient, old_prob: Tensor, ratios: Tensor, sign: float) -> tuple[Tensor, ...]:
        """Return J, push, whether the gradient is cut, ratio and limits of tokens that moved by these factors."""
        factor = ratios.reshape(-1, 1, 1)
        old_logp, A = old_prob.log().expand(factor.shape), torch.full_like(factor, sign)
        logp = (old_logp + factor.log()).detach().requires_grad_()
        part = rule.objective(logp, Batch(old_logp, A, torch.ones_like(factor, dtype=torch.bool)))
        rule.check_gradient(part.value)
        (push,) = torch.autograd.grad(part.value.sum(), logp)
        values = part.value, push, is_cut(part).double(), part.ratio, part.lower, part.upper
        return tuple(value.detach().flatten() for value in values)

    def curve(old_prob: Tensor, up_to: Tensor, **widths: Tensor) -> dict[str, Tensor]:
        steps = (torch.arange(points, dtype=torch.double) + 0.5) / points * up_to
        rule = with_tensors(plain, widths)
        outputs = {"certain": 1 / old_prob * (1.0 if per_token else torch.nan)}

        # Two more ratios, just beyond the limits that stop a good and a bad token, in sight or not; 1 where there is none.
        signs = torch.tensor(list(SIGNS.values()), dtype=torch.double).reshape(2, 1, 1)
        old_logp = old_prob.log().expand(signs.shape)
        lower, upper = rule.limits(old_logp, torch.ones_like(old_logp, dtype=torch.bool), signs)
        beyond = torch.stack([upper[0, 0, 0] * (1 + PAST), lower[1, 0, 0] * (1 - PAST)])
        beyond = torch.where(torch.isfinite(beyond) & (beyond > 0), beyond, 1.0)

        for side, sign in SIGNS.items():
            values = objective(rule, old_prob, torch.cat([steps, beyond]), sign)
            J, push, cut, ratio, lower, upper = (value[:points] for value in values)

            # An end of the axis is doubled as often as J and push need it. Ratios below an eighth of the axis may leave the
            # frame: the objective of a surrogate with log r has no end there.
            drawn = torch.where(ratio >= ratio[-1] / 8, torch.stack([J, push]), 0.0).nan_to_num(0.0, 0.0, 0.0)
            low, high = (
                end * 2 ** (need / end).clamp(min=1.0).log2().ceil()
                for end, need in zip(AXES[side], (drawn.amin(), drawn.amax()), strict=True)
            )
            outputs |= {"ratio": ratio, "lower": lower[0].clamp(min=0.0), "upper": upper[0]}
            outputs |= {f"J_{side}": J, f"push_{side}": push, f"cut_{side}": cut}
            outputs |= {f"low_{side}": low, f"high_{side}": high}

            # The first ratio without a gradient on the way that the advantage asks for: ∞, or 0, where there is none.
            limit, (_, _, cut, ratio, *_) = outputs["upper" if sign > 0 else "lower"], values
            outward = (cut > 0) & (sign * (ratio - 1) > 0)
            end = sign * torch.where(outward, sign * ratio, torch.inf).amin()
            near = (end - limit).abs() <= torch.maximum(1.5 * (ratio[1] - ratio[0]), 1.5 * PAST * limit)
            outputs[f"{side}_end"] = torch.where(near, limit, end).clamp(min=0.0)
        stops = torch.isfinite(outputs["good_end"]) | (outputs["bad_end"] > 0)
        return outputs | {"stops": stops.double()}

    return curve


def texts(algorithm: PolicyGradient) -> dict[str, str]:
    """Return the label of the axis: the ratio of a token, or of a response."""
    return {"axis": "ratio: new / old probability" if is_per_token(algorithm) else "ratio of the whole response"}


def _panel(side: str, title: str, *limits: Rule) -> Panel:
    is_good = side == "good"
    certain: dict[str, Any] = {
        "dash": "6 2 1 2",
        "width": 1.5,
        "colour": "ink",
        "when": "certain",
        "label": "probability 1",
    }
    return Panel(
        title,
        Axis("{axis}", 0, "up_to"),
        Axis("objective J, push ∂J/∂log π", f"low_{side}", f"high_{side}"),
        (
            Runs("ratio", f"cut_{side}", label="no gradient"),
            Rule(0, axis="y", dash="", width=1),
            Rule(1, dash="", width=1),
            *limits,
            Area("ratio", 0, f"push_{side}", colour="vermilion", label="push on log π"),
            Line("ratio", f"push_{side}", "6 4", 1.5, colour="vermilion"),
            *beside_lines("ratio", f"J_{side}"),
            Line("ratio", f"J_{side}", width=4, label="objective J"),
            Span("certain", "up_to", fill="veil", when="certain"),
            Rule("certain", drag="old_prob" if is_good else "", **certain),
            Text("wrong way", corner="nw" if is_good else "ne", colour="grey"),
        ),
    )


# Each panel labels the limit that stops its token, and only there it can be dragged.
GOOD = (Rule("lower"), Rule("upper", drag="eps_high", label="{upper:r}", direct=True))
BAD = (Rule("lower", drag="eps_low", label="{lower:r}", direct=True), Rule("upper"))
CLIP = Picture(
    title="When does clipping stop a token?",
    look="Drag a limit: where the orange area is gone, the token gets no gradient.",
    notice="A good token is stopped above the upper limit, a bad one below the lower. Choose DCPO and make the token rare: "
    "its limits move apart.",
    alt="Two graphs of the objective and its push on log π against the ratio, left A = +1, right A = −1.",
    panels=(
        _panel("good", "A = +1: better than expected", *GOOD),
        _panel("bad", "A = −1: worse than expected", *BAD),
    ),
    controls={
        "old_prob": Slider(0.01, 1.0, 0.01, 0.6, "old probability", plays=True),
        "beside": Beside(3),
        "up_to": Slider(value=2.0, stops=(2.0, 4.0, 12.0), label="ratios up to", rare=True),
    },
    conclusion=(
        Say("{name} stops a good token above ratio {good_end:r}, and a bad one below ratio {bad_end:r}.", "stops"),
        Say("{name} stops no token: however far the push has moved it, it keeps its gradient."),
    ),
)

explore_clip = explorer(
    "clip",
    CLIP,
    clip_curve,
    algorithms=Algorithms(has_a_ratio, GRPO, WIDTHS),
    texts=texts,
    named={
        "GRPO, ε = 0.2": {},
        "clip-higher": {"eps_high": 0.5},
        "a rare token, DCPO": {"algorithm": DCPO, "old_prob": 0.1, "beside": (GRPO,), "up_to": 4.0},
        "GSPO": {"algorithm": GSPO, "beside": (DAPO,)},
    },
)
