"""How well one token's estimate stands for a KL: mean and noise of k1, k2, k3 and k3+, of values and gradients, enumerated."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import PolicyGradient
from rlviz.pictures.kl_fits import FORWARD, REVERSE
from rlviz.pieces.kl import Estimator, KLInLoss, KLInReward, KLToOld, k1, k2, k3, k3_plus
from rlviz.types import Batch

ESTIMATORS: dict[str, Estimator] = {"k1": k1, "k2": k2, "k3": k3, "k3+": k3_plus}
MEASURES = ("value", "value_noise", "gradient_error", "gradient_noise")
NOWHERE, NEITHER = "nowhere", "neither"  # pulls in neither of the two directions
VOCABULARY = 20
DISTANCES = torch.exp(torch.arange(48, dtype=torch.double) / 47 * math.log(40)) / 20  # 0.05 to 2
ROUNDING = 1e-6  # a share below which a difference is rounding


@cache
def logits() -> Tensor:
    """Return made-up logits of the policy that stands still, and the direction in which the other one lies, [2, 20].

    To four digits, which every machine draws alike.
    """
    return torch.randn(2, VOCABULARY, generator=torch.Generator().manual_seed(3), dtype=torch.double).round(decimals=4)


def kind_of_term(algorithm: PolicyGradient) -> Any:
    """Return the class of KL terms that enter where the algorithm's does: in the loss, in the reward, or to the old policy."""
    if algorithm.kl_in_reward:
        return KLInReward
    asks = [name for name in ("ref_logp", "old_logp", "ratio") if algorithm.asks_for("kl", name)]
    return KLToOld if asks and "ref_logp" not in asks else KLInLoss


def place_of_estimator(algorithm: PolicyGradient) -> int | None:
    """Return the place of the algorithm's estimator in `ESTIMATORS`, 4 for any other KL term; None without one."""
    known, estimator = list(ESTIMATORS.values()), algorithm.can.estimator
    if algorithm.kl is None:
        return None
    return known.index(estimator) if isinstance(algorithm.kl, kind_of_term(algorithm)) and estimator in known else 4


def compared_terms(algorithm: PolicyGradient) -> list[Any]:
    """Return the KL terms that are compared: each estimator where the algorithm has its own, and its own if it is another."""
    terms = [kind_of_term(algorithm)(beta=1.0, estimator=estimator) for estimator in ESTIMATORS.values()]
    if place_of_estimator(algorithm) == len(terms):
        terms.append(algorithm.kl if algorithm.beta is None else algorithm.with_parameters(beta=1.0).kl)
    return terms


def _nothing(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.zeros_like(ratio)  # so that of a token's objective the KL term alone is left


def estimates_of(algorithm: PolicyGradient) -> Callable[[Tensor, Tensor], dict[str, Tensor]]:
    """Return a function of distances [D] and `logits` that measures the terms that are compared.

    It returns the measures [E, D], the exact kl [D], the mean gradients by the logits, "gradient" [E, D, 20], and those of both
    directions of the KL, "forward" and "reverse" [D, 20].
    """
    is_to_old = kind_of_term(algorithm) is KLToOld
    compared = [replace(algorithm, surrogate=_nothing, kl=term) for term in compared_terms(algorithm)]
    way = FORWARD if is_to_old else REVERSE  # the mean over the policy that gives the tokens

    def estimates(distances: Tensor, logits: Tensor) -> dict[str, Tensor]:
        start, shift = (logits - logits.mean(1, keepdim=True)) / logits.var(1, keepdim=True).sqrt()
        moved = (start + distances.unsqueeze(1) * shift).detach().requires_grad_()
        moving = moved.log_softmax(-1)
        still = start.log_softmax(-1).expand(moving.shape)
        sampled = (still if is_to_old else moving).detach()
        directions = {
            REVERSE: (moving.exp() * k1(moving, still)).sum(-1),
            FORWARD: (still.exp() * k1(still, moving)).sum(-1),
        }
        slopes = {name: torch.autograd.grad(kl.sum(), moved, retain_graph=True)[0] for name, kl in directions.items()}
        exact, length = directions[way].detach(), slopes[way].norm(dim=-1)
        probs, policy = sampled.exp(), moving.exp().detach()
        square = 1 - 2 * policy + policy.square().sum(-1, keepdim=True)  # ‖∂logp_a/∂logits‖² = ‖e_a − π‖²
        rows = []
        for silent in compared:
            values, slope = _token(silent, moving.detach(), sampled, still, is_to_old)
            mean = (probs * values).sum(-1, keepdim=True)
            pull = probs * slope
            gradient = pull - policy * pull.sum(-1, keepdim=True)  # Σ_a probs_a slope_a (e_a − π)
            variance = (probs * slope.square() * square).sum(-1) - gradient.square().sum(-1)
            rows.append(
                {
                    "value": mean.squeeze(-1) / exact,
                    "value_noise": (probs * (values - mean).square()).sum(-1).sqrt() / exact,
                    "gradient_error": (gradient - slopes[way]).norm(dim=-1) / length,
                    "gradient_noise": variance.clamp(min=0.0).sqrt() / length,
                    "gradient": gradient,
                }
            )
        return {**{name: torch.stack([row[name] for row in rows]) for name in rows[0]}, "kl": exact, **slopes}

    return estimates


def _token(
    silent: PolicyGradient, moving: Tensor, sampled: Tensor, still: Tensor, is_to_old: bool
) -> tuple[Tensor, Tensor]:
    """Return, for every token that may be sampled, its estimate and the slope that this gives the loss by its logp.

    In a reward the estimate is a number that weighs ∇logp; in a loss it has a slope of its own.
    """
    singles = (-1, 1, 1)  # a response of one token for each
    old_logp, ref_logp = sampled.reshape(singles), still.reshape(singles)
    mask = torch.ones_like(old_logp, dtype=torch.bool)
    if silent.kl is not None and silent.kl_in_reward:
        values = silent.kl(old_logp, ref_logp, mask).reshape(sampled.shape)
        return values, values
    logp = moving.detach().requires_grad_()
    batch = Batch(old_logp, torch.zeros_like(old_logp), mask, None if is_to_old else ref_logp)
    values = -silent.objective(logp.reshape(singles), batch).value.reshape(logp.shape)
    if not values.requires_grad:  # an estimate that is a plain number, as one of a student's own may be
        return values, torch.zeros_like(values)
    (slopes,) = torch.autograd.grad(values.sum(), logp)
    return values.detach(), slopes


@cache
def pull_of(algorithm: PolicyGradient) -> str | None:
    """Return the direction in which the algorithm's KL term pulls: forward, reverse, neither or nowhere; None without a term.

    That is whose gradient the mean gradient is at every distance, up to a weight above 0: of KL(still policy‖moving policy), of
    the other direction, of none; or 0.
    """
    place = place_of_estimator(algorithm)
    if place is None:
        return None
    found = estimates_of(algorithm)(DISTANCES, logits())
    gradient = found["gradient"][place]
    if (gradient.norm(dim=-1) < ROUNDING * found[REVERSE].norm(dim=-1)).all():
        return NOWHERE
    for way in (REVERSE, FORWARD):
        units = [rows / rows.norm(dim=-1, keepdim=True) for rows in (gradient, found[way])]
        if ((units[0] - units[1]).norm(dim=-1) < ROUNDING).all():
            return way
    return NEITHER
