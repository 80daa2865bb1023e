"""The settings with which an algorithm learns on the shipped tasks."""

from __future__ import annotations

from typing import Any

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.family import Algorithm
from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.settings import PairSettings, Settings, TrainSettings, check_names, declarations
from small_models.checks import checked


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
