"""Which way a KL divergence pulls a policy, and how well k1, k2, k3 and k3+ stand for it: value and gradient, enumerated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlviz.algorithms.base import PolicyGradient, label
from rlviz.curves.arrays import Array
from rlviz.pieces.kl import Estimator, KLInLoss, KLInReward, KLToOld, k1, k2, k3, k3_plus
from rlviz.types import Batch

VIEWS = ("fits", "value", "gradient")
ESTIMATORS: dict[str, Estimator] = {"k1": k1, "k2": k2, "k3": k3, "k3+": k3_plus}
LOSS, REWARD, OLD = "loss", "reward", "old"  # where a KL term enters: to the reference in either, or to the old policy
KINDS: dict[str, Any] = {LOSS: KLInLoss, REWARD: KLInReward, OLD: KLToOld}
POSITION = np.linspace(-10, 10, 81)
MEANS, WIDTHS = np.linspace(-5, 5, 101), np.geomspace(0.5, 8, 41)
DISTANCES = np.geomspace(0.05, 2, 48)
VOCABULARY = 20
SAME = 1e-9  # KL in nats below which two fits count as equally good


@dataclass(frozen=True)
class Fits:
    """A target with two humps over 81 positions, and the policy of one hump that is nearest to it, in either direction.

    position, target: [81]. forward, reverse: [81], the policies with the least KL(target‖policy) and KL(policy‖target).
    mean, forward_kl, reverse_kl: [M], for each place of the policy's hump the least KL over all widths, nats.
    forward_at, reverse_at: (mean, width, KL) of the two fits. humps: how many the target has.
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


@dataclass(frozen=True)
class Estimates:
    """How well one token's estimates stand for the KL of two policies over 20 tokens; by enumeration, nothing is sampled.

    names: of the E estimators. kl: [D], the exact KL at growing distance, nats. value: [E, D], mean of the estimate / exact KL.
    value_noise: [E, D], std of one token's estimate / exact KL. gradient_error: [E, D], ‖mean gradient − ∇KL‖ / ‖∇KL‖.
    gradient_noise: [E, D], root of the summed variances of one token's gradient / ‖∇KL‖. The last column is the distance
    picked out.
    """

    names: tuple[str, ...]
    kl: Array
    value: Array
    value_noise: Array
    gradient_error: Array
    gradient_noise: Array


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
    kl, enters = algorithm.kl, _enters(algorithm)
    terms = {name: KINDS[enters](beta=1.0, estimator=estimator) for name, estimator in ESTIMATORS.items()}
    used = getattr(kl, "estimator", kl)
    if used is not None and used not in ESTIMATORS.values():
        terms["its own"] = replace(kl, beta=1.0) if hasattr(kl, "estimator") else kl  # type: ignore[type-var]
    place = None if used is None else [*ESTIMATORS.values(), used].index(used)
    return KLCurve(
        name=algorithm.name,
        term=None if kl is None else label(kl),
        show=show,
        enters=enters,
        estimator=place,
        beta=getattr(kl, "beta", None),
        fits=_fits(apart, weight),
        estimates=_estimates(replace(algorithm, surrogate=_nothing), terms, enters, distance),
    )


def _enters(algorithm: PolicyGradient) -> str:
    if isinstance(algorithm.kl, KLInReward):
        return REWARD
    to_old = algorithm.asks_for("kl", "old_logp") and not algorithm.asks_for("kl", "ref_logp")
    return OLD if to_old else LOSS


def _nothing(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.zeros_like(ratio)  # so that of a token's objective the KL term alone is left


@lru_cache(maxsize=1)
def _policies() -> Tensor:
    """Return log-probabilities of a hump at each of MEANS in each of WIDTHS: [means, widths, positions]."""
    position, mean, width = torch.tensor(POSITION), torch.tensor(MEANS), torch.tensor(WIDTHS)
    return (-((position - mean.view(-1, 1, 1)) / width.view(-1, 1)).square() / 2).log_softmax(-1)


@lru_cache(maxsize=64)
def _fits(apart: float, weight: float) -> Fits:
    position, policies = torch.tensor(POSITION), _policies()
    humps = [(-(position - place).square() / 2).softmax(-1) for place in (-apart / 2, apart / 2)]
    target = weight * humps[0] + (1 - weight) * humps[1]
    everywhere = target.log().expand_as(policies)
    divergences = (
        (target * k1(everywhere, policies)).sum(-1),  # a mean over the target: KL(target‖policy)
        (policies.exp() * k1(policies, everywhere)).sum(-1),
    )
    least, fitted, at = [], [], []
    for divergence in divergences:
        best, widths = divergence.min(-1)
        place = int((best <= best.min() + SAME).double().argmax())  # of two equally good ones the left one
        least.append(best.numpy())
        fitted.append(policies[place, widths[place]].exp().numpy())
        at.append((float(MEANS[place]), float(WIDTHS[widths[place]]), float(best[place])))
    rising = np.diff(target.numpy()) > 0
    return Fits(
        position=POSITION,
        target=target.numpy(),
        forward=fitted[0],
        reverse=fitted[1],
        mean=MEANS,
        forward_kl=least[0],
        reverse_kl=least[1],
        forward_at=at[0],
        reverse_at=at[1],
        humps=int((rising[:-1] & ~rising[1:]).sum()),
    )


@lru_cache(maxsize=1)
def _logits() -> tuple[Tensor, Tensor]:
    """Return the logits of the policy that stands still, and the direction in which the other one lies; std 1 each."""
    drawn = torch.randn(2, VOCABULARY, generator=torch.Generator().manual_seed(3), dtype=torch.double)
    still, shift = (drawn - drawn.mean(1, keepdim=True)) / drawn.std(1, keepdim=True)
    return still, shift


def _estimates(silent: PolicyGradient, terms: dict[str, Any], enters: str, distance: float) -> Estimates:
    start, shift = _logits()
    distances = torch.tensor([*DISTANCES, distance], dtype=torch.double).unsqueeze(1)
    logits = (start + distances * shift).requires_grad_()
    moving = logits.log_softmax(-1)
    still = start.log_softmax(-1).expand_as(moving)
    sampled, other = (still, moving) if enters == OLD else (moving, still)
    exact = (sampled.exp() * k1(sampled, other)).sum(-1)
    (exact_gradient,) = torch.autograd.grad(exact.sum(), logits, retain_graph=True)
    length = exact_gradient.norm(dim=-1)
    probs, policy, exact = sampled.exp().detach(), moving.exp().detach(), exact.detach()
    each = 1 - 2 * policy + policy.square().sum(-1, keepdim=True)  # ‖∂logp_a/∂logits‖² = ‖e_a − π‖²

    value, value_noise, error, noise = [], [], [], []
    for kl in terms.values():
        values, slopes = _token(replace(silent, kl=kl), moving, sampled.detach(), still, enters)
        mean = (probs * values).sum(-1)
        value.append(mean / exact)
        value_noise.append((probs * (values - mean.unsqueeze(-1)).square()).sum(-1).sqrt() / exact)
        pull = probs * slopes
        gradient = pull - policy * pull.sum(-1, keepdim=True)  # Σ_a probs_a slope_a (e_a − π)
        error.append((gradient - exact_gradient).norm(dim=-1) / length)
        variance = (probs * slopes.square() * each).sum(-1) - gradient.square().sum(-1)
        noise.append(variance.clamp(min=0.0).sqrt() / length)
    stacked = [torch.stack(rows).numpy() for rows in (value, value_noise, error, noise)]
    return Estimates(tuple(terms), exact.numpy(), *stacked)


def _token(
    silent: PolicyGradient, moving: Tensor, sampled: Tensor, still: Tensor, enters: str
) -> tuple[Tensor, Tensor]:
    """Return, for every token that may be sampled, its estimate and the slope that this gives the loss by its logp.

    In a reward the estimate is a number that weighs ∇logp; in a loss it has a slope of its own.
    """
    one_each = (-1, 1, 1)  # a response of one token for each
    old_logp, ref_logp = sampled.reshape(one_each), still.reshape(one_each)
    everything = torch.ones_like(old_logp, dtype=torch.bool)
    if isinstance(silent.kl, KLInReward):
        values = silent.kl(old_logp, ref_logp, everything).reshape(sampled.shape)
        return values, values
    logp = moving.detach().requires_grad_()
    batch = Batch(old_logp, torch.zeros_like(old_logp), everything, None if enters == OLD else ref_logp)
    values = -silent.objective(logp.reshape(one_each), batch).value.reshape(logp.shape)
    (slopes,) = torch.autograd.grad(values.sum(), logp)
    return values.detach(), slopes
