"""A student's whole loss beside an algorithm's; a slip is found by changing one slot of the algorithm at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import ALGORITHMS, RELATIVES, GroupPolicyGradient
from rlviz.algorithms.family import changes
from rlviz.algorithms.slots import SLOTS
from rlviz.lessons import bounds, cases, clipping, credit, estimates
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
    ("advantage", credit.group_advantage),
    ("advantage", credit.mean_only),
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
    return judge(
        student,
        whole_loss(algorithm),
        cases.WHOLE_BATCHES,
        known=tuple(slips(algorithm)),
        by="logp",
        praise="the whole loss, in value and gradient, with padding, dead groups and ratios beyond the limits.",
    )


def slips(algorithm: GroupPolicyGradient) -> Iterator[Mistake]:
    """Yield what a student may have assembled instead, the likeliest first."""
    right, slots = whole_loss(algorithm), algorithm.slots()

    def with_piece(slot: str, piece: Any, says: str) -> Mistake:
        def loss(*batch: Tensor) -> Tensor:
            # Assembled at the call, where a piece that does not go with the others makes no loss, and so no mistake.
            return whole_loss(replace(algorithm, **{slot: piece}))(*batch)

        return Mistake(loss, says)

    # What is wrong before any piece: tensors that are mixed up.
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
    words = "your ratio is upside down: it is new over old, so the difference is logp − old_logp."
    yield with_piece("ratio", lambda logp, old_logp, mask: algorithm.ratio(old_logp, logp, mask), words)
    words = "you sum over tokens and divide by nothing: the size of a step then depends on how much was written."
    yield with_piece("aggregate", lambda mask: mask.double(), words)
    if slots["surrogate"] is clipped_weight:

        def log_pi(logp: Tensor, old_logp: Tensor, *others: Tensor) -> Tensor:
            def surrogate(ratio: Tensor, A: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
                weight = torch.clamp(ratio, lower, upper).detach()
                return clipped_weight(ratio, A, lower, upper) + weight * A * old_logp

            return whole_loss(replace(algorithm, surrogate=surrogate))(logp, old_logp, *others)

        words = "you take log π, as the paper does: its gradient is right, but the value is compared too. Take log r."
        yield Mistake(log_pi, words)

    # The KL term.
    if isinstance(algorithm.kl, KLInLoss):
        beta, estimator = algorithm.kl.beta, algorithm.kl.estimator

        def with_estimator(piece: Loss, says: str) -> Mistake:
            return with_piece("kl", KLInLoss(beta=beta, estimator=piece), says)

        yield with_piece("kl", None, "the KL term is missing: J − β · KL of each token.")
        words = "the KL term has the wrong sign: it is taken off J, so the loss adds it."
        yield with_estimator(lambda logp, ref_logp: -1.0 * estimator(logp, ref_logp), words)
        words = f"β is missing in front of the KL term; it is {beta:g}."
        yield with_estimator(lambda logp, ref_logp: 1 / beta * estimator(logp, ref_logp), words)
        for other in (k1, k2, k3):
            if other is not estimator:
                words = f"your KL term is {other.__name__}: {algorithm.name} takes {estimator.__name__}."
                yield with_estimator(other, words)
        for slip in estimates.kl_estimate_k3.mistakes if estimator is k3 else ():
            yield with_estimator(slip.wrong, f"in the KL term, {slip.says}")
        yield Mistake(
            lambda logp, old_logp, ref_logp, rewards, mask: right(logp, old_logp, old_logp, rewards, mask),
            "your KL term is to the old policy: it is to the reference, ref_logp.",
        )

    # The limits; those that are no fixed numbers may be taken of the wrong policy, frozen or with a gradient.
    exercises = [(slot, exercise) for slot, exercise in SLIPS if slots[slot] == exercise.like]
    piece = slots["bounds"]
    if isinstance(piece, FixedBounds):
        exercises.insert(0, ("bounds", bounds.fixed_bounds(piece.eps_low, piece.eps_high)))
    else:
        for change in (Tensor.detach, Tensor.clone):

            def new_limits(logp: Tensor, *others: Tensor, change: Callable[[Tensor], Tensor] = change) -> Tensor:
                return whole_loss(replace(algorithm, bounds=lambda _: algorithm.bounds(change(logp))))(logp, *others)

            words = "your limits come from the new probability: they belong to the old one, old_logp."
            yield Mistake(new_limits, words)
    if isinstance(piece, DynamicBounds):
        widths = [torch.tensor(value, dtype=torch.double) for value in (piece.eps_low, piece.eps_high, piece.max_ratio)]
        for slip in bounds.dynamic_bounds.mistakes:

            def limits(old_logp: Tensor, wrong: Callable[..., Any] = slip.wrong) -> Any:
                return wrong(old_logp.exp(), *widths)

            yield with_piece("bounds", limits, slip.says)
    if isinstance(slots["surrogate"], DualClip):
        words = f"your floor for A < 0 is 3 A, as in verl: here it is {slots['surrogate'].c:g} A."
        yield with_piece("surrogate", DualClip(3.0), words)
    words = (
        "your A is the reward itself: take the group's mean off first, or right and wrong answers are all pushed up."
    )
    yield with_piece("advantage", lambda rewards: rewards, words)
    if isinstance(slots["aggregate"], Constant):
        exercises.append(("aggregate", credit.constant_weight(slots["aggregate"].max_length)))

    # The slips of the exercises whose answers are pieces of this algorithm, then other pieces of the family, then others whole.
    for slot, exercise in exercises:
        for slip in exercise.mistakes:
            yield with_piece(slot, slip.wrong, slip.says)
    family = [member for member in (*ALGORITHMS, *RELATIVES) if isinstance(member, GroupPolicyGradient)]
    for slot in IN_A_LOSS:
        seen = [slots[slot]]
        for member in family:
            other = member.slots()[slot]
            if other not in seen:
                seen.append(other)
                ours = "nothing" if slots[slot] is None else label(slots[slot])
                place = f"({member.name}'s {slot}) in the place of {ours}"
                yield with_piece(slot, other, f"your loss is what comes with {label(other)} {place}.")
    for member in family:
        for variant, but in ((member, ""), (member.without_kl(), " without its KL term")):
            changed = ", another ".join(slot for slot in changes(algorithm, variant) if slot in IN_A_LOSS)
            words = f"your loss is {member.name}'s{but}: {algorithm.name} has another {changed}."
            yield Mistake(whole_loss(variant), words)
