"""What the models of an algorithm cost: a bar of bytes and a bar of seconds for each setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlviz.pictures.base import BLUE, GREEN, GREY, TEXT, VERMILION, dress, new_figure
from small_models.checks import checked

Parts = Mapping[str, Mapping[str, Any]]  # column → the looks of its part of a bar
BYTES: Parts = {
    "weights": {"facecolor": BLUE, "edgecolor": BLUE, "label": "weights"},
    "gradients": {"facecolor": "white", "edgecolor": VERMILION, "hatch": "///", "label": "gradients"},
    "optimizer_state": {"facecolor": "white", "edgecolor": GREEN, "hatch": "...", "label": "optimizer state"},
    "activations": {"facecolor": "#d0d0d0", "edgecolor": GREY, "label": "activations"},
}
SECONDS: Parts = {
    "rollout_seconds": {"facecolor": "white", "edgecolor": BLUE, "hatch": "\\\\\\", "label": "rollout"},
    "update_seconds": {"facecolor": VERMILION, "edgecolor": VERMILION, "label": "updates"},
}
ALT = (
    "Two bars for each setting: left bytes at the peak of an update, cut into weights, gradients, optimizer state and "
    "activations; right the seconds of a step, cut into rollout and updates."
)
UNITS = {"GB": 1e9, "MB": 1e6, "kB": 1e3}


def unit_of(count: float) -> tuple[str, float]:
    """Return the unit in which so many bytes are read, and its bytes."""
    return next((unit, size) for unit, size in UNITS.items() if count >= size or unit == "kB")


@checked
def plot_costs(table: pd.DataFrame) -> Figure:
    """Draw the rows of `rlviz.training.cost.cost_table`: left what is in memory, right what a step takes, a bar a setting.

    At each bar its length, and how many times the first row's that is; of seconds the median of the rounds' ratios, which need
    not be the quotient of two medians.
    """
    figure = new_figure(10.5, 2 + 0.62 * len(table))
    left, right = figure.subplots(1, 2, width_ratios=(1.1, 1), sharey=True)
    unit, size = unit_of(table["bytes"].max())
    updates = table["step_seconds"] - table["rollout_seconds"]
    _draw(left, table[list(BYTES)] / size, BYTES, table["bytes_to_grpo"])
    _draw(right, table.assign(update_seconds=updates)[list(SECONDS)], SECONDS, table["seconds_to_grpo"])
    dress(left, title="Memory at the peak of an update", x=f"{unit} (against {table['name'][0]})", y="")
    against = f"median of the rounds' ratios to {table['name'][0]}"
    dress(right, title="Time of a step", x=f"seconds, median of the rounds\n({against})", y="")
    left.set_yticks(range(len(table)), [name.replace(", learned", ",\nlearned") for name in table["name"]])
    left.set_ylim(len(table) - 0.45, -0.55)
    left.tick_params(axis="y", labelsize=TEXT)
    for ax in (left, right):
        ax.tick_params(axis="y", length=0)
    handles = [bar for ax in (left, right) for bar in ax.containers]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=len(handles),
        fontsize=TEXT - 1,
        frameon=False,
        columnspacing=1.4,
    )
    return figure


def _draw(ax: Axes, lengths: pd.DataFrame, parts: Parts, ratios: pd.Series) -> None:
    begins = np.zeros(len(lengths))
    for column, looks in parts.items():
        ax.barh(np.arange(len(lengths)), lengths[column], left=begins, height=0.62, linewidth=1.2, **looks)
        begins = begins + lengths[column].to_numpy()
    for place, (end, ratio) in enumerate(zip(begins, ratios, strict=True)):
        ax.text(end, place, f" {end:.3g} ({ratio:.2f}×)", fontsize=TEXT - 1, va="center")
    ax.set_xlim(0, 1.5 * begins.max())
