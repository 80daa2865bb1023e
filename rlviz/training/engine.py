"""The policy that samples, where that is not the trainer's: its weights rounded to a few bits, or those of some steps ago."""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.settings import TrainSettings
from rlviz.training.run import like
from small_models.policies import Policy
from small_models.precision import rounded


class Engine:
    """What samples. policy: the trainer's own, or a copy with its weights of `sampler_lag` steps ago, in `sampler_bits` bits.

    The first `sampler_lag` steps are sampled with the weights that the run began with.
    """

    def __init__(self, trainer: Policy, settings: TrainSettings) -> None:
        self.trainer, self.bits, self.lag = trainer, settings.sampler_bits, settings.sampler_lag
        self.policy = trainer.frozen_copy() if self.bits or self.lag else trainer
        self._past: list[dict[str, Tensor]] = []  # weights as they were before the last steps, oldest first
        self.follow()

    @torch.no_grad()
    def follow(self) -> None:
        """Take note of the trainer's weights as they are now, and sample with those that it is time for."""
        if self.policy is self.trainer:
            return
        now = {name: weight.detach().clone() for name, weight in self.trainer.weights.named_parameters()}
        self._sample_with([*self._past, now][-self.lag - 1 :])

    def _sample_with(self, past: list[dict[str, Tensor]]) -> None:
        self._past = past
        for name, weight in self.policy.weights.named_parameters():
            old = past[0][name]
            weight.copy_(rounded(old, self.bits) if self.bits else old)

    def tensors(self) -> dict[str, Tensor]:
        """Return what it needs to go on after a stop; without a lag the trainer's weights are enough."""
        past = enumerate(self._past if self.lag else [])
        return {f"sampler.{age}.{name}": weight for age, weights in past for name, weight in weights.items()}

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Put back what `tensors` returned. Raises KeyError for what is missing."""
        if not self.lag:
            self._past = []
            self.follow()
            return
        ages = range(len({name.split(".")[1] for name in tensors if name.startswith("sampler.")}))
        weights = dict(self.trainer.weights.named_parameters())
        self._sample_with(
            [{name: like(tensors, f"sampler.{age}.{name}", own) for name, own in weights.items()} for age in ages]
        )
