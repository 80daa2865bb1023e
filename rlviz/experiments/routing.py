"""Routing flips and the spread of ratios in a mixture of experts, beside a dense policy, with 1 and 8 updates a rollout."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure

from rlviz.experiments.base import Part, Verdict, by_seed, doublings, in_words, judged, means, scaled, select
from rlviz.experiments.runs import FREE, SMALL, rows, run, shipped
from rlviz.runs.arms import from_zero, panels, plot_arms, plot_course
from rlviz.training.records import ROUTING_EVERY
from small_models.tasks import Chain

CLAIM = (
    "In a mixture of experts, routing flips make token ratios jump between π_old and π_θ; sequence ratios hardly move."
)
SOURCE = "GSPO, arXiv 2507.18071"
SECONDS = 30

DENSE, EXPERTS = "dense", "experts"
POLICIES = {DENSE: "chain", EXPERTS: "chain-experts"}
TOKEN, SEQUENCE = "token_ratio_std", "sequence_ratio_std"


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train a dense policy and one of experts with 1 and with 8 updates a rollout."""
    found = []
    for name, source in POLICIES.items():
        for updates in (1, 8):
            settings = replace(SMALL, steps=scaled(30, scale, ROUTING_EVERY), updates_per_rollout=updates, seed=seed)
            records = run(shipped(source), Chain(), FREE, settings)
            found.append(rows(records, "accuracy", TOKEN, SEQUENCE, "routing_flips", arm=name, updates=updates))
    return pd.concat(found, ignore_index=True)


def judge(frame: pd.DataFrame) -> Verdict:
    """Where a rollout serves 8 updates: do experts spread token ratios, and less so sequence ratios?"""
    eight = select(frame, updates=8)
    flips = select(frame, arm=EXPERTS).groupby("updates")["routing_flips"].mean()
    wider, of_sequences = (doublings(eight, column, EXPERTS, DENSE) for column in (TOKEN, SEQUENCE))
    flipped = by_seed(eight, "routing_flips", arm=EXPERTS)
    return judged(
        Part("share of routing decisions that 8 updates flip (any update flips some)", flipped),
        Part("log2 of how much wider token ratios spread with experts than dense", wider),
        Part("the same less that of sequence ratios", wider - of_sequences),
        f"flips {flips[1]:.1%} after 1 update, {flips[8]:.1%} after 8",
        f"median over seeds of the std of the token ratio {medians(eight, TOKEN)}",
        f"of the sequence ratio {medians(eight, SEQUENCE)}",
        f"accuracy over the run {means(eight, 'accuracy')}",
    )


def medians(frame: pd.DataFrame, column: str) -> str:
    """Return the median over seeds of a column's mean in each arm, in words: a single seed may lie far off."""
    arms = frame.groupby(["arm", "seed"], sort=False)[column].mean().groupby("arm", sort=False)
    return in_words(arms.median(), "{:.3f}")


def draw(frame: pd.DataFrame) -> Figure:
    """Draw flips, a line through the steps that counted them, and the spread of both ratios, dense and with experts."""
    figure, (flips, spread) = panels(2)
    experts = select(frame, arm=EXPERTS)
    experts = experts.assign(arm=[f"{updates} update{'s'[: updates > 1]} a rollout" for updates in experts["updates"]])
    plot_course(flips, experts, "routing_flips", title="Routing decisions that a step flips", unit="share")
    flips.set_ylim(0, None)
    eight = select(frame, updates=8).rename(columns={TOKEN: "token", SEQUENCE: "sequence"})
    both = eight.melt(["arm", "seed"], ["token", "sequence"], var_name="ratio", value_name="std")
    plot_arms(spread, both, "std", sets="ratio", title="Spread of the ratio, 8 updates", legend="lower right")
    from_zero(spread)
    return figure
