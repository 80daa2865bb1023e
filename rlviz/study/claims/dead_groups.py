"""Groups whose rewards are all equal, as accuracy nears 1, and the prices of three answers to them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd

from rlviz.pieces.advantages import SmoothStandardization
from rlviz.pieces.selection import DynamicSampling, duplicate_informative
from rlviz.study.claim import Panel
from rlviz.study.frames import after, by_seed, gap, scaled, select
from rlviz.study.trials import FREE, SMALL, shipped, train_arms
from rlviz.study.verdict import Arithmetic, NotTestable, Part, Verdict, judged
from small_models.tasks import Chain

CLAIM = (
    "An all-equal group gives no gradient, the more often the nearer accuracy is to 0 or 1; dynamic sampling, duplication and "
    "SAS answer with further rollouts, repeated data, stale statistics."
)
SOURCE = "DAPO, arXiv 2503.14476; DUPO, 2507.02592; DCPO, 2509.02333"
SECONDS = 40
SMALLEST = 0.05  # share of groups of interest

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
    table = train_arms(shipped("chain"), Chain(), ANSWERS, settings, *COLUMNS)
    wanted = settings.num_prompts * settings.group_size
    return table.assign(
        dead=table["zero_variance_groups"],
        price=table["responses_sampled"] / wanted,
        repeats=1 - table["responses_used"] / wanted,  # of the places in a batch that is always full
        expected=table["accuracy"] ** 8 + (1 - table["accuracy"]) ** 8,
    )


def judge(frame: pd.DataFrame) -> Verdict:
    """Look for the waste as accuracy nears 1, and for the price of each answer when prompts of the pool come again."""
    plain, past = select(frame, arm=NOTHING), after(frame, 0.25)
    plain = plain.assign(
        middle=plain["dead"].where(plain["accuracy"].between(0.3, 0.7)),
        late=plain["dead"].where(plain["accuracy"] > 0.9),
    )
    growth = by_seed(plain, "late") - by_seed(plain, "middle")
    return judged(
        Arithmetic(
            "share of wasted groups at accuracy above .9, minus at .3 to .7, p to the G and (1 − p) to the G", growth
        ).titled(
            "waste", "{} of the groups [more|fewer] are wasted at accuracy above .9 than at .3 to .7", form="{:.0%}"
        ),
        Arithmetic(
            "dynamic sampling's further rollouts, in batches a step", gap(past, "price", DYNAMIC, NOTHING)
        ).titled("price", "dynamic sampling samples {} batches [more|fewer] a step"),
        Arithmetic("duplication's repeated share of the batch", by_seed(past, "repeats", arm=TWICE)),
        Part(
            "share of responses that SAS makes use of beyond GRPO's",
            gap(past, "contributing", MEMORY, NOTHING),
            SMALLEST,
        ).titled("used", "SAS uses {} of the responses [more|less] than GRPO", form="{:.0%}"),
        f"wasted at accuracy .3 to .7 {plain['middle'].mean():.2f}, above .9 {plain['late'].mean():.2f}",
        f"dynamic sampling samples {select(past, arm=DYNAMIC)['price'].mean():.1f} batches a step",
        "that two of the answers have a price follows from the dead groups, once there are any: the sizes are the prices",
        NotTestable("waste as accuracy nears 0", f"it never was below {plain['accuracy'].min():.2f}"),
        NotTestable(
            "that the statistics of SAS are stale",
            "this trial does not look at them (stale_samples does, at groups)",
        ),
    )


def by_accuracy(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the wasted groups at each tenth of accuracy, and how many there were if all prompts were alike."""
    plain = select(frame, arm=NOTHING)
    cut = plain.assign(accuracy=plain["accuracy"].mul(10).round().div(10))
    alike = cut.assign(arm="if all prompts were alike", share=cut["expected"])
    return pd.concat([cut.assign(arm="measured", share=cut["dead"]), alike])


def priced(frame: pd.DataFrame) -> pd.DataFrame:
    return select(frame, arm=(DYNAMIC, NOTHING)).replace({"arm": {NOTHING: "all others"}})


PANELS = [
    [
        Panel("waste", "share", "share of groups that are wasted", by_accuracy, x="accuracy", axes={"ylim": (0, 1.02)}),
        Panel("price", "price", "batches sampled a step", priced, x="step", smooth=9),
        Panel("used", "contributing", "share of responses that teach", partial(after, share=0.25)),
    ]
]
