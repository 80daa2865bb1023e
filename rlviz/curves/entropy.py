"""Whole training runs of a table of logits: what happens to entropy and accuracy, and to the probabilities themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.algorithms.family import Algorithm
from rlviz.curves.arrays import Array
from rlviz.curves.memory import remembered
from rlviz.pieces.aggregation import token_mean
from rlviz.pieces.kl import KLInLoss
from rlviz.tabular import TableTask, good_actions, random_reward, rare_good_action, train_table
from small_models.checks import checked

STEPS, REPLICAS = 60, 16
LEVELS = np.linspace(0.05, 0.95, 19)


@dataclass(frozen=True)
class Lesson:
    """Something for a table to learn. groups: sampled for each prompt in a step. good: the actions that are (mostly) right."""

    task: TableTask
    groups: int
    good: tuple[int, ...]


REWARDS: Mapping[str, Lesson] = MappingProxyType(
    {
        "3 good of 20": Lesson(good_actions(3, 20), 1, (0, 1, 2)),
        "2 positions, both good": Lesson(good_actions(3, 10, positions=2), 1, (0, 1, 2)),
        "rare good": Lesson(rare_good_action(0.02), 4, (1,)),
        "random": Lesson(random_reward(20), 1, ()),
    }
)


@dataclass(frozen=True)
class TableHistory:
    """One algorithm's runs. R replicas, S steps.

    entropy (nats), accuracy: [R, S + 1]. levels: accuracies; entropy_at_level: mean entropy when a replica first reached
    each, NaN where fewer than half of them did, or all began above. probs: [S + 1, actions], of the first replica's first
    position.
    """

    name: str
    entropy: Array
    accuracy: Array
    levels: Array
    entropy_at_level: Array
    probs: Array


@dataclass(frozen=True)
class EntropyCurve:
    """What `explore_entropy` shows. histories: of the explored algorithm, then of the one beside it, if any.

    step: whose probabilities are shown. good: the actions that are right, or mostly. reward: which reward was given.
    """

    histories: tuple[TableHistory, ...]
    step: int
    good: tuple[int, ...]
    reward: str


@checked
def entropy_curve(
    algorithm: GroupPolicyGradient,
    *,
    reward: str = "3 good of 20",
    group_size: int = 8,
    lr: float = 0.5,
    updates_per_rollout: int = 4,
    temperature: float = 1.0,
    entropy_weight: float = 0.0,
    kl_weight: float = 0.0,
    step: int = STEPS,
    beside: GroupPolicyGradient | None = None,
) -> EntropyCurve:
    """Train 16 replicas of a table for 60 steps under an algorithm, and under one beside it, with the same seed.

    reward: one of `REWARDS`. kl_weight: β of a k3 term to the start, in place of the algorithm's KL term; 0: none. Every
    algorithm aggregates by the token mean: a table's responses all have the same length, so its own aggregation would only
    be a factor on the learning rate. All else is `train_table`'s. Raises ValueError for an unknown reward, a step outside 0 to
    60, and what `train_table` refuses.
    """
    if reward not in REWARDS:
        raise ValueError(f"reward must be one of {', '.join(REWARDS)}; got {reward!r}")
    if not 0 <= step <= STEPS:
        raise ValueError(f"step must be from 0 to {STEPS}; got {step}")
    lesson = REWARDS[reward]
    every = [algorithm] if beside is None else [algorithm, beside]
    for each in every:
        if not has_groups(each):
            raise ValueError(f"algorithm: {each.name} does not learn from groups with one reward a response")
    kl = KLInLoss(beta=kl_weight) if kl_weight else None
    settings = (group_size, lr, updates_per_rollout, temperature, entropy_weight)
    histories = [
        _train(replace(each, kl=kl, aggregate=token_mean), lesson.task, lesson.groups, *settings) for each in every
    ]
    return EntropyCurve(tuple(histories), step, lesson.good, reward)


def has_groups(algorithm: Algorithm) -> bool:
    """Return whether a table can be trained with it: groups of responses with one reward each."""
    return isinstance(algorithm, GroupPolicyGradient) and not algorithm.asks_for("advantage", "step_ends")


@remembered(maxsize=256)  # a slider that goes back, or a step slider, trains nothing again; 30 kB each
def _train(
    algorithm: GroupPolicyGradient,
    task: TableTask,
    groups: int,
    group_size: int,
    lr: float,
    updates_per_rollout: int,
    temperature: float,
    entropy_weight: float,
) -> TableHistory:
    run = train_table(
        algorithm,
        task,
        steps=STEPS,
        groups=groups,
        group_size=group_size,
        lr=lr,
        updates_per_rollout=updates_per_rollout,
        temperature=temperature,
        entropy_weight=entropy_weight,
        replicas=REPLICAS,
    )
    at = np.stack([run.entropy_at_accuracy(level) for level in LEVELS])
    enough = (np.isfinite(at).mean(1) >= 0.5) & (run.accuracy[:, 0].max() < LEVELS)
    means = np.full(len(LEVELS), np.nan)
    means[enough] = np.nanmean(at[enough], axis=1)
    return TableHistory(algorithm.name, run.entropy, run.accuracy, LEVELS, means, run.probabilities[0, :, 0, 0].copy())
