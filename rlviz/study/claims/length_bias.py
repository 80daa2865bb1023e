"""Length and filler of wrong answers under three means over tokens, from two starts.

Where half of the answers are guesses, wrong answers grow because the policy turns to running sums, which make answers right. So
there is a second start, a policy that always writes its sums: what can grow there is filler, dots that help nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import pandas as pd
from torch import Tensor

from rlviz.pieces.aggregation import Constant, sequence_mean, token_mean
from rlviz.study.effects import Claim, Effect
from rlviz.study.frames import by_seed, gap, late, scaled, select
from rlviz.study.trials import FREE, SMALL, train_copy, warm_start_policy
from rlviz.types import StepRecord
from small_models.tasks import Ramble

SAYS = "GRPO's 1/|o| under-punishes long wrong answers, so wrong answers grow longer; Dr.GRPO and the token mean remove that."
SOURCE = "Dr.GRPO, arXiv 2503.20783"

MEANS: dict[str, Callable[[Tensor], Tensor]] = {
    "GRPO's mean": sequence_mean,
    "token mean": token_mean,
    "Dr.GRPO's": Constant(24),
}
GUESSES, SUMS = "half guesses at first", "sums from the first"
# start → share of demonstrations with running sums, updates between two looks at the accuracy of the warm start (once sums are
# written it rises in a few), learning rate, steps
STARTS = {GUESSES: (0.5, 20, 1e-4, 60), SUMS: (1.0, 2, 3e-4, 100)}
MEASURED = {GUESSES: ("tokens", 0.2), SUMS: ("dots", 0.1)}  # column, smallest effect of interest


def wrong_answers(record: StepRecord) -> dict[str, float]:
    """Return tokens and dots of a step's wrong responses, means over them."""
    wrong = [response for group in record.groups for response in group.responses if not response.correct]
    if not wrong:
        return {"tokens": float("nan"), "dots": float("nan")}
    return {"tokens": fmean(one.length for one in wrong), "dots": fmean(one.text.count(".") for one in wrong)}


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train from each start under three means; only the weights of the tokens differ."""
    results = []
    for start, (reasoning, look_every, lr, steps) in STARTS.items():
        task = Ramble(reasoning=reasoning)
        policy = warm_start_policy(task, seed, scale, look_every=look_every)
        settings = replace(SMALL, steps=scaled(steps, scale), lr=lr, details_groups=16, seed=seed)
        results += [
            {"start": start, "arm": name, "step": r.step, "accuracy": r.accuracy, **wrong_answers(r)}
            for name, aggregate in MEANS.items()
            for r in train_copy(policy, task, replace(FREE, aggregate=aggregate), settings)
        ]
    return pd.DataFrame(results)


def effects(frame: pd.DataFrame) -> list[Effect]:
    """Compare wrong answers, and the filler in them, between first steps and second half, and between the means."""
    grpo, *others = MEANS
    results = []
    for start, (column, smallest) in MEASURED.items():
        rows = select(frame, start=start)
        last = late(rows, 0.5)
        growth = by_seed(last, column, arm=grpo) - by_seed(rows[rows["step"] <= 3], column, arm=grpo)
        results.append(Effect(f"{start}: {column} by which wrong answers grow under GRPO's mean", growth, smallest))
        for name in others:
            words = f"{start}: {column} fewer in the end, {name} against GRPO's mean"
            results.append(Effect(words, gap(last, column, grpo, name), smallest))
    return results


CLAIM = Claim("length_bias", SAYS, SOURCE, seconds=45, trial=trial, effects=effects)
