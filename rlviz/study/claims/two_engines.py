"""A policy that samples with weights of fewer bits, or of some steps ago: what that costs, and what corrections buy back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from rlviz.algorithms import DECOUPLED_PPO, ICE_POP, SEQUENCE_MASK, TIS, GroupPolicyGradient
from rlviz.pieces.bounds import no_bounds
from rlviz.pieces.ratios import ratio_to_sampler
from rlviz.study.claim import Panel
from rlviz.study.frames import gap, in_words, means, scaled, select
from rlviz.study.trials import FREE, SMALL, shipped
from rlviz.study.verdict import NotTestable, Part, Verdict, judged
from rlviz.training import train
from small_models.evaluation import evaluate
from small_models.tasks import Chain

CLAIM = (
    "Where the engine that samples is not the one that trains, by rounding or because it lags behind, training suffers, the more "
    "the further they are apart; importance weights, truncated or masked or in the ratio, and the sequence mask bring it back."
)
SOURCE = "fengyao.notion.site/off-policy-rl; IcePop, arXiv 2510.18855; AReaL, 2505.24298; DeepSeek-V3.2, 2512.02556"
SECONDS = 85
SMALLEST = 0.03  # accuracy on 1000 held-out prompts, of which one measurement has a standard error of .01

LAG, BITS, STEPS = 8, 3, 60
ONE, OLD, ROUGH = "one engine", f"{LAG} steps old", f"{BITS} bits"
SAMPLERS: Mapping[str, Mapping[str, Any]] = {
    ONE: {},
    **{f"{bits} bits": {"sampler_bits": bits} for bits in (8, 4, BITS)},
    **{f"{lag} steps old": {"sampler_lag": lag} for lag in (2, 4, LAG)},
}
NOTHING = "nothing"
CORRECTIONS: Mapping[str, GroupPolicyGradient] = {
    "ratio to sampler, clip .2": replace(FREE, ratio=ratio_to_sampler),
    "ratio to sampler, no clip": replace(FREE, ratio=ratio_to_sampler, bounds=no_bounds),
    "decoupled PPO": DECOUPLED_PPO.without_kl(),
    "TIS": TIS.without_kl(),
    "IcePop": ICE_POP.without_kl(),
    "sequence mask, δ .1": SEQUENCE_MASK.without_kl().with_parameters(delta=0.1),
    "sequence mask, δ .5": SEQUENCE_MASK.without_kl().with_parameters(delta=0.5),
}
ARMS = [(name, NOTHING, FREE) for name in SAMPLERS]
ARMS += [(name, correction, each) for name in (OLD, ROUGH) for correction, each in CORRECTIONS.items()]


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train each arm, one update a rollout, and measure it at the end and `LAG` steps before."""
    task, steps, found = Chain(), scaled(STEPS, scale, 2), []
    looks = {max(1, steps - LAG): "before", steps: "end"}
    for arm, correction, algorithm in ARMS:
        policy = shipped("chain")
        settings = replace(SMALL, steps=steps, seed=seed, **SAMPLERS[arm])
        apart = []
        for record in train(policy, task, algorithm, settings):
            apart.append(record.mismatch_outside or 0.0)
            if record.step in looks:
                right = evaluate(policy, task, num_prompts=scaled(1000, scale, 32)).accuracy
                row = {"arm": arm, "correction": correction, "look": looks[record.step], "step": record.step}
                found.append(row | {"accuracy": right, "outside": sum(apart) / len(apart)})
    return pd.DataFrame(found)


def judge(frame: pd.DataFrame) -> Verdict:
    """By how much is the final policy worse, and how much of it does each correction give back?"""
    end = select(frame, look="end")
    plain = select(end, correction=NOTHING)

    def gained(arm: str, name: str) -> Part:
        more = gap(end, "accuracy", name, NOTHING, by="correction", arm=arm)
        return Part(f"accuracy that {name} gives back with {arm}", more, SMALLEST).titled(
            arm, f"with {arm} [more|fewer] are right corrected by {{}} than by nothing", name
        )

    beyond = gap(pd.concat([select(frame, look="before", arm=ONE), select(plain, arm=OLD)]), "accuracy", ONE, OLD)
    corrected = {
        arm: in_words(select(end, arm=arm).groupby("correction", sort=False)["accuracy"].mean()) for arm in (OLD, ROUGH)
    }
    return judged(
        *(
            Part(f"accuracy lost with {arm}", gap(plain, "accuracy", ONE, arm), SMALLEST).titled(
                "plain", "[fewer|more] are right with {} than with one engine", arm
            )
            for arm in list(SAMPLERS)[1:]
        ),
        Part(f"of what {OLD} cost, beyond learning {LAG} steps later", beyond, SMALLEST).titled(
            "plain", f"{OLD} costs {{}} [more|less] than learning {LAG} steps later"
        ),
        *(gained(arm, name) for arm in (OLD, ROUGH) for name in CORRECTIONS),
        f"accuracy at the end {means(plain, 'accuracy')}",
        *(f"with {arm} corrected by {words}" for arm, words in corrected.items()),
        "the last arms, no clip and δ .5, were added after the others had been seen, to ask what broke them",
        f"share of tokens with w outside .8 to 1.2 {means(plain, 'outside')}",
        NotTestable("that a run collapses after thousands of steps", f"these have {STEPS} steps of 128 responses"),
    )


def uncorrected(frame: pd.DataFrame) -> pd.DataFrame:
    return select(frame, look="end", correction=NOTHING)


ALL = {"xlim": (0, 1)}
APART = "How far the engines are apart"
PANELS = [
    [
        Panel("plain", "accuracy", "accuracy, nothing corrected", uncorrected, axes=ALL),
        Panel("apart", "outside", "share of tokens with w outside .8 to 1.2", uncorrected, title=APART, from_zero=True),
    ],
    [
        Panel(arm, "accuracy", f"accuracy, {arm}", partial(select, look="end", arm=arm), by="correction", axes=ALL)
        for arm in (OLD, ROUGH)
    ],
]
