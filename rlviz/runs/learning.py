"""Curves over replicas or seeds: the mean, and how far most of them lie from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rlviz.pictures.base import COLOURS, LINE, LINE_STYLES, TEXT, dress, new_figure, plain
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


Panel = tuple[str, str, float, dict[str, str]]  # title, unit, least top of the axis, columns
PANELS: tuple[Panel, ...] = (
    (
        "Reward and accuracy",
        "reward, accuracy",
        1.02,
        {"reward": "reward, sampled", "held_out_accuracy": "accuracy, held out"},
    ),
    ("Entropy", "nats per token", 0.0, {"entropy": "entropy"}),
    (
        "Tokens whose gradient is clipped",
        "share",
        0.02,
        {"clip_fraction_high": "above the upper limit", "clip_fraction_low": "below the lower limit"},
    ),
    ("Response length", "tokens", 0.0, {"response_length": "length"}),
    (
        "How much the critic explains",
        "share of variance",
        0.5,
        {"explained_variance": "explained variance"},
    ),
    ("KL to the policy that sampled", "nats per token", 0.0, {"kl_to_old": "after the updates"}),
    ("Routing that a step's updates changed", "share of decisions", 0.02, {"routing_flips": "experts chosen anew"}),
    (
        "Sampler against trainer",
        "share of tokens",
        0.02,
        {"mismatch_outside": "probabilities a fifth apart"},
    ),
    ("Learned reward against the rule", "pairs in order", 1.02, {"reward_agreement": "agreement"}),
)
WITH_A_LEARNED_REWARD = (
    (
        "Learned reward",
        "score",
        0.0,
        {"reward": "reward, sampled"},
    ),
    ("Accuracy", "accuracy", 1.02, {"accuracy": "sampled", "held_out_accuracy": "held out"}),
)
PAIR_PANELS: tuple[Panel, ...] = (
    ("Accuracy", "share", 1.02, {"pair_accuracy": "pairs in order", "held_out_accuracy": "answers right, held out"}),
    ("Margin of implicit rewards", "β · nats", 0.0, {"margin": "chosen − rejected"}),
    (
        "Log-probability against the start",
        "nats per response",
        0.0,
        {"chosen_gain": "chosen response", "rejected_gain": "rejected response"},
    ),
    ("How hard the loss pulls", "−∂loss/∂margin", 1.02, {"pull": "pull"}),
)


def panels_of(history: pd.DataFrame) -> tuple[Panel, ...]:
    """Return what there is to watch in a history: what its run measured."""
    measured = {name for name in history if history[name].notna().any()}
    if "margin" in measured:
        return PAIR_PANELS
    panels = (*WITH_A_LEARNED_REWARD, *PANELS[1:]) if "reward_agreement" in measured else PANELS  # a score is no share
    return tuple(panel for panel in panels if measured & set(panel[3]))


def _smooth(values: pd.Series) -> pd.Series:
    return values.rolling(max(1, len(values) // 15), min_periods=1, center=True).mean()


@checked
def plot_metrics(history: pd.DataFrame, metrics: Mapping[str, str], *, ax: Axes | None = None) -> Axes:
    """Draw columns of a history against the step: faint as measured, bold as a moving mean; points where few were measured.

    Over steps in which a column was not measured the line goes straight on to the next one in which it was.
    metrics: column → words for the legend. Raises KeyError for a column that the history does not have.
    """
    if ax is None:
        ax = dress(new_figure(6, 4).add_subplot(), title="", x="step", y="")
    for index, (column, words) in enumerate(metrics.items()):
        colour, style = COLOURS[index % 4], LINE_STYLES[index % 4]
        measured = history[["step", column]].dropna().astype(float)
        if column == "held_out_accuracy" or len(measured) == 1:
            ax.plot(
                measured["step"], measured[column], color=colour, marker="o", markersize=7, linewidth=1.5, label=words
            )
            continue
        ax.plot(measured["step"], measured[column], color=colour, alpha=0.3, linewidth=1)
        ax.plot(measured["step"], _smooth(measured[column]), color=colour, linestyle=style, linewidth=LINE, label=words)
    if len(metrics) > 1:
        ax.legend(fontsize=TEXT - 2, framealpha=1)
    return ax


@checked
def plot_learning_curves(history: pd.DataFrame, *, title: str = "") -> Figure:
    """Draw the things to watch in one run: of sampled responses reward and accuracy, entropy, clipped tokens and length, and
    what a critic or a learned reward adds; of preference pairs accuracy, margin, log-probabilities and pull."""
    panels = panels_of(history)
    rows = (len(panels) + 1) // 2
    figure = new_figure(10, 3.2 * rows)
    axes = list(figure.subplots(rows, 2).flat)
    for ax, (name, unit, least, columns) in zip(axes, panels, strict=False):
        metrics = {column: words for column, words in columns.items() if history[column].notna().any()}
        dress(ax, title=name, x="step", y=unit)
        plot_metrics(history, metrics, ax=ax)
        low, high = ax.get_ylim()
        ax.set_ylim(min(0.0, low) if history[list(metrics)].min(axis=None) < 0 else 0.0, max(least, high))
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    if title:
        figure.suptitle(plain(title), fontsize=TEXT + 2)
    return figure


@checked
def plot_seeds(
    runs: Mapping[str, Sequence[pd.DataFrame]], column: str, *, ax: Axes | None = None, label: str = ""
) -> Axes:
    """Draw one column for several settings, each over seeds: the mean as a line, lowest to highest seed as a band.

    Over steps in which no seed measured it both go straight on to the next one in which it was.
    """
    if ax is None:
        ax = new_figure(7, 4).add_subplot()
    for index, (name, histories) in enumerate(runs.items()):
        measured = pd.concat([history.set_index("step")[column].astype(float) for history in histories], axis=1)
        values = measured.dropna(how="all").apply(_smooth)
        colour, style = COLOURS[index % 4], LINE_STYLES[index % 4]
        ax.plot(
            values.index,
            values.mean(axis=1),
            color=colour,
            linestyle=style,
            linewidth=LINE,
            label=f"{name} ({len(histories)} seed{'s'[: len(histories) > 1]})",
        )
        ax.fill_between(values.index, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.2, linewidth=0)
    ax.legend(fontsize=TEXT - 2, framealpha=1)
    return dress(ax, title="", x="step", y=label or column)
