"""How the memory of a step grows with the group size and with the length of responses, drawn as two graphs."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from rlviz.pictures.base import BLUE, GREEN, GREY, LINE, TEXT, VERMILION, dress, new_figure
from rlviz.runs.cost import unit_of
from small_models.checks import checked

ALT = (
    "Two graphs of the memory at the peak of a step: left against the responses to each prompt, right against the tokens of each "
    "response. Lines for an update that reads each prompt for each response, for one that reads it once a group, for the latter "
    "in micro-batches, which stays low, and for a rollout."
)
LINES = {
    "rollout": {"color": BLUE, "linestyle": ":", "marker": "s", "label": "rollout"},
    "unshared": {"color": GREY, "linestyle": "-.", "marker": "^", "label": "update, the prompt for each response"},
    "update": {"color": VERMILION, "linestyle": "-", "marker": "o", "label": "update, the prompt once a group"},
}
DIVIDED = {"color": GREEN, "linestyle": "--", "marker": "D"}


@checked
def plot_growth(table: pd.DataFrame) -> Figure:
    """Draw the rows of `rlviz.training.growth.growth_table`: bytes at the peak, left over G, right over T.

    Raises ValueError for a table without rows of both.
    """
    panels = {"group_size": "responses to a prompt, G", "length": "tokens of a response, T"}
    for varied in panels:
        if not (table["varied"] == varied).any():
            raise ValueError(f"table must have rows in which {varied} grows; got none")
    figure = new_figure(10.5, 4.6)
    highest = table[[*LINES, "in_micro_batches"]].max().max()
    unit, size = unit_of(highest)
    tokens = table["micro_batch_tokens"].iloc[0]
    lines = LINES | {"in_micro_batches": {**DIVIDED, "label": f"so, {tokens:,} tokens at once"}}
    for ax, (varied, words) in zip(figure.subplots(1, 2, sharey=True), panels.items(), strict=True):
        rows = table[table["varied"] == varied]
        other = "length" if varied == "group_size" else "group_size"
        letters = {"group_size": "G", "length": "T"}
        for column, looks in lines.items():
            ax.plot(rows[varied], rows[column] / size, linewidth=LINE, markersize=7, **looks)
        title = f"Memory of a step as {letters[varied]} grows ({letters[other]} = {rows[other].iloc[0]})"
        dress(ax, title=title, x=words, y=f"{unit} at the peak" if varied == "group_size" else "")
        ax.set_xticks(rows[varied])
        ax.set_ylim(0, 1.08 * highest / size)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=TEXT, frameon=False)
    return figure
