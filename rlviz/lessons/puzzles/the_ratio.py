"""The ratio: the branch for bad tokens, and runs with and without a limit."""

from dataclasses import replace

import torch
from matplotlib.figure import Figure
from torch import Tensor

from rlviz.algorithms import GRPO
from rlviz.lessons.puzzles import Bug, Unlabelled
from rlviz.pictures.base import new_figure
from rlviz.pieces.surrogate import unclipped
from rlviz.runs.learning import plot_bands
from rlviz.tabular import TableTask, train_table


def clipped_objective(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    free, clipped = ratio * advantages, torch.clamp(ratio, lower, upper) * advantages
    return torch.minimum(free, clipped)


BUG = Bug(
    clipped_objective,
    "→ return torch.where(advantages >= 0, torch.minimum(free, clipped), torch.maximum(free, clipped))",
    choices=(
        "a good token whose ratio is 1.5 keeps its gradient",
        "a bad token whose ratio is 1.5 loses its gradient",
        "a bad token whose ratio is 0.5 loses its gradient",
        "both limits are swapped",
    ),
    does="a bad token whose ratio is 1.5 loses its gradient",
    why="for A < 0 it takes the maximum. At ratio 1.5 that is the clipped value, a constant, so a bad token that became likelier "
    "stays so; at 0.5 it is r · A, so a bad token is pushed down without a limit.",
)


def _draw() -> Figure:
    free = replace(GRPO, kl=None, surrogate=unclipped)
    task = TableTask(success=(0.8,) + (0.4,) * 9)
    run = train_table(free, task, steps=100, lr=2.0, updates_per_rollout=16, replicas=16)
    clipped = run.clip_low + run.clip_high
    figure = new_figure(13, 4.2)
    shown = (("accuracy", run.accuracy), ("entropy, nats", run.entropy), ("share of tokens clipped", clipped))
    for ax, (words, values) in zip(figure.subplots(1, 3), shown, strict=True):
        plot_bands({"the run": values}, ax=ax, title=f"{words.capitalize()}?", x="rollout", y=words, legend=False)
    return figure


RUN = Unlabelled(
    draw=_draw,
    does="16 updates, no clip",
    why={
        "one update a rollout": "then all ratios are 1, and all 64 runs would come to the best action or near it, slowly.",
        "16 updates, clip ±0.2": "with a clip some tokens would be clipped from the first rollouts on; here none ever is.",
        "16 updates, no clip": "nothing is ever clipped, entropy falls to nearly 0 soon, and many runs stay at .4: they "
        "settled on what was lucky.",
        "16 updates, a learning rate 16 times smaller, no clip": "as slow as one update: entropy would not vanish so soon.",
        "random rewards": "then the accuracy would not rise on average.",
    },
)
