"""Length and filler of wrong answers under three means over tokens, from two starts.

Where half of the answers are guesses, wrong answers grow because the policy turns to running sums, which make answers right. So
there is a second start, a policy that always writes its sums: what can grow there is filler, dots that help nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import fmean

import pandas as pd
from torch import Tensor

from rlviz.pieces.aggregation import Constant, sequence_mean, token_mean
from rlviz.study.claim import Panel
from rlviz.study.frames import after, by_seed, gap, means, scaled, select
from rlviz.study.trials import FREE, SMALL, run, warmed_up
from rlviz.study.verdict import Part, Verdict, judged
from rlviz.types import StepRecord
from small_models.tasks import Ramble

CLAIM = "GRPO's 1/|o| under-punishes long wrong answers, so wrong answers grow longer; Dr.GRPO and the token mean remove that."
SOURCE = "Dr.GRPO, arXiv 2503.20783"
SECONDS = 45
SMALLEST, SMALLEST_DOTS = 0.2, 0.1  # tokens and dots of interest

MEANS: dict[str, Callable[[Tensor], Tensor]] = {
    "GRPO's mean": sequence_mean,
    "token mean": token_mean,
    "Dr.GRPO's": Constant(24),
}
GUESSES, SUMS = "half guesses at first", "sums from the first"
# start → share of demonstrations with running sums, updates between two looks at the accuracy of the warm start (once sums are
# written it rises in a few), learning rate, steps
STARTS = {GUESSES: (0.5, 20, 1e-4, 60), SUMS: (1.0, 2, 3e-4, 100)}


def of_wrong_answers(record: StepRecord) -> dict[str, float]:
    """Return tokens and dots of a step's wrong responses, means over them."""
    wrong = [response for group in record.groups for response in group.responses if not response.correct]
    if not wrong:
        return {"tokens": float("nan"), "dots": float("nan")}
    return {"tokens": fmean(one.length for one in wrong), "dots": fmean(one.text.count(".") for one in wrong)}


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train from each start under three means; only the weights of the tokens differ."""
    found = []
    for start, (reasoning, look_every, lr, steps) in STARTS.items():
        task = Ramble(reasoning=reasoning)
        policy = warmed_up(task, seed, scale, look_every=look_every)
        settings = replace(SMALL, steps=scaled(steps, scale), lr=lr, details_groups=16, seed=seed)
        found += [
            {"start": start, "arm": name, "step": r.step, "accuracy": r.accuracy, **of_wrong_answers(r)}
            for name, aggregate in MEANS.items()
            for r in run(policy, task, replace(FREE, aggregate=aggregate), settings)
        ]
    return pd.DataFrame(found)


def judge(frame: pd.DataFrame) -> Verdict:
    """Do wrong answers, or the filler in them, grow under GRPO's mean until the second half, and less under the others?"""
    grpo, *others = MEANS
    parts: list[Part | str] = []
    for start, column, smallest, panel in (
        (GUESSES, "tokens", SMALLEST, "tokens"),
        (SUMS, "dots", SMALLEST_DOTS, "late"),
    ):
        rows = select(frame, start=start)
        first, late = rows[rows["step"] <= 3], after(rows, 0.5)
        growth = by_seed(late, column, arm=grpo) - by_seed(first, column, arm=grpo)
        parts += [
            Part(f"{start}: {column} by which wrong answers grow under GRPO's mean", growth, smallest).titled(
                column, f"under GRPO's mean wrong answers [grow|shrink] by {{}} {column}"
            ),
            *(
                Part(
                    f"{start}: {column} fewer in the end, {name} against GRPO's mean",
                    gap(late, column, grpo, name),
                    smallest,
                ).titled(panel, f"in the end GRPO's mean has [more|fewer] {column} than {{}}", name)
                for name in others
            ),
            f"{start}: {column} at first {first[column].mean():.2f}, later {means(late, column)}",
            f"accuracy later {means(late, 'accuracy')}",
        ]
    return judged(*parts)


PANELS = [
    [
        Panel("tokens", "tokens", f"tokens, {GUESSES}", partial(select, start=GUESSES), x="step", smooth=7),
        Panel("dots", "dots", f"dots, {SUMS}", partial(select, start=SUMS), x="step", smooth=7),
        Panel("late", "dots", "dots in the second half", lambda frame: after(select(frame, start=SUMS), 0.5)),
    ]
]
