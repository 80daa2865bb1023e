"""Updates that DAPO and GRPO need to the same accuracy."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from rlviz.algorithms import DAPO
from rlviz.pieces.selection import DynamicSampling
from rlviz.study.frames import doublings
from rlviz.study.race import RACE_PANELS, costs_in_words, race, to_goal
from rlviz.study.trials import FREE
from rlviz.study.verdict import NotTestable, Part, Verdict, judged

CLAIM = "DAPO needs half of the training steps of DeepSeek-R1-Zero-Qwen-32B, which others trained."
SOURCE = "DAPO, arXiv 2503.14476"
SECONDS = 45
SMALLEST = 0.1  # of a log2: seven per cent of the updates

ARMS = {"DAPO": DAPO, "GRPO": FREE, "GRPO with dynamic sampling": replace(FREE, select=DynamicSampling())}


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Let DAPO run against GRPO, with dynamic sampling and without."""
    return race(ARMS, seed, scale)


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare the updates that GRPO and DAPO need."""
    costs = to_goal(frame)
    updates, responses = (doublings(costs, column, "GRPO", "DAPO") for column in ("steps", "responses"))
    return judged(
        NotTestable("half of the steps of DeepSeek-R1-Zero-Qwen-32B", "that run of another laboratory cannot be had"),
        Part(
            "log2 of GRPO's updates over DAPO's on one task, at the claimed size", updates, SMALLEST, claimed=1
        ).titled("steps", "DAPO needs [fewer|more] updates than GRPO, {} (claimed: ×2)", base=2),
        f"log2 of responses {responses.mean():+.2f}",
        "with one update and short answers DAPO's limits and its overlong punishment do nothing here",
        *costs_in_words(costs),
    )


PANELS = RACE_PANELS
