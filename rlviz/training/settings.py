"""The settings of a training run that are not the algorithm's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any, Literal

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.family import Algorithm
from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.names import nearest
from small_models.checks import LONGEST, check_fields, checked, cut, shown
from small_models.sampling import check_sampling

Critic = Literal["separate", "shared"]
LARGEST = 10**9  # below it every number of a setting but the seed


@dataclass(frozen=True)
class TrainSettings:
    """How a run samples, rewards and updates.

    steps: rollouts in the run. num_prompts, group_size: P and G of one rollout. lr: peak learning rate of AdamW, reached
    linearly over lr_warmup_steps. updates_per_rollout: optimizer steps on one rollout, whose old log-probabilities stay
    frozen; minibatches: the parts that a rollout is split into, one part an update, reshuffled after each pass.
    max_grad_norm: gradients are scaled down to this norm. temperature, top_k, top_p: sampling; log-probabilities are
    taken at this temperature. max_new_tokens: longest response, None for the task's own. reward_correct,
    reward_format: what a right answer and a well-formed response earn where no reward model scores. evaluate_every,
    checkpoint_every, details_every: steps between held-out evaluations, saved states (beside those that time asks for, see
    `TrainingRun.save`), and records with per-token numbers (0: never). details_groups: groups of each rollout, its first
    ones, that are recorded.

    critic: "separate", a model of its own with an optimizer of its own at critic_lr, or "shared", a head on the policy's
    trunk in the policy's optimizer; of the algorithms that have one. critic_only_steps: first rollouts in which the critic
    learns and the policy stands still.
    reset_reference_every: steps after which the reference becomes the policy of that moment (0: never). refresh_reward_every:
    steps after which the reward model learns from right and wrong responses of the last rollout, and replay of older pairs, as a
    tenth of them (0: never). prompt_pool: training prompts, drawn once, that the run learns from (0: all). filter_solved:
    responses to each of them before the first step; a prompt that all of them solve leaves the pool (0: no filter).
    min_old_prob: responses with a token that was less likely when sampled leave the loss.
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
    checkpoint_every: int = 0
    details_every: int = 10
    details_groups: int = 4
    critic: Critic = "separate"
    critic_lr: float = 3e-4
    critic_only_steps: int = 0
    reset_reference_every: int = 0
    refresh_reward_every: int = 0
    prompt_pool: int = 0
    filter_solved: int = 0
    min_old_prob: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        _check_numbers(
            self,
            at_least={
                **dict.fromkeys(
                    ("steps", "num_prompts", "group_size", "updates_per_rollout", "minibatches", "details_groups"), 1
                ),
                **dict.fromkeys(("lr_warmup_steps", "evaluate_every", "checkpoint_every", "details_every", "seed"), 0),
                **dict.fromkeys(("critic_only_steps", "reset_reference_every", "refresh_reward_every"), 0),
                **dict.fromkeys(("prompt_pool", "filter_solved"), 0),
            },
            above_0=("lr", "critic_lr", "max_grad_norm"),
        )
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
        if 0 < self.prompt_pool < self.num_prompts:
            raise ValueError(
                f"prompt_pool must be 0 (all prompts) or at least num_prompts ({self.num_prompts}); got {self.prompt_pool}"
            )
        if not 0 <= self.min_old_prob < 1:
            raise ValueError(f"min_old_prob must be 0 or above, and below 1; got {self.min_old_prob}")


@dataclass(frozen=True)
class PairSettings:
    """How a run learns from preference pairs.

    steps: updates in the run. batch_size: pairs in each, drawn without repeats until all were used. num_pairs: pairs that are
    sampled from the starting policy where none are given. lr, lr_warmup_steps, max_grad_norm, max_new_tokens,
    evaluate_every, checkpoint_every: as in `TrainSettings`.
    Raises ValueError, with parameter, value and range, for a setting out of its range.
    """

    steps: int = 200
    batch_size: int = 64
    num_pairs: int = 1500
    lr: float = 3e-4
    lr_warmup_steps: int = 10
    max_grad_norm: float = 1.0
    max_new_tokens: int | None = None
    evaluate_every: int = 20
    checkpoint_every: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        _check_numbers(
            self,
            at_least={
                **dict.fromkeys(("steps", "batch_size", "num_pairs"), 1),
                **dict.fromkeys(("lr_warmup_steps", "evaluate_every", "checkpoint_every", "seed"), 0),
            },
            above_0=("lr", "max_grad_norm"),
        )
        check_sampling(1 if self.max_new_tokens is None else self.max_new_tokens, 1.0, 0, 1.0)


Settings = TrainSettings | PairSettings


@checked
def default_settings(algorithm: Algorithm, **changed: Any) -> Settings:
    """Return settings with which this kind of algorithm learns on the shipped tasks, `changed` by name.

    Raises ValueError for a setting that this kind of training does not have, and for one out of range.
    """
    kind: type[TrainSettings | PairSettings] = TrainSettings
    own: dict[str, Any] = {}
    if isinstance(algorithm, PreferenceOptimization):
        kind = PairSettings
    elif isinstance(algorithm, ActorCritic):  # a critic needs no group: as many responses, each to a prompt of its own
        own = {"num_prompts": 128, "group_size": 1, "updates_per_rollout": 2}
    _check_names(kind, changed, f"of {algorithm.name}'s training")
    return kind(**{**own, **changed})


def settings_from(saved: Mapping[str, Any]) -> Settings:
    """Return the settings that were saved by name. Raises ValueError for one that there is not, and for one out of range."""
    kind = PairSettings if "batch_size" in saved else TrainSettings
    _check_names(kind, saved, "of this version")
    return kind(**saved)


def _check_names(kind: type[Settings], given: Iterable[str], whose: str) -> None:
    known = [field.name for field in fields(kind)]
    for name in given:
        if name not in known:
            instead = nearest(name[:LONGEST], known).strip() or f"it has {', '.join(known)}"
            raise ValueError(f"{cut(name)} is no setting {whose}; {instead}")


def _check_numbers(settings: Any, *, at_least: dict[str, int], above_0: tuple[str, ...]) -> None:
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{field.name} must be finite; got {value}")
        most = 2**63 if field.name == "seed" else LARGEST
        if isinstance(value, Integral) and int(value) >= most:
            raise ValueError(f"{field.name} must be below {most:,}; got {shown(value)}")
    for name, low in at_least.items():
        if getattr(settings, name) < low:
            raise ValueError(f"{name} must be at least {low}; got {shown(getattr(settings, name))}")
    for name in above_0:
        if getattr(settings, name) <= 0:
            raise ValueError(f"{name} must be above 0; got {shown(getattr(settings, name))}")
