"""Does it help to predict what a tool writes? GRPO and ECHO on two worlds, with the tool and without it.

In one world all tables are one, so that what the tool writes can be known; in the other each prompt has a table of its own, and
held-out tables were never seen. Without the tool the policy writes its answers itself.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd

from rlviz.algorithms import ECHO
from rlviz.study.claim import Panel
from rlviz.study.frames import after, by_seed, doublings, first_reached, gap, means, scaled, select
from rlviz.study.trials import FREE, SMALL, answered, rows, shipped
from rlviz.study.verdict import Part, Verdict, judged
from rlviz.training import train
from small_models.tasks import Lookup

CLAIM = (
    "Predicting what the tool writes, a policy reaches GRPO's accuracy in fewer steps, and knows what the tool knows."
)
SOURCE = "ECHO, arXiv 2605.24517"
SECONDS = 30
SMALLEST, EARLIER = 0.05, 0.2  # of accuracy, and of a log2 of steps: a seventh
GOAL = 0.9  # of accuracy, which GRPO passes in every seed
STEPS = 64
CHANCE = 0.1  # one digit of ten

GRPO, PREDICTS = "GRPO", "ECHO"
# one learning rate for both: of 6e-4, 1.5e-3 and 3e-3 ECHO's best on seeds 100 and 101, where GRPO is within .02 of its own
LR = 1.5e-3
ARMS = {GRPO: FREE, PREDICTS: ECHO.without_kl()}
KNOWN, UNKNOWN = "one table", "tables never seen"
WORLDS = {KNOWN: "3816502947", UNKNOWN: None}
ACCURACY = "held_out_accuracy"


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train each arm in each world; a row a look, and what the policy does at the end with the tool and without it."""
    found, steps = [], scaled(STEPS, scale)
    for world, table in WORLDS.items():
        task, alone = Lookup(table=table), Lookup(table=table, tool=False)
        for arm, algorithm in ARMS.items():
            policy = shipped("lookup")
            settings = replace(SMALL, steps=steps, lr=LR, evaluate_every=max(1, steps // 16), seed=seed)
            frame = rows(train(policy, task, algorithm, settings), ACCURACY, arm=arm, world=world).dropna()
            prompts = task.held_out_prompts[: scaled(len(task.held_out_prompts), scale, 32)]
            samples, _ = answered(policy, task, prompts, group_size=1, seed=seed)
            _, right = answered(policy, alone, prompts, group_size=1, seed=seed)
            nats = -samples.logp[samples.observed].mean()
            found.append(frame.assign(alone=float(right.mean()), nats=float(nats)))
    return pd.concat(found, ignore_index=True)


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare ECHO with GRPO with the tool, in steps and at the end; and at the end without it, in each world."""
    reached = first_reached(frame, frame[ACCURACY] >= GOAL, runs=("arm", "world", "seed"))
    late = after(frame, 0.74)  # a quarter of the looks
    known, unknown = select(frame, world=KNOWN), select(frame, world=UNKNOWN)
    return judged(
        Part(
            f"log2 of GRPO's steps to accuracy {GOAL:g} over ECHO's",
            doublings(reached, "step", GRPO, PREDICTS),
            EARLIER,
        ).titled("known", f"in both worlds ECHO reaches {GOAL:g} [earlier|later] than GRPO, {{}}", base=2),
        Part("accuracy over the last quarter, ECHO above GRPO", gap(late, ACCURACY, PREDICTS, GRPO), SMALLEST).titled(
            "known", "and over the last quarter it is {} [above|below]"
        ),
        Part(
            "accuracy without the tool where its table is one, ECHO above GRPO",
            gap(known, "alone", PREDICTS, GRPO),
            SMALLEST,
        ).titled("alone", "without the tool ECHO is {} [above|below] GRPO"),
        Part(
            "accuracy without the tool in tables never seen, ECHO above chance",
            by_seed(unknown, "alone", arm=PREDICTS) - CHANCE,
            SMALLEST,
        ).titled("never", "where tables were never seen, {} [above|below] chance"),
        f"steps to accuracy {GOAL:g}: {means(reached, 'step', 0)}",
        f"without the tool: one table {means(known, 'alone')}, tables never seen {means(unknown, 'alone')}",
        f"nats a token of the tool: one table {means(known, 'nats')}, never seen {means(unknown, 'nats')}",
    )


OF_KNOWN, OF_UNKNOWN = partial(select, world=KNOWN), partial(select, world=UNKNOWN)
PANELS = [
    [
        Panel("known", ACCURACY, "accuracy with the tool, one table", OF_KNOWN, x="step"),
        Panel("alone", "alone", "accuracy without the tool, one table", OF_KNOWN, from_zero=True),
        Panel("never", "alone", "without it, tables never seen", OF_UNKNOWN, marked=(CHANCE,), from_zero=True),
    ]
]
