"""How far the gradient pushes a token: limits on its ratio and on its new probability, against its old probability."""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from rlviz.algorithms import DAPO, DCPO, GRPO, Algorithm, PolicyGradient, numbers
from rlviz.pictures.arguments import Beside, Menu, Stops
from rlviz.pictures.arrays import Array, array
from rlviz.pictures.base import BLUE, GREY, LINE, TEXT, VERMILION, Handle, Picture, dress
from rlviz.pictures.clip import is_per_token
from rlviz.pictures.explore import WIDTHS, Algorithms, explorer, with_given
from rlviz.pictures.limits import BESIDE, first_and_others, limits_of, width_at
from rlviz.training import TrainSettings
from rlviz.types import Batch, ResponseRecord, StepRecord
from small_models.checks import checked

LEAST_PROB = 1e-4
# close together where it is rare and where it is common, for axes of either kind
GRID = np.union1d(np.geomspace(LEAST_PROB, 1.0, 90), np.linspace(0.02, 1.0, 50))


@dataclass(frozen=True)
class Limits:
    """One algorithm's limits. lower, upper: on the ratio, over the grid of old probabilities, and at the one picked out.

    cuts: whether the gradient of a token that is beyond a limit there is cut; a surrogate of one's own may not care for limits.
    """

    name: str
    lower: Array
    upper: Array
    lower_at: float
    upper_at: float
    cuts: bool


@dataclass(frozen=True)
class TokenCloud:
    """Tokens of a run after an update on them: [N] each. ratio: as the algorithm's loss has it. low, high: clipped there."""

    old_prob: Array
    new_prob: Array
    ratio: Array
    low: NDArray[np.bool_]
    high: NDArray[np.bool_]

    @property
    def clipped(self) -> NDArray[np.bool_]:
        """True where the gradient is cut."""
        return self.low | self.high


@dataclass(frozen=True)
class BoundsCurve:
    """Limits against old probability. limits: of the explored algorithm first. old_prob: the grid. at: the one picked out.

    logarithmic: how it asks to be drawn. tokens: of a run, or None. algorithm: the explored one, with its widths.
    """

    limits: tuple[Limits, ...]
    old_prob: Array
    at: float
    logarithmic: bool
    tokens: TokenCloud | None
    algorithm: PolicyGradient


@checked
def bounds_curve(
    algorithm: PolicyGradient = DCPO,
    *,
    eps_low: float | None = None,
    eps_high: float | None = None,
    max_ratio: float | None = None,
    old_prob: float = 0.1,
    scale: Literal["linear", "log"] = "linear",
    beside: Sequence[PolicyGradient] = (DAPO,),
    run: str | os.PathLike[str] | Sequence[StepRecord] | None = None,
) -> BoundsCurve:
    """Return how far the gradient pushes a token before it is cut, against the token's old probability.

    lower is asked for A < 0 and upper for A > 0, the signs that they cut.

    eps_low, eps_high, max_ratio: of the bounds; None: the algorithm's own. old_prob: the one whose numbers are said in words,
    0.0001 to 1. scale: "linear" or "log". beside: up to three algorithms whose limits are drawn as lines; as `first_and_others`
    takes them. run: a run folder, or the records of a run, whose recorded tokens lie over the picture; which of them are
    clipped is for `algorithm` to say, whichever trained them.
    Raises ValueError for a value out of range, an algorithm without a ratio or with one of a whole response, bounds that are no
    limits, and a run that recorded no tokens.
    """
    if not LEAST_PROB <= old_prob <= 1:
        raise ValueError(f"old_prob must be from {LEAST_PROB:g} to 1; got {old_prob}")
    algorithm = with_given(algorithm, eps_low=eps_low, eps_high=eps_high, max_ratio=max_ratio)
    for each in (algorithm, *beside):
        check_limits_tokens(each)
    return BoundsCurve(
        limits=tuple(_limits(each, old_prob) for each in first_and_others(algorithm, beside)),
        old_prob=GRID,
        at=old_prob,
        logarithmic=scale == "log",
        tokens=None if run is None else _cloud(algorithm, responses_of(run)),
        algorithm=algorithm,
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


def check_limits_tokens(algorithm: Algorithm) -> None:
    """Raise ValueError for an algorithm that limits no ratio, or the ratio of more than one token."""
    if not isinstance(algorithm, PolicyGradient):
        raise ValueError(f"algorithm: {algorithm.name} has no ratio that could be limited")
    if not is_per_token(algorithm):
        raise ValueError(
            f"algorithm: {algorithm.name} limits the ratio of a whole response; "
            "that gives no interval for one token's probability"
        )


def _limits(algorithm: PolicyGradient, old_prob: float) -> Limits:
    every = [*GRID, old_prob]
    lower, upper = limits_of(algorithm, every, -1.0)[0], limits_of(algorithm, every, 1.0)[1]
    at = float(lower[-1]), float(upper[-1])
    return Limits(algorithm.name, lower[:-1], upper[:-1], *at, _cuts(algorithm, old_prob, *at))


def _cuts(algorithm: PolicyGradient, old_prob: float, lower: float, upper: float) -> bool:
    """Return whether a bad token below the lower limit, or a good one above the upper one, has its gradient cut."""
    beyond = [(ratio, sign) for ratio, sign in ((lower * 0.99, -1.0), (upper * 1.01, 1.0)) if 0 < ratio < math.inf]
    if not beyond:
        return False
    ratio, signs = torch.tensor(beyond, dtype=torch.double).t().reshape(2, -1, 1, 1)
    old_logp = torch.full_like(ratio, math.log(old_prob))
    batch = Batch(old_logp, signs, torch.ones_like(ratio, dtype=torch.bool), ref_logp=old_logp)
    output = algorithm.loss(old_logp + ratio.log(), batch)
    return bool((output.clipped_low | output.clipped_high).any())


def _cloud(algorithm: PolicyGradient, responses: Sequence[ResponseRecord]) -> TokenCloud:
    longest = max(len(response.tokens) for response in responses)
    mask = torch.zeros(1, len(responses), longest, dtype=torch.bool)
    columns = {name: torch.ones(mask.shape, dtype=torch.double) for name in ("old_prob", "new_prob", "advantage")}
    for row, response in enumerate(responses):
        mask[0, row, : len(response.tokens)] = torch.tensor([not token.observed for token in response.tokens])
        for name, column in columns.items():
            column[0, row, : len(response.tokens)] = torch.tensor(
                [getattr(t, name) for t in response.tokens], dtype=torch.double
            )
    old_logp, logp = columns["old_prob"].log(), columns["new_prob"].log()
    output = algorithm.without_kl().loss(logp, Batch(old_logp, columns["advantage"], mask))
    return TokenCloud(
        old_prob=array(columns["old_prob"][mask]),
        new_prob=array(columns["new_prob"][mask]),
        ratio=array(output.ratio[mask]),
        low=array(output.clipped_low[mask]),
        high=array((output.clipped_high | output.clipped_dual)[mask]),
    )


HIGHEST = {False: (1.12, 3.0), True: (2.0, 13.0)}  # logarithmic? → top of the probabilities, top of the ratios
OUTSIDE = "^v<"  # markers on the edge for what lies above, below and left of it
LOWEST = {False: (0.0, 0.0), True: (5e-5, 0.3)}


class BoundsSide:
    """One axes: the band between lower and upper of the explored algorithm, others' as lines, tokens, the picked-out q."""

    def __init__(self, ax: Axes, *, ratios: bool) -> None:
        self.ax, self.ratios = ax, ratios
        self.band = PolyCollection([], facecolor=BLUE, alpha=0.18, linewidth=0)
        ax.add_collection(self.band, autolim=False)
        self.edges = [ax.plot([], [], color=BLUE, linewidth=LINE + 0.5)[0] for _ in range(2)]
        self.beside: list[tuple[Line2D, Line2D]] = [
            tuple(ax.plot([], [], color=colour, linestyle=style, linewidth=LINE - 0.3)[0] for _ in range(2))  # type: ignore[misc]
            for colour, style in BESIDE
        ]
        (self.at,) = ax.plot([], [], color="black", linestyle="-.", linewidth=1.5)
        whole: dict[str, Any] = {
            "linestyle": "none",
            "clip_on": False,
            "in_layout": False,
        }  # a marker on the edge is drawn whole
        (self.ends,) = ax.plot([], [], color="black", marker="o", markersize=8, **whole)
        (self.free,) = ax.plot([], [], color=GREY, marker="o", markersize=4, alpha=0.6, **whole)
        (self.cut,) = ax.plot([], [], color=VERMILION, marker="x", markersize=8, markeredgewidth=2, **whole)
        self.outside = [ax.plot([], [], color="black", marker=side, markersize=9, **whole)[0] for side in OUTSIDE]
        (self.still_line,) = ax.plot([], [], color=GREY, linewidth=1)
        if not ratios:
            ax.axhline(1, color="black", linewidth=1)

    def show(self, curve: BoundsCurve) -> None:
        index = int(self.ratios)
        logarithmic, top, bottom = (
            curve.logarithmic,
            HIGHEST[curve.logarithmic][index],
            LOWEST[curve.logarithmic][index],
        )
        scale = "log" if logarithmic else "linear"
        if self.ax.get_xscale() != scale:
            self.ax.set(xscale=scale, yscale=scale)
        self.ax.set(xlim=(curve.old_prob[0] if logarithmic else 0, 1.0), ylim=(bottom, top))
        factor = np.ones_like(curve.old_prob) if self.ratios else curve.old_prob
        lower, upper = self._heights(curve.limits[0], factor, top)
        self.band.set_verts([np.column_stack([np.r_[curve.old_prob, curve.old_prob[::-1]], np.r_[lower, upper[::-1]]])])
        for line, values in zip(self.edges, (lower, upper), strict=True):
            line.set_data(curve.old_prob, values)
        for place, lines in enumerate(self.beside, start=1):
            for side, line in enumerate(lines):
                line.set_data([], [])
                if place < len(curve.limits):
                    line.set_data(curve.old_prob, self._heights(curve.limits[place], factor, top)[side])
        self.still_line.set_data(curve.old_prob, factor)
        ends = np.array([curve.limits[0].lower_at, curve.limits[0].upper_at]) * (1.0 if self.ratios else curve.at)
        self.at.set_data([curve.at, curve.at], ends.clip(bottom, top))
        self._mark(curve, ends)

    @staticmethod
    def _heights(limits: Limits, factor: np.ndarray, top: float) -> tuple[np.ndarray, np.ndarray]:
        far = 10 * top  # stands for ∞, out of sight
        return np.minimum(limits.lower * factor, far), np.minimum(limits.upper * factor, far)

    def _mark(self, curve: BoundsCurve, ends: np.ndarray) -> None:
        """Place the markers of both ends and of the tokens; what lies outside the axes is marked on their edge."""
        left, (bottom, top) = self.ax.get_xlim()[0], self.ax.get_ylim()
        groups = [(self.ends, np.full(2, curve.at), ends)]
        tokens = curve.tokens
        if tokens is not None:
            heights = tokens.ratio if self.ratios else tokens.new_prob
            for line, those in ((self.free, ~tokens.clipped), (self.cut, tokens.clipped)):
                groups.append((line, tokens.old_prob[those], heights[those]))
        for line, x, y in groups:
            inside = (x >= left) & (bottom <= y) & (y <= top)
            line.set_data(x[inside], y[inside])
        x, y = (np.concatenate([group[place] for group in groups]) for place in (1, 2))
        level = (bottom <= y) & (y <= top)
        for line, there in zip(self.outside, (y > top, y < bottom, level & (x < left)), strict=True):
            line.set_data(x[there].clip(left), y[there].clip(bottom, top))

    @property
    def moving(self) -> list[Artist]:
        beside = [line for pair in self.beside for line in pair]
        return [
            self.band,
            self.still_line,
            *self.edges,
            *beside,
            self.free,
            self.cut,
            self.at,
            self.ends,
            *self.outside,
        ]


class BoundsPicture(Picture[BoundsCurve]):
    """New probabilities that are allowed, and limits on the ratio, against old probability."""

    size = (10, 4.4)
    alt = (
        "Two graphs against a token's old probability: left the band of new probabilities inside which the gradient pushes "
        "it either way, right the limits on its ratio."
    )

    def draw(self, curve: BoundsCurve) -> list[Artist]:
        left, right = self.figure.subplots(1, 2)
        dress(left, title="How far the gradient pushes a token", x="old probability", y="new probability")
        dress(right, title="The same as limits on the ratio", x="old probability", y="ratio")
        self.sides = [BoundsSide(left, ratios=False), BoundsSide(right, ratios=True)]
        side = self.sides[0]
        self._outside = False
        at = Line2D([], [], color="black", linestyle="-.", linewidth=1.5, marker="o", markersize=8)
        beside = [pair[0] for pair in side.beside]
        handles = [side.edges[0], at, *beside, side.outside[0], side.free, side.cut]
        labels = ["limits", "at the old probability picked out", *" " * (len(BESIDE) + 3)]
        legend = self.figure.legend(
            handles, labels, loc="outside lower center", ncols=4, fontsize=TEXT - 1, frameon=False
        )
        self._legend = list(zip(legend.legend_handles, legend.get_texts(), strict=True))
        return [artist for side in self.sides for artist in side.moving]

    def show(self, curve: BoundsCurve) -> None:
        for side in self.sides:
            side.show(curve)
        self._outside = any(np.size(line.get_xdata()) for side in self.sides for line in side.outside)
        names = [f"limits, {limits.name}" for limits in curve.limits]
        texts = [names[0], "at the old probability picked out", *names[1:], *" " * (len(BESIDE) + 1 - len(names))]
        texts += ["further out" if self._outside else " "]
        texts += ["token of the run", "clipped token"] if curve.tokens is not None else [" ", " "]
        for (handle, words), text in zip(self._legend, texts, strict=True):
            words.set_text(text)
            if handle is not None:
                handle.set_visible(bool(text.strip()))

    def still(self, curve: BoundsCurve) -> Hashable:
        return curve.logarithmic, tuple(limits.name for limits in curve.limits), curve.tokens is None, self._outside

    def handles(self, curve: BoundsCurve) -> list[Handle]:
        left, right = (side.ax for side in self.sides)
        limits = curve.limits[0]
        return [
            Handle(left, "x", curve.at, "old_prob"),
            Handle(right, "x", curve.at, "old_prob"),
            _width_handle(curve, right, "eps_low", limits.lower[-1]),
            _width_handle(curve, right, "eps_high", limits.upper[-1]),
        ]

    def conclusion(self, curve: BoundsCurve) -> str:
        first = curve.limits[0]
        return f"{first.name}: a token of old probability {curve.at:g} is pushed {_pushed(first, curve.at)}."

    def words(self, curve: BoundsCurve) -> str:
        first, *others = curve.limits
        said = []
        if first.lower_at > 0 or first.upper_at * curve.at < 1:
            said.append(
                "Beyond that its gradient is cut; a large step, or other tokens' gradients, may still carry it there."
                if first.cuts
                else "But its surrogate cuts no gradient there: these limits hold nothing back."
            )
        said += [f"Under {limits.name} it is pushed {_pushed(limits, curve.at)}." for limits in others]
        if curve.tokens is not None:
            said.append(_say_tokens(curve.tokens, first.name))
        return " ".join(said)


def _width_handle(curve: BoundsCurve, ax: Axes, name: Literal["eps_low", "eps_high"], limit: float) -> Handle:
    """Return a handle at the right end of a limit on the ratio, where the old probability is 1; none without such a width."""
    if name not in numbers(curve.algorithm):
        return Handle(ax, "y", math.inf, name)
    return Handle(ax, "y", limit, name, lambda ratio: width_at(curve.algorithm, name, 1.0, ratio))


def _pushed(limits: Limits, q: float) -> str:
    low, high = limits.lower_at * q, limits.upper_at * q
    ratios = f"ratio {_short(limits.lower_at)} to {_short(limits.upper_at)}"
    if high >= 1:
        beyond = "there is no upper limit" if math.isinf(high) else f"the upper limit {_short(high)} lies beyond 1"
        return f"down to {_short(low)} and up as far as it goes: {beyond} ({ratios})"
    return f"down to {_short(low)} and up to {_short(high)} ({ratios})"


def _short(value: float) -> str:
    if math.isinf(value):
        return "∞"
    return f"{value:.4f}" if 0 < abs(value - 1) < 0.01 else f"{value:.3g}"


def _say_tokens(tokens: TokenCloud, name: str) -> str:
    rare = tokens.old_prob < 0.1
    said = f"Of the run's {len(rare):,} recorded tokens {name} clips {tokens.low.sum():,} below and {tokens.high.sum():,} above"
    if rare.any():
        said += f"; of the {rare.sum():,} with old probability under 0.1 it clips {tokens.clipped[rare].sum():,}"
    return f"{said}."


def limits_tokens(algorithm: Algorithm) -> bool:
    """Return whether the algorithm limits the ratio of each token by itself."""
    return isinstance(algorithm, PolicyGradient) and is_per_token(algorithm)


explore_bounds = explorer(
    "bounds",
    bounds_curve,
    BoundsPicture,
    algorithms=Algorithms(fits=limits_tokens, parameters=WIDTHS, check=check_limits_tokens),
    controls={
        "old_prob": Stops(
            (1e-4, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0), "old probability"
        ),
        "scale": Menu({"linear": "linear", "log": "log"}, "axes"),
        "beside": Beside(limits_tokens, most=len(BESIDE)),
    },
    fixed={"run": records_of},
    grid={
        "scale": ("linear", "log"),
        "algorithm": (DCPO, GRPO, DAPO),
        "eps_high": (0.2, 0.28, 0.4),
        "old_prob": (0.001, 0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95),
    },
    twin={
        "GRPO, the same limits for every token": {"algorithm": GRPO, "beside": ()},
        "DAPO, clip-higher": {"algorithm": DAPO, "beside": ()},
        "DCPO, limits that widen as the token gets rarer": {"beside": (), "scale": "log"},
    },
)
