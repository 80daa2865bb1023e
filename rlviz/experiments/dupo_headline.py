"""Seconds that DUPO, and DUPO with dynamic sampling, need to the same accuracy."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from rlviz.algorithms import DUPO
from rlviz.experiments.base import Part, Verdict, doublings, judged
from rlviz.experiments.race import costs_in_words, draw_race, race, to_goal
from rlviz.experiments.runs import FREE
from rlviz.pieces.selection import DynamicSampling

CLAIM = "DUPO is 2 to 3 times faster than dynamic sampling at equal accuracy."
SOURCE = "WebSailor, arXiv 2507.02592"
SECONDS = 45

DYNAMIC = "DUPO with dynamic sampling"
ARMS = {"DUPO": DUPO, DYNAMIC: replace(DUPO, select=DynamicSampling()), "GRPO": FREE}


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Let DUPO run against itself under dynamic sampling, and against GRPO."""
    return race(ARMS, seed, scale)


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare DUPO with itself under dynamic sampling, at equal accuracy."""
    costs = to_goal(frame)
    seconds, responses = (doublings(costs, column, DYNAMIC, "DUPO") for column in ("seconds", "responses"))
    return judged(
        Part("log2 of dynamic sampling's seconds over DUPO's (claimed: 1 to 1.6)", seconds, claimed=1),
        f"not counted, {Part('log2 of responses', responses)}",
        "the source's rollouts wait for tools, these do not",
        *costs_in_words(costs),
    )


draw = draw_race
