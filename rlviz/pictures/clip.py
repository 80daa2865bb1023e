"""When does clipping stop a token? Its objective and its push on log π, against its ratio, for both signs of A."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from rlviz.algorithms import DAPO, DCPO, GRPO, GSPO, Algorithm, PolicyGradient
from rlviz.algorithms.base import with_tensors
from rlviz.page.names import Array, Names
from rlviz.page.paper import draw_panel
from rlviz.page.picture import Area, Axis, Beside, Line, Panel, Picture, Rule, Runs, Say, Slider, Span, Text
from rlviz.page.style import TEXT, new_figure
from rlviz.page.tracing import Curve, evaluate
from rlviz.pictures.idea import WIDTHS, Algorithms, explorer
from rlviz.pieces.surrogate import DualClip, is_clipped
from rlviz.types import Batch
from small_models.checks import check_at_least, checked

POINTS = 400  # ratios, from just above 0 on
SIDES = {"good": 1.0, "bad": -1.0}
USUAL = {"good": (-0.3, 2.4), "bad": (-2.2, 1.4)}  # what the axes show, doubled where a curve needs more


def has_a_ratio(algorithm: Algorithm) -> bool:
    """Return whether the algorithm has a ratio that could be clipped."""
    return isinstance(algorithm, PolicyGradient)


def is_per_token(algorithm: PolicyGradient) -> bool:
    """Return whether the ratio of a token stays as it is when another token of the response moves."""
    still = torch.full((1, 2, 2), -1.0, dtype=torch.double)
    one_moved = torch.eye(2, dtype=torch.double).unsqueeze(
        0
    )  # the first token of one response, the second of the other
    mask = torch.ones_like(still, dtype=torch.bool)
    other = one_moved == 0
    moved, before = algorithm.ratio(still + one_moved, still, mask), algorithm.ratio(still, still, mask)
    return torch.equal(moved[other], before[other])


def clip(algorithm: PolicyGradient, points: int = POINTS, offset: float = 0.5) -> Curve:
    """Return the curve: ratios of one token, each a response of its own, through the algorithm's objective.

    offset: where the first ratio is, in steps; half a step keeps ratios off the limits, on which rounding would decide the slope.

    The push is autograd's ∂J/∂log π, taken through ratio, bounds and surrogate: what the update adds to the token's log π is in
    proportion to it, whichever way the surrogate is written, while ∂J/∂ratio is not. What `is_clipped` says to be cut is what
    the clip fractions of training count.
    """
    own = algorithm.without_kl()
    dual = replace(own, surrogate=DualClip(c=2.0))
    per_token = is_per_token(algorithm)

    def curve(old_prob: Tensor, dual_clip: Tensor, up_to: Tensor, **widths: Tensor) -> dict[str, Tensor]:
        reach = torch.where(dual_clip > 0, torch.maximum(up_to, 1.25 * dual_clip), up_to)
        ratio = ((torch.arange(points, dtype=torch.double) + offset) / points * reach).reshape(-1, 1, 1)
        old_logp = old_prob.log().expand(ratio.shape)
        mask = torch.ones_like(ratio, dtype=torch.bool)
        certain = 1 / old_prob if per_token else 1 / old_prob * torch.inf
        outputs = {"reach": reach, "certain": certain}
        for side, sign in SIDES.items():
            found = []
            for each in (with_tensors(own, widths), with_tensors(dual, {**widths, "c": dual_clip.clamp(min=1.001)})):
                logp = (old_logp + ratio.log()).detach().requires_grad_()
                part = each.objective(logp, Batch(old_logp, torch.full_like(ratio, sign), mask))
                each.check_gradient(part.value)
                (push,) = torch.autograd.grad(part.value.sum(), logp)
                low, high, both = is_clipped(part.surrogate, part.ratio, part.advantages, part.lower, part.upper)
                found.append((part.value, push, (low | high | both).double()))
            own_values, dual_values = found
            J, push, cut = (
                torch.where(dual_clip > 0, b, a).flatten() for a, b in zip(own_values, dual_values, strict=True)
            )
            shown = part.ratio.detach().flatten()
            lower, upper = part.lower.flatten()[0].clamp(min=0.0), part.upper.flatten()[0]
            outputs |= {"ratio": shown, "lower": lower, "upper": upper}
            outputs |= {f"J_{side}": J, f"push_{side}": push, f"cut_{side}": cut}
            outputs |= _span(side, shown, J, push)
            outputs |= _ends(side, shown, cut, lower, upper, certain)
        good, bad = outputs["good_ends"], outputs["bad_ends"]
        return outputs | {
            "both_end": good * bad,
            "grown_to": outputs["good_end"] * old_prob,
            "fallen_to": outputs["bad_end"] * old_prob,
            "says_grown": outputs["good_right"] * per_token,
            "says_fallen": outputs["bad_right"] * per_token,
        }

    return curve


def _span(side: str, ratio: Tensor, J: Tensor, push: Tensor) -> dict[str, Tensor]:
    """Return the limits of the axis of J: the usual ones, doubled as often as needed.

    What the first eighth holds may leave the frame: the objective of a surrogate with log r has no end there.
    """
    shown = ratio >= ratio[-1] / 8
    both = torch.stack([torch.where(shown, J, 0.0), torch.where(shown, push, 0.0)]).nan_to_num(0.0, 0.0, 0.0)
    low, high = USUAL[side]
    doubled = [
        limit * 2 ** (need / limit).clamp(min=1.0).log2().ceil()
        for limit, need in ((low, both.amin()), (high, both.amax()))
    ]
    return {f"low_{side}": doubled[0], f"high_{side}": doubled[1]}


def _ends(side: str, ratio: Tensor, cut: Tensor, lower: Tensor, upper: Tensor, certain: Tensor) -> dict[str, Tensor]:
    """Return up to where a token is pushed, the limit itself where that is next to it, and whether it ends at all."""
    step = ratio[1] - ratio[0]
    on_its_way = cut * (ratio > 1) if side == "good" else cut * (ratio < 1)
    if side == "good":
        end = torch.where(on_its_way > 0, ratio, torch.inf).amin()
        end = torch.where((end - upper).abs() <= 1.5 * step, upper, end)
        ends = torch.isfinite(end) & (end < certain)
        wrong = (cut * (ratio < 1)).amax() > 0
        beyond = (upper >= certain) & torch.isfinite(upper)
    else:
        end = torch.where(on_its_way > 0, ratio, -torch.inf).amax()
        end = torch.where((end - lower).abs() <= 1.5 * step, lower, end)
        ends = torch.isfinite(end)
        wrong = (cut * (ratio > 1) * (ratio < certain)).amax() > 0
        beyond = ends & ~ends
    first_wrong = torch.where((cut > 0) & (ratio > 1), ratio, torch.inf).amin()
    flags = {
        "ends": ends,
        "goes_on": ~ends,
        "beyond": beyond,
        "free": ~ends & ~beyond & ~wrong,
        "wrong": wrong,
        "right": ends & ~wrong,
    }
    return {
        f"{side}_end": end,
        f"{side}_wrong_from": first_wrong,
        **{f"{side}_{name}": flag for name, flag in flags.items()},
    }


def texts(algorithm: PolicyGradient) -> dict[str, str]:
    """Return what the algorithm fixes of the words: whose ratio it is."""
    if is_per_token(algorithm):
        axis, about = "ratio: new probability / old probability", "a token of old probability"
        return {"kind": "ratio", "axis": axis, "about": about, "per_token": "yes"}
    return {"kind": "sequence ratio", "axis": "sequence ratio: of the whole response", "about": "", "per_token": ""}


def _beside(side: str) -> tuple[Line, ...]:
    looks = (("green", "5 2 1 2"), ("ink", "1 2"), ("purple", "7 3"))
    return tuple(
        Line(
            f"b{i}_ratio",
            f"b{i}_J_{side}",
            dash,
            2,
            colour=colour,
            when=f"b{i}_ratio",
            label=f"{{b{i}_name}}",
            direct=True,
        )
        for i, (colour, dash) in enumerate(looks, start=1)
    )


def _panel(side: str) -> Panel:
    good = side == "good"
    return Panel(
        "A = +1: better than expected" if good else "A = −1: worse than expected",
        Axis("{axis}", 0, "reach"),
        Axis("objective J, push ∂J/∂log π", f"low_{side}", f"high_{side}"),
        (
            Runs("ratio", f"cut_{side}", label="no gradient" if good else ""),  # one key serves both graphs
            Rule(0, axis="y", dash="", width=1),
            Rule(1, dash="", width=1),
            Rule("lower", drag="" if good else "eps_low"),
            Rule("upper", drag="eps_high" if good else "", label="limits" if good else ""),
            Area("ratio", 0, f"push_{side}", colour="vermilion", label="push on log π" if good else ""),
            Line("ratio", f"push_{side}", "6 4", 1.5, colour="vermilion"),
            *_beside(side),
            Line("ratio", f"J_{side}", width=4, label="objective J"),
            Span("certain", "reach", fill="veil", when="per_token"),
            Rule(
                "certain",
                dash="6 2 1 2",
                width=1.5,
                colour="ink",
                when="per_token",
                drag="old_prob" if good else "",
                label="probability 1" if good else "",
            ),
            Text("wrongly fallen" if good else "fallen", corner="nw", colour="grey"),
            Text("grown" if good else "wrongly grown", corner="ne", colour="grey"),
        ),
    )


CLIP = Picture(
    title="When does clipping stop a token?",
    look="Drag a limit: where the orange area is gone, the token gets no gradient.",
    notice=(
        "The objective is flat where the gradient is cut. Compare the two signs of A: a good token is stopped above the "
        "upper limit, a bad one below the lower limit. Then choose DCPO and make the token rare: its limits move apart."
    ),
    alt="Two graphs of the objective and its push on log π against the ratio, left A = +1, right A = −1.",
    panels=(_panel("good"), _panel("bad")),
    controls={
        "old_prob": Slider(0.01, 1.0, 0.01, 0.6, "old probability", plays=True),
        "beside": Beside(3),
        "dual_clip": Slider(value=0.0, stops=(0.0, 1.5, 2.0, 3.0, 5.0, 10.0), label="dual clip c (0: none)", rare=True),
        "up_to": Slider(value=2.0, stops=(2.0, 4.0, 12.0), label="ratios up to", rare=True),
    },
    conclusion=(
        Say(
            "{name} pushes a good token up until its {kind} is {good_end:r}, and a bad one down until it is {bad_end:r}.",
            "both_end",
        ),
        Say(
            "{name} pushes a good token up as far as it goes, and a bad one down until its {kind} is {bad_end:r}.",
            "bad_ends",
        ),
        Say(
            "{name} pushes a good token up until its {kind} is {good_end:r}, and a bad one down at any ratio shown.",
            "good_ends",
        ),
        Say("{name} pushes a good token up as far as it goes, and a bad one down at any ratio shown."),
    ),
    says=(
        Say("{name}, {about} {old_prob:.2f}.", "per_token"),
        Say("{name}: the ratio is the whole response's, not one token's.", "!per_token"),
        Say(
            "A > 0: the upper limit {upper:r} lies beyond probability 1 (ratio {certain:.2f}), so this token is never clipped.",
            "good_beyond",
        ),
        Say(
            "A > 0: no gradient above {kind} {good_end:r}; below 1 the gradient stays, to repair a step the wrong way.",
            "good_right",
        ),
        Say("Its probability has then grown to {grown_to:.3g}.", "says_grown"),
        Say("A > 0: no gradient is cut at the ratios shown.", "good_free"),
        Say("A > 0: the gradient is cut below 1, too, where a step the wrong way would be repaired.", "good_wrong"),
        Say("A < 0: no gradient below {kind} {bad_end:r}; above 1 the gradient stays.", "bad_right"),
        Say("Its probability has then fallen to {fallen_to:.3g}.", "says_fallen"),
        Say("A < 0: no gradient is cut at the ratios shown.", "bad_free"),
        Say("A < 0: the gradient is cut from {kind} {bad_wrong_from:.2f} on, too.", "bad_wrong"),
        Say("Limits of {b1_name}: {b1_lower:r} and {b1_upper:r}.", "b1_upper"),
        Say("Limits of {b2_name}: {b2_lower:r} and {b2_upper:r}.", "b2_upper"),
        Say("Limits of {b3_name}: {b3_lower:r} and {b3_upper:r}.", "b3_upper"),
        Say("Orange is the push on log π, ∂J/∂log π = ratio · ∂J/∂ratio; where J = ratio · A it is J itself."),
    ),
)

explore_clip = explorer(
    "clip",
    CLIP,
    clip,
    algorithms=Algorithms(has_a_ratio, GRPO, WIDTHS),
    texts=texts,
    named={
        "GRPO, ε = 0.2": {},
        "clip-higher": {"eps_high": 0.5},
        "a rare token, DCPO": {"algorithm": DCPO, "old_prob": 0.1, "beside": (GRPO,), "up_to": 4.0},
        "GSPO": {"algorithm": GSPO, "beside": (DAPO,)},
    },
)


@dataclass(frozen=True)
class ClipCurve:
    """A token's objective against its ratio, for an advantage of one sign; arrays over the ratios, and the panel that shows them.

    push: ∂objective/∂log π. clipped: where the gradient is cut. lower, upper: the limits at this old probability.
    """

    ratio: Array
    objective: Array
    push: Array
    clipped: Array
    lower: float
    upper: float
    advantage: float
    panel: Panel
    names: Names


@checked
def clip_curve(
    algorithm: PolicyGradient, *, advantage: float, old_prob: float = 0.6, max_ratio: float = 2.0, points: int = POINTS
) -> ClipCurve:
    """Return a token's objective and push for ratios up to `max_ratio`, through the algorithm's own pieces.

    advantage: its sign is what counts. Raises ValueError for an advantage of 0, an old_prob outside (0, 1], a max_ratio ≤ 0, and
    bounds that are no limits.
    """
    if advantage == 0:
        raise ValueError("advantage must be above or below 0; got 0")
    if not 0 < old_prob <= 1:
        raise ValueError(f"old_prob must be above 0 and at most 1; got {old_prob}")
    if max_ratio <= 0:
        raise ValueError(f"max_ratio must be above 0; got {max_ratio}")
    check_at_least(2, points=points)
    side = "good" if advantage > 0 else "bad"
    given = {"old_prob": old_prob, "dual_clip": 0.0, "up_to": max_ratio}
    names = Names(CLIP, {}, {"name": algorithm.name, **texts(algorithm)}, evaluate(clip(algorithm, points), given))
    J, push, cut = (names.array(f"{what}_{side}") for what in ("J", "push", "cut"))
    limits = names.one("lower"), names.one("upper")
    return ClipCurve(names.array("ratio"), J, push, cut != 0, *limits, advantage, CLIP.panels[side == "bad"], names)


@checked
def plot_clip(curve: ClipCurve, *, ax: Axes | None = None) -> Axes:
    """Draw one token's objective, push on log π, limits and the ratios without gradient; return the axes."""
    return draw_panel(new_figure(6, 4).add_subplot() if ax is None else ax, curve.panel, curve.names)


@checked
def plot_clip_small_multiples(curves: Sequence[tuple[ClipCurve, ClipCurve]], names: Sequence[str]) -> Figure:
    """Draw a column a setting: A > 0 above, A < 0 below; the same story as the sliders', without a kernel."""
    figure = new_figure(3.6 * len(names) + 0.4, 7)
    axes = figure.subplots(2, len(names), sharex=True, sharey="row", squeeze=False)
    for column, (pair, name) in enumerate(zip(curves, names, strict=True)):
        for row, curve in enumerate(pair):
            ax = plot_clip(curve, ax=axes[row, column])
            sign = "A = +1" if curve.advantage > 0 else "A = −1"
            ax.set_title(f"{name}\n{sign}" if row == 0 else sign, fontsize=TEXT)
            ax.legend_ = None
            if column:
                ax.set_ylabel("")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(5, 2 * len(names) - 1), fontsize=TEXT - 1)
    return figure
