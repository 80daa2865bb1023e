"""The training loop as one picture."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from rlviz.pictures.base import BLUE, GREEN, GREY, TEXT, VERMILION, new_figure
from small_models.checks import checked

STEPS = (
    ("prompt", "35271=", GREY),
    ("sample a group", "38078#8\n38058#8\n#8   #3  …", BLUE),
    ("reward each", "right: 1\nwrong: 0", GREEN),
    ("compare", "advantage:\nbetter or worse\nthan its group", VERMILION),
    ("update", "better: likelier\nworse: less likely\nnot too far: clip", BLUE),
)


@checked
def plot_loop(*, ax: Axes | None = None) -> Axes:
    """Draw what one training step does, from prompt to update, and that the updated policy samples next."""
    if ax is None:
        ax = new_figure(11, 3.2).add_subplot()
    ax.set(xlim=(0, 11), ylim=(-0.9, 2.3))
    ax.axis("off")
    width, gap = 1.9, 0.35
    for index, (title, text, colour) in enumerate(STEPS):
        left = index * (width + gap)
        ax.add_patch(
            FancyBboxPatch(
                (left + 0.08, 0.3),
                width - 0.16,
                1.5,
                boxstyle="round,pad=0.05",
                facecolor="white",
                edgecolor=colour,
                linewidth=2.5,
            )
        )
        ax.text(left + width / 2, 1.58, title, ha="center", va="center", fontsize=TEXT + 1, fontweight="bold")
        ax.text(left + width / 2, 0.88, text, ha="center", va="center", fontsize=TEXT - 1, linespacing=1.35)
        if index:
            ax.add_patch(
                FancyArrowPatch(
                    (left - gap - 0.02, 1.05),
                    (left + 0.04, 1.05),
                    arrowstyle="-|>",
                    mutation_scale=18,
                    linewidth=2,
                    color="black",
                )
            )
    centre = [index * (width + gap) + width / 2 for index in range(len(STEPS))]
    back = FancyArrowPatch(
        (centre[4], 0.22),
        (centre[1], 0.22),
        connectionstyle="arc3,rad=-0.16",
        arrowstyle="-|>",
        mutation_scale=18,
        linewidth=2,
        color="black",
    )
    ax.add_patch(back)
    ax.text(
        2.5 * (width + gap) + width / 2,
        -0.72,
        "the updated policy samples the next groups",
        ha="center",
        fontsize=TEXT - 1,
    )
    return ax
