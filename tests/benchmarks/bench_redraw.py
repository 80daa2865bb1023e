"""One slider move of every explorer against drawing a new pyplot figure for it, as `ipywidgets.interact` is used.

Ours is everything the kernel does when a control's value is set: curve, the SVG of what moves, alt text, caption, handles and the
widget's traits. The other is what a function handed to interact does: the same curve, the same panels in a new
`plt.figure` of the same size, dpi and layout, and the PNG that the inline backend makes of it (`print_figure` with
bbox_inches="tight", base64), after which it closes the figure. Both compute the same curve for the same values; interact's own
widget work is left out in its favour, and what a curve remembers (a trained table) is there for it already. The two take
turns, so that a busy machine slows both.

    python tests/benchmarks/bench_redraw.py [NAME …]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import torch
from IPython.core.pylabtools import print_figure

from rlviz.pictures.arguments import Control, Range, Stop
from rlviz.pictures.catalogue import EXPLORERS, find_explorer
from rlviz.pictures.explore import Explorer
from rlviz.pictures.idea import Idea

MOVES = 20
RETRAINS = {"entropy"}  # these train a table at every move; their bound is 200 ms, the others' 33


def values_of(control: Control) -> list[float]:
    """Return different values of a slider, from end to end and back: a move each, none computed before."""
    if isinstance(control, Stop):
        return [value for _, value in control.options]
    assert isinstance(control, Range)
    steps = (control.high - control.low) / control.step
    places = sorted({round(place * steps / (2 * MOVES)) for place in range(2 * MOVES + 1)})
    return [control.read(control.low + place * control.step) for place in places]


def new_figure(explorer: Explorer) -> str:
    """Return the PNG, in base64, of a new figure with what the explorer's controls say."""
    curve = explorer.arguments.curve()
    kind = type(explorer.picture)
    figure = plt.figure(figsize=kind.size, dpi=100, layout="constrained")
    kind(curve, figure)
    png = print_figure(figure, base64=True)
    plt.close(figure)
    return png


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def slider_times(name: str, control_name: str) -> tuple[float, float]:
    """Return the median seconds of a move of this slider, ours and a new figure's."""
    explorer = find_explorer(name)()
    control = explorer.controls[control_name]
    ours, theirs = [], []
    for value in values_of(control):
        if value != control.value:
            ours.append(seconds(lambda value=value: setattr(control, "value", value)))
            theirs.append(seconds(lambda: new_figure(explorer)))
    return median(ours), median(theirs)


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    print(f"{'explorer':12} {'slider':22} {'ours':>9} {'new figure':>11} {'ratio':>7}")
    for name in names or [name for name in EXPLORERS if not isinstance(find_explorer(name).idea, Idea)]:
        medians = []
        for control_name, control in find_explorer(name)().controls.items():
            if not isinstance(control, Range | Stop) or control.hidden:
                continue
            ours, theirs = slider_times(name, control_name)
            medians.append((ours, theirs))
            print(f"{name:12} {control_name:22} {1e3 * ours:6.1f} ms {1e3 * theirs:8.1f} ms {theirs / ours:6.1f}×")
        worst = max(ours for ours, _ in medians)
        bound = 200 if name in RETRAINS else 33
        ours, theirs = median(o for o, _ in medians), median(t for _, t in medians)
        verdict = "" if 1e3 * ours <= bound else "  OVER"
        print(
            f"{name:12} {'median of its sliders':22} {1e3 * ours:6.1f} ms {1e3 * theirs:8.1f} ms {theirs / ours:6.1f}×",
            end="",
        )
        print(f"  worst slider {1e3 * worst:.1f} ms, bound {bound} ms{verdict}")


if __name__ == "__main__":
    main(sys.argv[1:])
