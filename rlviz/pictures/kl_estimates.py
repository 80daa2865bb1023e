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
def policy_logits() -> Tensor:
    """Return made-up logits of the policy that stands still, and the direction in which the other one lies, [2, 20].

    To four digits, which every machine draws alike.
    """
    return torch.randn(2, VOCABULARY, generator=torch.Generator().manual_seed(3), dtype=torch.double).round(decimals=4)


def term_class(algorithm: PolicyGradient) -> Any:
    """Return the class of KL terms that enter where the algorithm's does: in the loss, in the reward, or to the old policy."""
    if algorithm.kl_in_reward:
        return KLInReward
    inputs = [name for name in ("ref_logp", "old_logp", "ratio") if algorithm.asks_for("kl", name)]
    return KLToOld if inputs and "ref_logp" not in inputs else KLInLoss


def estimator_index(algorithm: PolicyGradient) -> int | None:
    """Return the index of the algorithm's estimator in `ESTIMATORS`, 4 for any other KL term; None without one."""
    known, estimator = list(ESTIMATORS.values()), algorithm.can.estimator
    if algorithm.kl is None:
        return None
    return known.index(estimator) if isinstance(algorithm.kl, term_class(algorithm)) and estimator in known else 4


def measure_function(algorithm: PolicyGradient) -> Callable[[Tensor, Tensor], dict[str, Tensor]]:
    """Return a function of distances [D] and `policy_logits` that measures KL terms.

    The terms are those of each estimator where the algorithm has its own, and its own if it is another. The function returns the
    measures [E, D], the exact kl [D], the mean gradients by the logits, "gradient" [E, D, 20], and those of both directions of
    the KL, "forward" and "reverse" [D, 20].
    """
    is_to_old = term_class(algorithm) is KLToOld
    terms = [term_class(algorithm)(beta=1.0, estimator=estimator) for estimator in ESTIMATORS.values()]
    if estimator_index(algorithm) == len(terms):
        terms.append(algorithm.kl if algorithm.beta is None else algorithm.with_parameters(beta=1.0).kl)
    # Without a surrogate the KL term alone is left of a token's objective.
    silent_rules = [replace(algorithm, surrogate=_zero_surrogate, kl=term) for term in terms]
    exact_direction = FORWARD if is_to_old else REVERSE  # the mean over the policy that gives the tokens

    def measure(distances: Tensor, logits: Tensor) -> dict[str, Tensor]:
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
        exact, length = directions[exact_direction].detach(), slopes[exact_direction].norm(dim=-1)
        probs, policy = sampled.exp(), moving.exp().detach()
        square = 1 - 2 * policy + policy.square().sum(-1, keepdim=True)  # ‖∂logp_a/∂logits‖² = ‖e_a − π‖²
        rows = []
        for rule in silent_rules:
            values, slope = _estimate_of_each_token(rule, moving.detach(), sampled, still, is_to_old)
            mean = (probs * values).sum(-1, keepdim=True)
            pull = probs * slope
            gradient = pull - policy * pull.sum(-1, keepdim=True)  # Σ_a probs_a slope_a (e_a − π)
            variance = (probs * slope.square() * square).sum(-1) - gradient.square().sum(-1)
            rows.append(
                {
                    "value": mean.squeeze(-1) / exact,
                    "value_noise": (probs * (values - mean).square()).sum(-1).sqrt() / exact,
                    "gradient_error": (gradient - slopes[exact_direction]).norm(dim=-1) / length,
                    "gradient_noise": variance.clamp(min=0.0).sqrt() / length,
                    "gradient": gradient,
                }
            )
        return {**{name: torch.stack([row[name] for row in rows]) for name in rows[0]}, "kl": exact, **slopes}

    return measure


def _zero_surrogate(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.zeros_like(ratio)


def _estimate_of_each_token(
    rule: PolicyGradient, moving: Tensor, sampled: Tensor, still: Tensor, is_to_old: bool
) -> tuple[Tensor, Tensor]:
    """Return, for every token that may be sampled, its estimate and the slope that this gives the loss by its logp.

    In a reward the estimate is a number that weighs ∇logp; in a loss it has a slope of its own.
    """
    singles = (-1, 1, 1)  # a response of one token for each
    old_logp, ref_logp = sampled.reshape(singles), still.reshape(singles)
    mask = torch.ones_like(old_logp, dtype=torch.bool)
    if rule.kl is not None and rule.kl_in_reward:
        values = rule.kl(old_logp, ref_logp, mask).reshape(sampled.shape)
        return values, values
    logp = moving.detach().requires_grad_()
    batch = Batch(old_logp, torch.zeros_like(old_logp), mask, None if is_to_old else ref_logp)
    values = -rule.objective(logp.reshape(singles), batch).value.reshape(logp.shape)
    if not values.requires_grad:  # an estimate that is a plain number, as one of a student's own may be
        return values, torch.zeros_like(values)
    (slopes,) = torch.autograd.grad(values.sum(), logp)
    return values.detach(), slopes


@cache
def pull_direction(algorithm: PolicyGradient) -> str | None:
    """Return the direction in which the algorithm's KL term pulls: forward, reverse, neither or nowhere; None without a term.

    That is the KL whose gradient the mean gradient is at every distance, up to a weight above 0: KL(still policy‖moving policy)
    is forward, the other direction reverse. A mean gradient of 0 pulls nowhere.
    """
    index = estimator_index(algorithm)
    if index is None:
        return None
    measures = measure_function(algorithm)(DISTANCES, policy_logits())
    gradient = measures["gradient"][index]
    if (gradient.norm(dim=-1) < ROUNDING * measures[REVERSE].norm(dim=-1)).all():
        return NOWHERE
    for direction in (REVERSE, FORWARD):
        units = [rows / rows.norm(dim=-1, keepdim=True) for rows in (gradient, measures[direction])]
        if ((units[0] - units[1]).norm(dim=-1) < ROUNDING).all():
            return direction
    return NEITHER
