"""The run of an algorithm of pairs, such as DPO: updates on preference pairs, the reference's log-probabilities computed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlviz.pieces.preference import response_logp
from rlviz.training.run import TrainingRun
from rlviz.training.run_folder import RunFolder
from rlviz.training.state import Beginning, State, new_optimizer
from rlviz.training.step import optimizer_step, set_learning_rates
from rlviz.types import PairRecord
from small_models.host import on_host
from small_models.memory import check_logits_fit
from small_models.pairs import EncodedPairs, Pair, encode_pairs
from small_models.policies import Policy, one_thread_if_small
from small_models.sampling import compute_logp
from small_models.tasks import Task


class PreferenceRun(TrainingRun[PairRecord]):
    """A run on preference pairs, drawn in batches, each pair once before one comes again.

    encoded: all pairs as tokens. ref_logp: log π_ref of chosen and rejected, [N, 2], for the loss if that needs it and for the
    records.
    """

    kind = PairRecord

    def __init__(self, begun: Beginning, folder: RunFolder | None) -> None:
        settings, pairs, reference = begun.settings, begun.pairs or (), begun.reference or begun.start
        if settings.batch_size > len(pairs):
            raise ValueError(f"batch_size must be at most {len(pairs)}, the number of pairs; got {settings.batch_size}")
        self.pairs = list(pairs)
        self.encoded = encode_pairs(reference, self.pairs, begun.task)
        tokens = settings.batch_size * self.encoded.tokens[0].numel()
        check_logits_fit(reference, tokens, "lower batch_size, or leave out the longest pairs")
        with torch.no_grad(), one_thread_if_small(reference):
            parts = torch.arange(len(pairs)).split(settings.batch_size)
            self.ref_logp = torch.cat([encoded_logp(reference, self.encoded.take(part)) for part in parts])
        state = State(
            begun.policy,
            begun.algorithm,
            [new_optimizer([begun.policy.weights], settings.lr)],
            torch.Generator().manual_seed(settings.seed),
            waiting=[],
            reference=reference,
        )
        super().__init__(state, begun, folder)

    def advance(self) -> dict[str, Any]:
        numbers = self.update(self.collect())
        self.state.step += 1
        return numbers

    def restore(self, tensors: dict[str, Tensor], counters: dict[str, Any]) -> None:
        super().restore(tensors, counters)
        if any(place >= len(self.pairs) for place in self.state.waiting or ()):
            raise ValueError(f"pairs.jsonl holds {len(self.pairs)} pairs, fewer than the run began with")

    def collect(self) -> list[int]:
        """Return the indices of the pairs of an update, each pair once before one comes again."""
        size, waiting = self.settings.batch_size, self.state.waiting or []
        if len(waiting) < size:
            waiting = waiting + torch.randperm(len(self.pairs), generator=self.state.generator).tolist()
        batch, self.state.waiting = waiting[:size], waiting[size:]
        return batch

    def update(self, collected: list[int]) -> dict[str, Any]:
        """Take an update on these pairs; return the record's fields of it."""
        set_learning_rates(self.state, self.settings)
        pairs = self.encoded.take(torch.tensor(collected))
        logp, lengths = encoded_logp(self.policy, pairs), pairs.mask.sum(-1)
        ref_logp = self.ref_logp[collected]
        chosen, rejected = logp.unbind(1)
        chosen_lengths, rejected_lengths = lengths.unbind(1)
        output = self.algorithm.loss(
            chosen,
            rejected,
            *ref_logp.unbind(1),
            chosen_lengths=chosen_lengths,
            rejected_lengths=rejected_lengths,
        )
        for optimizer in self.state.optimizers:
            optimizer.zero_grad()
        output.loss.backward()
        norm = optimizer_step(self.state, self.settings, float(output.loss.detach()))
        gain = (logp.detach() - ref_logp).mean(0)
        numbers = {
            "loss": output.loss,
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
        values = on_host(*numbers.values())
        return {name: float(value) for name, value in zip(numbers, values, strict=True)} | {"grad_norm": norm}

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
    logp, _ = compute_logp(policy, pairs.prompt_ids, pairs.prompt_mask, pairs.tokens, wanted=pairs.mask)
    return response_logp(logp, pairs.mask)
