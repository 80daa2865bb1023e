"""Which way a KL divergence pulls a policy, and how well k1, k2, k3 and k3+ stand for it: value and gradient, enumerated."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.legend import Legend
from torch import Tensor

from rlviz.algorithms import GRPO, PPO, PolicyGradient
from rlviz.pictures.arguments import Menu, Slider, Values
from rlviz.pictures.arrays import Array, remembered
from rlviz.pictures.base import BLUE, GREEN, GREY, LINE, TEXT, VERMILION, Handle, Picture, dress
from rlviz.pictures.clip import has_a_ratio
from rlviz.pictures.explore import Algorithms, explorer
from rlviz.pictures.kl_fits import (
    FORWARD,
    REVERSE,
    Fits,
    FitsView,
    conclude_fits,
    height,
    nearest_fits,
    say_fits,
    weight_at,
)
from rlviz.pieces.kl import Estimator, KLInLoss, KLInReward, KLToOld, k1, k2, k3, k3_plus
from rlviz.pieces.words import label
from rlviz.types import Batch
from small_models.checks import checked

ESTIMATORS: dict[str, Estimator] = {"k1": k1, "k2": k2, "k3": k3, "k3+": k3_plus}
LOSS, REWARD, OLD = "loss", "reward", "old"  # where a KL term enters: to the reference in either, or to the old policy
KINDS: dict[str, Any] = {LOSS: KLInLoss, REWARD: KLInReward, OLD: KLToOld}
NOWHERE, NEITHER = "nowhere", "neither"  # pulls in neither of the two directions
DISTANCES = np.geomspace(0.05, 2, 48)
VOCABULARY = 20
ROUNDING = 1e-6  # a share below which a difference is rounding


@dataclass(frozen=True)
class Estimates:
    """How well one token's estimates stand for the KL of two policies over 20 tokens; by enumeration, nothing is sampled.

    names: of the E estimators. kl: [D], the exact KL at growing distance, nats. value: [E, D], mean of the estimate / exact KL.
    value_noise: [E, D], std of one token's estimate / exact KL. gradient_error: [E, D], ‖mean gradient − ∇KL‖ / ‖∇KL‖.
    gradient_noise: [E, D], root of the summed variances of one token's gradient / ‖∇KL‖. The last column is the distance
    picked out. pulls: for each, the direction whose gradient the mean gradient is at every distance, but for a weight:
    "forward", KL(still policy‖moving policy), "reverse", or "neither"; "nowhere" where it is 0.
    """

    names: tuple[str, ...]
    kl: Array
    value: Array
    value_noise: Array
    gradient_error: Array
    gradient_noise: Array
    pulls: tuple[str, ...]


@dataclass(frozen=True)
class KLCurve:
    """What a KL term does. show: which view is asked for. enters: "loss", "reward" or "old", as the algorithm's term does.

    name, term: the algorithm and its KL term in words, None where it has none. estimator: the place of its estimator among
    `estimates.names`, or None. beta: its weight, None where it has none.
    """

    name: str
    term: str | None
    show: str
    enters: str
    estimator: int | None
    beta: float | None
    fits: Fits
    estimates: Estimates

    @property
    def pull(self) -> str | None:
        """Which way the algorithm's term pulls: one of `estimates.pulls`; None without a term."""
        return None if self.estimator is None else self.estimates.pulls[self.estimator]

    def distance_at(self, kl: float) -> float:
        """Return the distance at which the exact KL is this one, between the distances drawn: it grows with the distance."""
        known = np.log(self.estimates.kl[:-1])
        return float(np.exp(np.interp(math.log(max(kl, 1e-9)), known, np.log(DISTANCES))))


@checked
def kl_curve(
    algorithm: PolicyGradient = GRPO,
    *,
    show: Literal["fits", "value", "gradient"] = "fits",
    apart: float = 6.0,
    weight: float = 0.6,
    distance: float = 1.0,
) -> KLCurve:
    """Return what a KL term pulls at: mode covering against mode seeking, and k1, k2, k3, k3+ against the exact KL.

    The algorithm says which estimator it is and where it enters (loss, reward, to the old policy), which decides the gradients.
    The policy that moves gives the tokens, unless the KL is to the old policy, which then gives them and stands still. An
    estimator of the algorithm that is none of the four is the fifth. In the picture its estimator is ringed, and the fit whose
    direction has the gradient that its term has on average; none if neither has.

    show: "fits" (one hump fitted to two), "value" or "gradient" (of the estimators). apart: between the target's humps, in
    widths of one, 0 to 10. weight: of the left hump, 0 to 1. distance: of the policy from the other one, in standard deviations
    of a random shift of its 20 logits, above 0.
    Raises ValueError for a value out of range, or an algorithm that is none of policy gradients.
    """
    if not 0 <= apart <= 10:
        raise ValueError(f"apart must be from 0 to 10; got {apart}")
    if not 0 <= weight <= 1:
        raise ValueError(f"weight must be from 0 to 1; got {weight}")
    if not 0 < distance < float("inf"):
        raise ValueError(f"distance must be above 0 and finite; got {distance}")
    kl, used = algorithm.kl, _estimator(algorithm)
    return KLCurve(
        name=algorithm.name,
        term=None if kl is None else label(kl),
        show=show,
        enters=_enters(algorithm),
        estimator=None if used is None else [*ESTIMATORS.values(), used].index(used),
        beta=algorithm.beta,
        fits=nearest_fits(apart, weight),
        estimates=_estimates(algorithm, distance),
    )


def _estimator(algorithm: PolicyGradient) -> object:
    return algorithm.can.estimator or algorithm.kl


def _enters(algorithm: PolicyGradient) -> str:
    if algorithm.kl_in_reward:
        return REWARD
    if algorithm.asks_for("kl", "ref_logp"):
        return LOSS
    return OLD if algorithm.asks_for("kl", "old_logp") or algorithm.asks_for("kl", "ratio") else LOSS


def _nothing(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.zeros_like(ratio)  # so that of a token's objective the KL term alone is left


@lru_cache(maxsize=1)
def _logits() -> tuple[Tensor, Tensor]:
    """Return the logits of the policy that stands still, and the direction in which the other one lies; std 1 each."""
    drawn = torch.randn(2, VOCABULARY, generator=torch.Generator().manual_seed(3), dtype=torch.double)
    still, shift = (drawn - drawn.mean(1, keepdim=True)) / drawn.std(1, keepdim=True)
    return still, shift


def _terms(algorithm: PolicyGradient) -> dict[str, Any]:
    """Return the KL terms that are compared, by name: each estimator where the algorithm has its own, and its own if other."""
    kl, used = algorithm.kl, _estimator(algorithm)
    terms = {name: KINDS[_enters(algorithm)](beta=1.0, estimator=estimator) for name, estimator in ESTIMATORS.items()}
    if used is not None and used not in ESTIMATORS.values():
        terms["its own"] = kl if algorithm.beta is None else algorithm.with_parameters(beta=1.0).kl
    return terms


@remembered(maxsize=256)
def _estimates(algorithm: PolicyGradient, distance: float) -> Estimates:
    silent, terms, enters = replace(algorithm, surrogate=_nothing), _terms(algorithm), _enters(algorithm)
    start, shift = _logits()
    distances = torch.tensor([*DISTANCES, distance], dtype=torch.double).unsqueeze(1)
    logits = (start + distances * shift).requires_grad_()
    moving = logits.log_softmax(-1)
    still = start.log_softmax(-1).expand_as(moving)
    sampled = still if enters == OLD else moving
    directions = {
        REVERSE: (moving.exp() * k1(moving, still)).sum(-1),
        FORWARD: (still.exp() * k1(still, moving)).sum(-1),
    }
    gradients = {way: torch.autograd.grad(kl.sum(), logits, retain_graph=True)[0] for way, kl in directions.items()}
    way = FORWARD if enters == OLD else REVERSE  # the mean over the policy that gives the tokens
    exact, exact_gradient = directions[way].detach(), gradients[way]
    length = exact_gradient.norm(dim=-1)
    probs, policy = sampled.exp().detach(), moving.exp().detach()
    each = 1 - 2 * policy + policy.square().sum(-1, keepdim=True)  # ‖∂logp_a/∂logits‖² = ‖e_a − π‖²

    value, value_noise, error, noise, pulls = [], [], [], [], []
    for kl in terms.values():
        values, slopes = _token(replace(silent, kl=kl), moving, sampled.detach(), still, enters)
        mean = (probs * values).sum(-1)
        value.append(mean / exact)
        value_noise.append((probs * (values - mean.unsqueeze(-1)).square()).sum(-1).sqrt() / exact)
        pull = probs * slopes
        gradient = pull - policy * pull.sum(-1, keepdim=True)  # Σ_a probs_a slope_a (e_a − π)
        error.append((gradient - exact_gradient).norm(dim=-1) / length)
        pulls.append(_way(gradient[:-1], {way: slope[:-1] for way, slope in gradients.items()}))
        variance = (probs * slopes.square() * each).sum(-1) - gradient.square().sum(-1)
        noise.append(variance.clamp(min=0.0).sqrt() / length)
    return Estimates(
        names=tuple(terms),
        kl=exact.numpy(),
        value=torch.stack(value).numpy(),
        value_noise=torch.stack(value_noise).numpy(),
        gradient_error=torch.stack(error).numpy(),
        gradient_noise=torch.stack(noise).numpy(),
        pulls=tuple(pulls),
    )


def _way(gradient: Tensor, gradients: dict[str, Tensor]) -> str:
    """Return which of the gradients [D, tokens] this one is at every distance, up to a weight that is above 0."""
    if (gradient.norm(dim=-1) < ROUNDING * gradients[REVERSE].norm(dim=-1)).all():
        return NOWHERE
    for way, slope in gradients.items():
        if ((_unit(gradient) - _unit(slope)).norm(dim=-1) < ROUNDING).all():
            return way
    return NEITHER


def _unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=-1, keepdim=True)


def _token(
    silent: PolicyGradient, moving: Tensor, sampled: Tensor, still: Tensor, enters: str
) -> tuple[Tensor, Tensor]:
    """Return, for every token that may be sampled, its estimate and the slope that this gives the loss by its logp.

    In a reward the estimate is a number that weighs ∇logp; in a loss it has a slope of its own.
    """
    one_each = (-1, 1, 1)  # a response of one token for each
    old_logp, ref_logp = sampled.reshape(one_each), still.reshape(one_each)
    everything = torch.ones_like(old_logp, dtype=torch.bool)
    if silent.kl is not None and silent.kl_in_reward:
        values = silent.kl(old_logp, ref_logp, everything).reshape(sampled.shape)
        return values, values
    logp = moving.detach().requires_grad_()
    batch = Batch(old_logp, torch.zeros_like(old_logp), everything, None if enters == OLD else ref_logp)
    values = -silent.objective(logp.reshape(one_each), batch).value.reshape(logp.shape)
    if not values.requires_grad:  # an estimate that is a plain number, as one of a student's own may be
        return values, torch.zeros_like(values)
    (slopes,) = torch.autograd.grad(values.sum(), logp)
    return values.detach(), slopes


# estimator by estimator: colour, line style, width, marker and its size; wide ones first, so that a line on another shows both
STYLES = (
    (GREEN, "-", 2.0, "s", 9),
    (VERMILION, (0, (4, 2)), 2.8, "^", 11),
    (BLUE, "-", 6.0, "o", 14),
    ("black", (0, (1, 1.5)), 2.2, "D", 5),
    ("#AA4499", (0, (7, 2, 1, 2)), LINE, "v", 10),
)
DRAWN = (2, 0, 1, 4, 3)
ESTIMATOR_NAMES = ("k1", "k2", "k3", "k3+")
NONE = np.empty(0)


class EstimatesView:
    """Left what the estimates are on average, right how much one token's estimate is off; of the value, or of the gradient."""

    def __init__(self, left: Axes, right: Axes) -> None:
        self.axes = (left, right)
        for ax in self.axes:
            dress(ax, title=" ", x="exact KL of the two policies, nats per token", y=" ")
            ax.set(xscale="log", xlim=(0.001, 3))
        right.set_yscale("log")
        for axis in (left.xaxis, right.xaxis, right.yaxis):
            axis.set_major_formatter("{x:g}")
        (self.exact,) = left.plot([], [], color=GREY, linewidth=1)
        self.at = [ax.axvline(0.1, color=GREY, linestyle=(0, (1, 1)), linewidth=2) for ax in self.axes]
        self.lines = [[ax.plot([], [])[0] for _ in STYLES] for ax in self.axes]
        self.marks = [[ax.plot([], [], linestyle="none")[0] for _ in STYLES] for ax in self.axes]
        for lines, marks in zip(self.lines, self.marks, strict=True):
            for line, mark, (colour, style, width, shape, size) in zip(lines, marks, STYLES, strict=True):
                line.set(color=colour, linestyle=style, linewidth=width)
                mark.set(color=colour, marker=shape, markersize=size)
        self.rings = [
            ax.plot([], [], color="black", linestyle="none", marker="o", markersize=21)[0] for ax in self.axes
        ]
        for ring in self.rings:
            ring.set(markerfacecolor="none", markeredgewidth=2.5)
        self.named: list[Artist] = [*self.lines[0], self.rings[0]]
        ordered = [side[place] for sides in (self.lines, self.marks) for side in sides for place in DRAWN]
        self.moving: list[Artist] = [self.exact, *self.at, *ordered, *self.rings]

    def show(self, curve: KLCurve) -> None:
        estimates, left, right = curve.estimates, *self.axes
        if curve.show == "value":
            sides, exactly = (estimates.value, estimates.value_noise), 1
            left.set(ylabel="average estimate / exact KL", ylim=(0.5, 2), yticks=np.arange(2, 9) / 4)
            right.set(ylabel="std / exact KL", ylim=(0.5, 60))
        else:
            sides, exactly = (estimates.gradient_error, estimates.gradient_noise), 0
            left.set(ylabel="error / size of ∇KL", ylim=(-0.25, 1.7), yticks=np.arange(4) / 2)  # room below 0 to grip
            right.set(ylabel="std / size of ∇KL", ylim=(0.08, 100))
        for ax, question in zip(self.axes, ("is it right on average?", "how noisy is one token?"), strict=True):
            ax.title.set_text(f"{curve.show.capitalize()}: {question}")
        self.exact.set_data([0.001, 3], [exactly, exactly])
        for at, lines, marks, ring, rows in zip(self.at, self.lines, self.marks, self.rings, sides, strict=True):
            at.set_xdata([estimates.kl[-1]] * 2)
            for place, (line, mark) in enumerate(zip(lines, marks, strict=True)):
                x, y = (estimates.kl, rows[place]) if place < len(rows) else (NONE, NONE)
                line.set_data(x[:-1], y[:-1])
                mark.set_data(x[-1:], y[-1:])
            x, y = (NONE, NONE) if curve.estimator is None else (estimates.kl, rows[curve.estimator])
            ring.set_data(x[-1:], y[-1:])


class KLPicture(Picture[KLCurve]):
    """Forward and reverse fits, or average and noise of the estimators, whichever the curve asks for."""

    size = (10, 4.6)
    alt = (
        "Two graphs of a KL divergence: either one-humped policies fitted to a two-humped target, or average and noise of "
        "the estimators k1, k2, k3 and k3+ against the exact KL."
    )

    def draw(self, curve: KLCurve) -> Sequence[Artist]:
        grid = self.figure.add_gridspec(1, 2)
        both = [[self.figure.add_subplot(grid[0, column]) for column in range(2)] for _ in range(2)]
        self.fits, self.estimates = FitsView(*both[0]), EstimatesView(*both[1])
        fit_names = [str(artist.get_label()) for artist in self.fits.named]
        self.legends: dict[FitsView | EstimatesView, Legend] = {
            self.fits: _legend(self.figure, self.fits.named, fit_names),
            self.estimates: _legend(self.figure, self.estimates.named, [*ESTIMATOR_NAMES, " ", "the algorithm's own"]),
        }
        return [*self.fits.moving, *self.estimates.moving]

    def show(self, curve: KLCurve) -> None:
        shown = self.fits if curve.show == "fits" else self.estimates
        for view, legend in self.legends.items():
            words = [text for ax in view.axes for text in (ax.title, ax.xaxis.label, ax.yaxis.label)]
            for artist in (*view.axes, *words, *view.moving, legend, *legend.get_texts()):
                artist.set_visible(view is shown)
        if shown is self.fits:
            self.fits.show(curve.fits, curve.pull)
        else:
            self.estimates.show(curve)
        _name_the_rest(self.legends[self.estimates], curve.estimates.names)

    def still(self, curve: KLCurve) -> Hashable:
        return curve.show, curve.estimates.names

    def handles(self, curve: KLCurve) -> list[Handle]:
        left, apart, fitted = self.fits.axes[0], curve.fits.apart, curve.show == "fits"
        return [
            Handle(left, "x", -apart / 2, "apart", lambda place: -2 * place),
            Handle(left, "x", apart / 2, "apart", lambda place: 2 * place),
            *(
                Handle(ax, "x", math.inf if fitted else curve.estimates.kl[-1], "distance", curve.distance_at)
                for ax in self.estimates.axes
            ),
            Handle(
                left,
                "y",
                height(apart, curve.fits.weight) if apart >= 1 else math.inf,  # of humps on each other it says nothing
                "weight",
                lambda place: weight_at(apart, place),
            ),
        ]

    def conclusion(self, curve: KLCurve) -> str:
        if curve.show == "fits":
            return f"{_say_pull(curve)}: {conclude_fits(curve.fits)}."
        kl = f"At {_measured(curve)} = {curve.estimates.kl[-1]:.2g} nats per token"
        return f"{kl} {(_conclude_value if curve.show == 'value' else _conclude_gradient)(curve.estimates)}."

    def words(self, curve: KLCurve) -> str:
        if curve.show == "fits":
            return f"{say_fits(curve.fits)} {_say_direction(curve)}"
        return (_say_value if curve.show == "value" else _say_gradient)(curve)


def _legend(figure: Figure | SubFigure, artists: Sequence[Artist], names: Sequence[str]) -> Legend:
    return figure.legend(  # of one row: a legend out of sight keeps its place, and so two of a height take no more than one
        artists,
        names,
        loc="outside lower center",
        ncols=len(names),
        fontsize=TEXT - 1,
        frameon=False,
        markerscale=0.6,
        handlelength=2.4,
        columnspacing=1.4,
    )


def _name_the_rest(legend: Legend, names: Sequence[str]) -> None:
    place = len(STYLES) - 1
    there = len(names) > place
    legend.get_texts()[place].set_text(names[place] if there else " ")
    handle = legend.legend_handles[place]
    if handle is not None:
        handle.set_visible(there and legend.get_visible())


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.095 else f"{share:.1%}"


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


PULLS = {
    FORWARD: ("pulls towards the forward fit", "has the gradient of KL({other}‖policy)"),
    REVERSE: ("pulls towards the reverse fit", "has the gradient of KL(policy‖{other})"),
    NEITHER: ("pulls towards neither fit", "has the gradient of neither direction"),
    NOWHERE: ("pulls nowhere", "has a gradient of 0"),
}


def _measured(curve: KLCurve) -> str:
    """Return the KL that the tokens' estimates are meant for: a mean over the policy that the tokens come from."""
    return "KL(old‖policy)" if curve.enters == OLD else "KL(policy‖reference)"


def _say_pull(curve: KLCurve) -> str:
    return f"{curve.name} has no KL term" if curve.pull is None else f"{curve.name}'s KL term {PULLS[curve.pull][0]}"


def _say_direction(curve: KLCurve) -> str:
    if curve.estimator is None or curve.pull is None:
        return "Nothing ties the policy to a reference."
    whose, other, way = (
        ("the old policy's", "old", FORWARD) if curve.enters == OLD else ("the policy's own", "reference", REVERSE)
    )
    value = curve.estimates.value[curve.estimator, :-1]
    exact = np.ptp(value) < ROUNDING * value.max()  # the same multiple of the KL at every distance
    though = (
        f", though its value estimates {_measured(curve)}, the {way} direction" if exact and curve.pull != way else ""
    )
    pull = PULLS[curve.pull][1].format(other=other)
    return f"{curve.name}'s term ({curve.term}), averaged over {whose} tokens, {pull}{though}."


def _own(curve: KLCurve, mean: float) -> str:
    if curve.term is None:
        return f"{curve.name} has no KL term, so none of them is its own."
    if curve.beta is None:
        return f"{curve.name} has its own KL term, {curve.term}."
    return f"{curve.name}'s term is {curve.term}: {curve.beta * mean:.2g} per token on average."


def _conclude_value(estimates: Estimates) -> str:
    values = dict(zip(estimates.names, estimates.value[:, -1], strict=True))
    right = [name for name, value in values.items() if abs(value - 1) < ROUNDING]
    wrong = [
        f"that of {name} is {_percent(abs(value - 1))} too {'high' if value > 1 else 'low'}"
        for name, value in values.items()
        if abs(value - 1) >= ROUNDING
    ]
    return f"the average of {_and(right)} is exact; {_and(wrong)}"


def _say_value(curve: KLCurve) -> str:
    estimates = curve.estimates
    kl = estimates.kl[-1]
    noise = ", ".join(
        f"{value:.2g} ({name})" for name, value in zip(estimates.names, estimates.value_noise[:, -1] * kl, strict=True)
    )
    mean = 0.0 if curve.estimator is None else float(estimates.value[curve.estimator, -1] * kl)
    return f"One token's estimate has a standard deviation of {noise} nats. {_own(curve, mean)}"


HOW = {
    LOSS: "As a loss, tokens from the policy that learns",
    REWARD: "As part of the reward, where only the estimate's value counts (no baseline taken off)",
    OLD: "As a loss, tokens from the old policy, which stands still",
}
WHY = {
    LOSS: "k1's gradient averages to 0, and k3's is that of KL(reference‖policy), the other direction.",
    REWARD: "Its value weighs ∇log π: with k1 that is the KL's gradient, with k3 the gradient that flows through the "
    "estimate itself is missing.",
    OLD: "How often a token comes does not change, so the gradient of the average is the average gradient: k1 and k3 are right, "
    "k2 with its other average is not, and k3+ has its gradient from k2.",
}


def _conclude_gradient(estimates: Estimates) -> str:
    errors = dict(zip(estimates.names, estimates.gradient_error[:, -1], strict=True))
    right = [name for name, error in errors.items() if error < ROUNDING]
    wrong = [f"{_percent(error)} for {name}" for name, error in errors.items() if error >= ROUNDING]
    return f"on average {_and(right)} {'have' if len(right) > 1 else 'has'} its gradient; the error is {_and(wrong)}"


def _say_gradient(curve: KLCurve) -> str:
    own = (
        f"{curve.name} has no KL term, so none of them is its own."
        if curve.term is None
        else f"{curve.name}: {curve.term}."
    )
    return f"{HOW[curve.enters]}. {WHY[curve.enters]} {own}"


def _fitted(values: Values) -> bool:
    return values["show"] == "fits"


def _estimated(values: Values) -> bool:
    return values["show"] != "fits"


explore_kl = explorer(
    "kl",
    kl_curve,
    KLPicture,
    algorithms=Algorithms(fits=has_a_ratio),
    controls={
        "show": Menu(
            {"forward and reverse fit": "fits", "estimators: value": "value", "estimators: gradient": "gradient"},
            "show",
        ),
        "apart": Slider(0.0, 8.0, 0.1, "humps apart", shown=_fitted),
        "weight": Slider(0.1, 0.9, 0.05, "weight of the left", shown=_fitted),
        "distance": Slider(0.05, 2.0, 0.05, "policy's distance", shown=_estimated),
    },
    grid={
        "show": ("fits", "value", "gradient"),
        "algorithm": (GRPO, PPO),
        "apart": (0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0),
        "weight": (0.3, 0.6, 0.9),
        "distance": (0.25, 0.5, 1.0, 2.0),
    },
    twin={
        "forward and reverse fit": {},
        "the estimators' value": {"show": "value"},
        "their gradient, as a loss": {"show": "gradient"},
        "their gradient, as part of the reward": {"algorithm": PPO, "show": "gradient"},
    },
)
