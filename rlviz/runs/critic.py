"""plot_values: the values of a critic along the tokens of an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from rlviz.pictures.base import BLUE, GREY, LINE, TEXT, VERMILION, dress, new_figure
from small_models.checks import checked

Answer = tuple[Sequence[str], Sequence[float], float]  # tokens, V before each, score


@checked
def plot_values(answers: Mapping[str, Answer]) -> Figure:
    """Draw V before each token of some answers, and the score that came in the end: across a token the line moves by its δ.

    answers: title → its tokens, V before each of them, and its score. (δ at γ = 1 and without a KL in the reward.)
    Raises ValueError for no answer, an empty one, or one without a value for each token.
    """
    if not answers:
        raise ValueError("answers must hold at least one; got none")
    for title, (tokens, values, _) in answers.items():
        if not tokens or len(tokens) != len(values):
            raise ValueError(
                f"answers must have a value for each token; got {len(values)} for {len(tokens)} in {title!r}"
            )
    numbers = [number for _, values, score in answers.values() for number in (*values, score)]
    lengths = [len(tokens) for tokens, _, _ in answers.values()]
    figure = new_figure(min(13.0, 1.6 * len(answers) + 0.42 * sum(lengths)), 3.8)
    widths = [length + 2 for length in lengths]
    all_axes = figure.subplots(1, len(answers), sharey=True, squeeze=False, width_ratios=widths)[0]
    for ax, (title, (tokens, values, score)) in zip(all_axes, answers.items(), strict=True):
        last = len(tokens)
        dress(ax, title=title, x="token", y="value" if ax is all_axes[0] else "")
        ax.axhline(0, color=GREY, linewidth=1)
        ax.vlines(range(last + 1), 0, 1, color=GREY, linewidth=0.6, alpha=0.4, transform=ax.get_xaxis_transform())
        ax.plot([last - 1, last], [values[-1], score], color=VERMILION, linestyle=":", linewidth=LINE)
        ax.plot(range(last), values, color=BLUE, linewidth=LINE, marker="o", markersize=8, label="critic's V")
        ax.plot(
            [last], [score], color=VERMILION, linestyle="none", marker="D", markersize=10, label="score", clip_on=False
        )
        ax.set(xlim=(-0.3, last + 0.35), xticks=[index + 0.5 for index in range(last)])
        ax.set_xticklabels(tokens, fontsize=TEXT)
        ax.tick_params(axis="x", length=0)
    all_axes[0].set_ylim(min(-0.08, *numbers), max(1.08, *numbers))
    figure.legend(
        *all_axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=TEXT, frameon=False
    )
    return figure
