"""Which way a KL divergence pulls a policy, and how well k1, k2, k3 and k3+ stand for it: value and gradient, enumerated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlviz.algorithms.base import PolicyGradient
from rlviz.curves.arrays import Array
from rlviz.curves.memory import remembered
from rlviz.pieces.kl import Estimator, KLInLoss, KLInReward, KLToOld, k1, k2, k3, k3_plus
from rlviz.pieces.words import label
from rlviz.types import Batch
from small_models.checks import checked

VIEWS = ("fits", "value", "gradient")
ESTIMATORS: dict[str, Estimator] = {"k1": k1, "k2": k2, "k3": k3, "k3+": k3_plus}
LOSS, REWARD, OLD = "loss", "reward", "old"  # where a KL term enters: to the reference in either, or to the old policy
KINDS: dict[str, Any] = {LOSS: KLInLoss, REWARD: KLInReward, OLD: KLToOld}
# the direction whose gradient a term has on average
FORWARD, REVERSE, NOWHERE, NEITHER = "forward", "reverse", "nowhere", "neither"
POSITION = np.linspace(-30, 30, 241)  # so far out that even the widest policy in sight is whole
MEANS, WIDTHS = np.linspace(-5, 5, 81), 2.0 ** (np.arange(-12, 40) / 12)
STEPS = np.linspace(-1, 1, 9)  # of the grid, in which a fit is looked for more closely
DISTANCES = np.geomspace(0.05, 2, 48)
VOCABULARY = 20
SAME = 1e-9  # KL in nats below which two fits count as equally good
ROUNDING = 1e-6  # a share below which a difference is rounding


@dataclass(frozen=True)
class Fits:
    """A target with two humps over X positions, and the policy of one hump that is nearest to it, in either direction.

    position, target: [X]. forward, reverse: [X], the policies with the least KL(target‖policy) and KL(policy‖target).
    mean, forward_kl, reverse_kl: [M], for each place of the policy's hump the least KL over 52 widths, in nats; over all widths
    it is less by 0.005 at most. forward_at, reverse_at: (mean, width, KL) of the two fits. humps: how many the target has.
    covers: whether both its humps lie within two widths of the reverse fit.
    """

    position: Array
    target: Array
    forward: Array
    reverse: Array
    mean: Array
    forward_kl: Array
    reverse_kl: Array
    forward_at: tuple[float, float, float]
    reverse_at: tuple[float, float, float]
    humps: int
    covers: bool


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


@checked
def kl_curve(
    algorithm: PolicyGradient,
    *,
    show: str = "fits",
    apart: float = 6.0,
    weight: float = 0.6,
    distance: float = 1.0,
) -> KLCurve:
    """Return forward and reverse fits of two humps, and value and gradient of each estimator as this algorithm uses it.

    apart: between the humps, in widths of one. weight: of the left hump. distance: of the policy from the other one, in
    standard deviations of a random shift of its 20 logits. The policy that moves gives the tokens, unless the KL is to the
    old policy, which then gives them and stands still. An estimator of the algorithm that is none of the four is the fifth.
    Raises ValueError for an unknown view, apart outside [0, 10], weight outside [0, 1], distance not above 0.
    """
    if show not in VIEWS:
        raise ValueError(f"show must be one of {', '.join(VIEWS)}; got {show!r}")
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
        fits=_fits(apart, weight),
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


class _Humps:
    """Policies of one hump at each mean in each width: logp, probs [means, widths, positions], plogp their Σ p log p."""

    def __init__(self, means: Array, widths: Array) -> None:
        position, mean, width = torch.tensor(POSITION), torch.tensor(means), torch.tensor(widths)
        self.logp = (-((position - mean.view(-1, 1, 1)) / width.view(-1, 1)).square() / 2).log_softmax(-1)
        self.probs = self.logp.exp()
        self.plogp = (self.probs * self.logp).sum(-1)


@lru_cache(maxsize=1)
def _grid() -> _Humps:
    return _Humps(MEANS, WIDTHS)


@lru_cache(maxsize=2048)  # every value of both sliders, 12 MB at the most
def _fits(apart: float, weight: float) -> Fits:
    position, places = torch.tensor(POSITION), (-apart / 2, apart / 2)
    left, right = ((-(position - place).square() / 2).softmax(-1) for place in places)
    target = weight * left + (1 - weight) * right
    log_target = target.log()
    own = target @ log_target

    def forward(policies: _Humps) -> Tensor:  # k1's mean over the target; k1 is linear, so that it is k1 of the means
        means = policies.logp @ target
        return k1(own.expand_as(means), means)

    def reverse(policies: _Humps) -> Tensor:
        return k1(policies.plogp, policies.probs @ log_target)

    rising = np.diff(target.numpy()) > 0
    forward_kl, forward_at = _nearest(forward)
    reverse_kl, reverse_at = _nearest(reverse)
    return Fits(
        position=POSITION,
        target=target.numpy(),
        forward=_probs(*forward_at[:2]),
        reverse=_probs(*reverse_at[:2]),
        mean=MEANS,
        forward_kl=forward_kl,
        reverse_kl=reverse_kl,
        forward_at=forward_at,
        reverse_at=reverse_at,
        humps=int((rising[:-1] & ~rising[1:]).sum()),
        covers=max(abs(place - reverse_at[0]) for place in places) <= 2 * reverse_at[1],
    )


def _probs(mean: float, width: float) -> Array:
    hump: Array = _Humps(np.array([mean]), np.array([width])).probs.flatten().numpy()
    return hump


def _nearest(divergence: Callable[[_Humps], Tensor]) -> tuple[Array, tuple[float, float, float]]:
    """Return the least KL for each of MEANS, and mean, width and KL of the least of all, sought closely in every valley."""
    best, widths = (found.numpy() for found in divergence(_grid()).min(-1))
    around = np.pad(best, 1, constant_values=np.inf)
    valleys = np.flatnonzero((best <= around[:-2]) & (best <= around[2:]))
    fits = [_closely(divergence, float(MEANS[place]), float(WIDTHS[widths[place]])) for place in valleys]
    least = min(kl for _, _, kl in fits)
    return best, next(fit for fit in fits if fit[2] <= least + SAME)  # of two equally good ones the left one


def _closely(divergence: Callable[[_Humps], Tensor], mean: float, width: float) -> tuple[float, float, float]:
    """Return mean, width and KL of the best hump near this one of the grid."""
    least = float("inf")
    for closer in 0.25 ** np.arange(5):
        means = mean + STEPS * closer * (MEANS[1] - MEANS[0])
        near = width * (WIDTHS[1] / WIDTHS[0]) ** (STEPS * closer)
        found = divergence(_Humps(means, near))
        at = divmod(int(found.argmin()), len(STEPS))
        mean, width, least = float(means[at[0]]), float(near[at[1]]), float(found[at])
    return mean, width, least


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
