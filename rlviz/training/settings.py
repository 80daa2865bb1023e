"""The settings with which an algorithm learns on the shipped tasks, and what depends on the policy that learns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.family import Algorithm
from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.settings import PairSettings, Precision, Settings, TrainSettings, check_names, declarations
from small_models.adapters import has_adapter
from small_models.checks import checked
from small_models.policies import SMALL, Policy

SMALL_LR, LORA_LR, LARGE_LR = (
    3e-4,
    2e-4,
    1e-6,
)  # of models up to `SMALL` weights, of adapters, of all weights of larger ones


def settle(settings: Settings, policy: Policy) -> Settings:
    """Return the settings with a learning rate and a precision, those that suit this policy where none are set."""
    is_small = policy.num_parameters <= SMALL
    lr = LORA_LR if has_adapter(policy.weights) else SMALL_LR if is_small else LARGE_LR
    precision: Precision = "float32" if is_small or policy.device.type == "cpu" else "bfloat16"
    return replace(settings, lr=settings.lr or lr, precision=settings.precision or precision)


@checked
def default_settings(algorithm: Algorithm, **changed: Any) -> Settings:
    """Return settings with which this kind of algorithm learns on the shipped tasks, `changed` by name.

    Raises ValueError for a setting that this kind of training does not have, and for one out of range.
    """
    kind = PairSettings if isinstance(algorithm, PreferenceOptimization) else TrainSettings
    check_names(kind, changed, f"of {algorithm.name}'s training")
    if not isinstance(algorithm, ActorCritic):
        return kind(**changed)
    # a critic needs no group: as many responses, each to a prompt of its own
    defaults = {name: declaration.with_critic for name, declaration in declarations(kind).items()}
    return kind(**{**defaults, **changed})
