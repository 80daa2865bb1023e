"""How hard a group pulls, against how many of its responses are right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from matplotlib.axes import Axes
from torch import Tensor

from rlviz.page.names import Array
from rlviz.page.style import CYCLE, LINE, LINE_STYLES, TEXT, dress, new_figure
from small_models.checks import checked


@dataclass(frozen=True)
class DifficultyCurve:
    """The advantages of right and wrong responses in groups of which 1, 2, … G − 1 are right, all in one batch.

    share_right, right, wrong: arrays over the groups. size: Σ|A| of each group, how hard it pulls.
    """

    share_right: Array
    right: Array
    wrong: Array
    size: Array


@checked
def difficulty_curve(advantage: Callable[[Tensor], Tensor], group_size: int = 8) -> DifficultyCurve:
    """Return the advantages that a piece gives to groups from hard to easy. Raises ValueError unless group_size ≥ 2."""
    if group_size < 2:
        raise ValueError(f"group_size must be at least 2; got {group_size}")
    rewards = (torch.arange(group_size) < torch.arange(1, group_size).unsqueeze(1)).double()
    values = advantage(rewards)
    return DifficultyCurve(
        share_right=rewards.mean(1).numpy(),
        right=values[:, 0].numpy(),
        wrong=values[:, -1].numpy(),
        size=values.abs().sum(1).numpy(),
    )


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
            color=CYCLE[index % 4],
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
