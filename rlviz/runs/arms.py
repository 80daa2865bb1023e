"""plot_arms: the outcome of each arm, a dot per seed and a bar for the median, which one seed far off does not move."""

from __future__ import annotations

from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from rlviz.pictures.base import COLOURS, FAINT, LINE, TEXT, dress

LETTERS = 17  # of an arm's name in a line


def plot_arms(ax: Axes, frame: pd.DataFrame, y: str, *, by: str = "arm", title: str = "", unit: str = "") -> Axes:
    """Draw a row for each arm, from top to bottom as they come: a dot per seed (the mean of its rows) and their median.

    frame: a row a step, arm and seed. by: the column of arms. unit: label of the axis, `y` by default.
    """
    arms = list(frame[by].unique())
    for row, arm in enumerate(arms):
        values = frame[frame[by] == arm].groupby("seed")[y].mean().dropna().to_numpy()
        if not len(values):
            at: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "ha": "center", "va": "center"}
            ax.text(0.5, row, "not reached", fontsize=TEXT - 1, **at)
            continue
        heights = row + np.linspace(-0.22, 0.22, len(values))
        ax.plot(values, heights, "o", color=COLOURS[0], markeredgecolor="white", markeredgewidth=0.6, markersize=8)
        ax.plot([np.median(values)] * 2, [row - 0.35, row + 0.35], color="black", linewidth=LINE)
    dress(ax, title=title, x=unit or y, y="")
    ax.set_yticks(range(len(arms)), [fill(str(arm), LETTERS) for arm in arms])
    ax.set_ylim(len(arms) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0, labelsize=TEXT)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.grid(visible=True, axis="x", color=FAINT)
    return ax
