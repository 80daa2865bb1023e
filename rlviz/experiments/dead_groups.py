"""Claim 5: groups whose rewards are all equal teach nothing; three answers to that have three prices."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure

from rlviz.experiments.base import Experiment, Part, Verdict, by_seed, gap, judged, scaled
from rlviz.experiments.runs import FREE, rows, run, shipped
from rlviz.pieces.advantages import SmoothStandardization
from rlviz.pieces.selection import DynamicSampling, duplicate_informative
from rlviz.runs.arms import panels, plot_arms, plot_course
from rlviz.training import TrainSettings
from small_models.tasks import Chain

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
    settings = TrainSettings(
        steps=scaled(80, scale), num_prompts=16, prompt_pool=64, evaluate_every=0, details_groups=1, seed=seed
    )
    policy, wanted = shipped("chain"), settings.num_prompts * settings.group_size
    found = [rows(run(policy, Chain(), answer, settings), *COLUMNS, arm=name) for name, answer in ANSWERS.items()]
    table = pd.concat(found, ignore_index=True)
    return table.assign(
        dead=table["zero_variance_groups"],
        price=table["responses_sampled"] / wanted,
        repeats=1 - table["responses_used"] / wanted,  # of the places in a batch that is always full
        expected=table["accuracy"] ** 8 + (1 - table["accuracy"]) ** 8,
    )


def judge(frame: pd.DataFrame) -> Verdict:
    """Look for the waste as accuracy nears 1, and for the price of each answer when prompts of the pool come again."""
    seeds = sorted(frame["seed"].unique())
    plain = frame[frame["arm"] == NOTHING]
    middle, late = plain[plain["accuracy"].between(0.3, 0.7)], plain[plain["accuracy"] > 0.9]
    growth = by_seed(late, "dead") - by_seed(middle, "dead")
    past = frame[frame["step"] > 0.25 * frame["step"].max()]
    dynamic = past[past["arm"] == DYNAMIC]
    return judged(
        Part("share of wasted groups at accuracy above .9, minus at .3 to .7", tuple(growth.reindex(seeds))),
        Part("dynamic sampling's further rollouts, in batches a step", gap(past, "price", DYNAMIC, NOTHING)),
        Part("duplication's repeated share of the batch", tuple(by_seed(past, "repeats", arm=TWICE))),
        Part("share of responses that SAS makes use of beyond GRPO's", gap(past, "contributing", MEMORY, NOTHING)),
        f"wasted at accuracy .3 to .7 {middle['dead'].mean():.2f}, above .9 {late['dead'].mean():.2f}",
        f"dynamic sampling samples {dynamic['price'].mean():.1f} batches a step",
        "that the last three are above 0 is by construction, once a group is dead: their sizes are the prices",
        f"accuracy never was below {plain['accuracy'].min():.2f}, so the end near 0 is not tested, nor is staleness",
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the share of wasted groups against accuracy, and what each answer samples and uses."""
    figure, (waste, price, used) = panels(3, 4.9)
    plain = frame[frame["arm"] == NOTHING]
    cut = plain.assign(accuracy=plain["accuracy"].mul(10).round().div(10))
    measured = cut.assign(arm="measured", share=cut["dead"])
    alike = cut.assign(arm="if all prompts were alike", share=cut["expected"])
    both = pd.concat([measured, alike])
    plot_course(waste, both, "accuracy", "share", title="Wasted groups", unit="share of groups")
    waste.set_ylim(0, 1.02)
    others = frame[frame["arm"].isin((DYNAMIC, NOTHING))].replace({"arm": {NOTHING: "all others"}})
    plot_course(price, others, "step", "price", title="Price: rollouts", unit="batches sampled a step", smooth=9)
    plot_arms(
        used, frame[frame["step"] > 20], "contributing", title="Responses that teach", unit="share of those sampled"
    )
    return figure


EXPERIMENT = Experiment(
    "dead_groups",
    "An all-equal group gives no gradient, the more often the nearer accuracy is to 0 or 1; dynamic sampling, duplication and "
    "SAS answer with further rollouts, repeated data, stale statistics.",
    "DAPO, arXiv 2503.14476; DUPO, 2507.02592; DCPO, 2509.02333",
    40,
    trial,
    judge,
    draw,
)
