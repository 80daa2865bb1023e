"""The run of each lesson whose setting is not told, drawn from a committed table; `runs.md` has its panels and its choices.

A table's first line is the call that made it: of replicas it holds the mean, and the 10th and 90th percentile.
"""

from __future__ import annotations

import re
import tempfile
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from matplotlib.figure import Figure

from rlviz.lessons.puzzles import Unlabelled, read_choices, read_sections
from rlviz.pictures.base import BLUE, dress, new_figure
from rlviz.pieces.aggregation import sequence_sum
from rlviz.runs import diagnose, import_run
from rlviz.runs.learning import draw_band, plot_learning_curves, plot_metrics
from rlviz.training import RunFolder

TABLES = Path(__file__).with_name("tables")
PANEL = re.compile(r"^\* (.+) \| (.+) \| (.+) \| (\S*):(\S*)$", re.MULTILINE)


def draw(lesson: str) -> Figure:
    """Return the picture of a lesson's run.

    A panel stands in `runs.md` as `* title | unit | column | low:high`, or with `column = words; …` for lines with a legend.
    """
    rows = pd.read_csv(TABLES / f"{lesson}.csv", comment="#")
    panels = PANEL.findall(read_sections("runs")[lesson])
    figure = new_figure(4.6 * len(panels), 4.2)
    for ax, (title, unit, columns, low, high) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        dress(ax, title=title, x="step", y=unit)
        if f"{columns} low" in rows:
            draw_band(ax, rows["step"], rows[f"{columns} low"], rows[columns], rows[f"{columns} high"], 0)
        else:
            words = dict(pair.split(" = ") for pair in columns.split("; ")) if "=" in columns else {columns: title}
            plot_metrics(rows, words, ax=ax)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_ylim(float(low) if low else None, float(high) if high else None)
    return figure


def draw_weights() -> Figure:
    """Return the weights of DCPO's rule as bars: of one token, and of a whole response."""
    lengths = torch.tensor([2, 4, 8])
    weights = sequence_sum(torch.arange(8) < lengths.view(1, 3, 1))[0]
    figure = new_figure(11, 4.2)
    for ax, words, values in zip(
        figure.subplots(1, 2), ("one token", "a response"), (weights[:, 0], weights.sum(1)), strict=True
    ):
        ax.bar_label(ax.bar(range(3), values.tolist(), color=BLUE), fmt="%.3g")
        dress(ax, title=f"What does {words} weigh?", x="tokens of the response", y="weight")
        ax.set_xticks(range(3), [str(length) for length in lengths.tolist()])
    return figure


def diagnose_log() -> Figure:
    """Print what is found in the log of a run that disappoints, as TRL writes it, and return its curves."""
    with tempfile.TemporaryDirectory() as folder:
        import_run(TABLES / "trainer_state.json", folder)
        for finding in diagnose(folder):
            print(f"{finding.grade}: {finding.finding}\n    try {finding.setting}: {finding.advice}")  # noqa: T201
        return plot_learning_curves(RunFolder.open(folder).metrics, title="What went wrong in this run?")


DRAWN = {"which_mean": draw_weights, "take_it_home": diagnose_log}
RUNS = {
    lesson: Unlabelled(*choices, DRAWN.get(lesson, partial(draw, lesson)))
    for lesson, choices in read_choices("runs").items()
}
