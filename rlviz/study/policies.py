"""A cell of a regime map on small transformers in place of a table: the same runs by `train`, and the same measures."""

from __future__ import annotations

import random

import numpy as np

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.settings import SEEDS
from rlviz.study.cells import Course
from rlviz.study.regime import MapSettings, PolicyRegime
from rlviz.training import TrainSettings, find_task, train
from small_models.evaluation import evaluate
from small_models.policies import load_policy
from small_models.tasks import GradedBy, Task

HELD_OUT = 500  # responses to as many held-out prompts in an evaluation
EVERY = 2  # rollouts from one evaluation to the next
SEEDS_APART = 1000  # so many runs have seeds of their own before those of the map's next seed


def noisy(task: Task, noise: float, seed: int) -> Task:
    """Return the task with a check that is a coin's throw with this probability, drawn anew for each response.

    At noise 1 half of all responses pass, as on a table. Other random numbers than the training's are used up.
    """
    draw = random.Random(seed)

    def passes(prompt: str, response: str, _: str) -> bool:
        return draw.random() < 0.5 if draw.random() < noise else task.grade(prompt, response).correct

    return GradedBy(task, passes)


def train_policies(algorithm: GroupPolicyGradient, regime: PolicyRegime, settings: MapSettings) -> Course:
    """Train a transformer with each seed of a cell, and return what is measured of them."""
    first = SEEDS_APART * settings.seed
    return Course.of([train_policy(algorithm, regime, settings, first + seed) for seed in range(settings.replicas)])


def train_policy(algorithm: GroupPolicyGradient, regime: PolicyRegime, settings: MapSettings, seed: int) -> Course:
    """Train one transformer and return what is measured of it, before training and after every other rollout.

    Accuracy and entropy are those of 500 responses to held-out prompts, by the task's own check whatever the noise.
    """
    task, policy = find_task(regime.task), load_policy(regime.policy, device="cpu")
    steps = settings.rollouts(regime)
    given = TrainSettings(
        steps=steps,
        seed=seed % SEEDS,
        num_prompts=regime.groups,
        group_size=regime.group_size,
        updates_per_rollout=regime.updates_per_rollout,
        lr=regime.lr,
        lr_warmup_steps=0,
        evaluate_every=0,
        details_every=0,
        watch_every=0,
    )
    seen = {0: evaluate(policy, task, num_prompts=HELD_OUT)}
    dead = []
    for record in train(policy, noisy(task, regime.noise, seed), algorithm, given):
        dead.append(record.zero_variance_groups)
        if record.step % EVERY == 0 or record.step == steps:
            seen[record.step] = evaluate(policy, task, num_prompts=HELD_OUT)
    every = [[(one.accuracy, one.entropy) for one in seen.values()]]
    accuracy, entropy = np.moveaxis(np.array(every), -1, 0)
    return Course(np.array([*seen]), accuracy, entropy, np.array([dead], dtype=float))
