"""Entropy at equal accuracy under each knob against premature convergence, and the price of too much, on tables of logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from rlviz.pieces.kl import KLInLoss
from rlviz.study.effects import Claim, Effect
from rlviz.study.frames import gap, scaled
from rlviz.study.trials import FREE, UPPER_LIMITS
from rlviz.tabular import TableTask, good_actions, train_table

SAYS = (
    "Premature convergence and entropy collapse have knobs (learning rate, batch, KL, temperature, entropy bonus, bounds), "
    "and they backfire: a large entropy bonus on a large vocabulary gives noise."
)
SOURCE = "DAPO, arXiv 2503.14476; Lite PPO, 2508.08221"

PLAIN, BONUS, LEVEL = "plain", "entropy bonus 0.3", 0.9
MILD: Mapping[str, Mapping[str, Any]] = {  # knob → what it changes
    PLAIN: {},
    "learning rate ÷ 5": {"faster": 0.2},
    "batch × 8": {"groups": 8},
    "KL 0.03": {"algorithm": replace(FREE, kl=KLInLoss(beta=0.03))},
    "temperature 1.3": {"temperature": 1.3},
    "entropy bonus 0.01": {"entropy_weight": 0.01},
    "upper limit 0.28": {"algorithm": replace(FREE, bounds=UPPER_LIMITS["0.28"])},
    "upper limit 1.0": {"algorithm": replace(FREE, bounds=UPPER_LIMITS["1.0"])},
    "DCPO's limits": {"algorithm": replace(FREE, bounds=UPPER_LIMITS["DCPO's"])},
}
TOO_MUCH: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {},
    "learning rate × 20": {"faster": 20.0},
    "KL 1": {"algorithm": replace(FREE, kl=KLInLoss(beta=1.0))},
    "temperature 4": {"temperature": 4.0},
    BONUS: {"entropy_weight": 0.3},
}


def half_right(actions: int) -> TableTask:
    """Return a task of 3 right actions with half of the probability at the start, however many actions there are."""
    wrong = actions - 3
    return TableTask((1.0,) * 3 + (0.0,) * wrong, start=(1 / 6,) * 3 + (0.5 / wrong,) * wrong)


FOUR, ONE, FEW, MANY = "four tokens", "one token", "20 actions", "1000 actions"
BENCHES = {  # bench → task, knobs, learning rate, steps
    FOUR: (good_actions(3, 10, positions=4), MILD, 1.5, 200),
    ONE: (good_actions(3, 20), MILD, 0.5, 100),
    FEW: (half_right(20), TOO_MUCH, 0.5, 150),
    MANY: (half_right(1000), TOO_MUCH, 0.5, 150),
}


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train 16 tables with each knob turned a little, with four tokens per response or one, and turned too far."""
    results, replicas = [], scaled(16, scale)
    for bench, (task, knobs, lr, steps) in BENCHES.items():
        for knob, changes in knobs.items():
            options = {"algorithm": FREE, "faster": 1.0, **changes}
            algorithm, faster = options.pop("algorithm"), options.pop("faster")
            longer = scaled(steps / min(1.0, faster), scale)
            run = train_table(algorithm, task, steps=longer, lr=lr * faster, replicas=replicas, seed=seed, **options)
            entropy = float(pd.Series(run.entropy_at_accuracy(LEVEL)).mean())  # of the replicas that reached it
            accuracy = float(run.accuracy[:, -1].mean())
            results.append({"bench": bench, "arm": knob, "entropy": entropy, "accuracy": accuracy})
    return pd.DataFrame(results)


def effects(frame: pd.DataFrame) -> list[Effect]:
    cost = gap(frame, "accuracy", PLAIN, BONUS, bench=MANY)
    return [
        *(
            Effect(
                f"nats kept at accuracy {LEVEL:g} by {knob}, {bench} a response",
                gap(frame, "entropy", knob, PLAIN, bench=bench),
                0.02,
            )
            for bench in (FOUR, ONE)
            for knob in list(MILD)[1:]
        ),
        Effect(f"accuracy that {BONUS} costs among 1000 actions", cost, 0.02),
    ]


CLAIM = Claim("entropy_knobs", SAYS, SOURCE, seconds=10, trial=trial, effects=effects)
