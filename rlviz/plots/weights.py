"""What a token weighs, and how hard a group pulls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rlviz.curves import DifficultyCurve
from rlviz.plots.style import BLUE, COLOURS, LINE, LINE_STYLES, TEXT, VERMILION, dress, new_figure
from small_models.checks import checked


@checked
def plot_token_weights(weights: Mapping[str, Sequence[NDArray[np.float64]]]) -> Figure:
    """Draw a column an aggregation, a row a response, a bar a token: its height is what the token weighs."""
    if not weights:
        raise ValueError("weights must hold at least one aggregation; got none")
    responses = len(next(iter(weights.values())))
    longest = max(len(row) for rows in weights.values() for row in rows)
    figure = new_figure(3.1 * len(weights) + 0.6, 1.25 * responses + 1.3)
    axes = figure.subplots(responses, len(weights), sharex=True, sharey="col", squeeze=False)
    for column, (name, rows) in enumerate(weights.items()):
        for row, values in enumerate(rows):
            ax = axes[row, column]
            ax.bar(np.arange(1, len(values) + 1), values, width=0.85, color=(BLUE, VERMILION)[row % 2])
            ax.set_xlim(0.3, longest + 0.7)
            dress(ax, title=name if row == 0 else "", x="token" if row == responses - 1 else "", y="")
            ax.text(
                0.98,
                0.94,
                f"{len(values)} token{'' if len(values) == 1 else 's'}, together {values.sum():.3g}",
                ha="right",
                va="top",
                fontsize=TEXT - 2,
                transform=ax.transAxes,
            )
        axes[0, column].set_ylim(0, 1.45 * max(values.max() for values in rows if len(values)))
    for row in range(responses):
        axes[row, 0].set_ylabel("weight", fontsize=TEXT)
    return figure


@checked
def plot_difficulty(curves: Mapping[str, DifficultyCurve], *, ax: Axes | None = None) -> Axes:
    """Draw how hard a group pulls, relative to one of which half is right, against the share that is right."""
    if ax is None:
        ax = new_figure(7, 4.2).add_subplot()
    for index, (name, curve) in enumerate(curves.items()):
        middle = curve.size[len(curve.size) // 2]
        ax.plot(
            curve.share_right,
            curve.size / middle,
            color=COLOURS[index % 4],
            linestyle=LINE_STYLES[index % 4],
            linewidth=LINE,
            marker="os^D"[index % 4],
            markersize=8,
            label=name,
        )
    ax.set(xlim=(0, 1), ylim=(0, 1.15))
    ax.legend(fontsize=TEXT - 2, framealpha=1)
    return dress(
        ax, title="How hard a group pulls", x="share of the group that is right", y="Σ|A|, a half-right group = 1"
    )
