"""The run of an algorithm of pairs, such as DPO: updates on preference pairs, the reference's log-probabilities computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.pieces.preference import response_logp
from rlviz.settings import PairSettings
from rlviz.training.memory import check_pairs_fit
from rlviz.training.run import Part, TrainingRun, new_optimizer
from rlviz.training.run_folder import RunFolder
from rlviz.types import PairRecord
from small_models.host import on_host
from small_models.pairs import EncodedPairs, Pair, encode_pairs
from small_models.policies import Policy, one_thread_if_small
from small_models.sampling import response_logits, token_logp
from small_models.tasks import Task


class PairSampler(Part):
    """Draws batches of pairs, each pair once before one comes again.

    encoded: all pairs as tokens. ref_logp: log π_ref of chosen and rejected, [N, 2], for the loss if that needs it and for the
    records. needed: whether the loss does.
    """

    def __init__(self, reference: Policy, task: Task, pairs: Sequence[Pair], batch_size: int, *, needed: bool) -> None:
        if batch_size > len(pairs):
            raise ValueError(f"batch_size must be at most {len(pairs)}, the number of pairs; got {batch_size}")
        self.reference, self.pairs, self.batch_size, self.needed = reference, list(pairs), batch_size, needed
        self.waiting: list[int] = []
        self.encoded = encode_pairs(reference, self.pairs, task)
        check_pairs_fit(reference, self.encoded, batch_size)
        with torch.no_grad(), one_thread_if_small(reference):
            parts = torch.arange(len(pairs)).split(batch_size)
            self.ref_logp = torch.cat([encoded_logp(reference, self.encoded.take(part)) for part in parts])

    @property
    def models(self) -> Mapping[str, nn.Module]:
        return {"reference": self.reference.weights} if self.needed else {}

    def sample(self, generator: torch.Generator) -> list[int]:
        """Return the places of the next batch's pairs."""
        if len(self.waiting) < self.batch_size:
            self.waiting += torch.randperm(len(self.pairs), generator=generator).tolist()
        batch, self.waiting = self.waiting[: self.batch_size], self.waiting[self.batch_size :]
        return batch

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {}, {"waiting": self.waiting}

    def restore(self, tensors: dict[str, Tensor], counters: dict[str, Any]) -> None:
        self.waiting = list(counters["waiting"])
        if not all(0 <= place < len(self.pairs) for place in self.waiting):
            raise ValueError(f"training.json: waiting must be places among {len(self.pairs)} pairs, each from 0")


class PreferenceRun(TrainingRun[PairRecord]):
    """A run on preference pairs; sampler: of their batches."""

    algorithm: PreferenceOptimization

    def __init__(
        self,
        policy: Policy,
        start: Policy,
        task: Task,
        algorithm: PreferenceOptimization,
        settings: PairSettings,
        folder: RunFolder | None,
        pairs: Sequence[Pair],
        reference: Policy | None = None,
    ) -> None:
        self.sampler = PairSampler(
            reference or start, task, pairs, settings.batch_size, needed=algorithm.needs_reference
        )
        optimizer = new_optimizer([policy.weights], settings.lr)
        super().__init__(
            policy, start, task, algorithm, settings, folder, parts=(self.sampler,), optimizers=(optimizer,)
        )

    def _learn(self) -> partial[PairRecord]:
        return partial(PairRecord, **self.update(self.collect()))

    def collect(self) -> list[int]:
        """Return the places of the pairs of an update."""
        return self.sampler.sample(self.generator)

    def update(self, collected: list[int]) -> dict[str, Any]:
        """Take an update on these pairs; return the record's fields that tell of it."""
        self._warm_up_lr()
        pairs = self.sampler.encoded.take(torch.tensor(collected))
        logp, lengths = encoded_logp(self.policy, pairs), pairs.mask.sum(-1)
        ref_logp = self.sampler.ref_logp[collected]
        chosen, rejected = logp.unbind(1)
        chosen_lengths, rejected_lengths = lengths.unbind(1)
        output = self.algorithm.loss(
            chosen,
            rejected,
            *ref_logp.unbind(1),
            chosen_lengths=chosen_lengths,
            rejected_lengths=rejected_lengths,
        )
        self.optimizers[0].zero_grad()
        output.loss.backward()
        norms = self._take_optimizer_step(output.loss)
        gain = (logp.detach() - ref_logp).mean(0)
        told = {
            "loss": output.loss,
            "grad_norm": norms[0],
            "margin": output.margin,
            "pair_accuracy": output.accuracy,
            "chosen_reward": output.chosen_reward.mean(),
            "rejected_reward": output.rejected_reward.mean(),
            "chosen_logp": chosen.mean(),
            "rejected_logp": rejected.mean(),
            "chosen_gain": gain[0],
            "rejected_gain": gain[1],
            "pull": self._pull(output.chosen_reward, output.rejected_reward),
        }
        numbers = on_host(*told.values(), norms)
        self._check_finite(numbers[0], *numbers[-1])
        return {name: float(number) for name, number in zip(told, numbers, strict=False)}

    def _pull(self, chosen_reward: Tensor, rejected_reward: Tensor) -> Tensor:
        margin = torch.zeros_like(chosen_reward, requires_grad=True)
        imitation = torch.zeros_like(margin)  # its pull is not the margin's
        self.algorithm.pair_losses(chosen_reward + margin, rejected_reward, imitation).sum().backward()
        return -margin.grad.mean()  # type: ignore[union-attr]


def pair_logp(policy: Policy, pairs: Sequence[Pair], task: Task | None = None) -> Tensor:
    """Return log π of each pair's chosen and rejected response, [N, 2], nats, with gradient.

    task: whose environment wrote parts of them, which do not count (None: all is the policy's).
    """
    return encoded_logp(policy, encode_pairs(policy, pairs, task))


def encoded_logp(policy: Policy, pairs: EncodedPairs) -> Tensor:
    """Return log π of each pair's chosen and rejected response, [N, 2], nats, with gradient."""
    logits = response_logits(policy, pairs.prompt_ids, pairs.prompt_mask, pairs.tokens, wanted=pairs.mask)
    return response_logp(token_logp(logits, pairs.tokens), pairs.mask)
