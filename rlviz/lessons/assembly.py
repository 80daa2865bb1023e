"""A student's whole loss beside an algorithm's; a slip is found by changing one slot of the algorithm at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import ALGORITHMS, RELATIVES, GroupPolicyGradient
from rlviz.algorithms.family import changes
from rlviz.algorithms.slots import SLOTS
from rlviz.lessons import bounds, cases, clipping, credit, estimates, ratios
from rlviz.lessons.judge import Mistake, judge
from rlviz.lessons.verdict import Verdict
from rlviz.pieces.aggregation import Constant
from rlviz.pieces.bounds import DynamicBounds, FixedBounds
from rlviz.pieces.kl import KLInLoss, k1, k2, k3
from rlviz.pieces.surrogate import DualClip, clipped_weight
from rlviz.pieces.words import label
from rlviz.types import Batch

Loss = Callable[..., Tensor]
IN_A_LOSS = [slot for slot in SLOTS if slot not in ("shape", "select")]
# what stands in a slot, and the exercise of which slips may stand there in its place
SLIPS = (
    ("surrogate", clipping.pessimistic),
    ("surrogate", clipping.clipped_weight),
    ("ratio", ratios.importance_ratio),
    ("ratio", ratios.sequence_importance_ratio),
    ("advantage", credit.group_advantage),
    ("advantage", credit.mean_only),
    ("aggregate", credit.mean_of_responses),
    ("aggregate", credit.mean_of_tokens),
    ("aggregate", credit.sum_of_responses),
)


def whole_loss(algorithm: GroupPolicyGradient) -> Loss:
    """Return (logp, old_logp, ref_logp, rewards, mask) → the algorithm's loss, of rewards as they are and all groups."""

    def loss(logp: Tensor, old_logp: Tensor, ref_logp: Tensor, rewards: Tensor, mask: Tensor) -> Tensor:
        A, _ = algorithm.advantages(rewards, mask, old_logp=old_logp, ref_logp=ref_logp)
        return algorithm.loss(logp, Batch(old_logp, A, mask, ref_logp=ref_logp)).loss

    return loss


def judge_assembly(student: Loss, algorithm: GroupPolicyGradient) -> Verdict:
    """Check (logp, old_logp, ref_logp [P, G, T], rewards [P, G], mask) → an algorithm's whole loss, which is minimised.

    Compared by value and by its gradient on logp; a slip is named by the slot of which a change makes the same loss. Raises
    ValueError for an algorithm whose loss needs more than these five tensors.
    """
    if not isinstance(algorithm, GroupPolicyGradient):
        raise ValueError(
            f"algorithm must be one of groups, such as GRPO; got {getattr(algorithm, 'name', algorithm)!r}"
        )
    right = whole_loss(algorithm)
    try:
        right(**cases.WHOLE_BATCHES[0])
    except ValueError as error:
        raise ValueError(
            f"algorithm must need no more than a whole loss is given; {algorithm.name}: {error}"
        ) from error
    return judge(
        student,
        right,
        cases.WHOLE_BATCHES,
        known=(*slips(algorithm), *_others(algorithm)),
        by="logp",
        praise="the whole loss, in value and gradient, with padding, dead groups and ratios beyond the limits.",
    )


def slips(algorithm: GroupPolicyGradient) -> Iterator[Mistake]:
    """Give what a student may have assembled instead, the likeliest first."""
    right = whole_loss(algorithm)
    yield Mistake(
        lambda logp, old_logp, ref_logp, rewards, mask: right(logp, old_logp, ref_logp, rewards, torch.ones_like(mask)),
        "padding is in your loss: sum over the mask only, and divide by what the mask counts.",
    )
    yield Mistake(
        lambda logp, old_logp, ref_logp, rewards, mask: right(logp, logp.detach(), ref_logp, rewards, mask),
        "your ratio is 1 everywhere: use old_logp, which was kept when the responses were sampled.",
    )
    yield Mistake(
        lambda logp, old_logp, ref_logp, rewards, mask: right(logp, ref_logp, ref_logp, rewards, mask),
        "your ratio is to the reference: it is to the policy that sampled, old_logp.",
    )
    if algorithm.slots()["surrogate"] is clipped_weight:
        yield Mistake(
            partial(_with_log_pi, algorithm),
            "you take log π, as the paper does: its gradient is right, but the value is compared too. Take log r.",
        )
    if isinstance(algorithm.kl, KLInLoss):
        beta, estimator = algorithm.kl.beta, algorithm.kl.estimator
        yield _row(algorithm, "kl", None, "the KL term is missing: J − β · KL of each token.")
        for factor, words in (
            (-1.0, "the KL term has the wrong sign: it is taken off J, so the loss adds it."),
            (1 / beta, f"β is missing in front of the KL term; it is {beta:g}."),
        ):
            scaled = partial(_times, factor, estimator)
            yield _row(algorithm, "kl", KLInLoss(beta=beta, estimator=scaled), words)
        for other in (k1, k2, k3):
            if other is not estimator:
                words = f"your KL term is {other.__name__}: {algorithm.name} takes {estimator.__name__}."
                yield _row(algorithm, "kl", KLInLoss(beta=beta, estimator=other), words)
        for row in estimates.kl_estimate_k3.mistakes if estimator is k3 else ():
            yield _row(algorithm, "kl", KLInLoss(beta=beta, estimator=row.wrong), f"in the KL term, {row.says}")
        yield Mistake(
            lambda logp, old_logp, ref_logp, rewards, mask: right(logp, old_logp, old_logp, rewards, mask),
            "your KL term is to the old policy: it is to the reference, ref_logp.",
        )
    slots = algorithm.slots()
    asked = [(slot, exercise) for slot, exercise in SLIPS if slots[slot] == exercise.like]
    if isinstance(slots["bounds"], FixedBounds):
        asked.insert(0, ("bounds", bounds.fixed_bounds(slots["bounds"].eps_low, slots["bounds"].eps_high)))
    else:
        for of in (Tensor.detach, Tensor.clone):  # frozen, and with its gradient
            yield Mistake(
                partial(_limits_of_the_new_policy, algorithm, of),
                "your limits come from the new probability: they belong to the old one, old_logp.",
            )
    if isinstance(slots["bounds"], DynamicBounds):
        for row in bounds.dynamic_bounds.mistakes:
            yield _row(algorithm, "bounds", partial(_limits, slots["bounds"], row.wrong), row.says)
    if isinstance(slots["surrogate"], DualClip):
        words = f"your floor for A < 0 is 3 A, as in verl: here it is {slots['surrogate'].c:g} A."
        yield _row(algorithm, "surrogate", DualClip(3.0), words)
    words = (
        "your A is the reward itself: take the group's mean off first, or right and wrong answers are all pushed up."
    )
    yield _row(algorithm, "advantage", lambda rewards: rewards, words)
    if isinstance(slots["aggregate"], Constant):
        asked.append(("aggregate", credit.constant_weight(slots["aggregate"].max_length)))
    for slot, exercise in asked:
        for row in exercise.mistakes:
            yield _row(algorithm, slot, row.wrong, row.says)
    for slot in IN_A_LOSS:
        own, seen = algorithm.slots()[slot], list[Any]()
        for member in (*ALGORITHMS, *RELATIVES):
            piece = member.slots()[slot]
            if isinstance(member, GroupPolicyGradient) and piece != own and piece not in seen:
                seen.append(piece)
                words = f"your loss is what comes with {label(piece)} ({member.name}'s {slot}) in the place of {label(own)}."
                yield _row(algorithm, slot, piece, words)


def _others(algorithm: GroupPolicyGradient) -> Iterator[Mistake]:
    """Give the losses of the family's other members, with their KL term and without."""
    for other in (*ALGORITHMS, *RELATIVES):
        if isinstance(other, GroupPolicyGradient):
            for one, words in ((other, ""), (other.without_kl(), " without its KL term")):
                slots = [slot for slot in changes(algorithm, one) if slot in IN_A_LOSS]
                told = f"your loss is {other.name}'s{words}: {algorithm.name} has another {', another '.join(slots)}."
                yield Mistake(whole_loss(one), told)


def _with_log_pi(algorithm: GroupPolicyGradient, logp: Tensor, old_logp: Tensor, *given: Tensor) -> Tensor:
    def surrogate(ratio: Tensor, A: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        return clipped_weight(ratio, A, lower, upper) + torch.clamp(ratio, lower, upper).detach() * A * old_logp

    return whole_loss(replace(algorithm, surrogate=surrogate))(logp, old_logp, *given)


def _limits_of_the_new_policy(
    algorithm: GroupPolicyGradient, of: Callable[[Tensor], Tensor], logp: Tensor, *given: Tensor
) -> Tensor:
    return whole_loss(replace(algorithm, bounds=lambda old_logp: algorithm.bounds(of(logp))))(logp, *given)


def _limits(
    piece: DynamicBounds, wrong: Callable[..., tuple[Tensor, Tensor]], old_logp: Tensor
) -> tuple[Tensor, Tensor]:
    widths = (torch.tensor(value, dtype=old_logp.dtype) for value in (piece.eps_low, piece.eps_high, piece.max_ratio))
    return wrong(old_logp.exp(), *widths)


def _row(algorithm: GroupPolicyGradient, slot: str, piece: Any, says: str) -> Mistake:
    def loss(*given: Tensor) -> Tensor:
        return whole_loss(replace(algorithm, **{slot: piece}))(*given)

    return Mistake(loss, says)


def _times(factor: float, estimator: Loss, logp: Tensor, ref_logp: Tensor) -> Tensor:
    return factor * estimator(logp, ref_logp)
