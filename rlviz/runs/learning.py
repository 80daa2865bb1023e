"""Learning curves: replicas or seeds as a line in a band, what there is to watch in one run, what tells of a hacked reward.

`line_style` says how lines are told apart, `draw_band` and `draw_seeds` draw one: pictures of claims and comparisons use them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rlviz.pictures.base import COLOURS, LINE, LINE_STYLES, TEXT, dress, new_figure, plain
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


Panel = tuple[str, str, float, dict[str, str]]  # title, unit, least top of the axis, columns
PANELS: tuple[Panel, ...] = (
    ("Reward and accuracy", "reward, accuracy", 1.02, {"reward": "reward, sampled", "held_out_accuracy": "accuracy, held out"}),
    ("Entropy", "nats per token", 0.0, {"entropy": "entropy"}),
    ("Tokens whose gradient is clipped", "share", 0.02, {
        "clip_fraction_high": "above the upper limit", "clip_fraction_low": "below the lower limit"}),
    ("Response length", "tokens", 0.0, {"response_length": "length"}),
    ("How much the critic explains", "share of variance", 0.5, {"explained_variance": "explained variance"}),
    ("KL to the policy that sampled", "nats per token", 0.0, {"kl_to_old": "after the updates"}),
    ("Routing that a step's updates changed", "share of decisions", 0.02, {"routing_flips": "experts chosen anew"}),
    ("Sampler against trainer", "share of tokens", 0.02, {"mismatch_outside": "probabilities a fifth apart"}),
    ("Learned reward against the rule", "pairs in order", 1.02, {"reward_agreement": "agreement"}),
)  # fmt: skip
LEARNED_REWARD_PANELS: tuple[Panel, ...] = (  # in place of the first, for a score is no share
    ("Learned reward", "score", 0.0, {"reward": "reward, sampled"}),
    ("Accuracy", "accuracy", 1.02, {"accuracy": "sampled", "held_out_accuracy": "held out"}),
    *PANELS[1:],
)
REWARD_PANELS: tuple[Panel, ...] = (  # where the task's reward is not 1 for a right answer and 0 for another
    ("Reward", "reward", 1.02, {
        "reward": "sampled", "held_out_reward": "held out", "held_out_accuracy": "answers right, held out"}),
    *PANELS[1:],
)  # fmt: skip
PAIR_PANELS: tuple[Panel, ...] = (
    ("Accuracy", "share", 1.02, {"pair_accuracy": "pairs in order", "held_out_accuracy": "answers right, held out"}),
    ("Reward", "reward", 1.02, {"held_out_reward": "held out"}),
    ("Margin of implicit rewards", "β · nats", 0.0, {"margin": "chosen − rejected"}),
    ("Log-probability against the start", "nats per response", 0.0, {
        "chosen_gain": "chosen response", "rejected_gain": "rejected response"}),
    ("How hard the loss pulls", "−∂loss/∂margin", 1.02, {"pull": "pull"}),
)  # fmt: skip


def select_panels(history: pd.DataFrame) -> tuple[Panel, ...]:
    """Return what there is to watch in a history: what its run measured."""
    measured = {name for name in history if history[name].notna().any()}
    panels = PAIR_PANELS if "margin" in measured else REWARD_PANELS if "reward_std" in measured else PANELS
    panels = LEARNED_REWARD_PANELS if "reward_agreement" in measured else panels
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
        look = line_style(index)
        measured = history[["step", column]].dropna().astype(float)
        at, values = measured["step"], measured[column]
        if column.startswith("held_out") or len(measured) == 1:
            ax.plot(at, values, color=look["color"], marker="o", markersize=7, linewidth=1.5, label=words)
            continue
        ax.plot(at, values, color=look["color"], alpha=0.3, linewidth=1)
        ax.plot(at, _smooth(values), color=look["color"], linestyle=look["linestyle"], linewidth=LINE, label=words)
    if len(metrics) > 1:
        ax.legend(fontsize=TEXT - 2, framealpha=1)
    return ax


@checked
def plot_learning_curves(history: pd.DataFrame, *, title: str = "") -> Figure:
    """Draw the things to watch in one run: of sampled responses reward and accuracy, entropy, clipped tokens and length, and
    what a critic or a learned reward adds; of preference pairs accuracy, margin, log-probabilities and pull."""
    panels = select_panels(history)
    rows = (len(panels) + 1) // 2
    figure = new_figure(10, 3.2 * rows)
    axes = list(figure.subplots(rows, 2).flat)
    for ax, (name, unit, least, columns) in zip(axes, panels, strict=False):
        metrics = {
            column: words for column, words in columns.items() if column in history and history[column].notna().any()
        }
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
        values = seed_values(histories, column).apply(_smooth)
        draw_seeds(ax, values, index, line="mean", label=label_with_seeds(name, histories))
    ax.legend(fontsize=TEXT - 2, framealpha=1)
    return dress(ax, title="", x="step", y=label or column)


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
        for index, histories in enumerate(runs.values()):
            if column not in JUDGE_COLUMNS or any(h["reward_agreement"].notna().any() for h in histories):
                seeds = _without_spikes(histories, column, start_accuracy)
                apart = max(1, len(seeds) // 5)  # markers of lines that run together stand apart
                every = 1 if column == "held_out_accuracy" else (index * apart // len(COLOURS), apart)
                draw_seeds(ax, seeds, index, marker=MARKERS[index], markersize=8, markevery=every)
    last = max(float(history["step"].max()) for histories in runs.values() for history in histories)
    for ax in axes.values():
        ax.set_xlim(0, last * 1.02)
    for column in ("held_out_accuracy", "reward_agreement"):
        axes[column].set_ylim(0, 1.02)
    _level(axes["reward_agreement"], 0.5, 0.5, "left", "a coin")
    if start_accuracy is not None:
        _level(axes["held_out_accuracy"], start_accuracy, last, "right", "start")
    axes["kl"].set(yscale="log", ylim=(0.005, max(10.0, axes["kl"].get_ylim()[1])))
    axes["kl"].yaxis.set_major_formatter("{x:g}")
    for column, least in (("response_length", 0.0), ("repetition", 0.2)):
        axes[column].set_ylim(0, max(least, axes[column].get_ylim()[1]))
    figure.legend(
        handles=axes["kl"].get_lines(),
        loc="outside lower center",
        ncols=2 if len(runs) == 4 else len(runs),
        labels=[label_with_seeds(name, histories) for name, histories in runs.items()],
        fontsize=TEXT,
        frameon=False,
        handlelength=3.5,
    )
    if title:
        figure.suptitle(title, fontsize=TEXT + 2)
    return figure


def _without_spikes(histories: Sequence[pd.DataFrame], column: str, start_accuracy: float | None) -> pd.DataFrame:
    """Return values [steps, seeds]: medians over neighbours, and the accuracy as measured, from before the first step on."""
    seeds = seed_values(histories, column)
    if column != "held_out_accuracy":
        return seeds.rolling(1 + 2 * (len(seeds) // 20), min_periods=1, center=True).median()
    if start_accuracy is not None:
        seeds.loc[0] = start_accuracy
    return seeds.sort_index()


def _level(ax: Axes, height: float, at: float, side: str, words: str) -> None:
    ax.axhline(height, color="black", linestyle=(0, (1, 2)), linewidth=1.5)
    ax.text(at, height - 0.02, words, fontsize=TEXT - 1, ha=side, va="top")
