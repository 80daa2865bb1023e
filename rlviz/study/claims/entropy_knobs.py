"""What each knob against premature convergence does at equal accuracy, and what too much of it costs, on tables of logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from rlviz.pieces.kl import KLInLoss
from rlviz.study.claim import Panel
from rlviz.study.frames import gap, in_words, minus, scaled, select
from rlviz.study.trials import FREE, UPPER_LIMITS
from rlviz.study.verdict import Part, Verdict, judged
from rlviz.tabular import TableTask, good_actions, train_table

CLAIM = (
    "Premature convergence and entropy collapse have knobs (learning rate, batch, KL, temperature, entropy bonus, bounds), and "
    "they backfire: a large entropy bonus on a large vocabulary gives noise."
)
SOURCE = "DAPO, arXiv 2503.14476; Lite PPO, 2508.08221"
SECONDS = 10
SMALLEST = 0.02  # nats, and accuracy, of interest

PLAIN, BONUS, LEVEL, REPLICAS = "plain", "entropy bonus 0.3", 0.9, 16
MILD: Mapping[str, Mapping[str, Any]] = {  # knob → what is changed
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
    """Return a task of 3 right actions, which have half of the probability at the start however many actions there are."""
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
    """Train tables with each knob turned a little, at four tokens a response or one, and too far, with few and many actions."""
    found, replicas = [], scaled(REPLICAS, scale)
    for bench, (task, knobs, lr, steps) in BENCHES.items():
        for name, changed in knobs.items():
            own = {"algorithm": FREE, "faster": 1.0, **changed}
            algorithm, faster = own.pop("algorithm"), own.pop("faster")
            longer = scaled(steps / min(1.0, faster), scale)
            run = train_table(algorithm, task, steps=longer, lr=lr * faster, replicas=replicas, seed=seed, **own)
            entropy = float(pd.Series(run.entropy_at_accuracy(LEVEL)).mean())  # of the replicas that reached it
            accuracy = float(run.accuracy[:, -1].mean())
            found.append({"bench": bench, "arm": name, "entropy": entropy, "accuracy": accuracy})
    return pd.DataFrame(found)


def judge(frame: pd.DataFrame) -> Verdict:
    """Each knob against none, at equal accuracy and four tokens a response; then a large entropy bonus among many actions."""

    def kept(bench: str, knob: str) -> Part:
        more = gap(frame, "entropy", knob, PLAIN, bench=bench)
        return Part(f"nats kept at accuracy {LEVEL:g} by {knob}, {bench} a response", more, SMALLEST).titled(
            bench, f"{bench} a response, [more|less] entropy than {PLAIN} with {{}}", knob
        )

    def cost(bench: str, knob: str) -> pd.Series:
        return gap(frame, "accuracy", PLAIN, knob, bench=bench)

    mild, too_much = list(MILD)[1:], list(TOO_MUCH)[1:]
    return judged(
        *(kept(bench, knob) for bench in (FOUR, ONE) for knob in mild),
        Part(f"accuracy that {BONUS} costs among 1000 actions", cost(MANY, BONUS), SMALLEST).titled(
            "end", f"{BONUS} [costs|adds] {{}} of accuracy among 1000 actions"
        ),
        f"accuracy that too much costs among 20 actions: {in_words({knob: cost(FEW, knob).mean() for knob in too_much})}",
    )


def kept_beyond_plain(frame: pd.DataFrame, bench: str) -> pd.DataFrame:
    more = minus(select(frame, bench=bench), "entropy", PLAIN)
    return more[more["arm"] != PLAIN]


PANELS = [
    [
        Panel(
            bench, "entropy", f"nats more than {PLAIN}, at accuracy {LEVEL:g}", partial(kept_beyond_plain, bench=bench),
            marked=(0,),
        )
        for bench in (FOUR, ONE)
    ],
    [
        Panel(
            "end", "accuracy", "accuracy in the end, too much", partial(select, bench=(FEW, MANY)), sets="bench",
            axes={"xlim": (-0.02, 1.05)},
        )
    ],
]  # fmt: skip
