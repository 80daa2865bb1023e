"""Which knobs keep entropy?: a run that a bonus of entropy keeps undecided."""

from dataclasses import replace

from matplotlib.figure import Figure

from rlviz.algorithms import GRPO
from rlviz.lessons.puzzles import Unlabelled
from rlviz.pictures.base import new_figure
from rlviz.runs.learning import plot_bands
from rlviz.tabular import train_table


def _draw() -> Figure:
    run = train_table(replace(GRPO, kl=None), steps=60, lr=0.5, updates_per_rollout=8, entropy_weight=0.3, replicas=16)
    figure = new_figure(11, 4.2)
    left, right = figure.subplots(1, 2)
    for ax, title, unit, values in (
        (left, "How undecided is it?", "entropy, nats", run.entropy),
        (right, "How often is it right?", "accuracy", run.accuracy),
    ):
        plot_bands({"the run": values}, ax=ax, title=title, x="rollout", y=unit, legend=False).set_ylim(bottom=0)
    return figure


RUN = Unlabelled(
    draw=_draw,
    does="an entropy bonus of 0.3",
    why={
        "a learning rate of 0.1 in place of 0.5": "small steps only delay: both curves would still be moving at the end. Here "
        "they have come to rest.",
        "an entropy bonus of 0.3": "both curves come to rest early, at about 2 nats and .8 right: there reward and bonus "
        "pull with equal force, and more steps change nothing.",
        "a coin for a reward": "then the accuracy could not rise: there is nothing to learn.",
        "groups of 2 in place of 8": "small groups learn late, and then go on: the entropy would fall below 1 nat by the end.",
        "no limits": "without limits eight updates decide it in a few rollouts: the entropy would be below 0.3 after ten.",
    },
)
