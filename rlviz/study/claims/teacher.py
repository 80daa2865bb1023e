"""A teacher beside the reward: KDRL against GRPO and against distillation, where successes are rare and where they are not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd

from rlviz.algorithms import DISTILLATION, KDRL
from rlviz.study.claim import Panel
from rlviz.study.frames import after, by_seed, gap, means, scaled, select
from rlviz.study.trials import FREE, SMALL, rows, shipped
from rlviz.study.verdict import Part, Verdict, judged
from rlviz.training import train
from small_models.evaluation import evaluate
from small_models.tasks import Chain

CLAIM = "A teacher beside the reward speeds up what a policy learns, and the reward lets it do better than the teacher alone."
SOURCE = "KDRL, arXiv 2506.02208"
SECONDS = 75
SMALLEST = 0.03  # of accuracy
ACCURACY = "held_out_accuracy"

GRPO, BOTH, ALONE = "reward", "reward and teacher", "teacher"
RARE, OFTEN = "right: 1 in 11", "right: 1 in 3"  # of the starting policy's answers
STARTS = {RARE: "chain-rare", OFTEN: "chain"}
LR = 6e-4  # of 3e-4, 6e-4, 1.5e-3 and 3e-3 the best of each arm from each start, by the last looks of seeds 100 and 101
ARMS = {GRPO: FREE, BOTH: KDRL, ALONE: DISTILLATION}


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train a teacher by GRPO on chain, then each arm from each start; a row a look, and the teacher's accuracy in each."""
    task, teacher = Chain(), shipped("chain")
    for _ in train(teacher, task, FREE, replace(SMALL, steps=scaled(60, scale, 2), seed=seed + 1000)):
        pass
    taught = evaluate(teacher, task).accuracy
    found, steps = [], scaled(48, scale, 2)
    for start, name in STARTS.items():
        for arm, algorithm in ARMS.items():
            settings = replace(SMALL, steps=steps, lr=LR, evaluate_every=max(1, steps // 12), seed=seed)
            reference = teacher if algorithm.can.from_teacher else None
            records = train(shipped(name), task, algorithm, settings, reference=reference)
            found.append(rows(records, ACCURACY, arm=arm, start=start).dropna().assign(teacher=taught))
    return pd.concat(found, ignore_index=True)


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare accuracy over the last looks: with the reward alone, with the teacher alone, and with the teacher's own."""
    hard, easy = (select(after(frame, 0.74), start=start) for start in (RARE, OFTEN))  # the last quarter of the looks
    return judged(
        Part(
            "accuracy with both, above the reward alone, one in eleven right", gap(hard, ACCURACY, BOTH, GRPO), SMALLEST
        ).titled("rare", "with both, accuracy ends {} [above|below] the reward alone"),
        Part(
            "accuracy with both, above the teacher alone, one in eleven right",
            gap(hard, ACCURACY, BOTH, ALONE),
            SMALLEST,
        ).titled("rare", "and {} [above|below] the teacher alone"),
        Part(
            "accuracy with both, above the reward alone, one in three right", gap(easy, ACCURACY, BOTH, GRPO), SMALLEST
        ).titled("often", "with both, {} [above|below] the reward alone"),
        Part(
            "accuracy with both, above the teacher's own, one in eleven right",
            by_seed(hard, ACCURACY, arm=BOTH) - by_seed(hard, "teacher", arm=BOTH),
            SMALLEST,
        ).titled("rare", "and {} [above|below] its teacher's own"),
        f"accuracy, one in eleven right: {means(hard, ACCURACY)}; one in three: {means(easy, ACCURACY)}",
        f"the teacher's own accuracy {frame['teacher'].mean():.2f}",
    )


PANELS = [
    [
        Panel("rare", ACCURACY, "accuracy, 1 in 11 right at first", partial(select, start=RARE), x="step"),
        Panel("often", ACCURACY, "accuracy, 1 in 3 right at first", partial(select, start=OFTEN), x="step"),
    ]
]
