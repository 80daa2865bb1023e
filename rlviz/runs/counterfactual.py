"""The same recorded group under another algorithm: what its own loss would have done to each token, and which slot is why.

Probabilities, rewards and the group are the record's. The group stands for a whole rollout, since of the others too little is
recorded; so the weights are those of a rollout of this one group, for the run's own algorithm as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from rlviz.types import Batch, GroupRecord, LossOutput

NEAR = 1e-5  # what differs by less does so by the rounding of records


@dataclass(frozen=True)
class RecordedGroup:
    """A group's record as tensors, P = 1. there: where a response has a token. mask: which of them the policy wrote, and the
    settings of the run left in. rewards, correct, well_formed, truncated, lengths: [1, G]; the others [1, G, T].
    """

    logp: Float[Tensor, "1 G T"]
    old_logp: Float[Tensor, "1 G T"]
    sampler_logp: Float[Tensor, "1 G T"] | None
    ref_logp: Float[Tensor, "1 G T"] | None
    entropy: Float[Tensor, "1 G T"] | None
    chosen: Bool[Tensor, "1 G T"] | None
    values: Float[Tensor, "1 G T"] | None
    advantages: Float[Tensor, "1 G T"]
    there: Bool[Tensor, "1 G T"]
    mask: Bool[Tensor, "1 G T"]
    rewards: Float[Tensor, "1 G"]
    correct: Float[Tensor, "1 G"]
    well_formed: Float[Tensor, "1 G"]
    truncated: Bool[Tensor, "1 G"]
    lengths: Tensor

    @classmethod
    def of(cls, group: GroupRecord) -> RecordedGroup:
        """Return the tensors of a group that was recorded with its tokens, whose numbers are finite."""
        rows = [response.tokens for response in group.responses]
        there = _padded([[True] * len(row) for row in rows]).bool()
        weights = _padded([[token.weight for token in row] for row in rows])
        observed = _padded([[token.observed for token in row] for row in rows]).bool()

        def column(name: str, of: Any = float) -> Tensor | None:
            if any(getattr(token, name) is None for row in rows for token in row):
                return None
            return _padded([[of(getattr(token, name)) for token in row] for row in rows])

        chosen = column("chosen")
        logp, old_logp = (column(name, log_probability) for name in ("new_prob", "old_prob"))
        advantages = column("advantage")
        assert logp is not None
        assert old_logp is not None
        assert advantages is not None

        def of_responses(name: str) -> Tensor:
            return torch.tensor([[float(getattr(response, name)) for response in group.responses]]).double()

        return cls(
            logp=logp,
            old_logp=old_logp,
            sampler_logp=column("sampler_prob", log_probability),
            ref_logp=column("ref_prob", log_probability),
            entropy=column("entropy"),
            chosen=None if chosen is None else chosen > 0,
            values=column("value"),
            advantages=advantages,
            there=there,
            # a response without weight in a group that has some left the loss for its own sake
            mask=there & ~observed & ((weights > 0) | (not weights.any())),
            rewards=of_responses("reward"),
            correct=of_responses("correct"),
            well_formed=of_responses("well_formed"),
            truncated=of_responses("truncated").bool(),
            lengths=of_responses("length").long(),
        )


def _padded(rows: Sequence[Sequence[float]]) -> Tensor:
    longest = max(map(len, rows), default=0)
    return torch.tensor([[[*row, *[0.0] * (longest - len(row))] for row in rows]]).double()


@dataclass(frozen=True)
class Counterfactual:
    """What an algorithm would have done with a recorded group.

    needs: what the record lacks of what it asks for, and what stands in for it. The rest is None where nothing can.
    output: its loss and what that was made of. advantages, weights, pushes: [1, G, T]. reasons: slots that differ from those of
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
        # the run's algorithm with one piece changed, each once; None where a piece does not fit, as a critic's advantages do not
        self._hybrids: list[tuple[str, Any, PolicyGradient | None]] = []
        for slot, piece in ((slot, new) for change in self._changes for slot, (_, new) in change.items()):
            if not any(slot == known_slot and piece == known for known_slot, known, _ in self._hybrids):
                self._hybrids.append((slot, piece, self._with(slot, piece)))

    def _with(self, slot: str, piece: Any) -> PolicyGradient | None:
        try:
            return replace(self.algorithm, **{slot: piece})
        except (TypeError, ValueError):
            return None

    def of(self, group: GroupRecord, *, first_visit: bool = False) -> list[Counterfactual]:
        """Return a row for the run's own algorithm, and one for each of the others.

        group: recorded with its tokens, their numbers finite. first_visit: whether its prompt was surely never sampled before.
        """
        recorded = RecordedGroup.of(group)

        def under(algorithm: Algorithm) -> Counterfactual:
            try:
                return _under(algorithm, self.algorithm, recorded, first_visit)
            except (ValueError, TypeError, RuntimeError) as error:  # an own piece, made for other batches than a group
                return Counterfactual(algorithm, (f"needs more than this group: {error}",))

        own, rows = under(self.algorithm), [under(other) for other in self.others]
        if own.pushes is None:
            return [own, *rows]
        alone = [(slot, piece, None if hybrid is None else under(hybrid)) for slot, piece, hybrid in self._hybrids]
        whole = [
            replace(
                row, reasons={slot: self._reason(slot, piece, alone, own, row) for slot, (_, piece) in change.items()}
            )
            for row, change in zip(rows, self._changes, strict=True)
            if row.pushes is not None
        ]
        return [own, *(next((done for done in whole if done.algorithm is row.algorithm), row) for row in rows)]

    def _reason(
        self,
        slot: str,
        piece: Any,
        alone: Sequence[tuple[str, Any, Counterfactual | None]],
        own: Counterfactual,
        row: Counterfactual,
    ) -> Tensor:
        """Return where this slot's piece alone changes the push; if it fits no algorithm of the run's kind, where A changes."""
        assert own.pushes is not None
        assert own.advantages is not None
        assert row.advantages is not None
        only = next(result for known_slot, known, result in alone if known_slot == slot and known == piece)
        if only is not None and only.pushes is not None:
            return differ(only.pushes, own.pushes)
        return differ(row.advantages, own.advantages) if slot == "advantage" else torch.zeros_like(own.pushes).bool()


def differ(a: Tensor, b: Tensor) -> Tensor:
    """Return where two numbers differ by more than records are rounded."""
    return (a - b).abs() > NEAR * torch.maximum(a.abs(), b.abs())


def _under(other: Algorithm, run: PolicyGradient, recorded: RecordedGroup, first_visit: bool) -> Counterfactual:
    if isinstance(other, PreferenceOptimization):
        return Counterfactual(other, ("needs pairs of a chosen and a rejected response",))
    x, needs = recorded, []
    mask = other.loss_mask(x.mask, x.truncated)
    rewards, lacking = _rewards(other, run, x)
    needs += lacking
    advantages, lacking = _advantages(other, run, replace(x, mask=mask), rewards, first_visit)
    needs += lacking
    if advantages is None:
        advantages = x.advantages
    loss = other
    if other.kl_in_loss and x.ref_logp is None and other.asks_for("kl", "ref_logp"):
        needs.append("its KL needs probabilities under a reference; here without it")
        loss = other.without_kl()
    if x.entropy is None and other.asks_for("surrogate", "entropy"):
        needs.append("its surrogate needs entropies, which this run did not record; here without them")
    weights = token_weights(other, mask, other.select_groups(x.correct, torch.Generator().manual_seed(0)))
    chosen = x.chosen if other == run else None
    if chosen is None and other.can.choose is not None:
        needs.append("its surrogate chooses among the tokens of the whole update; here among those of this group")
    given = weights, x.entropy, chosen, x.sampler_logp
    batch = Batch(x.old_logp, advantages.masked_fill(~mask, 0.0), mask, x.ref_logp, *given)
    output, pushes = loss_and_pushes(loss, x.logp, batch)
    return Counterfactual(other, tuple(needs), output, batch.advantages, weights, pushes)


def _rewards(other: PolicyGradient, run: PolicyGradient, x: RecordedGroup) -> tuple[Tensor, list[str]]:
    """Return the rewards as the other algorithm shapes them, and what is lacking for that."""
    if other.shape == run.shape:
        return x.rewards, []

    def shaped(algorithm: PolicyGradient, raw: Tensor) -> Tensor:
        return algorithm.shape_rewards(
            raw, x.lengths, truncated=x.truncated, correct=x.correct, well_formed=x.well_formed
        )

    for raw in (x.rewards, x.correct):  # those before the run's shaping are not recorded, but these may be they
        if not differ(shaped(run, raw), x.rewards).any():
            return shaped(other, raw), []
    return x.rewards, ["its shaping needs rewards before the run's own; here the recorded ones"]


def _advantages(
    other: PolicyGradient, run: PolicyGradient, x: RecordedGroup, rewards: Tensor, first_visit: bool
) -> tuple[Tensor | None, list[str]]:
    """Return the advantages of the other algorithm, and what is lacking for that: then they are None."""
    same_kl = other.kl_in_reward == run.kl_in_reward and (not run.kl_in_reward or other.kl == run.kl)
    if other.advantage == run.advantage and same_kl and torch.equal(rewards, x.rewards):
        return x.advantages, []
    what = None
    if (other.kl_in_reward or other.asks_for("advantage", "ref_logp")) and x.ref_logp is None:
        what = "probabilities under a reference"
    elif isinstance(other, ActorCritic):
        what = "the values of a critic" if x.values is None else None
    elif other.asks_for("advantage", "history") and not first_visit:
        what = "what this prompt earned before"
    elif other.asks_for("advantage", "step_ends"):
        what = "rewards of single steps"
    elif other.asks_for("advantage", "old_entropy"):
        what = "the entropies when it was sampled"
    elif rewards.shape[1] < other.min_group_size:
        what = f"at least {other.min_group_size} responses to a prompt"
    if what is not None:
        return None, [f"its A needs {what}; here the run's A"]
    if isinstance(other, ActorCritic):
        assert x.values is not None
        of_tokens = other.token_rewards(rewards, x.mask, x.old_logp, x.ref_logp)
        return other.advantages(of_tokens, x.values, x.mask)[0], []
    assert isinstance(other, GroupPolicyGradient)
    made, _ = other.advantages(
        rewards,
        x.mask,
        old_logp=x.old_logp,
        sampler_logp=x.sampler_logp,
        ref_logp=x.ref_logp,
        correct=x.correct,
        well_formed=x.well_formed,
    )
    return made, []
