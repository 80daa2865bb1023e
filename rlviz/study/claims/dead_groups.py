"""Groups whose rewards are all equal, as accuracy nears 1, and the prices of three answers to them."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from rlviz.pieces.advantages import SmoothStandardization
from rlviz.pieces.selection import DynamicSampling, duplicate_informative
from rlviz.study.effects import Claim, Effect, arithmetic
from rlviz.study.frames import by_seed, gap, late, scaled, select
from rlviz.study.trials import FREE, SMALL, load_shipped, train_arms
from small_models.tasks import Chain

SAYS = (
    "An all-equal group gives no gradient, the more often the nearer accuracy is to 0 or 1; dynamic sampling, "
    "duplication and SAS answer with further rollouts, repeated data, stale statistics."
)
SOURCE = "DAPO, arXiv 2503.14476; DUPO, 2507.02592; DCPO, 2509.02333"

NOTHING, DYNAMIC, TWICE, MEMORY = "nothing", "dynamic sampling", "duplication", "SAS (memory)"
ANSWERS = {
    NOTHING: FREE,
    DYNAMIC: replace(FREE, select=DynamicSampling()),
    TWICE: replace(FREE, select=duplicate_informative),
    MEMORY: replace(FREE, advantage=SmoothStandardization()),
}
COLUMNS = ("accuracy", "zero_variance_groups", "responses_sampled", "responses_used", "contributing", "seconds")


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train with each answer, on a pool of prompts so small that a memory of them is of use."""
    settings = replace(SMALL, steps=scaled(80, scale), prompt_pool=64, seed=seed)
    table = train_arms(load_shipped("chain"), Chain(), ANSWERS, settings, *COLUMNS)
    wanted = settings.num_prompts * settings.group_size
    return table.assign(
        dead=table["zero_variance_groups"],
        price=table["responses_sampled"] / wanted,
        repeats=1 - table["responses_used"] / wanted,  # of the places in a batch that is always full
        expected=table["accuracy"] ** 8 + (1 - table["accuracy"]) ** 8,
    )


def effects(frame: pd.DataFrame) -> list[Effect]:
    """Look for the waste as accuracy nears 1, and for the price of each answer when prompts of the pool come again."""
    plain, past = select(frame, arm=NOTHING), late(frame, 0.25)
    middle = plain["dead"].where(plain["accuracy"].between(0.3, 0.7))
    end = plain["dead"].where(plain["accuracy"] > 0.9)
    plain = plain.assign(middle=middle, end=end)
    wasted, used = by_seed(plain, "end") - by_seed(plain, "middle"), gap(past, "contributing", MEMORY, NOTHING)
    return [
        arithmetic(
            "share of wasted groups at accuracy above .9, minus at .3 to .7, p to the G and (1 − p) to the G", wasted
        ),
        arithmetic("dynamic sampling's further rollouts, in batches a step", gap(past, "price", DYNAMIC, NOTHING)),
        arithmetic("duplication's repeated share of the batch", by_seed(past, "repeats", arm=TWICE)),
        Effect("share of responses that SAS makes use of beyond GRPO's", used, 0.05),
    ]


NOTES = (
    "waste as accuracy nears 0, for it was .3 or more from the first step on",
    "that the statistics of SAS are stale, for this trial does not look at them (stale_samples does, at groups)",
)
CLAIM = Claim("dead_groups", SAYS, SOURCE, seconds=40, trial=trial, effects=effects, notes=NOTES)
