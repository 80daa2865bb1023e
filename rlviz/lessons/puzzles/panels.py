"""The picture of an unlabelled run: some columns of its history, side by side."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from rlviz import training
from rlviz.pictures.base import dress, new_figure
from rlviz.runs.learning import plot_metrics


def draw_run(algorithm: Any, settings: Any, columns: Mapping[str, tuple[str, str]]) -> Figure:
    """Train the warm start of `chain`, and draw columns of the history: name → (title, unit)."""
    run = training.history(list(training.train("chain", algorithm, settings)))
    run["clipped"] = run.clip_fraction_low + run.clip_fraction_high
    figure = draw_columns(run, columns)
    for ax, column in zip(figure.axes, columns, strict=True):
        if column != "reward":
            ax.set_ylim(bottom=0)
    return figure


def draw_columns(run: Any, columns: Mapping[str, tuple[str, str]]) -> Figure:
    """Draw columns of a run's history side by side: name → (title, unit)."""
    figure = new_figure(14, 4.2)
    for ax, (column, (title, unit)) in zip(figure.subplots(1, len(columns)), columns.items(), strict=True):
        plot_metrics(run, {column: title}, ax=dress(ax, title=title, x="step", y=unit))
    return figure
