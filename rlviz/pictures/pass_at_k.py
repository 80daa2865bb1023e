"""pass@k before and after training: has the policy learnt what it could not do, or does it do more often what it could?"""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.page.picture import Axis, Line, Panel, Picture, Rule, Say, Slider
from rlviz.page.tracing import Curve
from rlviz.pictures.spec import explorer

KS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
PROMPTS = 400


def pass_at_k_curve() -> Curve:
    """Return pass@k = mean over prompts of 1 − (1 − p)^k, before and after the odds of each p are multiplied by `sharpened`.

    The prompts' log odds log(p / (1 − p)) are `PROMPTS` evenly spaced quantiles of a logistic distribution around those of
    `median`, of scale `spread`: 0 where all prompts are alike. A share `never` of the prompts has p = 0, before and after.
    """

    def curve(median: Tensor, spread: Tensor, sharpened: Tensor, never: Tensor) -> dict[str, Tensor]:
        k = torch.tensor(KS, dtype=torch.double)
        quantile = (torch.arange(PROMPTS, dtype=torch.double) + 0.5) / PROMPTS
        log_odds = (median / (1 - median)).log() + spread * (quantile / (1 - quantile)).log()
        before, after = (
            (1 - never) * (1 - (1 - odds.sigmoid()).unsqueeze(1) ** k).mean(0)
            for odds in (log_odds, log_odds + sharpened.log())
        )
        return {
            "k": k,
            "before": before,
            "after": after,
            "limit": 1 - never,
            "after_1": after[0],
            "rise_1": after[0] - before[0],
            "rise_64": after[-1] - before[-1],
        }

    return curve


PASS_AT_K = Picture(
    title="Has it learnt something new, or does it do more often what it could?",
    look="Drag pass@1: the left end of the curve rises, and the right end is already near 1.",
    notice="Multiplied odds move what k tries could find into the first try. Prompts that never succeed stay as they are.",
    alt="A graph of pass@k against k, before and after training.",
    panels=(
        Panel(
            "One of k responses is right",
            Axis("k, responses to a prompt", 1, 64, 1, KS),
            Axis("pass@k", 0, 1.02),
            (
                Rule("limit", "y", label="{never:.0%} never right", direct=True, when="never"),
                Rule("after_1", "y", drag="sharpened", colour="blue", label="pass@1 {after_1:.2f}", direct=True),
                Line("k", "before", "6 4", colour="grey", marker="o", label="before", direct=True),
                Line("k", "after", colour="blue", marker="o", label="after", direct=True),
            ),
        ),
    ),
    controls={
        "median": Slider(0.02, 0.9, 0.01, 0.35, "success rate of the middle prompt"),
        "spread": Slider(0.0, 3.0, 0.1, 0.5, "spread of the prompts' log odds"),
        "sharpened": Slider(1.0, 100.0, 1.0, 20.0, "training multiplies the odds by", plays=True),
        "never": Slider(0.0, 0.9, 0.05, 0.0, "share of prompts that never succeed"),
    },
    conclusion=(
        Say(
            "Training raises what one try finds (pass@1) by {rise_1:.2f}, and what 64 tries find (pass@64) by {rise_64:.2f}."
        ),
    ),
)

explore_pass_at_k = explorer(
    "pass_at_k",
    PASS_AT_K,
    pass_at_k_curve,
    named={
        "as on chain": {},
        "prompts that differ": {"spread": 2.0},
        "half of them never": {"never": 0.5},
    },
)
