"""What each token of a response weighs under an aggregation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from rlviz.page.names import Array
from rlviz.page.style import BLUE, TEXT, VERMILION, dress, new_figure
from small_models.checks import checked


@checked
def token_weights(aggregate: Callable[[Tensor], Tensor], lengths: Sequence[int]) -> list[Array]:
    """Return, for a group of responses of these lengths, the weight that each token of each response gets.

    Raises ValueError for a negative length, or none above 0.
    """
    if not lengths or min(lengths) < 0 or max(lengths) < 1:
        raise ValueError(f"lengths must be numbers of tokens, one of them at least 1; got {list(lengths)}")
    mask = torch.arange(max(lengths)) < torch.tensor(list(lengths)).view(1, -1, 1)
    weights = aggregate(mask)[0]
    return [weights[i, :length].numpy() for i, length in enumerate(lengths)]


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
