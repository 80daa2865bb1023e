"""Is a learned reward being hacked? Reward and accuracy beside the signals that need no right answers, over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlviz.pictures.base import COLOURS, LINE, LINE_STYLES, TEXT, dress, new_figure
from small_models.checks import checked

MARKERS = ("o", "s", "^", "D")
PANELS = {  # column → title, unit
    "reward": ("Learned reward", "score"),
    "held_out_accuracy": ("Accuracy, held out", "accuracy"),
    "reward_agreement": ("Agreement with the rule", "pairs in order"),
    "kl": ("KL to the start", "nats per token"),
    "response_length": ("Response length", "tokens"),
    "repetition": ("Repetition", "share of tokens"),
}
OF_A_LEARNED_REWARD = ("reward", "reward_agreement")
ALT = (
    "Six graphs over the steps of training, a line a setting, a band over its seeds: learned reward, held-out accuracy and how "
    "often the learned reward puts right above wrong; below KL to the start, response length and repetition."
)


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
    axes = dict(zip(PANELS, figure.subplots(2, 3).flat, strict=True))
    for column, ax in axes.items():
        name, unit = PANELS[column]
        dress(ax, title=name, x="step", y=unit)
        for index, histories in enumerate(runs.values()):
            if column not in OF_A_LEARNED_REWARD or any(h["reward_agreement"].notna().any() for h in histories):
                _draw(ax, _over_seeds(histories, column, start_accuracy), index, column)
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
        labels=[f"{name} ({len(h)} {'seed' if len(h) == 1 else 'seeds'})" for name, h in runs.items()],
        fontsize=TEXT,
        frameon=False,
        handlelength=3.5,
    )
    if title:
        figure.suptitle(title, fontsize=TEXT + 2)
    return figure


def _over_seeds(histories: Sequence[pd.DataFrame], column: str, start_accuracy: float | None) -> pd.DataFrame:
    """Return a column a seed, over the steps at which any of them measured it; medians over neighbours but for the accuracy."""
    seeds = pd.concat([history.set_index("step")[column].astype(float) for history in histories], axis=1)
    seeds = seeds.dropna(how="all")
    if column != "held_out_accuracy":
        return seeds.rolling(1 + 2 * (len(seeds) // 20), min_periods=1, center=True).median()
    if start_accuracy is not None:
        seeds.loc[0] = start_accuracy
    return seeds.sort_index()


def _draw(ax: Axes, seeds: pd.DataFrame, index: int, column: str) -> None:
    apart = max(1, len(seeds) // 5)
    ax.fill_between(seeds.index, seeds.min(axis=1), seeds.max(axis=1), color=COLOURS[index], alpha=0.18, linewidth=0)
    ax.plot(
        seeds.index,
        seeds.median(axis=1),
        color=COLOURS[index],
        linestyle=LINE_STYLES[index],
        linewidth=LINE,
        marker=MARKERS[index],
        markersize=8,
        markevery=1 if column == "held_out_accuracy" else (index * apart // len(COLOURS), apart),  # none on another
    )


def _level(ax: Axes, height: float, at: float, side: str, words: str) -> None:
    ax.axhline(height, color="black", linestyle=(0, (1, 2)), linewidth=1.5)
    ax.text(at, height - 0.02, words, fontsize=TEXT - 1, ha=side, va="top")
