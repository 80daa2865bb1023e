"""A policy that samples with weights of fewer bits, or of some steps ago: what that costs, and what corrections give back.

The arms "no clip" and "δ .5" were added after the others had been seen, to ask what broke them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from rlviz.algorithms import DECOUPLED_PPO, ICE_POP, SEQUENCE_MASK, TIS, GroupPolicyGradient
from rlviz.pieces.bounds import no_bounds
from rlviz.pieces.ratios import ratio_to_sampler
from rlviz.study.effects import Claim, Effect
from rlviz.study.frames import gap, scaled, select
from rlviz.study.trials import FREE, SMALL, load_shipped
from rlviz.training import train
from small_models.evaluation import evaluate
from small_models.tasks import Chain

SAYS = (
    "Where the engine that samples is not the one that trains, by rounding or because it lags behind, training suffers, the "
    "more the further they are apart; importance weights, truncated or masked or in the ratio, and the sequence mask bring it "
    "back."
)
SOURCE = "fengyao.notion.site/off-policy-rl; IcePop, arXiv 2510.18855; AReaL, 2505.24298; DeepSeek-V3.2, 2512.02556"

SMALLEST = 0.03  # accuracy on 1000 held-out prompts, of which one measurement has a standard error of .01
LAG, BITS, STEPS = 8, 3, 60
ONE, OLD, ROUGH, NOTHING = "one engine", f"{LAG} steps old", f"{BITS} bits", "nothing"
SAMPLERS: Mapping[str, Mapping[str, Any]] = {
    ONE: {},
    **{f"{bits} bits": {"sampler_bits": bits} for bits in (8, 4, BITS)},
    **{f"{lag} steps old": {"sampler_lag": lag} for lag in (2, 4, LAG)},
}
CORRECTIONS: Mapping[str, GroupPolicyGradient] = {
    "ratio to sampler, clip .2": replace(FREE, ratio=ratio_to_sampler),
    "ratio to sampler, no clip": replace(FREE, ratio=ratio_to_sampler, bounds=no_bounds),
    "decoupled PPO": DECOUPLED_PPO.without_kl(),
    "TIS": TIS.without_kl(),
    "IcePop": ICE_POP.without_kl(),
    "sequence mask, δ .1": SEQUENCE_MASK.without_kl().with_parameters(delta=0.1),
    "sequence mask, δ .5": SEQUENCE_MASK.without_kl().with_parameters(delta=0.5),
}
LESS_EXACT = [name for name in SAMPLERS if name != ONE]
ARMS = [(name, NOTHING, FREE) for name in SAMPLERS]
ARMS += [(name, correction, algorithm) for name in (OLD, ROUGH) for correction, algorithm in CORRECTIONS.items()]


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train each arm with one update per rollout, and measure it at the end and `LAG` steps before."""
    task, steps, results = Chain(), scaled(STEPS, scale, 2), []
    looks = {max(1, steps - LAG): "before", steps: "end"}
    for arm, correction, algorithm in ARMS:
        policy = load_shipped("chain")
        settings = replace(SMALL, steps=steps, seed=seed, **SAMPLERS[arm])
        outside = []
        for record in train(policy, task, algorithm, settings):
            outside.append(record.mismatch_outside or 0.0)
            if record.step in looks:
                accuracy = evaluate(policy, task, num_prompts=scaled(1000, scale, 32)).accuracy
                row = {"arm": arm, "correction": correction, "look": looks[record.step], "step": record.step}
                results.append({**row, "accuracy": accuracy, "outside": sum(outside) / len(outside)})
    return pd.DataFrame(results)


def effects(frame: pd.DataFrame) -> list[Effect]:
    end = select(frame, look="end")
    plain = select(end, correction=NOTHING)
    earlier = pd.concat([select(frame, look="before", arm=ONE), select(plain, arm=OLD)])
    return [
        *(Effect(f"accuracy lost with {arm}", gap(plain, "accuracy", ONE, arm), SMALLEST) for arm in LESS_EXACT),
        Effect(f"of what {OLD} cost, beyond learning {LAG} steps later", gap(earlier, "accuracy", ONE, OLD), SMALLEST),
        *(
            Effect(
                f"accuracy that {correction} gives back with {arm}",
                gap(select(end, arm=arm), "accuracy", correction, NOTHING, by="correction"),
                SMALLEST,
            )
            for arm in (OLD, ROUGH)
            for correction in CORRECTIONS
        ),
    ]


NOTES = (f"that a run collapses after thousands of steps, for these have {STEPS} steps of 128 responses",)
CLAIM = Claim("two_engines", SAYS, SOURCE, seconds=85, trial=trial, effects=effects, notes=NOTES)
