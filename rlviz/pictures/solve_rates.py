"""Solve rates prompt by prompt, before and after training: does pass@k rise where it was 0, or where it was small?

Counted on a real model (SmolLM2-135M-Instruct, 60 steps of GRPO with LoRA, two seeds): 100 sums of two numbers that were not
trained on, 16 responses to each (`notebooks/experiments/real_model.py`).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlviz.page.picture import Axis, Bars, Line, Panel, Picture, Points, Rule, Say, Slider
from rlviz.page.tracing import Curve
from rlviz.pictures.spec import explorer
from rlviz.pieces.advantages import pass_at_k

FILE = Path(__file__).with_suffix(".csv")
SAMPLES = 16  # responses to each sum
KS = (1.0, 2.0, 4.0, 8.0, 16.0)


@cache
def load_counts() -> Mapping[str, Any]:
    """Return the data of the picture; the sums are sorted, hardest first, by how many of 16 responses were right.

    before, after_seeds: right responses, [100] and [2, 100]. rates: pass@k of c right responses of 16, [k, c].
    """
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = [[int(number) for number in list(row.values())[1:]] for row in csv.DictReader(file)]
    before, *after = torch.tensor(sorted(rows, key=lambda row: (row[0], sum(row[1:])))).double().T
    counts = torch.arange(SAMPLES + 1)
    return {
        "before": before,
        "after_seeds": torch.stack(after),
        "rates": torch.stack([pass_at_k(counts, SAMPLES, k) for k in range(1, SAMPLES + 1)]),
    }


def solve_rates_curve() -> Curve:
    """Return the curve: pass@k of each sum before and after training, and their means for every k."""

    def curve(k: Tensor, seed: Tensor, before: Tensor, after_seeds: Tensor, rates: Tensor) -> dict[str, Tensor]:
        counts = torch.arange(SAMPLES + 1, dtype=torch.double)
        pairs = (before, after_seeds[seed.long()])
        is_count = [(right.unsqueeze(1) == counts).double() for right in pairs]  # [sum, c]
        at_k = rates[(k - 1).long()]
        old, new = (hits @ at_k for hits in is_count)
        mean_old, mean_new = (rates @ hits.mean(0) for hits in is_count)
        is_unsolved, is_unsolved_after = ((right == 0).double() for right in pairs)
        return {
            "place": torch.arange(1.0, len(before) + 1, dtype=torch.double),
            "old": old,
            "new": new,
            "is_better": (new > old).double(),
            "is_worse": (new < old).double(),
            "each_k": torch.arange(1.0, SAMPLES + 1, dtype=torch.double),
            "mean_old": mean_old,
            "mean_new": mean_new,
            "old_at_k": old.mean(),
            "new_at_k": new.mean(),
            "unsolved": is_unsolved.sum(),
            "first_solved": (is_unsolved * (1 - is_unsolved_after)).sum(),
            "lost": ((1 - is_unsolved) * is_unsolved_after).sum(),
        }

    return curve


SOLVE_RATES = Picture(
    title="What did training change, prompt by prompt?",
    look="Move k: with one try nearly every sum gains; with 16 tries only those that were at 0 still can.",
    notice="At k = 1 a point is the share of right responses. At k = 16 it is 1 if one response of 16 was right, else 0. "
    "A sum at 0 of 16 need not be impossible: one that is right once in 16 tries is at 0 in a third of such samples.",
    alt="Left, 100 sums sorted by how often they were solved before training: pass@k of each before and after, joined by a bar. "
    "Right, the mean pass@k against k, before and after.",
    panels=(
        Panel(
            "Each of 100 sums, the hardest first",
            Axis("sums, sorted by their rate before training", 0, 101, ticks=None),
            Axis("pass@{k:d}", -0.02, 1.02),
            (
                Bars("place", "new", 0.5, "old", where="is_better", colour="blue", label="gained"),
                Bars("place", "new", 0.5, "old", "hatch", where="is_worse", colour="vermilion", label="lost"),
                Points("place", "new", "o", 5, colour="blue", label="after"),
                Points("place", "old", "_", 6, colour="ink", label="before"),
            ),
        ),
        Panel(
            "Their mean",
            Axis("k, tries for each sum", 1, 16, 1, KS),
            Axis("pass@k", 0, 1.02),
            (
                Rule("k", drag="k", label="k = {k:d}"),
                Line("each_k", "mean_old", "6 4", colour="ink", label="before", direct=True),
                Line("each_k", "mean_new", colour="blue", label="after", direct=True),
            ),
        ),
    ),
    controls={
        "k": Slider(1, SAMPLES, 1, 1, "k, tries for each sum", plays=True),
        "seed": Slider(value=0.0, stops=(0.0, 1.0), label="seed of the training run"),
    },
    data=load_counts(),
    conclusion=(
        Say(
            "Training raises pass@{k:d} from {old_at_k:.2f} to {new_at_k:.2f}. Of {unsolved:d} sums at 0 of 16, {first_solved:d} "
            "are solved at least once now; of the others {lost:d} no longer are."
        ),
    ),
)

explore_solve_rates = explorer(
    "solve_rates",
    SOLVE_RATES,
    solve_rates_curve,
    named={"one try": {}, "16 tries": {"k": SAMPLES}, "another seed": {"seed": 1.0}},
)
