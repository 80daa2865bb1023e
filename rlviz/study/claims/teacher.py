"""A teacher beside the reward: KDRL against GRPO and against distillation, where successes are rare and where they are not."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from rlviz.algorithms import DISTILLATION, KDRL
from rlviz.study.effects import Claim, Effect
from rlviz.study.frames import by_seed, gap, late, scaled, select
from rlviz.study.trials import FREE, SMALL, load_shipped, rows
from rlviz.training import train
from small_models.evaluation import evaluate
from small_models.tasks import Chain

SAYS = "A teacher beside the reward speeds up what a policy learns, and the reward lets it do better than the teacher alone."
SOURCE = "KDRL, arXiv 2506.02208"

ACCURACY = "held_out_accuracy"
GRPO, BOTH, ALONE = "reward", "reward and teacher", "teacher"
RARE, OFTEN = "right: 1 in 11", "right: 1 in 3"  # of the starting policy's answers
STARTS = {RARE: "chain-rare", OFTEN: "chain"}
LR = 6e-4  # of 3e-4, 6e-4, 1.5e-3 and 3e-3 the best of each arm from each start, by the last looks of seeds 100 and 101
ARMS = {GRPO: FREE, BOTH: KDRL, ALONE: DISTILLATION}


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train a teacher by GRPO on chain, then each arm from each start; a row per look, with the teacher's accuracy."""
    task, teacher = Chain(), load_shipped("chain")
    for _ in train(teacher, task, FREE, replace(SMALL, steps=scaled(60, scale, 2), seed=seed + 1000)):
        pass
    taught = evaluate(teacher, task).accuracy
    frames, steps = [], scaled(48, scale, 2)
    settings = replace(SMALL, steps=steps, lr=LR, evaluate_every=max(1, steps // 12), seed=seed)
    for start, name in STARTS.items():
        for arm, algorithm in ARMS.items():
            reference = teacher if algorithm.can.from_teacher else None
            records = train(load_shipped(name), task, algorithm, settings, reference=reference)
            frames.append(rows(records, ACCURACY, arm=arm, start=start).dropna().assign(teacher=taught))
    return pd.concat(frames, ignore_index=True)


def effects(frame: pd.DataFrame) -> list[Effect]:
    rare, often = (select(late(frame, 0.74), start=start) for start in STARTS)  # the last quarter of the looks
    above_reward, above_alone = (gap(rare, ACCURACY, BOTH, arm) for arm in (GRPO, ALONE))
    often_above_reward = gap(often, ACCURACY, BOTH, GRPO)
    above_teacher = by_seed(rare, ACCURACY, arm=BOTH) - by_seed(rare, "teacher", arm=BOTH)
    return [
        Effect("accuracy with both, above the reward alone, one in eleven right", above_reward, 0.03),
        Effect("accuracy with both, above the teacher alone, one in eleven right", above_alone, 0.03),
        Effect("accuracy with both, above the reward alone, one in three right", often_above_reward, 0.03),
        Effect("accuracy with both, above the teacher's own, one in eleven right", above_teacher, 0.03),
    ]


CLAIM = Claim("teacher", SAYS, SOURCE, seconds=75, trial=trial, effects=effects)
