"""The same recorded group under another algorithm: what its own loss would have done to each token, and which slot is why.

Probabilities, rewards and the group are the record's. The group stands for a whole rollout, since of the others too little is
recorded; so the weights are those of a rollout of this one group, for the run's own algorithm as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.base import GroupPolicyGradient, PolicyGradient
from rlviz.algorithms.family import Algorithm, changes
from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.runs.terms import log_probability
from rlviz.training.records import loss_and_pushes, token_weights
from rlviz.types import Batch, GroupRecord, LossOutput, TokenRecord

NEAR = 1e-5  # what differs by less does so by the rounding of records


@dataclass(frozen=True)
class RecordedGroup:
    """A group's record as tensors, P = 1. mask: the tokens that the policy wrote and the settings of the run left in.

    rewards, task_rewards, well_formed, truncated, lengths: [1, G]; the others [1, G, T].
    """

    logp: Float[Tensor, "1 G T"]
    old_logp: Float[Tensor, "1 G T"]
    sampler_logp: Float[Tensor, "1 G T"] | None
    ref_logp: Float[Tensor, "1 G T"] | None
    entropy: Float[Tensor, "1 G T"] | None
    chosen: Bool[Tensor, "1 G T"] | None
    values: Float[Tensor, "1 G T"] | None
    advantages: Float[Tensor, "1 G T"]
    mask: Bool[Tensor, "1 G T"]
    rewards: Float[Tensor, "1 G"]
    task_rewards: Float[Tensor, "1 G"]
    well_formed: Float[Tensor, "1 G"]
    truncated: Bool[Tensor, "1 G"]
    lengths: Tensor

    @classmethod
    def from_record(cls, group: GroupRecord) -> RecordedGroup:
        """Return the tensors of a group that was recorded with its tokens, whose numbers are finite."""
        rows = [response.tokens for response in group.responses]
        longest = max(map(len, rows), default=0)

        def padded(number: Callable[[TokenRecord], float]) -> Tensor:
            values = [[*map(number, row), *[0.0] * (longest - len(row))] for row in rows]
            return torch.tensor([values]).double()

        def optional(name: str, of: Callable[[Any], float] = float) -> Tensor | None:
            if any(getattr(token, name) is None for row in rows for token in row):
                return None
            return padded(lambda token: of(getattr(token, name)))

        def responses(name: str) -> Tensor:
            return torch.tensor([[float(getattr(response, name)) for response in group.responses]]).double()

        chosen = optional("chosen")
        weights = padded(lambda token: token.weight)
        written = padded(lambda token: not token.observed).bool()
        return cls(
            logp=padded(lambda token: log_probability(token.new_prob)),
            old_logp=padded(lambda token: log_probability(token.old_prob)),
            sampler_logp=optional("sampler_prob", log_probability),
            ref_logp=optional("ref_prob", log_probability),
            entropy=optional("entropy"),
            chosen=None if chosen is None else chosen > 0,
            values=optional("value"),
            advantages=padded(lambda token: token.advantage),
            # a response without weight in a group that has some left the loss for its own sake
            mask=written & ((weights > 0) | (not weights.any())),
            rewards=responses("reward"),
            task_rewards=responses("task_reward"),
            well_formed=responses("well_formed"),
            truncated=responses("truncated").bool(),
            lengths=responses("length").long(),
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
    advantages: Float[Tensor, "1 G T"] | None = None
    weights: Float[Tensor, "1 G T"] | None = None
    pushes: Float[Tensor, "1 G T"] | None = None
    reasons: Mapping[str, Bool[Tensor, "1 G T"]] = field(default_factory=dict)


class Counterfactuals:
    """What a run's own algorithm and others would have done with its recorded groups.

    others: of them those that differ from the run's have a row of their own.
    """

    def __init__(self, algorithm: PolicyGradient, others: Sequence[Algorithm]) -> None:
        self.algorithm = algorithm
        self.others = [other for other in others if other != algorithm]
        self._changes = [changes(algorithm, other) for other in self.others]
        # The run's algorithm with one piece changed shows what that piece alone does. Many algorithms share a piece, so that each
        # is evaluated once; None where a piece does not fit, as a critic's advantages do not.
        self._hybrids: list[tuple[str, Any, PolicyGradient | None]] = []
        for slot, piece in ((slot, new) for change in self._changes for slot, (_, new) in change.items()):
            if any(slot == known_slot and piece == known for known_slot, known, _ in self._hybrids):
                continue
            try:
                self._hybrids.append((slot, piece, replace(algorithm, **{slot: piece})))
            except (TypeError, ValueError):
                self._hybrids.append((slot, piece, None))

    def evaluate(self, group: GroupRecord, *, first_visit: bool = False) -> list[Counterfactual]:
        """Return a row for the run's own algorithm, and one for each of the others.

        group: recorded with its tokens, their numbers finite. first_visit: whether its prompt was surely never sampled before.
        """
        recorded = RecordedGroup.from_record(group)

        def evaluate(algorithm: Algorithm) -> Counterfactual:
            try:
                return evaluate_under(algorithm, self.algorithm, recorded, first_visit)
            except (ValueError, TypeError, RuntimeError) as error:  # an own piece, made for other batches than a group
                return Counterfactual(algorithm, (f"needs more than this group: {error}",))

        run, rows = evaluate(self.algorithm), [evaluate(other) for other in self.others]
        if run.pushes is None or run.advantages is None:
            return [run, *rows]
        alone = [(slot, piece, None if hybrid is None else evaluate(hybrid)) for slot, piece, hybrid in self._hybrids]
        for index, (row, change) in enumerate(zip(rows, self._changes, strict=True)):
            if row.pushes is None or row.advantages is None:
                continue
            reasons = {}
            for slot, (_, piece) in change.items():
                hybrid = next(result for name, known, result in alone if name == slot and known == piece)
                if hybrid is not None and hybrid.pushes is not None:
                    reasons[slot] = differ(hybrid.pushes, run.pushes)
                elif slot == "advantage":  # it fits no algorithm of the run's kind: the reason where A changes
                    reasons[slot] = differ(row.advantages, run.advantages)
                else:
                    reasons[slot] = torch.zeros_like(run.pushes).bool()
            rows[index] = replace(row, reasons=reasons)
        return [run, *rows]


def differ(a: Tensor, b: Tensor) -> Tensor:
    """Return where two numbers differ by more than records are rounded."""
    return (a - b).abs() > NEAR * torch.maximum(a.abs(), b.abs())


def evaluate_under(other: Algorithm, run: PolicyGradient, x: RecordedGroup, first_visit: bool) -> Counterfactual:
    """Return what an algorithm's own loss does with a group that `run` sampled, what it lacks, and what stands in for that."""
    if isinstance(other, PreferenceOptimization):
        return Counterfactual(other, ("needs pairs of a chosen and a rejected response",))
    needs = []
    mask = other.loss_mask(x.mask, x.truncated)

    rewards = x.rewards
    if other.shape != run.shape:
        # Rewards before the run's own shaping are not recorded, but the shaped ones, or the task's, may be they.
        def shaped(algorithm: PolicyGradient, raw: Tensor) -> Tensor:
            return algorithm.shape_rewards(
                raw, x.lengths, truncated=x.truncated, correct=x.task_rewards, well_formed=x.well_formed
            )

        raw = next((raw for raw in (x.rewards, x.task_rewards) if not differ(shaped(run, raw), x.rewards).any()), None)
        if raw is None:
            needs.append("its shaping needs rewards before the run's own; here the recorded ones")
        else:
            rewards = shaped(other, raw)

    # The recorded advantages stand where nothing that makes them differs, or where the record lacks what makes the others.
    advantages = x.advantages
    same_kl = other.kl_in_reward == run.kl_in_reward and (not run.kl_in_reward or other.kl == run.kl)
    if other.advantage != run.advantage or not same_kl or not torch.equal(rewards, x.rewards):
        lacking = _advantage_lacks(other, x, first_visit)
        if lacking:
            needs.append(f"its A needs {lacking}; here the run's A")
        elif isinstance(other, ActorCritic):
            assert x.values is not None
            token_rewards = other.token_rewards(rewards, mask, x.old_logp, x.ref_logp)
            advantages = other.advantages(token_rewards, x.values, mask)[0]
        else:
            assert isinstance(other, GroupPolicyGradient)
            known: dict[str, Any] = {"old_logp": x.old_logp, "sampler_logp": x.sampler_logp, "ref_logp": x.ref_logp}
            known |= {"correct": x.task_rewards, "well_formed": x.well_formed}
            advantages, _ = other.advantages(rewards, mask, **known)

    loss = other
    if other.kl_in_loss and x.ref_logp is None and other.asks_for("kl", "ref_logp"):
        needs.append("its KL needs probabilities under a reference; here without it")
        loss = other.without_kl()
    if x.entropy is None and other.asks_for("surrogate", "entropy"):
        needs.append("its surrogate needs entropies, which this run did not record; here without them")
    # Which groups are used is drawn as in training, with a seed of its own, so that a row is the same each time.
    weights = token_weights(other, mask, other.select_groups(x.task_rewards, torch.Generator().manual_seed(0)))
    chosen = x.chosen if other == run else None
    if chosen is None and other.can.choose is not None:
        needs.append("its surrogate chooses among the tokens of the whole update; here among those of this group")
    batch = Batch(
        x.old_logp, advantages.masked_fill(~mask, 0.0), mask, x.ref_logp, weights, x.entropy, chosen, x.sampler_logp
    )
    output, pushes = loss_and_pushes(loss, x.logp, batch)
    return Counterfactual(other, tuple(needs), output, batch.advantages, weights, pushes)


def _advantage_lacks(other: PolicyGradient, x: RecordedGroup, first_visit: bool) -> str:
    """Return what the record lacks of what an algorithm's advantages ask for, nothing where all is there."""
    if (other.kl_in_reward or other.asks_for("advantage", "ref_logp")) and x.ref_logp is None:
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
