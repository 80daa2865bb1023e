"""Which way a KL divergence pulls a policy, and how well k1, k2, k3 and k3+ stand for it: value and gradient, enumerated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from rlviz.algorithms import GRPO, PPO, PolicyGradient
from rlviz.page.names import Array, Names
from rlviz.page.picture import Axis, Choice, Line, Mark, Panel, Picture, Points, Rule, Say, Slider
from rlviz.page.tracing import Curve, evaluate
from rlviz.pictures.clip import has_a_ratio
from rlviz.pictures.idea import Algorithms, explorer
from rlviz.pictures.kl_fits import FITTED, FORWARD, PANELS, REVERSE, fits
from rlviz.pieces.kl import Estimator, KLInLoss, KLInReward, KLToOld, k1, k2, k3, k3_plus
from rlviz.pieces.words import label
from rlviz.types import Batch
from small_models.checks import checked

ESTIMATORS: dict[str, Estimator] = {"k1": k1, "k2": k2, "k3": k3, "k3+": k3_plus}
LOSS, REWARD, OLD = "loss", "reward", "old"  # where a KL term enters: to the reference in either, or to the old policy
KINDS: dict[str, Any] = {LOSS: KLInLoss, REWARD: KLInReward, OLD: KLToOld}
NOWHERE, NEITHER = "nowhere", "neither"  # pulls in neither of the two directions
MEASURES = ("value", "value_noise", "gradient_error", "gradient_noise")
VOCABULARY, DISTANCES = 20, 48
ROUNDING = 1e-6  # a share below which a difference is rounding
SHOWS = {"forward and reverse fit": "fits", "estimators: value": "value", "estimators: gradient": "gradient"}
VALUES, GRADIENTS = "show=estimators: value", "show=estimators: gradient"


@cache
def logits() -> Tensor:
    """Return made-up logits of the policy that stands still, and the direction in which the other one lies, [2, 20].

    To four digits, which every machine draws alike.
    """
    return torch.randn(2, VOCABULARY, generator=torch.Generator().manual_seed(3), dtype=torch.double).round(decimals=4)


def enters(algorithm: PolicyGradient) -> str:
    """Return where the algorithm's KL term enters: "loss", "reward" or "old"."""
    if algorithm.kl_in_reward:
        return REWARD
    if algorithm.asks_for("kl", "ref_logp"):
        return LOSS
    return OLD if algorithm.asks_for("kl", "old_logp") or algorithm.asks_for("kl", "ratio") else LOSS


def terms(algorithm: PolicyGradient) -> dict[str, Any]:
    """Return the KL terms that are compared, by name: each estimator where the algorithm has its own, and its own if other."""
    found = {name: KINDS[enters(algorithm)](beta=1.0, estimator=estimator) for name, estimator in ESTIMATORS.items()}
    used = _estimator(algorithm)
    if used is not None and used not in ESTIMATORS.values():
        found["its own"] = algorithm.kl if algorithm.beta is None else algorithm.with_parameters(beta=1.0).kl
    return found


def _estimator(algorithm: PolicyGradient) -> object:
    return algorithm.can.estimator or algorithm.kl


def own_place(algorithm: PolicyGradient) -> int:
    """Return the place of the algorithm's estimator among its `terms`; −1 where it has none."""
    used = _estimator(algorithm)
    return -1 if used is None else [*ESTIMATORS.values(), used].index(used)


def _nothing(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.zeros_like(ratio)  # so that of a token's objective the KL term alone is left


def kl(algorithm: PolicyGradient) -> Curve:
    """Return the curve: two fits, and each estimator against the exact KL at growing distance and at the one picked out.

    kl: the exact KL, nats. value0 …: mean of an estimate / exact KL. value_noise0 …: std of one token's estimate / exact KL.
    gradient_error0 …: ‖mean gradient − ∇KL‖ / ‖∇KL‖. gradient_noise0 …: root of the summed variances of one token's gradient /
    ‖∇KL‖. With _at: at the distance picked out. All by enumeration of 20 tokens, nothing is sampled.
    """
    return _curve(
        algorithm if algorithm.kl is not None else GRPO
    )  # without a term of its own: the estimators in a plain loss


@cache
def _curve(algorithm: PolicyGradient) -> Curve:
    estimates = _estimates(algorithm)

    def curve(
        show: Tensor,
        apart: Tensor,
        weight: Tensor,
        distance: Tensor,
        logits: Tensor,
        own: Tensor,
        beta: Tensor,
        pulls: Tensor,
    ) -> dict[str, Tensor]:
        fitted = fits(apart, weight)
        ring = {
            f"ring_{name}": torch.where(
                pulls == 1, fitted[f"{FORWARD}_{of}"], torch.where(pulls == 2, fitted[f"{REVERSE}_{of}"], torch.nan)
            )
            for name, of in (("mean", "mean"), ("kl", "least"))
        }
        grid, here = (
            estimates(_distances(), logits),
            estimates(distance.reshape(1), logits),
        )  # the page computes grid once
        outputs = {**fitted, **ring, "kl": grid["kl"], "kl_at": here["kl"][0]}
        if len(grid["value"]) > len(ESTIMATORS):
            outputs["is_fifth"] = torch.ones_like(distance)
        for measure in MEASURES:
            values = here[measure][:, 0]
            places = torch.arange(len(values), dtype=torch.double)
            outputs |= {f"{measure}{i}": row for i, row in enumerate(grid[measure])}
            outputs |= {f"{measure}{i}_at": value for i, value in enumerate(values)}
            outputs[f"own_{measure}"] = torch.where(own < 0, torch.nan, torch.where(places == own, values, 0.0).sum())
        two, covers = outputs["humps"] > 1, outputs["covers"] > 0
        k2_share = outputs["value1_at"]
        weighs = (show == 1) & (beta > 0)
        flags = {
            "two_middles": apart >= 1,  # of humps on each other a height says nothing of a weight
            "one": (show == 0) & ~two,
            "both": (show == 0) & two & covers,
            "takes_one": (show == 0) & two & ~covers,
            "k2_high": (show == 1) & (k2_share >= 1),
            "k2_low": (show == 1) & (k2_share < 1),
            "weighs": weighs,
            "says_own": (show == 1) & ~weighs,
        }
        return {
            **outputs,
            **{f"spread{i}": outputs[f"value_noise{i}_at"] * outputs["kl_at"] for i in range(len(ESTIMATORS))},
            "k2_off": (k2_share - 1).abs(),
            "own_mean": beta * outputs["own_value"] * outputs["kl_at"],
            **flags,
        }

    return curve


def _distances() -> Tensor:
    return torch.exp(torch.arange(DISTANCES, dtype=torch.double) / (DISTANCES - 1) * np.log(40)) / 20  # 0.05 to 2


def _estimates(algorithm: PolicyGradient) -> Any:
    """Return what computes all measures [E, D], kl [D], and mean gradients by the logits [E, D, tokens], and of both KLs."""
    place = enters(algorithm)
    compared = [replace(algorithm, surrogate=_nothing, kl=kl) for kl in terms(algorithm).values()]
    way = FORWARD if place == OLD else REVERSE  # the mean over the policy that gives the tokens

    def estimates(distances: Tensor, drawn: Tensor) -> dict[str, Tensor]:
        start, shift = (drawn - drawn.mean(1, keepdim=True)) / drawn.var(1, keepdim=True).sqrt()
        moved = (start + distances.unsqueeze(1) * shift).detach().requires_grad_()
        moving = moved.log_softmax(-1)
        still = start.log_softmax(-1).expand(moving.shape)
        sampled = (still if place == OLD else moving).detach()
        directions = {
            REVERSE: (moving.exp() * k1(moving, still)).sum(-1),
            FORWARD: (still.exp() * k1(still, moving)).sum(-1),
        }
        slopes = {way: torch.autograd.grad(kl.sum(), moved, retain_graph=True)[0] for way, kl in directions.items()}
        exact, length = directions[way].detach(), slopes[way].norm(dim=-1)
        probs, policy = sampled.exp(), moving.exp().detach()
        each = 1 - 2 * policy + policy.square().sum(-1, keepdim=True)  # ‖∂logp_a/∂logits‖² = ‖e_a − π‖²
        found: dict[str, list[Tensor]] = {name: [] for name in (*MEASURES, "gradient")}
        for silent in compared:
            values, slope = _token(silent, moving.detach(), sampled, still, place)
            mean = (probs * values).sum(-1, keepdim=True)
            pull = probs * slope
            gradient = pull - policy * pull.sum(-1, keepdim=True)  # Σ_a probs_a slope_a (e_a − π)
            variance = (probs * slope.square() * each).sum(-1) - gradient.square().sum(-1)
            found["value"].append(mean.squeeze(-1) / exact)
            found["value_noise"].append((probs * (values - mean).square()).sum(-1).sqrt() / exact)
            found["gradient_error"].append((gradient - slopes[way]).norm(dim=-1) / length)
            found["gradient_noise"].append(variance.clamp(min=0.0).sqrt() / length)
            found["gradient"].append(gradient)
        return {**{name: torch.stack(rows) for name, rows in found.items()}, "kl": exact, **slopes}

    return estimates


def _token(silent: PolicyGradient, moving: Tensor, sampled: Tensor, still: Tensor, place: str) -> tuple[Tensor, Tensor]:
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
    batch = Batch(old_logp, torch.zeros_like(old_logp), everything, None if place == OLD else ref_logp)
    values = -silent.objective(logp.reshape(one_each), batch).value.reshape(logp.shape)
    if not values.requires_grad:  # an estimate that is a plain number, as one of a student's own may be
        return values, torch.zeros_like(values)
    (slopes,) = torch.autograd.grad(values.sum(), logp)
    return values.detach(), slopes


@lru_cache(maxsize=256)
def known(algorithm: PolicyGradient) -> tuple[tuple[str, ...], Any]:
    """Return what the algorithm fixes: where each of its `terms` pulls, and their `_estimates` at all distances."""
    found = _estimates(algorithm if algorithm.kl is not None else GRPO)(_distances(), logits())
    return tuple(_way(gradient, found) for gradient in found["gradient"]), found


def _way(gradient: Tensor, found: dict[str, Tensor]) -> str:
    """Return which KL's gradient this one is at every distance, up to a weight that is above 0."""
    if (gradient.norm(dim=-1) < ROUNDING * found[REVERSE].norm(dim=-1)).all():
        return NOWHERE
    for way in (REVERSE, FORWARD):
        if ((_unit(gradient) - _unit(found[way])).norm(dim=-1) < ROUNDING).all():
            return way
    return NEITHER


def _unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=-1, keepdim=True)


def pull_of(algorithm: PolicyGradient) -> str | None:
    """Return the direction in which the algorithm's KL term pulls: forward, reverse, neither or nowhere; None without a term.

    That is whose gradient the mean gradient is at every distance: of KL(still policy‖moving policy), of the other, of none; or 0.
    """
    return None if own_place(algorithm) < 0 else known(algorithm)[0][own_place(algorithm)]


def data(algorithm: PolicyGradient) -> dict[str, float]:
    """Return the algorithm's part in the picture: its estimator's place, its weight (0: none), which fit it pulls towards."""
    pulls = {FORWARD: 1.0, REVERSE: 2.0}.get(pull_of(algorithm) or "", 0.0)
    return {"own": float(own_place(algorithm)), "beta": float(algorithm.beta or 0.0), "pulls": pulls}


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


PULLS = {
    FORWARD: ("pulls towards the forward fit", "has the gradient of KL({other}‖policy)"),
    REVERSE: ("pulls towards the reverse fit", "has the gradient of KL(policy‖{other})"),
    NEITHER: ("pulls towards neither fit", "has the gradient of neither direction"),
    NOWHERE: ("pulls nowhere", "has a gradient of 0"),
}
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


def texts(algorithm: PolicyGradient) -> dict[str, str]:
    """Return what the algorithm fixes of the words: its term, which way it pulls, which estimators are right on average."""
    name, term, place = algorithm.name, algorithm.kl, enters(algorithm)
    found = known(algorithm)[1]
    names = list(ESTIMATORS)
    exact, right = (
        [each for each, row in zip(names, rows, strict=False) if (row - target).abs().amax() < ROUNDING]
        for rows, target in ((found["value"], 1), (found["gradient_error"], 0))
    )
    told = {
        "measured": "KL(old‖policy)" if place == OLD else "KL(policy‖reference)",
        "exact": _and(exact),
        "gradients_" + "".join(str(names.index(each)) for each in right): "yes",
        "how": f"{HOW[place]}. {WHY[place]}",
    }
    if term is None:
        nothing = f"{name} has no KL term, so none of them is its own."
        return {
            **told,
            "pull": f"{name} has no KL term",
            "direction": f"{name}: nothing ties the policy to a reference.",
            "whose": nothing,
            "own_term": nothing,
        }
    return {
        **told,
        "pull": f"{name}'s KL term {PULLS[pull_of(algorithm) or NEITHER][0]}",
        "direction": _direction(algorithm, found),
        "whose": f"{name} has its own KL term, {label(term)}.",
        "own_term": f"{name}: {label(term)}.",
        "term": label(term),
    }


def _direction(algorithm: PolicyGradient, found: dict[str, Tensor]) -> str:
    """Say whose gradient the term's is on average, and whether its value estimates the other direction."""
    is_old, pull = enters(algorithm) == OLD, pull_of(algorithm) or NEITHER
    whose, other, way = ("the old policy's", "old", FORWARD) if is_old else ("the policy's own", "reference", REVERSE)
    value = found["value"][own_place(algorithm)]
    is_exact = value.amax() - value.amin() < ROUNDING * value.amax()  # the same multiple of the KL at every distance
    measured = f"KL({other}‖policy)" if is_old else f"KL(policy‖{other})"
    though = f", though its value estimates {measured}, the {way} direction" if is_exact and pull != way else ""
    term = label(algorithm.kl)
    return (
        f"{algorithm.name}'s term ({term}), averaged over {whose} tokens, {PULLS[pull][1].format(other=other)}{though}."
    )


# estimator by estimator: colour, dash, width, sign and its size; wide ones first, so that a line on another shows both
LOOKS = (
    ("green", "", 2.0, "s", 8),
    ("vermilion", "7 4", 2.8, "^", 9),
    ("blue", "", 6.0, "o", 12),
    ("ink", "2 3", 2.2, "D", 5),
    ("purple", "9 3 2 3", 2.5, "v", 9),
)
DRAWN = (2, 0, 1, 4, 3)


def _panel(measure: str, title: str, y: Axis, exactly: float | None, when: str) -> Panel:
    """Return a panel: one measure of every estimator against the exact KL, and where the chosen distance is."""
    lines: list[Mark] = [] if exactly is None else [Rule(exactly, axis="y", dash="", width=1)]
    lines += [Points("kl_at", f"own_{measure}", size=20, fill="none", colour="ink", label="{name}'s own")]
    for i in DRAWN:
        colour, dash, width, sign, size = LOOKS[i]
        name, when = [*((name, "") for name in ESTIMATORS), ("its own", "is_fifth")][i]
        lines.append(Line("kl", f"{measure}{i}", dash, width, colour=colour, label=name, direct=True, when=when))
        lines.append(Points("kl_at", f"{measure}{i}_at", sign, size, colour=colour, when=when))
    x = Axis("exact KL of the two policies, nats per token", 0.001, 3, log=1, ticks=(0.001, 0.01, 0.1, 1.0))
    return Panel(title, x, y, (Rule("kl_at", drag="distance"), *lines), when=when)


_TO = "At {measured} = {kl_at:.2g} nats"
_SHAPES = {
    "one": "the target has one hump, and both fits lie on it (widths {forward_width:.1f} and {reverse_width:.1f})",
    "both": "both fits cover both humps (widths {forward_width:.1f} forward and {reverse_width:.1f} reverse)",
    "takes_one": "the forward fit covers both humps (width {forward_width:.1f}), the reverse fit takes one "
    "(width {reverse_width:.1f})",
}
_WHERE = "middle {%s_mean:.1f}, KL {%s_least:.2f} nats"
_AT = {way: _WHERE % (way, way) for way in (FORWARD, REVERSE)}
_COVERING = (
    "The forward fit has the target's own mean and spread, so it fills the valley between the humps too (mode covering): "
    f"{_AT[FORWARD]}. The reverse fit avoids what the target avoids ({{}}): {_AT[REVERSE]}."
)


def _of_gradients(right: Sequence[int]) -> Say:
    """Return the conclusion on gradients where these estimators have the KL's, for `texts` says which have."""
    names = list(ESTIMATORS)
    wrong = [f"{{gradient_error{i}_at:.0%}} for {name}" for i, name in enumerate(names) if i not in right]
    have = (
        f"{_and([names[i] for i in right])} {'have' if len(right) > 1 else 'has'} its gradient on average"
        if right
        else ""
    )
    error = f"the error is {_and(wrong)}" if wrong else ""
    said = "; ".join(filter(None, (have, error)))
    return Say(f"{_TO}, {said}.", "gradients_" + "".join(map(str, right)))


_SUBSETS = [[i for i in range(len(ESTIMATORS)) if bits >> i & 1] for bits in range(2 ** len(ESTIMATORS))]
_SPREADS = ", ".join(f"{{spread{i}:.2g}} ({name})" for i, name in enumerate(ESTIMATORS))
KL = Picture(
    title="What does a KL penalty pull towards, and how well is it estimated?",
    look="Drag a handle: the humps of the target, or how far the policy has moved.",
    notice=(
        "One direction of the KL covers both humps of the target, the other picks one. Then look at the estimators: which "
        "one is right on average, and which one is less noisy."
    ),
    alt="Two graphs of a KL divergence: either one-humped policies fitted to a two-humped target, or average and noise of "
    "the estimators k1, k2, k3 and k3+ against the exact KL.",
    panels=(
        *PANELS,
        _panel("value", "Value: is it right on average?", Axis("average estimate / exact KL", 0.5, 2), 1, VALUES),
        _panel("value_noise", "Value: how noisy is one token?", Axis("std / exact KL", 0.5, 60, log=1), None, VALUES),
        _panel(
            "gradient_error",
            "Gradient: is it right on average?",
            Axis("error / size of ∇KL", -0.25, 1.7, ticks=(0, 0.5, 1, 1.5)),  # room below 0 to grip
            0,
            GRADIENTS,
        ),
        _panel(
            "gradient_noise",
            "Gradient: how noisy is one token?",
            Axis("std / size of ∇KL", 0.08, 100, log=1),
            None,
            GRADIENTS,
        ),
    ),
    controls={
        "show": Choice(SHOWS, "forward and reverse fit", "show"),
        "apart": Slider(0.0, 8.0, 0.1, 6.0, "humps apart", when=FITTED, plays=True),
        "weight": Slider(0.1, 0.9, 0.05, 0.6, "weight of the left", when=FITTED),
        "distance": Slider(0.05, 2.0, 0.05, 1.0, "policy's distance", when=f"!{FITTED}"),
    },
    data={"logits": logits()},
    conclusion=(
        *(Say(f"{{pull}}: {shape}.", flag) for flag, shape in _SHAPES.items()),
        Say(f"{_TO}, the average of {{exact}} is exact; that of k2 is {{k2_off:.1%}} too high.", "k2_high"),
        Say(f"{_TO}, the average of {{exact}} is exact; that of k2 is {{k2_off:.1%}} too low.", "k2_low"),
        *map(_of_gradients, _SUBSETS),
    ),
    says=(
        Say(f"Forward: {_AT[FORWARD]}. Reverse: {_AT[REVERSE]}.", "one"),
        Say(_COVERING.replace("{}", "the valley is still shallow"), "both"),
        Say(_COVERING.replace("{}", "mode seeking"), "takes_one"),
        Say("{direction}", FITTED),
        Say(f"One token's estimate has a standard deviation of {_SPREADS} nats.", VALUES),
        Say("{name}'s term is {term}: {own_mean:.2g} per token on average.", "weighs"),
        Say("{whose}", "says_own"),
        Say("{how} {own_term}", GRADIENTS),
    ),
)
explore_kl = explorer(
    "kl",
    KL,
    kl,
    algorithms=Algorithms(has_a_ratio, GRPO),
    texts=texts,
    data=data,
    named={
        "two fits": {},
        "value of k1, k2, k3": {"show": "value"},
        "gradient in the loss": {"show": "gradient"},
        "gradient in the reward": {"algorithm": PPO, "show": "gradient"},
    },
)


@dataclass(frozen=True)
class Estimates:
    """How well one token's estimates stand for the KL of two policies over 20 tokens, as `kl` says.

    names: of the E estimators. kl: [D], the exact KL at growing distance, nats; the others: [E, D]. The last column is the
    distance picked out.
    """

    names: tuple[str, ...]
    kl: Array
    value: Array
    value_noise: Array
    gradient_error: Array
    gradient_noise: Array


@dataclass(frozen=True)
class KLCurve:
    """What a KL term does. estimator: the place of the algorithm's among `estimates.names`, or None; beta: its weight, or None.

    pull: as `pull_of` says. names: all that `explore_kl` computes at this setting.
    """

    estimates: Estimates
    estimator: int | None
    beta: float | None
    pull: str | None
    names: Names


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
    estimator of the algorithm that is none of the four is the fifth.

    show: "fits" (one hump fitted to two), "value" or "gradient" (of the estimators). apart: between the target's humps, in
    widths of one, 0 to 10. weight: of the left hump, 0 to 1. distance: of the policy from the other one, in standard deviations
    of a made-up shift of its 20 logits, above 0.
    Raises ValueError for a value out of range, or an algorithm that is none of policy gradients.
    """
    if not 0 <= apart <= 10:
        raise ValueError(f"apart must be from 0 to 10; got {apart}")
    if not 0 <= weight <= 1:
        raise ValueError(f"weight must be from 0 to 1; got {weight}")
    if not 0 < distance < float("inf"):
        raise ValueError(f"distance must be above 0 and finite; got {distance}")
    given = {"apart": apart, "weight": weight, "distance": distance}
    numbers = {**given, "show": list(SHOWS.values()).index(show), "logits": logits(), **data(algorithm)}
    option = next(option for option, value in SHOWS.items() if value == show)
    parts = {"name": algorithm.name, **texts(algorithm)}, data(algorithm), evaluate(kl(algorithm), numbers)
    names = Names(KL, {"show": option, **given}, *parts)
    compared = tuple(terms(algorithm))
    rows = {
        measure: np.stack(
            [[*names.array(f"{measure}{i}"), names.one(f"{measure}{i}_at")] for i in range(len(compared))]
        )
        for measure in MEASURES
    }
    estimates = Estimates(compared, np.append(names.array("kl"), names.one("kl_at")), **rows)
    place = own_place(algorithm)
    return KLCurve(estimates, None if place < 0 else place, algorithm.beta, pull_of(algorithm), names)
