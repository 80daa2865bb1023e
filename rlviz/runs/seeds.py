"""Training one run for each of several seeds, drawn while they train."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlviz import training
from rlviz.algorithms.family import Algorithm
from rlviz.runs.watching import watch
from rlviz.settings import Settings
from rlviz.training import LearnedReward
from small_models.checks import checked
from small_models.policies import Policy, load_policy
from small_models.tasks import Task


@checked
def train_seeds(
    policy: str | os.PathLike[str],
    task: Task | str,
    algorithm: Algorithm | str,
    settings: Settings,
    seeds: Sequence[int] = (0, 1, 2),
    *,
    name: str = "",
    of: int = 1,
    judges: Mapping[int, LearnedReward] | Sequence[LearnedReward] | None = None,
) -> tuple[list[list[Any]], list[Policy]]:
    """Train the same start once for each seed; return the records of each run, and the trained policies.

    policy: the name or folder of the start, loaded anew for each seed. settings: their `seed` is replaced by each of the seeds.
    name: what the picture calls the runs, the algorithm's name unless given. of: how many arms of as many seeds the cell trains,
    for the time left. judges: for each seed the learned reward, `judges[seed]`, that scores in place of the task's rule.
    Raises ValueError for no seed at all, and what `train` raises.
    """
    if not seeds:
        raise ValueError("seeds must hold at least one seed; got none")
    runs, policies = [], []
    for seed in seeds:
        start = load_policy(policy)
        learned: dict[str, Any] = {}
        if judges is not None:
            learned = {"reward_model": judges[seed].model, "pairs": judges[seed].pairs}
        run = training.train(start, task, algorithm, replace(settings, seed=seed), **learned)
        runs.append(list(watch(run, name=name, of=of * len(seeds))))
        policies.append(start)
    return runs, policies
