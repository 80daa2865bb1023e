"""Two engines: how likely a sampler and the trainer find the same tokens, and what a correction makes of where they disagree."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from torch import Tensor

from rlviz.algorithms import GRPO, TIS, TWO_ENGINES, Algorithm, GroupPolicyGradient, numbers
from rlviz.pictures.arguments import Stops
from rlviz.pictures.arrays import Array, array
from rlviz.pictures.base import BLUE, GREEN, GREY, LINE, TEXT, VERMILION, Handle, Picture, dress
from rlviz.pictures.explore import Algorithms, explorer, with_given
from rlviz.pictures.mismatch_tokens import BITS, LAGS, Drawn, drawn
from rlviz.pieces.kl import k3
from rlviz.pieces.ratios import token_ratio
from rlviz.types import Batch
from small_models.checks import checked

NEAR = 0.8, 1.2  # of w, as records of a run count them
SAME = 1e-6  # by which two weights may differ through rounding
KINDS = ("as drawn", "changed", "left out")


@dataclass(frozen=True)
class MismatchCurve:
    """Tokens that a sampler drew, and what the loss makes of them, [N]: those of groups whose rewards differ.

    name, bits, lag: of the algorithm and the sampler. sampler_prob, trainer_prob: of each token. weight: w = trainer_prob /
    sampler_prob. used: the token's push in the first update over what it would be if the trainer itself had sampled: 1 where
    nothing is corrected, w where w is taken as it is. kind [N]: a place in `KINDS`: used is w or 1, another number, or 0.
    limits: on w as far as the correction has them, parameter → value. kl: of the sampler to the trainer, nats per token, by k3.
    """

    name: str
    bits: int
    lag: int
    sampler_prob: Array
    trainer_prob: Array
    weight: Array
    used: Array
    kind: NDArray[np.int_]
    limits: dict[str, float]
    kl: float

    def share(self, kind: str) -> float:
        """Return the share of the tokens that are of this kind."""
        return float((self.kind == KINDS.index(kind)).mean())

    @property
    def outside(self) -> float:
        """The share of the tokens whose w is outside `NEAR`."""
        return float(((self.weight < NEAR[0]) | (self.weight > NEAR[1])).mean())

    @staticmethod
    def effective(weights: Array) -> float:
        """Return how many equal weights these are worth, as a share of their number: (Σ w)² / (N Σ w²), 0 where all are 0."""
        squares = float(np.square(weights).sum())
        return float(weights.sum()) ** 2 / (len(weights) * squares) if squares else 0.0


def needs_no_more(algorithm: Algorithm) -> bool:
    """Return whether the algorithm makes a token's push of rewards and of log-probabilities under sampler and trainer alone."""
    known = {"mask", "old_logp", "sampler_logp"}
    return isinstance(algorithm, GroupPolicyGradient) and set(algorithm.can.asks["advantage"]) <= known


def _pushes(algorithm: GroupPolicyGradient, tokens: Drawn, sampler_logp: Tensor | None) -> Tensor:
    """Return ∂J/∂log π of each token before the first update, [P, G, T]."""
    advantages, _ = algorithm.advantages(
        tokens.rewards, tokens.mask, old_logp=tokens.old_logp, sampler_logp=sampler_logp
    )
    leaf = tokens.old_logp.clone().requires_grad_()
    with torch.enable_grad():
        batch = Batch(tokens.old_logp, advantages, tokens.mask, sampler_logp=sampler_logp)
        value = algorithm.objective(leaf, batch).value
        return torch.autograd.grad(value.masked_fill(~tokens.mask, 0.0).sum(), leaf)[0]


@checked
def mismatch_curve(
    algorithm: GroupPolicyGradient = TIS,
    *,
    cap: float | None = None,
    lowest: float | None = None,
    highest: float | None = None,
    delta: float | None = None,
    bits: int = 4,
    lag: int = 8,
) -> MismatchCurve:
    """Return what a sampler and the trainer think of the same tokens, and what the algorithm's correction makes of each.

    The tokens are real: a small policy (task chain, GRPO, after 24 steps) and copies of it of `bits` bits and `lag` steps ago,
    each of which answered 16 prompts four times. What the loss makes of them is computed here, by the algorithm's own pieces.

    cap: of truncated weights; lowest, highest: of masked ones; delta: of the sequence mask, nats per token; None: the algorithm's
    own. bits: 3, 4, 5, 6, 8, or 16, next to the trainer's weights. lag: steps, 0, 1, 2, 4, 8 or 16.
    Raises ValueError for another sampler, for a value out of range, and for an algorithm whose advantage needs a reference,
    single steps or earlier visits.
    """
    if not needs_no_more(algorithm):
        raise ValueError(
            f"algorithm: {algorithm.name} needs more than rewards and the probabilities of sampler and trainer"
        )
    algorithm = with_given(algorithm, cap=cap, lowest=lowest, highest=highest, delta=delta).without_kl()
    tokens = drawn(bits, lag)
    plain = _pushes(algorithm, tokens, None)
    there = tokens.mask & (plain != 0)
    weight = token_ratio(tokens.old_logp, tokens.sampler_logp, tokens.mask)[there]
    used = _pushes(algorithm, tokens, tokens.sampler_logp)[there] / plain[there]
    as_drawn = ((used - weight).abs() < SAME * weight) | ((used - 1).abs() < SAME)
    kind = torch.where(used == 0, 2, torch.where(as_drawn, 0, 1))
    known = numbers(algorithm)
    return MismatchCurve(
        name=algorithm.name,
        bits=bits,
        lag=lag,
        sampler_prob=array(tokens.sampler_logp.exp()[there]),
        trainer_prob=array(tokens.old_logp.exp()[there]),
        weight=array(weight),
        used=array(used),
        kind=array(kind).astype(int),
        limits={name: float(known[name]) for name in ("cap", "lowest", "highest", "delta") if name in known},
        kl=float(k3(tokens.sampler_logp, tokens.old_logp)[there].mean()),
    )


LEAST = 0.003  # of a probability that is drawn; below it a token stands at the edge
WEIGHTS = 0.1, 10.0  # of w, likewise
LOWEST = 0.6  # of the axis of tokens, which is logarithmic
BINS = np.geomspace(*WEIGHTS, 41)
LOOKS = {"as drawn": (BLUE, "o", 5), "changed": (GREEN, "^", 7), "left out": (VERMILION, "x", 7)}


class MismatchPicture(Picture[MismatchCurve]):
    """Left each token by its two probabilities, right how many tokens have which weight, with the correction's limits."""

    size = (10, 4.6)
    alt = (
        "Two graphs. Left a dot for each token, its probability under the sampler against that under the trainer, both "
        "logarithmic, with a diagonal where they agree; right how many tokens have which weight w, by what the correction does."
    )

    def draw(self, curve: MismatchCurve) -> list[Artist]:
        left, right = self.axes = self.figure.subplots(1, 2)
        dress(left, title="The same tokens, by both engines", x="probability under the sampler", y="under the trainer")
        dress(right, title="How far they are apart", x="weight w = trainer / sampler", y="tokens")
        left.set(xscale="log", yscale="log", xlim=(LEAST * 0.8, 1.3), ylim=(LEAST * 0.8, 1.3))
        ticks = [0.003, 0.01, 0.03, 0.1, 0.3, 1]
        left.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        left.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        right.set(xscale="log", yscale="log", xlim=WEIGHTS, ylim=(LOWEST, 700))
        right.set_xticks([0.1, 0.2, 0.5, 1, 2, 5, 10], ["0.1", "0.2", "0.5", "1", "2", "5", "10"])
        right.set_yticks([1, 10, 100], ["1", "10", "100"])
        for ax in self.axes:
            ax.minorticks_off()
        left.plot([LEAST / 10, 2], [LEAST / 10, 2], color=GREY, linewidth=1.5)
        right.axvline(1.0, color=GREY, linewidth=1.5)
        self.dots = {kind: self._dots(left, kind) for kind in KINDS}
        self.bars = {kind: self._bars(right, kind) for kind in KINDS}
        self.lines = [(self._line(left), self._line(right)) for _ in range(2)]
        self.figure.legend(
            handles=[*self.bars.values(), self.lines[0][1]],
            labels=["weight 1, or w as it is", "weight changed", "left out", "limit of the correction"],
            loc="outside lower center",
            ncols=4,
            fontsize=TEXT - 1,
            frameon=False,
            columnspacing=1.0,
            handletextpad=0.5,
        )
        return [*self.bars.values(), *self.dots.values(), *(line for pair in self.lines for line in pair)]

    @staticmethod
    def _dots(ax: Axes, kind: str) -> Line2D:
        colour, marker, size = LOOKS[kind]
        (dots,) = ax.plot([], [], marker, color=colour, markersize=size, alpha=0.7, markeredgewidth=1.5)
        return dots

    @staticmethod
    def _bars(ax: Axes, kind: str) -> PolyCollection:
        colour, hatch = LOOKS[kind][0], {"as drawn": None, "changed": "---", "left out": "///"}[kind]
        face = colour if hatch is None else "none"
        bars = PolyCollection([], facecolor=face, edgecolor=colour, hatch=hatch, linewidth=1.2)
        ax.add_collection(bars, autolim=False)
        return bars

    @staticmethod
    def _line(ax: Axes) -> Line2D:
        (line,) = ax.plot([], [], color="black", linestyle="--", linewidth=LINE - 0.5)
        return line

    def show(self, curve: MismatchCurve) -> None:
        x, y = (np.clip(of, LEAST, 1.0) for of in (curve.sampler_prob, curve.trainer_prob))
        for place, kind in enumerate(KINDS):
            own = curve.kind == place
            self.dots[kind].set_data(x[own], y[own])
            count = np.histogram(np.clip(curve.weight[own], *WEIGHTS), BINS)[0]
            self.bars[kind].set_verts(
                [
                    [(a, LOWEST), (b, LOWEST), (b, high), (a, high)]
                    for a, b, high in zip(BINS[:-1], BINS[1:], count, strict=True)
                    if high
                ]
            )
        limits = [*_on_w(curve), math.nan, math.nan]
        for (diagonal, upright), limit in zip(self.lines, limits, strict=False):
            diagonal.set_data([LEAST / 10, 2], [limit * LEAST / 10, limit * 2])
            upright.set_data([limit, limit], [0.1, 1e4])

    def handles(self, curve: MismatchCurve) -> list[Handle]:
        right = self.axes[1]
        return [Handle(right, "x", curve.limits.get(name, math.inf), name) for name in ("cap", "lowest", "highest")]

    def conclusion(self, curve: MismatchCurve) -> str:
        out, changed = curve.share("left out"), curve.share("changed")
        verb = "caps" if "cap" in curve.limits else "changes"
        if out or changed:
            what = (
                f"leaves {_percent(out)} of the tokens out"
                if out
                else f"{verb} the weight of {_percent(changed)} of the tokens"
            )
        elif np.abs(curve.used - 1).max() > SAME:
            what = "weighs every token with its w"
        else:
            what = "takes every token with weight 1"
        return f"{curve.name} {what}, where {_percent(curve.outside)} have a w outside .8 to 1.2."

    def words(self, curve: MismatchCurve) -> str:
        lost = 1 - curve.used.sum() / curve.weight.sum()
        change = "as large as w's"
        if abs(lost) >= 0.0005:
            change = f"{_percent(abs(lost))} {'smaller' if lost > 0 else 'larger'} than w's"
        age = "as old as the trainer" if not curve.lag else f"{curve.lag} step{'s' * (curve.lag > 1)} old"
        return (
            f"The sampler has weights of {curve.bits} bits, {age}: its KL to the trainer is {curve.kl:.2g} nats per token, and "
            f"w spreads by {curve.weight.std():.2f} around {curve.weight.mean():.2f}. The sum of the loss's weights is {change}. "
            f"They are worth as much as {_percent(curve.effective(curve.used))} of the tokens with equal weights; w itself as "
            f"much as {_percent(curve.effective(curve.weight))}. {len(curve.weight)} tokens of 64 real responses; those "
            "beyond the axes stand at their edges."
        )


def _on_w(curve: MismatchCurve) -> list[float]:
    """Return the limits that a token's own w has, without that of a response."""
    return [value for name, value in curve.limits.items() if name != "delta" and value > 0]


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %") if share < 0.1 else f"{share:.0%}".replace("%", " %")


explore_mismatch = explorer(
    "mismatch",
    mismatch_curve,
    MismatchPicture,
    algorithms=Algorithms(
        fits=needs_no_more, parameters=("cap", "lowest", "highest", "delta"), among=(*TWO_ENGINES, GRPO)
    ),
    controls={
        "bits": Stops(BITS, "bits of the sampler's weights"),
        "lag": Stops(LAGS, "steps that they are old"),
    },
    grid={"algorithm": (*TWO_ENGINES, GRPO), "bits": BITS, "lag": LAGS},
    twin={
        "TIS, weights of 4 bits": {"lag": 0},
        "TIS, weights of 4 bits and 8 steps ago": {},
        "IcePop, the same": {"algorithm": TWO_ENGINES[1]},
    },
)
