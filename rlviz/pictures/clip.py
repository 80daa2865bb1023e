"""One token's objective, and the push that it gives log π, against its ratio."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlviz.algorithms import DAPO, DCPO, GRPO, GSPO, Algorithm, PolicyGradient
from rlviz.pictures.arguments import Beside, Slider, Stops
from rlviz.pictures.arrays import Array, array
from rlviz.pictures.base import BLUE, FAINT, GREEN, GREY, LINE, TEXT, VERMILION, Handle, Picture, dress, new_figure
from rlviz.pictures.explore import RANGES, WIDTHS, Algorithms, explorer, with_given
from rlviz.pictures.marks import Marks
from rlviz.pieces.surrogate import DualClip, is_clipped
from rlviz.types import Batch, TokenObjective
from small_models.checks import check_at_least, checked

NEAR = 1e-6  # an edge this near to a limit is the limit, and two this near to each other are none


@dataclass(frozen=True)
class ClipCurve:
    """The objective of one token against its ratio, for an advantage of one sign.

    ratio, objective, push (∂objective/∂log π, which is ratio · ∂objective/∂ratio), clipped: arrays over the grid of ratios.
    dead: the stretches of ratios without gradient, from left to right; one that reaches the end of the grid ends there.
    advantage: A. old_prob: the token's probability under the old policy. lower, upper: the limits on the ratio at that
    probability. per_token: whether the ratio is that of the token alone; if not, it is a response's, and no probability goes
    with it.
    """

    ratio: Array
    objective: Array
    push: Array
    clipped: NDArray[np.bool_]
    dead: tuple[tuple[float, float], ...]
    advantage: float
    old_prob: float
    lower: float
    upper: float
    per_token: bool


def is_per_token(algorithm: PolicyGradient) -> bool:
    """Return whether the ratio of a token stays as it is when another token of the response moves."""
    still = torch.full((1, 2, 2), -1.0, dtype=torch.double)
    one_moved = torch.eye(2, dtype=torch.double).unsqueeze(
        0
    )  # the first token of one response, the second of the other
    mask = torch.ones_like(still, dtype=torch.bool)
    other = one_moved == 0
    return torch.equal(
        algorithm.ratio(still + one_moved, still, mask)[other], algorithm.ratio(still, still, mask)[other]
    )


def limits_of(algorithm: PolicyGradient, old_prob: ArrayLike, advantage: float) -> tuple[Array, Array]:
    """Return the lower and upper limits on the ratios of tokens of these old probabilities with this advantage.

    A lower limit below 0 is told as 0, which no ratio falls below either. Raises ValueError as `PolicyGradient.limits` does.
    """
    old_logp = torch.as_tensor(old_prob, dtype=torch.double).log().reshape(-1, 1, 1)
    mask, advantages = torch.ones_like(old_logp, dtype=torch.bool), torch.full_like(old_logp, advantage)
    lower, upper = algorithm.limits(old_logp, mask, advantages)
    return array(lower.clamp(min=0.0)), array(upper)


@checked
def clip_curve(
    algorithm: PolicyGradient,
    *,
    advantage: float,
    old_prob: float = 0.6,
    max_ratio: float = 2.0,
    points: int = 401,
) -> ClipCurve:
    """Return a token's objective and push for ratios up to `max_ratio`, through the algorithm's own pieces.

    The push is autograd's ∂J/∂logp, taken through ratio, bounds and surrogate to the new log-probability: what the update adds
    to the token's log π is in proportion to it, whichever way the surrogate is written, while ∂J/∂ratio is not.
    Raises ValueError for an old_prob outside (0, 1], a max_ratio ≤ 0, and bounds that are no limits.
    """
    if not 0 < old_prob <= 1:
        raise ValueError(f"old_prob must be above 0 and at most 1; got {old_prob}")
    if max_ratio <= 0:
        raise ValueError(f"max_ratio must be above 0; got {max_ratio}")
    (lower,), (upper,) = limits_of(algorithm, old_prob, advantage)
    without_kl = algorithm.without_kl()

    def at(ratio: Tensor) -> tuple[Tensor, TokenObjective]:
        shape = (len(ratio), 1, 1)  # one response of one token for each ratio: a sequence ratio is the token's own
        old_logp = torch.full(shape, old_prob, dtype=torch.double).log()
        logp = (old_logp + ratio.log().reshape(shape)).requires_grad_()
        batch = Batch(old_logp, torch.full_like(old_logp, advantage), torch.ones(shape, dtype=torch.bool))
        return logp, without_kl.objective(logp, batch)

    def cut(part: TokenObjective) -> NDArray[np.bool_]:
        low, high, dual = is_clipped(part.surrogate, part.ratio, part.advantages, part.lower, part.upper)
        return array(low | high | dual)

    check_at_least(2, points=points)
    grid = torch.linspace(0, max_ratio, points, dtype=torch.double)[1:]
    logp, part = at(grid)
    algorithm.check_gradient(part.value)
    (gradient,) = torch.autograd.grad(part.value.sum(), logp)
    clipped = cut(part)
    edges = _edges(lambda ratio: cut(at(torch.from_numpy(ratio))[1]), array(grid), clipped)
    if len(edges):
        edges = array(at(torch.from_numpy(edges))[1].ratio)
    for limit in (lower, upper):
        edges[np.abs(edges - limit) < NEAR] = limit
    touching = np.flatnonzero(np.diff(edges) < NEAR)  # around ratio 1, where nothing counts as clipped
    edges = np.delete(edges, [*touching, *touching + 1])
    ratio = array(part.ratio)
    ends = [*([0.0] if clipped[0] else []), *edges.tolist(), *([float(ratio[-1])] if clipped[-1] else [])]

    return ClipCurve(
        ratio=ratio,
        objective=array(part.value),
        push=array(gradient),
        clipped=clipped,
        dead=tuple(zip(ends[::2], ends[1::2], strict=True)),
        advantage=advantage,
        old_prob=old_prob,
        lower=float(lower),
        upper=float(upper),
        per_token=is_per_token(algorithm),
    )


def _edges(cut: Callable[[Array], NDArray[np.bool_]], ratio: Array, clipped: NDArray[np.bool_]) -> Array:
    """Return where `cut` changes, to 1 part in 90 000 of the grid's step; it changes where `clipped` does between two ratios."""
    before = np.flatnonzero(clipped[1:] != clipped[:-1])
    low, high, columns = ratio[before], ratio[before + 1], np.arange(len(before))
    for _ in range(2 if len(before) else 0):
        fine = np.linspace(low, high, 301)  # [301, edges]
        same = cut(fine.ravel()).reshape(fine.shape) == clipped[before]
        same[-1] = False
        first = same.argmin(0)
        low, high = fine[np.maximum(first - 1, 0), columns], fine[first, columns]
    return high


@dataclass(frozen=True)
class ClipComparison:
    """The clip curves of one algorithm, and of others to lie over them.

    names: of the algorithms, the explored one first. better, worse: their curves for A = +1 and for A = −1. algorithm: the
    explored one.
    """

    names: tuple[str, ...]
    better: tuple[ClipCurve, ...]
    worse: tuple[ClipCurve, ...]
    algorithm: PolicyGradient


def width_at(algorithm: PolicyGradient, name: Literal["eps_low", "eps_high"], old_prob: float, ratio: float) -> float:
    """Return the width with which the algorithm's limit of that side, at this old probability, is a ratio, by bisection."""
    low, high = 1e-5, RANGES[name][1]
    for _ in range(24):
        width = (low + high) / 2
        limits = limits_of(algorithm.with_parameters(**{name: width}), old_prob, 1.0)
        short = limits[1].item() < ratio if name == "eps_high" else limits[0].item() > ratio
        low, high = (width, high) if short else (low, width)
    return (low + high) / 2


@checked
def clip_comparison(
    algorithm: PolicyGradient = GRPO,
    *,
    eps_low: float | None = None,
    eps_high: float | None = None,
    max_ratio: float | None = None,
    old_prob: float = 0.6,
    dual_clip: float = 0.0,
    up_to: float = 2.0,
    beside: Sequence[PolicyGradient] = (),
) -> ClipComparison:
    """Return one token's clipped objective, and how hard it pushes log π, against its ratio, for both signs of A.

    The curves come from the algorithm's own pieces, the push, ∂J/∂log π = ratio · ∂J/∂ratio, from autograd; dead is what
    `is_clipped`, which the clip fractions of training count with, says to be cut. Where the ratio is a whole response's, as
    GSPO's, no probability goes with it, and old_prob matters to bounds that ask for it only.

    eps_low, eps_high, max_ratio: of the bounds; None: the algorithm's own. old_prob: the token's probability when sampled.
    dual_clip: c of a `DualClip` in place of the algorithm's surrogate; 0 leaves the surrogate as it is. up_to: the largest ratio
    shown; a c further out widens it. beside: up to three algorithms whose objectives lie over it; as `first_and_others` takes
    them. Raises ValueError for a value out of range, an algorithm without a ratio, or bounds that are no limits.
    """
    for each in (algorithm, *beside):
        if not isinstance(each, PolicyGradient):
            raise ValueError(f"algorithm: {each.name} has no ratio that could be clipped")
    algorithm = with_given(algorithm, eps_low=eps_low, eps_high=eps_high, max_ratio=max_ratio)
    if dual_clip:
        algorithm = replace(algorithm, surrogate=DualClip(c=dual_clip))
        up_to = max(up_to, 1.25 * dual_clip)
    every = first_and_others(algorithm, beside)
    better, worse = (
        tuple(clip_curve(each, advantage=sign, old_prob=old_prob, max_ratio=up_to) for each in every)
        for sign in (1.0, -1.0)
    )
    return ClipComparison(tuple(each.name for each in every), better, worse, algorithm)


def first_and_others(algorithm: PolicyGradient, beside: Sequence[PolicyGradient]) -> tuple[PolicyGradient, ...]:
    """Return the algorithm and those beside it that differ from it; one with its name is called the other one."""
    others = (each for each in beside if each != algorithm)
    renamed = (replace(each, name=f"the other {each.name}") if each.name == algorithm.name else each for each in others)
    return (algorithm, *renamed)


# what became of the token, on either side of ratio 1
QUADRANTS = {True: ("wrongly fallen", "grown"), False: ("fallen", "wrongly grown")}
CERTAIN = "new probability = 1"
PUSH = "push on log π"
SAID = "Dashed is the push on log π, ∂J/∂log π = ratio · ∂J/∂ratio; where J = ratio · A it is J itself."
KIND = {True: "ratio", False: "sequence ratio"}  # is it one token's alone? → what it is
AXIS = {True: "ratio: new probability / old probability", False: "sequence ratio: of the whole response"}
BESIDE = ((GREEN, (0, (5, 2, 1, 2))), ("black", (0, (1, 1.2))), ("#AA4499", (0, (7, 2))))  # of up to three algorithms


def _sign_of(advantage: float) -> str:
    return f"A = {advantage:+g}".replace("-", "−")


def _doubled(limit: float, needed: float) -> float:
    """Return the limit, doubled until it reaches what is needed: seldom another, for another one costs a new layout."""
    return limit * 2.0 ** max(0, math.ceil(math.log2(max(1.0, needed / limit))))


class ClipSide:
    """One sign of the advantage in one axes: objective, push on log π, limits, the dead stretches, and other objectives."""

    def __init__(self, curves: Sequence[ClipCurve], ax: Axes) -> None:
        self.ax = ax
        self.better = curves[0].advantage > 0
        dress(
            ax,
            title=f"{_sign_of(curves[0].advantage)}: {'better' if self.better else 'worse'} than expected",
            x="",
            y="objective J,  push ∂J/∂log π",
        )
        ax.axhline(0, color=GREY, linewidth=1)
        ax.axvline(1, color=GREY, linewidth=1)
        self.dead = PolyCollection([], facecolor=FAINT, edgecolor=GREY, hatch="//", linewidth=0, label="no gradient")
        ax.add_collection(self.dead, autolim=False)
        self.limits = tuple(
            ax.axvline(1, color=GREY, linestyle=(0, (1, 1)), linewidth=2, label=label) for label in ("limits", None)
        )
        self.certain = ax.axvline(1, color="black", linestyle="-.", linewidth=1.5, zorder=4)
        (self.objective,) = ax.plot([], [], color=BLUE, linewidth=LINE + 1.5, label="objective")
        (self.push,) = ax.plot([], [], color=VERMILION, linewidth=LINE, linestyle="--", label=PUSH)
        self.beside: list[Line2D] = [
            ax.plot([], [], color=colour, linestyle=style, linewidth=LINE - 0.3)[0] for colour, style in BESIDE
        ]
        self.impossible = Rectangle((0, 0), 0, 1, facecolor="white", alpha=0.8, linewidth=0, zorder=3)
        ax.add_patch(self.impossible)
        self.names = Marks(ax, size=TEXT - 1, style="italic", where=ax.transAxes, paper=True)
        self.names.set_zorder(5)
        left, right = QUADRANTS[self.better]
        self.names.write([(left, 0.015, 0.95), (right, 0.985, 0.95)], sides=["left", "right"])
        self.show(curves)

    def span(self, curves: Sequence[ClipCurve]) -> tuple[float, float, float]:
        """Return the axes' limits for these curves: the widest ratio, the lowest and the highest value.

        What the first eighth holds may leave the frame: the objective of a surrogate with log r has no end there.
        """
        usual = (-0.3, 2.4) if self.better else (-2.2, 1.4)
        fields = [(curves[0], curves[0].push), *((curve, curve.objective) for curve in curves)]
        shown = np.concatenate([values[curve.ratio >= curve.ratio[-1] / 8] for curve, values in fields])
        shown = shown[np.isfinite(shown)]
        return round(float(curves[0].ratio[-1]), 9), _doubled(usual[0], shown.min()), _doubled(usual[1], shown.max())

    def show(self, curves: Sequence[ClipCurve]) -> None:
        """Move the artists to other curves, the explored one first."""
        curve, others = curves[0], curves[1:]
        widest, low, high = self.span(curves)
        if (self.ax.get_xlim(), self.ax.get_ylim()) != ((0, widest), (low, high)):
            self.ax.set(xlim=(0, widest), ylim=(low, high))
        self.objective.set_data(curve.ratio, curve.objective)
        self.push.set_data(curve.ratio, curve.push)
        for line, limit in zip(self.limits, (curve.lower, curve.upper), strict=True):
            line.set_xdata([limit, limit])
        self.dead.set_verts([[(a, low), (a, high), (b, high), (b, low)] for a, b in curve.dead])
        self.ax.set_xlabel(AXIS[curve.per_token])
        highest = 1 / curve.old_prob  # at this ratio the new probability is 1
        self.certain.set_xdata([highest, highest])
        self.certain.set_label(CERTAIN if curve.per_token else "_")
        for artist in (self.certain, self.impossible):
            artist.set_visible(curve.per_token)
        self.impossible.set_bounds(highest, low, max(0.0, curve.ratio[-1] - highest), high - low)
        for place, line in enumerate(self.beside):
            line.set_data([], [])
            if place < len(others):
                line.set_data(others[place].ratio, others[place].objective)

    @property
    def moving(self) -> list[Artist]:
        front = (self.objective, self.push, *self.beside, self.impossible, self.certain, self.names)
        return [self.dead, *self.limits, *front]


class ClipPicture(Picture[ClipComparison]):
    """Objective and push on log π against the ratio, left for A = +1, right for A = −1."""

    size = (10, 4.6)
    alt = "Two graphs of the objective and its push on log π against the ratio, left A = +1, right A = −1."

    def draw(self, curve: ClipComparison) -> list[Artist]:
        axes = self.figure.subplots(1, 2)
        self.sides = [ClipSide(c, ax) for c, ax in zip((curve.better, curve.worse), axes, strict=True)]
        side = self.sides[0]
        legend = self.figure.legend(
            [side.dead, side.limits[0], side.objective, side.push, side.certain, *side.beside],
            ["no gradient", "limits", "objective", PUSH, *" " * (1 + len(BESIDE))],
            loc="outside lower center",
            ncols=4,
            fontsize=TEXT - 1,
            frameon=False,
        )
        self._changing = list(zip(legend.legend_handles, legend.get_texts(), strict=True))[-1 - len(BESIDE) :]
        return [artist for side in self.sides for artist in side.moving]

    def show(self, curve: ClipComparison) -> None:
        for side, curves in zip(self.sides, (curve.better, curve.worse), strict=True):
            side.show(curves)
        names = [f"objective, {name}" for name in curve.names[1:]]
        texts = [CERTAIN if curve.better[0].per_token else " ", *names, *" " * (len(BESIDE) - len(names))]
        for (handle, words), text in zip(self._changing, texts, strict=True):
            words.set_text(text)
            if handle is not None:
                handle.set_visible(bool(text.strip()))

    def still(self, curve: ClipComparison) -> Hashable:
        spans = [side.span(c) for side, c in zip(self.sides, (curve.better, curve.worse), strict=True)]
        return (*spans, curve.names[1:], curve.better[0].per_token)

    def handles(self, curve: ClipComparison) -> list[Handle]:
        (better, worse), first = (side.ax for side in self.sides), curve.better[0]
        algorithm, q = curve.algorithm, first.old_prob
        return [
            Handle(better, "x", first.upper, "eps_high", lambda ratio: width_at(algorithm, "eps_high", q, ratio)),
            Handle(worse, "x", first.lower, "eps_low", lambda ratio: width_at(algorithm, "eps_low", q, ratio)),
            Handle(
                better,
                "x",
                1 / first.old_prob if first.per_token else math.inf,
                "old_prob",
                lambda ratio: 1 / max(ratio, 1.0),
            ),
        ]

    def conclusion(self, curve: ClipComparison) -> str:
        good, bad = (_lets_go(side[0]) for side in (curve.better, curve.worse))
        return f"{curve.names[0]} pushes a good token up {good}, and a bad one down {bad}."

    def words(self, curve: ClipComparison) -> str:
        first = curve.better[0]
        if first.per_token:
            about = f"{curve.names[0]}, a token of old probability {first.old_prob:.2f}."
        else:
            about = f"{curve.names[0]}: the ratio is the whole response's, not one token's."
        others = [
            f"Limits of {name}{_on(better, first)}: {_limit(better.lower)} and {_limit(better.upper)}."
            for name, better in zip(curve.names[1:], curve.better[1:], strict=True)
        ]
        return " ".join([about, _say_side(first), _say_side(curve.worse[0]), *others, SAID])


def _on(curve: ClipCurve, first: ClipCurve) -> str:
    """Return which ratio another algorithm's limits are on, if it is another kind."""
    if curve.per_token == first.per_token:
        return ""
    return " on a token's ratio" if curve.per_token else f" on the {KIND[False]}"


def _limit(value: float) -> str:
    if not math.isfinite(value):
        return "∞"
    return f"{value:.2f}" if abs(value - 1) >= 0.01 else f"{value:.4f}"


def _say_stretch(start: float, end: float, curve: ClipCurve) -> str:
    kind = KIND[curve.per_token]
    if start == 0:
        return f"below {kind} {_limit(end)}" if end < curve.ratio[-1] else f"at any {kind} shown"
    return (
        f"above {kind} {_limit(start)}" if end == curve.ratio[-1] else f"from {kind} {_limit(start)} to {_limit(end)}"
    )


def _lets_go(curve: ClipCurve) -> str:
    """Return how far a token of this advantage is pushed."""
    kind = KIND[curve.per_token]
    if curve.advantage > 0:
        ends = [start for start, _ in curve.dead if start > 1]
        certain = curve.per_token and min(ends, default=math.inf) >= 1 / curve.old_prob
        return "as far as it goes" if certain or not ends else f"until its {kind} is {_limit(min(ends))}"
    ends = [end for _, end in curve.dead if end < 1]
    return f"until its {kind} is {_limit(max(ends))}" if ends else "at any ratio shown"


def _say_side(curve: ClipCurve) -> str:
    q, better = curve.old_prob, curve.advantage > 0
    sign, highest = "A > 0" if better else "A < 0", 1 / q if curve.per_token else math.inf
    dead = [stretch for stretch in curve.dead if stretch[0] < highest]
    beyond = [_say_stretch(*stretch, curve) for stretch in curve.dead if stretch[0] >= highest]
    if better and not dead and highest <= curve.upper < math.inf:
        return (
            f"A > 0: the upper limit {_limit(curve.upper)} lies beyond probability 1 (ratio {highest:.2f}), "
            "so this token is never clipped."
        )
    said = f"{sign}: no gradient {' and '.join(_say_stretch(*stretch, curve) for stretch in dead)}"
    if not dead:
        said = f"{sign}: no gradient is cut at the ratios shown"
        if better and curve.ratio[-1] <= curve.upper < math.inf:
            said += f"; the upper limit is {_limit(curve.upper)}"
    elif dead == ([(curve.upper, curve.ratio[-1])] if better else [(0.0, curve.lower)]):  # as the limits of most do
        if curve.per_token:
            moved, limit = ("grown", curve.upper) if better else ("fallen", curve.lower)
            said += f", once its probability has {moved} to {limit * q:.5g}"
        said += (
            "; below 1 the gradient stays, to repair a step the wrong way" if better else "; above 1 the gradient stays"
        )
    if beyond:
        said += f" (what is cut {' and '.join(beyond)} lies beyond probability 1, ratio {highest:.2f})"
    return f"{said}."


@checked
def plot_clip(curve: ClipCurve, *, ax: Axes | None = None) -> Axes:
    """Draw one token's objective, push on log π, limits and the ratios without gradient; return the axes."""
    if ax is None:
        ax = new_figure(6, 4).add_subplot()
    ClipSide([curve], ax)
    legend = ax.legend(fontsize=TEXT - 2, loc="upper left" if curve.advantage > 0 else "upper right", framealpha=1)
    legend.set_bbox_to_anchor((0, 0, 1, 0.93), transform=ax.transAxes)  # below the quadrants' names
    return ax


@checked
def plot_clip_small_multiples(curves: Sequence[tuple[ClipCurve, ClipCurve]], names: Sequence[str]) -> Figure:
    """Draw a column a setting: A > 0 above, A < 0 below; the same story as the sliders', without a kernel."""
    figure = new_figure(3.6 * len(names) + 0.4, 6.6)
    axes = figure.subplots(2, len(names), sharex=True, sharey="row", squeeze=False)
    for column, (pair, name) in enumerate(zip(curves, names, strict=True)):
        for row, curve in enumerate(pair):
            ax = axes[row, column]
            ClipSide([curve], ax)
            signed = _sign_of(curve.advantage)
            ax.set_title(f"{name}\n{signed}" if row == 0 else signed, fontsize=TEXT)
            ax.set_xlabel(KIND[curve.per_token] if row else "")
            if column:
                ax.set_ylabel("")
    named = {label: handle for ax in axes[0] for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(
        named.values(), named.keys(), loc="outside lower center", ncols=min(5, 2 * len(names) - 1), fontsize=TEXT - 1
    )
    return figure


def has_a_ratio(algorithm: Algorithm) -> bool:
    """Return whether the algorithm has a ratio that could be clipped."""
    return isinstance(algorithm, PolicyGradient)


explore_clip = explorer(
    "clip",
    clip_comparison,
    ClipPicture,
    algorithms=Algorithms(fits=has_a_ratio, parameters=WIDTHS),
    controls={
        "old_prob": Slider(0.01, 1.0, 0.01, "old probability"),
        "dual_clip": Stops((0.0, 1.5, 2.0, 3.0, 5.0, 10.0), "dual clip c (0: none)", rare=True),
        "up_to": Stops((2.0, 4.0, 12.0), "ratios up to", rare=True),
        "beside": Beside(has_a_ratio, most=len(BESIDE)),
    },
    grid={"algorithm": (GRPO, DAPO, DCPO, GSPO), "old_prob": tuple(n / 20 for n in range(1, 21))},
    twin={
        "GRPO, ε = 0.2": {},
        "clip-higher, 0.2 and 0.5": {"eps_high": 0.5},
        "DCPO, a token of old probability 0.1": {
            "algorithm": DCPO,
            "old_prob": 0.1,
            "beside": (GRPO,),
            "up_to": 4.0,
        },
    },
)
