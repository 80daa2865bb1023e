"""DPO's run: updates on preference pairs, the reference's log-probabilities computed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.pieces.preference import response_logp
from rlviz.settings import PairSettings
from rlviz.training.run import TrainingRun
from rlviz.training.run_folder import RunFolder
from rlviz.types import PairRecord
from small_models.pairs import Pair, encode_pairs
from small_models.policies import Policy, one_thread_if_small
from small_models.sampling import response_logits, token_logp
from small_models.tasks import Task


class PreferenceRun(TrainingRun[PairRecord]):
    """A run on preference pairs, `pairs`; ref_logp: log π_ref of each pair's chosen and rejected response, [N, 2]."""

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
    ) -> None:
        if settings.batch_size > len(pairs):
            raise ValueError(f"batch_size must be at most {len(pairs)}, the number of pairs; got {settings.batch_size}")
        super().__init__(policy, start, task, algorithm, settings, folder)
        self.pairs = list(pairs)
        self._waiting: list[int] = []
        with torch.no_grad(), one_thread_if_small(start):
            parts = [self.pairs[at : at + settings.batch_size] for at in range(0, len(pairs), settings.batch_size)]
            self.ref_logp = torch.cat([pair_logp(start, part, task) for part in parts])

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, counters = super()._state()
        return tensors, counters | {"waiting": self._waiting}

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        super().restore(tensors, state)
        self._waiting = list(state["waiting"])
        if not all(0 <= place < len(self.pairs) for place in self._waiting):
            raise ValueError(f"training.json: waiting must be places among {len(self.pairs)} pairs, each from 0")

    def _learn(self) -> dict[str, Any]:
        count = self.settings.batch_size
        if len(self._waiting) < count:
            self._waiting += torch.randperm(len(self.pairs), generator=self._generator).tolist()
        index, self._waiting = self._waiting[:count], self._waiting[count:]
        self._warm_up_lr()
        logp = pair_logp(self.policy, [self.pairs[place] for place in index], self.task)
        ref_logp = self.ref_logp[index]
        chosen, rejected = logp.unbind(1)
        output = self.algorithm.loss(chosen, rejected, *ref_logp.unbind(1))
        self._optimizer.zero_grad()
        output.loss.backward()
        norm = self._update_policy(float(output.loss.detach()))
        gain = (logp.detach() - ref_logp).mean(0)
        return {
            "loss": float(output.loss.detach()),
            "grad_norm": norm,
            "margin": float(output.margin),
            "pair_accuracy": float(output.accuracy),
            "chosen_reward": float(output.chosen_reward.mean()),
            "rejected_reward": float(output.rejected_reward.mean()),
            "chosen_logp": float(chosen.detach().mean()),
            "rejected_logp": float(rejected.detach().mean()),
            "chosen_gain": float(gain[0]),
            "rejected_gain": float(gain[1]),
            "pull": self._pull(output.chosen_reward, output.rejected_reward),
        }

    def _record(self, **fields: Any) -> PairRecord:
        return PairRecord(**fields)

    def _pull(self, chosen_reward: Tensor, rejected_reward: Tensor) -> float:
        margin = torch.zeros_like(chosen_reward, requires_grad=True)
        self.algorithm.pair_loss(chosen_reward + margin, rejected_reward).sum().backward()
        return -float(margin.grad.mean())  # type: ignore[union-attr]


def pair_logp(policy: Policy, pairs: Sequence[Pair], task: Task | None = None) -> Tensor:
    """Return log π of each pair's chosen and rejected response, [N, 2], nats, with gradient.

    task: whose environment wrote parts of them, which do not count (None: all is the policy's).
    """
    encoded = encode_pairs(policy, pairs, task)
    logits = response_logits(policy, encoded.prompt_ids, encoded.prompt_mask, encoded.tokens)
    return response_logp(token_logp(logits, encoded.tokens), encoded.mask)
