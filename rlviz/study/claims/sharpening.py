"""pass@k before and after training: does it teach what no sample showed, or make likelier what was there?"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd

from rlviz.algorithms import MAX_RL, PASS_AT_K, RFT
from rlviz.study.claim import Panel
from rlviz.study.frames import gap, means, scaled, select
from rlviz.study.trials import FREE, SMALL, shipped
from rlviz.study.verdict import Part, Verdict, judged
from rlviz.training import find_task, train
from rlviz.training.pass_rates import pass_rates

CLAIM = "Training on verifiable rewards sharpens: what one of many samples got right, the first now does, and no more."
SOURCE = (
    "Yue et al., arXiv 2504.13837; DeepSeekMath §5.2, 2402.03300; RFT, 2308.01825; RAFT, 2504.11343; MaxRL, 2602.02710; "
    "Pass@k Training, 2508.10751"
)
SECONDS = 60
SMALLEST, SMALL_GAP = 0.05, 0.02  # of pass@k of interest: against the start, and between two ways to train
KS = (1, 2, 4, 8, 16)
START, GRPO = "start", "GRPO"
ARMS = {GRPO: FREE, "Pass@k": PASS_AT_K, "RFT": RFT, "MaxRL": MAX_RL}
NEVER = "chain, from the policy of sort"  # which no sample gets right
# setting → task, policy, and the best of 1e-4, 3e-4, 1e-3 and 3e-3 for each arm, by pass@1 on seeds 100 and 101, and beyond an
# end that was best: on trip GRPO has .444 at 3e-5, .479 at 1e-4 and .477 at 3e-4
SETTINGS: dict[str, tuple[str, str, tuple[float, ...]]] = {
    "chain": ("chain", "chain", (1e-3, 3e-4, 1e-3, 1e-3)),
    "sort": ("sort", "sort", (3e-4, 3e-4, 3e-4, 3e-4)),
    "trip": ("trip", "trip", (1e-4, 3e-4, 3e-4, 3e-4)),
    NEVER: ("chain", "sort", (1e-3, 3e-4, 1e-3, 1e-3)),
}
*LEARNABLE, _ = SETTINGS
of_learnable = partial(select, setting=tuple(LEARNABLE))
of_one, of_many = partial(of_learnable, k=1), partial(of_learnable, k=KS[-1])


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train each arm on each task; each row is pass@k of an arm for one k."""
    rows, prompts = [], scaled(200, scale, 8)
    for setting, (name, start, rates) in SETTINGS.items():
        task = find_task(name)
        found = {START: pass_rates(shipped(start), task, KS, num_prompts=prompts, seed=seed)}
        for (arm, algorithm), lr in zip(ARMS.items(), rates, strict=True):
            policy = shipped(start)
            settings = replace(SMALL, steps=scaled(60, scale), num_prompts=16, lr=lr, evaluate_every=0, seed=seed)
            for _ in train(policy, task, algorithm, settings):
                pass
            found[arm] = pass_rates(policy, task, KS, num_prompts=prompts, seed=seed)
        rows += [
            {"setting": setting, "arm": arm, "k": k, "share": share}
            for arm, rates_of in found.items()
            for k, share in rates_of.items()
        ]
    return pd.DataFrame(rows)


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare each arm with the start, and with GRPO, at one sample and at sixteen."""
    one, many, never = of_one(frame), of_many(frame), select(frame, setting=NEVER, k=KS[-1])
    gained, deep = (gap(part, "share", GRPO, START) for part in (one, many))
    eight = select(of_learnable(frame), k=8, arm=START)["share"].mean()
    return judged(
        Part("pass@1 that GRPO gains", gained, SMALLEST).titled("pass", "GRPO [raises|lowers] pass@1 by {}"),
        Part("pass@1 gained more than pass@16", gained - deep, SMALLEST).titled("pass", "pass@16 by {} [less|more]"),
        Part("pass@16 gained where no sample was right", gap(never, "share", GRPO, START), SMALLEST).titled(
            "never", "where none of 16 is right, GRPO [raises|lowers] pass@16 by {}"
        ),
        Part("pass@1 of RFT above GRPO's", gap(one, "share", "RFT", GRPO), SMALL_GAP).titled(
            "one", "RFT, cross-entropy on right samples, ends {} [above|below] GRPO"
        ),
        *(
            Part(
                f"pass@1 of RFT above GRPO's, {task}", gap(select(one, setting=task), "share", "RFT", GRPO), SMALL_GAP
            ).titled("one", "RFT ends [above|below] GRPO on {}", task)
            for task in LEARNABLE
        ),
        Part("pass@1 of MaxRL above GRPO's", gap(one, "share", "MaxRL", GRPO), SMALL_GAP).titled(
            "one", "MaxRL ends {} [above|below] GRPO"
        ),
        Part("pass@16 of Pass@k above GRPO's", gap(many, "share", "Pass@k", GRPO), SMALL_GAP).titled(
            "many", "Pass@k's pass@16 ends {} [above|below] GRPO's"
        ),
        f"pass@1 {means(one, 'share')}; pass@16 {means(many, 'share')}; the start's pass@8 {eight:.2f}",
    )


LOG = {"xscale": "log"}
PANELS = [
    [
        Panel("pass", "share", f"share of prompts, {', '.join(LEARNABLE)}", of_learnable, x="k", axes=LOG),
        Panel("never", "share", "share, no sample right at first", partial(select, setting=NEVER), x="k", axes=LOG),
    ],
    [Panel("one", "share", "pass@1", of_one), Panel("many", "share", "pass@16", of_many)],
]
