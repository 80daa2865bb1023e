"""The same recorded group under another algorithm: what its own loss would have done to each token, and which slot is why.

Probabilities, rewards and the group are the record's. The group stands for a whole rollout, since of the others too little is
recorded; so the weights are those of a rollout of this one group, for the run's own algorithm as well.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.base import GroupPolicyGradient, PolicyGradient
from rlviz.algorithms.family import Algorithm, changes
from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.training.records import loss_and_pushes, token_weights
from rlviz.types import Batch, GroupRecord, LossOutput, Tokens

NEAR = 1e-5  # what differs by less does so by the rounding of records


def log_probability(probability: float) -> float:
    """Return the log of a recorded probability; one of 0 is one that float32 could not hold."""
    return math.log(max(probability, sys.float_info.min))


@dataclass(frozen=True)
class RecordedGroup:
    """A group's record as tensors, P = 1.

    batch: without weights; its mask has the tokens that the policy wrote and the settings of the run left in. logp: after the
    updates. values: of a critic. outcomes: what shaping and advantages may ask for, by name.
    """

    batch: Batch
    logp: Tokens
    values: Tokens | None
    rewards: Float[Tensor, "1 G"]
    truncated: Bool[Tensor, "1 G"]
    lengths: Int[Tensor, "1 G"]
    outcomes: Mapping[str, Float[Tensor, "1 G"]]

    @classmethod
    def from_record(cls, group: GroupRecord) -> RecordedGroup:
        """Return the tensors of a group that was recorded with its tokens, whose numbers are finite."""
        rows = [response.tokens for response in group.responses]
        longest = max(map(len, rows), default=0)

        def tokens(name: str, function: Callable[[Any], float] = float) -> Any:
            """Return a number of each token, [1, G, T]; None where the record lacks it."""
            numbers = [[getattr(token, name) for token in row] for row in rows]
            if any(number is None for row in numbers for number in row):
                return None
            padded = [[*map(function, row), *[0.0] * (longest - len(row))] for row in numbers]
            return torch.tensor([padded], dtype=torch.double)

        def responses(name: str) -> Tensor:
            numbers = [float(getattr(response, name)) for response in group.responses]
            return torch.tensor([numbers], dtype=torch.double)

        weights, chosen = tokens("weight"), tokens("chosen")
        written = tokens("observed", lambda observed: not observed).bool()
        batch = Batch(
            old_logp=tokens("old_prob", log_probability),
            advantages=tokens("advantage"),
            # a response without weight in a group that has some left the loss for its own sake
            mask=written & ((weights > 0) | (not weights.any())),
            ref_logp=tokens("ref_prob", log_probability),
            entropy=tokens("entropy"),
            chosen=None if chosen is None else chosen > 0,
            sampler_logp=tokens("sampler_prob", log_probability),
        )
        return cls(
            batch,
            logp=tokens("new_prob", log_probability),
            values=tokens("value"),
            rewards=responses("reward"),
            truncated=responses("truncated").bool(),
            lengths=responses("length").long(),
            outcomes={"correct": responses("task_reward"), "well_formed": responses("well_formed")},
        )


@dataclass(frozen=True)
class Counterfactual:
    """What an algorithm would have done with a recorded group.

    needs: what the record lacks of what it asks for, and what stands in for it. The rest is None where nothing can.
    output: its loss and parts. advantages, weights, pushes: [1, G, T]. reasons: slots that differ from those of
    the run's algorithm → where that alone changes the push, [1, G, T].
    """

    algorithm: Algorithm
    needs: tuple[str, ...] = ()
    output: LossOutput | None = None
    advantages: Tokens | None = None
    weights: Tokens | None = None
    pushes: Tokens | None = None
    reasons: Mapping[str, Bool[Tensor, "1 G T"]] = field(default_factory=dict)


def evaluate_group(
    run: PolicyGradient, others: Sequence[Algorithm], group: GroupRecord, *, first_visit: bool = False
) -> list[Counterfactual]:
    """Return a row for the run's own algorithm, and one for each of the others.

    group: recorded with its tokens, their numbers finite. first_visit: whether its prompt was surely never sampled before.
    """
    recorded = RecordedGroup.from_record(group)

    def evaluate(algorithm: Algorithm) -> Counterfactual:
        try:
            return evaluate_under(algorithm, run, recorded, first_visit)
        except (ValueError, TypeError, RuntimeError) as error:  # an own piece, made for other batches than a group
            return Counterfactual(algorithm, (f"needs more than this group: {error}",))

    def pushes_with(slot: str, piece: Any) -> Tensor | None:
        try:
            return evaluate(replace(run, **{slot: piece})).pushes
        except (TypeError, ValueError):  # a piece that does not fit, as a critic's advantages do not
            return None

    base, rows = evaluate(run), [evaluate(other) for other in others]
    if base.pushes is None or base.advantages is None:
        return [base, *rows]
    # The run's algorithm with one piece changed shows what that piece alone does; many algorithms share one.
    alone: dict[tuple[str, str], Tensor | None] = {}
    for index, row in enumerate(rows):
        if row.pushes is None or row.advantages is None:
            continue
        reasons = {}
        for slot, (_, piece) in changes(run, row.algorithm).items():
            key = (slot, repr(piece))
            if key not in alone:
                alone[key] = pushes_with(slot, piece)
            pushes = alone[key]
            if pushes is not None:
                reasons[slot] = differ(pushes, base.pushes)
            elif slot == "advantage":  # it fits no algorithm of the run's kind: the reason where A changes
                reasons[slot] = differ(row.advantages, base.advantages)
        rows[index] = replace(row, reasons=reasons)
    return [base, *rows]


def differ(a: Tensor, b: Tensor) -> Tensor:
    """Return where two numbers differ by more than records are rounded."""
    return (a - b).abs() > NEAR * torch.maximum(a.abs(), b.abs())


def evaluate_under(other: Algorithm, run: PolicyGradient, x: RecordedGroup, first_visit: bool) -> Counterfactual:
    """Return what an algorithm's own loss does with a group that `run` sampled, what it lacks, and what stands in for that."""
    if isinstance(other, PreferenceOptimization):
        return Counterfactual(other, ("needs pairs of a chosen and a rejected response",))
    needs, batch = [], x.batch
    mask = other.loss_mask(batch.mask, x.truncated)

    rewards = x.rewards
    if other.shape != run.shape:
        # Rewards before the run's own shaping are not recorded, but the shaped ones, or the task's, may be they.
        def shaped(algorithm: PolicyGradient, raw: Tensor) -> Tensor:
            return algorithm.shape_rewards(raw, x.lengths, truncated=x.truncated, **x.outcomes)

        unshaped = (x.rewards, x.outcomes["correct"])
        raw = next((raw for raw in unshaped if not differ(shaped(run, raw), x.rewards).any()), None)
        if raw is None:
            needs.append("its shaping needs rewards before the run's own; here the recorded ones")
        else:
            rewards = shaped(other, raw)

    # The recorded advantages stand where nothing that makes them differs, or where the record lacks what makes the others.
    advantages = batch.advantages
    same_kl = other.kl_in_reward == run.kl_in_reward and (not run.kl_in_reward or other.kl == run.kl)
    if other.advantage != run.advantage or not same_kl or not torch.equal(rewards, x.rewards):
        lacking = _advantage_lacks(other, x, first_visit)
        if lacking:
            needs.append(f"its A needs {lacking}; here the run's A")
        elif isinstance(other, ActorCritic):
            assert x.values is not None
            token_rewards = other.token_rewards(rewards, mask, batch.old_logp, batch.ref_logp)
            advantages = other.advantages(token_rewards, x.values, mask)[0]
        else:
            assert isinstance(other, GroupPolicyGradient)
            known: dict[str, Any] = {name: getattr(batch, name) for name in ("old_logp", "sampler_logp", "ref_logp")}
            known |= x.outcomes
            advantages, _ = other.advantages(rewards, mask, **known)

    loss = other
    if other.kl_in_loss and batch.ref_logp is None and other.asks_for("kl", "ref_logp"):
        needs.append("its KL needs probabilities under a reference; here without it")
        loss = other.without_kl()
    if batch.entropy is None and other.asks_for("surrogate", "entropy"):
        needs.append("its surrogate needs entropies, which this run did not record; here without them")
    # Which groups are used is drawn as in training, with a seed of its own, so that a row is the same each time.
    selected = other.select_groups(x.outcomes["correct"], torch.Generator().manual_seed(0))
    weights, advantages = token_weights(other, mask, selected), advantages.masked_fill(~mask, 0.0)
    chosen = batch.chosen if other == run else None
    if chosen is None and other.can.choose is not None:
        needs.append("its surrogate chooses among the tokens of the whole update; here among those of this group")
    batch = replace(batch, advantages=advantages, mask=mask, weights=weights, chosen=chosen)
    output, pushes = loss_and_pushes(loss, x.logp, batch)
    return Counterfactual(other, tuple(needs), output, advantages, weights, pushes)


def _advantage_lacks(other: PolicyGradient, x: RecordedGroup, first_visit: bool) -> str:
    """Return what the record lacks of what an algorithm's advantages ask for, nothing where all is there."""
    if (other.kl_in_reward or other.asks_for("advantage", "ref_logp")) and x.batch.ref_logp is None:
        return "probabilities under a reference"
    if isinstance(other, ActorCritic):
        return "the values of a critic" if x.values is None else ""
    if other.asks_for("advantage", "history") and not first_visit:
        return "what this prompt earned before"
    if other.asks_for("advantage", "step_ends"):
        return "rewards of single steps"
    if other.asks_for("advantage", "old_entropy"):
        return "the entropies when it was sampled"
    if x.rewards.shape[1] < other.min_group_size:
        return f"at least {other.min_group_size} responses to a prompt"
    return ""
