"""One slider move of `explore_clip()` against drawing a new pyplot figure for it, as `ipywidgets.interact` is used.

Ours is everything the kernel does when `.controls["eps_high"].slider.value` is set: curves, blitting, PNG, base64, alt
text, caption and the widgets' traits. The other is a function as a notebook author hands it to interact: the same
curves, `plt.subplots` of the same size and dpi, the same two panels by `plot_clip`, and the PNG that the inline backend
makes of it (`print_figure` with bbox_inches="tight", base64), after which it closes the figure. Fair because both
compute the same curves for the same values; interact's own widget work is left out in its favour. Without a layout
engine, matplotlib's default, the words of the panels overlap; the last line gives it the layout that our figure has.
The ratio says how many times faster ours is.
"""

from __future__ import annotations

from itertools import cycle

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import torch
from interleave import interleave, table
from IPython.core.pylabtools import print_figure

from rlviz import GRPO
from rlviz.curves import clip_curve
from rlviz.plots import plot_clip
from rlviz.widgets import explore_clip

OURS, PYPLOT, LAID_OUT = "explore_clip (ours)", "new pyplot figure", "new figure, constrained"
VALUES = [round(0.05 + 0.01 * step, 2) for step in range(60)]


def redraw(eps_high: float, layout: str | None) -> str:
    """Return the PNG, in base64, of a new figure with both panels."""
    algorithm = GRPO.with_parameters(eps_high=eps_high)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), dpi=100, layout=layout)
    for ax, advantage in zip(axes, (1.0, -1.0), strict=True):
        plot_clip(clip_curve(algorithm, advantage=advantage), ax=ax)
    png = print_figure(figure, base64=True)
    plt.close(figure)
    return png


def main() -> None:
    torch.set_num_threads(1)
    slider = explore_clip().controls["eps_high"].slider
    moves = {name: cycle(VALUES) for name in (OURS, PYPLOT, LAID_OUT)}
    contenders = {
        OURS: lambda: setattr(slider, "value", next(moves[OURS])),
        PYPLOT: lambda: redraw(next(moves[PYPLOT]), None),
        LAID_OUT: lambda: redraw(next(moves[LAID_OUT]), "constrained"),
    }
    times = interleave(contenders, rounds=60)
    print(table(times, {PYPLOT: (PYPLOT, OURS), LAID_OUT: (LAID_OUT, OURS)}))


if __name__ == "__main__":
    main()
