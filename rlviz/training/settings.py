"""The settings of a training run that are not the algorithm's."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from small_models.sampling import check_sampling


@dataclass(frozen=True)
class TrainSettings:
    """How a run samples, rewards and updates.

    steps: rollouts in the run. num_prompts, group_size: P and G of one rollout. lr: peak learning rate of AdamW, reached
    linearly over lr_warmup_steps. updates_per_rollout: optimizer steps on one rollout, whose old log-probabilities stay
    frozen; minibatches: the parts that a rollout is split into, one part an update, reshuffled after each pass.
    max_grad_norm: gradients are scaled down to this norm. temperature, top_k, top_p: sampling; log-probabilities are
    taken at this temperature. max_new_tokens: longest response, None for the task's own. reward_correct,
    reward_format: what a right answer and a well-formed response earn. evaluate_every, checkpoint_every, details_every:
    steps between held-out evaluations, saved states, and records with per-token numbers (0: never). details_groups: groups of
    each rollout, its first ones, that are recorded.
    Raises ValueError, with parameter, value and range, for a setting out of its range.
    """

    steps: int = 120
    num_prompts: int = 32
    group_size: int = 8
    lr: float = 3e-4
    lr_warmup_steps: int = 10
    updates_per_rollout: int = 1
    minibatches: int = 1
    max_grad_norm: float = 1.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    max_new_tokens: int | None = None
    reward_correct: float = 1.0
    reward_format: float = 0.0
    evaluate_every: int = 20
    checkpoint_every: int = 10
    details_every: int = 10
    details_groups: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{field.name} must be finite; got {value}")
        least = {
            "steps": 1,
            "num_prompts": 1,
            "group_size": 1,
            "updates_per_rollout": 1,
            "minibatches": 1,
            "details_groups": 1,
            "lr_warmup_steps": 0,
        }
        least |= {"evaluate_every": 0, "checkpoint_every": 0, "details_every": 0, "seed": 0}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name} must be at least {low}; got {getattr(self, name)}")
        if self.seed >= 2**63:
            raise ValueError(f"seed must be below 2**63; got {self.seed}")
        for name in ("lr", "max_grad_norm"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0; got {getattr(self, name)}")
        if self.temperature <= 0:
            raise ValueError(f"temperature must be above 0 (greedy responses are all alike); got {self.temperature}")
        check_sampling(
            1 if self.max_new_tokens is None else self.max_new_tokens, self.temperature, self.top_k, self.top_p
        )
        if self.updates_per_rollout % self.minibatches:
            raise ValueError(
                f"updates_per_rollout must be a multiple of minibatches ({self.minibatches}), so that every response is "
                f"used equally often; got {self.updates_per_rollout}"
            )
        if self.minibatches > self.num_prompts * self.group_size:
            responses = self.num_prompts * self.group_size
            raise ValueError(
                f"minibatches must be at most num_prompts × group_size = {responses}; got {self.minibatches}"
            )
