"""A cell of a regime map on a table of logits: the table of its settings, and many runs of it at once."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.maps.measures import Course
from rlviz.maps.regime import MapSettings, Regime
from rlviz.pieces.aggregation import token_mean
from rlviz.tabular import TableRun, TableTask, train_table

RARE_WAYS, WRONG_WAYS = 10, 9


def table_task(regime: Regime) -> TableTask:
    """Return the table of this regime: one common good action, ten rare ones, nine wrong ones, those of probability 0 left out.

    A prompt's success rate σ(logit(success) + spread · z), with z at the prompt's quantile of a normal distribution, is that
    of a whole response: each position's is its T-th root. A check that is a coin's throw passes so often that half of all
    responses would.
    """
    normal = NormalDist()
    starts = []
    for place in range(regime.prompts):
        odds = math.log(regime.success / (1 - regime.success))
        odds += regime.spread * normal.inv_cdf((place + 0.5) / regime.prompts)
        right = (1 / (1 + math.exp(-odds))) ** (1 / regime.positions)
        ways = [right * (1 - regime.rare), *[right * regime.rare / RARE_WAYS] * RARE_WAYS]
        starts.append((*filter(None, ways), *[(1 - right) / WRONG_WAYS] * WRONG_WAYS))
    coin = 0.5 ** (1 / regime.positions)
    good = len(starts[0]) - WRONG_WAYS
    checks = [(1 - regime.noise) * right + regime.noise * coin for right in [1.0] * good + [0.0] * WRONG_WAYS]
    return TableTask(
        tuple(checks), regime.prompts, regime.positions, starts[0] if regime.prompts == 1 else tuple(starts)
    )


def course(run: TableRun, task: TableTask, group_size: int) -> Course:
    """Return what is measured of these runs of a task of `table_task`.

    accuracy: the exact probability of good actions at every position, whatever the noise of the reward. dead: expected,
    p^G + (1 − p)^G.
    """
    good = len(task.success) - WRONG_WAYS
    by_prompt = run.probabilities[..., :good].sum(-1).prod(-1)  # [R, S + 1, prompts]
    rewarded = (run.probabilities * np.array(task.success)).sum(-1).prod(-1)
    dead = (rewarded**group_size + (1 - rewarded) ** group_size).mean(-1)[:, :-1]
    return Course(np.arange(by_prompt.shape[1]), by_prompt.mean(-1), run.entropy, dead)


def train_tables(algorithm: GroupPolicyGradient, regime: Regime, settings: MapSettings) -> Course:
    """Train all replicas of one algorithm in a cell, and return what is measured of them.

    It aggregates by the token mean: a table's responses are equally long, so its own aggregation would only be a factor on the
    learning rate.
    """
    task = table_task(regime)
    run = train_table(
        replace(algorithm, aggregate=token_mean),
        task,
        steps=settings.rollouts(regime),
        group_size=regime.group_size,
        groups=regime.groups,
        updates_per_rollout=regime.updates_per_rollout,
        lr=regime.lr,
        replicas=settings.replicas,
        seed=settings.seed,
    )
    return course(run, task, regime.group_size)
