"""Curves over replicas or seeds: the mean, and how far most of them lie from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from rlviz.plots.style import COLOURS, LINE, LINE_STYLES, TEXT, dress, new_figure
from small_models.checks import checked


@checked
def plot_bands(
    curves: Mapping[str, NDArray[np.float64]],
    *,
    steps: Sequence[float] | None = None,
    ax: Axes | None = None,
    title: str = "",
    x: str = "step",
    y: str = "",
    legend: bool = True,
) -> Axes:
    """Draw each [R, S] array as the mean over R, with a band from the 10th to the 90th percentile of the R curves.

    steps: where the S values stand, 0, 1, … by default. legend: leave it out where several axes share one.
    """
    if not curves:
        raise ValueError("curves must hold at least one array; got none")
    if ax is None:
        ax = new_figure(7, 4).add_subplot()
    for index, (name, values) in enumerate(curves.items()):
        colour, style = COLOURS[index % 4], LINE_STYLES[index % 4]
        at = np.arange(values.shape[1]) if steps is None else np.asarray(steps)
        low, high = np.percentile(values, [10, 90], axis=0)
        ax.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
        ax.plot(at, values.mean(0), color=colour, linestyle=style, linewidth=LINE + 1.2 - 0.6 * (index % 4), label=name)
    ax.set_xlim(at[0], at[-1])
    if legend:
        ax.legend(fontsize=TEXT - 2, framealpha=1)
    return dress(ax, title=title, x=x, y=y)
