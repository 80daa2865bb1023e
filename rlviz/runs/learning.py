"""Learning curves: replicas or seeds as a line in a band, what there is to watch in one run, what tells of a hacked reward.

`line_style` says how lines are told apart, `draw_band` and `draw_seeds` draw one: pictures of claims and comparisons use them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rlviz.pictures.base import COLOURS, LINE, LINE_STYLES, TEXT, dress, new_figure
from rlviz.runs.curves import (
    GROUP_GRAPHS,
    PAIR_GRAPHS,
    REWARD_GRAPH,
    Curve,
    Graph,
    Series,
    bind_data,
    build_picture,
    draw_figure,
    graphs_of_steps,
    moving_mean,
)
from small_models.checks import checked

MARKERS = "os^DvPX*<>p"


def line_style(index: int) -> dict[str, Any]:
    """Return colour, line style and marker of a line by its place: no two of the first eleven are alike in grey."""
    style = LINE_STYLES[(index + index // len(COLOURS)) % len(LINE_STYLES)]
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": style, "marker": MARKERS[index % len(MARKERS)]}


def draw_band(ax: Axes, at: Any, low: Any, line: Any, high: Any, index: int, **more: Any) -> None:
    """Draw a line in a band, in the looks of its place among the lines; more: how else it looks, in matplotlib's words."""
    look = {"linewidth": LINE, **line_style(index), "marker": "", **more}
    ax.fill_between(at, low, high, color=look["color"], alpha=0.15, linewidth=0)
    ax.plot(at, line, **look)


def draw_seeds(
    ax: Axes, seeds: pd.DataFrame, index: int, *, line: Literal["mean", "median"] = "median", **more: Any
) -> None:
    """Draw values [steps, seeds] as their mean or median over the seeds, in a band from the lowest to the highest."""
    draw_band(ax, seeds.index, seeds.min(axis=1), seeds.agg(line, axis=1), seeds.max(axis=1), index, **more)


def seed_values(histories: Sequence[pd.DataFrame], column: str) -> pd.DataFrame:
    """Return a column of histories as values [steps, seeds], over the steps at which any of them measured it."""
    seeds = [history.set_index("step")[column].astype(float) for history in histories]
    return pd.concat(seeds, axis=1).dropna(how="all")


def label_with_seeds(name: str, histories: Sequence[pd.DataFrame]) -> str:
    """Return a setting's name with how many seeds it has."""
    return f"{name} ({len(histories)} seed{'s'[: len(histories) > 1]})"


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
        at = np.arange(values.shape[1]) if steps is None else np.asarray(steps)
        low, high = np.percentile(values, [10, 90], axis=0)
        draw_band(ax, at, low, values.mean(0), high, index, linewidth=LINE + 1.2 - 0.6 * (index % 4), label=name)
    ax.set_xlim(at[0], at[-1])
    if legend:
        ax.legend(fontsize=TEXT - 2, framealpha=1)
    return dress(ax, title=title, x=x, y=y)


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
        values = seed_values(histories, column).apply(moving_mean)
        draw_seeds(ax, values, index, line="mean", label=label_with_seeds(name, histories))
    ax.legend(fontsize=TEXT - 2, framealpha=1)
    return dress(ax, title="", x="step", y=label or column)


FURTHER_GRAPHS = (
    Graph("Response length", "tokens", 1.0, (Curve("response_length", ""),)),
    Graph("How much the critic explains", "share of variance", 0.5, (Curve("explained_variance", ""),)),
    Graph("KL to the policy that sampled", "nats per token", 0.01, (Curve("kl_to_old", ""),)),
    Graph("Routing that a step's updates changed", "share of decisions", 0.02, (Curve("routing_flips", ""),)),
    Graph("Sampler and trainer a fifth apart", "share of tokens", 0.02, (Curve("mismatch_outside", ""),)),
    Graph("Learned reward against the rule", "pairs in order", 1.02, (Curve("reward_agreement", ""),)),
)
SCORE_GRAPHS = (  # in place of the first, for a learned score is no share
    Graph("Learned reward", "score", 0.05, (Curve("reward", ""),)),
    Graph("Accuracy", "accuracy", 1.02, (
        Curve("accuracy", "sampled"), Curve("held_out_accuracy", "held out", "vermilion", marker="o"))),
)  # fmt: skip
PULL_GRAPH = Graph("How hard the loss pulls", "−∂loss/∂margin", 1.02, (Curve("pull", ""),))


def select_graphs(history: pd.DataFrame) -> tuple[Graph, ...]:
    """Return what there is to watch in a history: what its run measured."""
    measured = {name for name in history if history[name].notna().any()}
    first = (REWARD_GRAPH,) if "reward_std" in measured else GROUP_GRAPHS[:1]
    lower = graphs_of_steps(history.get("ratio_std", pd.Series(math.nan, history.index)).astype(float))
    graphs = (*(SCORE_GRAPHS if "reward_agreement" in measured else first), *lower, *FURTHER_GRAPHS)
    if "margin" in measured:
        graphs = (*PAIR_GRAPHS, REWARD_GRAPH, PULL_GRAPH)
    drawn = [(graph, tuple(curve for curve in graph.curves if curve.column in measured)) for graph in graphs]
    return tuple(replace(graph, curves=parts, tall=0.75) for graph, parts in drawn if parts)


@checked
def plot_learning_curves(history: pd.DataFrame, *, title: str = "") -> Figure:
    """Draw the things to watch in one run, thin as measured, bold as a moving mean: of sampled responses reward and accuracy,
    entropy, clipped tokens and length, and what a critic or a learned reward adds; of preference pairs accuracy, margin,
    log-probabilities and pull. Raises ValueError for a history in which none of them was measured."""
    if not (graphs := select_graphs(history)):
        raise ValueError("history must hold a step and a column that was measured, such as reward; got none")
    rows = history.astype(object).where(history.notna(), None).to_dict("records")
    records: list[Any] = [SimpleNamespace(**{str(name): value for name, value in row.items()}) for row in rows]
    series = [Series("", [records], "smooth")]
    picture = replace(build_picture(series, graphs), title=title, columns=2)
    return draw_figure(picture, bind_data(series, int(history["step"].max()), "", graphs))


@checked
def plot_metrics(history: pd.DataFrame, metrics: Mapping[str, str], *, ax: Axes | None = None) -> Axes:
    """Draw columns of a history against the step: faint as measured, bold as a moving mean; points where few were measured.

    Over steps in which a column was not measured the line goes straight on to the next one in which it was.
    metrics: column → words for the legend. Raises KeyError for a column that the history does not have.
    """
    if ax is None:
        ax = dress(new_figure(6, 4).add_subplot(), title="", x="step", y="")
    for index, (column, words) in enumerate(metrics.items()):
        look = line_style(index)
        measured = history[["step", column]].dropna().astype(float)
        at, values = measured["step"], measured[column]
        if column.startswith("held_out") or len(measured) == 1:
            ax.plot(at, values, color=look["color"], marker="o", markersize=7, linewidth=1.5, label=words)
            continue
        ax.plot(at, values, color=look["color"], alpha=0.3, linewidth=1)
        ax.plot(at, moving_mean(values), color=look["color"], linestyle=look["linestyle"], linewidth=LINE, label=words)
    if len(metrics) > 1:
        ax.legend(fontsize=TEXT - 2, framealpha=1)
    return ax


HACKING_GRAPHS = {  # column → title, unit
    "reward": ("Learned reward", "score"),
    "held_out_accuracy": ("Accuracy, held out", "accuracy"),
    "reward_agreement": ("Agreement with the rule", "pairs in order"),
    "kl": ("KL to the start", "nats per token"),
    "response_length": ("Response length", "tokens"),
    "repetition": ("Repetition", "share of tokens"),
}
JUDGE_COLUMNS = ("reward", "reward_agreement")


@checked
def plot_hacking(
    runs: Mapping[str, Sequence[pd.DataFrame]], *, start_accuracy: float | None = None, title: str = ""
) -> Figure:
    """Draw what tells a hacked reward from a good one, for one to four settings of several seeds each.

    runs: setting → a history a seed. Lines are medians over the seeds, bands reach from the lowest to the highest, of medians
    over a tenth of the steps, because a KL of few samples has spikes; accuracy stands as measured. Score and agreement are
    drawn for runs on a learned reward only: a rule has another scale, and agrees with itself. start_accuracy: before training.
    Raises ValueError for no setting, a fifth one, or one without a history, KeyError for a column that is missing.
    """
    if not 1 <= len(runs) <= len(COLOURS):
        raise ValueError(f"runs must be one to {len(COLOURS)} settings, to be told apart; got {len(runs)}")
    empty = [name for name, histories in runs.items() if not len(histories)]
    if empty:
        raise ValueError(f"runs must hold a history for each setting; got none for {empty[0]}")
    figure = new_figure(11, 6.8)
    axes = dict(zip(HACKING_GRAPHS, figure.subplots(2, 3).flat, strict=True))
    for column, ax in axes.items():
        name, unit = HACKING_GRAPHS[column]
        dress(ax, title=name, x="step", y=unit)
        for index, (setting, histories) in enumerate(runs.items()):
            if column in JUDGE_COLUMNS and not any(h["reward_agreement"].notna().any() for h in histories):
                continue
            seeds, marker = seed_values(histories, column), ""
            if column != "held_out_accuracy":
                seeds = seeds.rolling(1 + 2 * (len(seeds) // 20), min_periods=1, center=True).median()
            else:
                marker = MARKERS[index]
                if start_accuracy is not None:
                    seeds.loc[0] = start_accuracy
            draw_seeds(ax, seeds.sort_index(), index, marker=marker, label=label_with_seeds(setting, histories))
    for column in ("held_out_accuracy", "reward_agreement"):
        axes[column].set_ylim(0, 1.02)
    axes["reward_agreement"].axhline(0.5, color="black", linestyle=":", linewidth=1.5)  # a coin's
    axes["kl"].set(yscale="log", ylim=(0.005, max(10.0, axes["kl"].get_ylim()[1])))
    axes["kl"].yaxis.set_major_formatter("{x:g}")
    handles = axes["kl"].get_lines()
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=TEXT, frameon=False, handlelength=3.5)
    if title:
        figure.suptitle(title, fontsize=TEXT + 2)
    return figure
