"""The committed runs of `overoptimisation`, which makes them: what was trained, and the table of it, without torch or pandas."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "shipped" / "overoptimisation.csv"
PAIRS, BETAS, SEEDS = (10, 30, 100), (0.0, 0.2), range(5)
STEPS, EVERY = 60, 10  # of a run, and between two looks
HOT = "all, pairs at temperature 1.5"  # of which one in seven is no sentence; at 1 it is one in two hundred
FEATURES = {  # of the model of the judge → the temperature of the pairs, and what `fit_taste` is called with
    "words": (1.0, {}),
    "words and groups": (1.0, {"with_groups": True}),
    "words and sentence": (1.0, {"with_sentence": True}),
    HOT: (1.5, {"with_groups": True, "with_sentence": True}),
}
CHOICES = (1, 4, 16, 64, 256)  # n, of best of n
TRAINING, CHOOSING = "GRPO", "best of n"
NUMBERS = ("kl", "learned", "true")


@cache
def read_runs(way: str) -> list[list[float]]:
    """Return KL in nats a response, learned and true reward of each look.

    Rows in the order of FEATURES, PAIRS, BETAS (of training only), SEEDS, and steps or CHOICES.
    """
    with FILE.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["way"] == way]
    order = list(FEATURES)
    columns = ("pairs", "beta", "seed", "at")
    rows.sort(key=lambda row: [order.index(row["features"]), *(float(row[column]) for column in columns)])
    return [[float(row[name]) for name in NUMBERS] for row in rows]
