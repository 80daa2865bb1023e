"""Policy gradients: a loss that broadcasts, and a run with nothing to learn."""

from dataclasses import replace

from matplotlib.figure import Figure
from torch import Tensor

from rlviz.algorithms import RLOO
from rlviz.lessons.puzzles import Bug, Unlabelled
from rlviz.pictures.base import new_figure
from rlviz.runs.learning import plot_bands
from rlviz.tabular import TableTask, train_table


def summed_reinforce(logp: Tensor, mask: Tensor, R: Tensor, b: Tensor) -> Tensor:
    summed = (logp * mask).sum(1)
    A = R - b
    return -(A * summed).mean()


BUG = Bug(
    summed_reinforce,
    ".sum(1) → .sum(1, keepdim=True)",
    or_at=(3, 4),
    choices=(
        "padding is counted, so long responses are pushed harder",
        "each advantage meets every response, and together they cancel",
        "the sign is lost, so good responses become rarer",
        "the baseline depends on the action, so the gradient is biased",
    ),
    does="each advantage meets every response, and together they cancel",
    why="keepdim leaves [N, 1], A is [N], and their product is [N, N]: the mean of it is the mean of A times the "
    "mean of log π. With the mean reward as the baseline the mean of A is 0, and so is the gradient. Leave keepdim "
    "out, or give A a dimension too.",
)


def _draw() -> Figure:
    free, task = replace(RLOO, kl=None), TableTask(success=(0.44,) * 10)
    run = train_table(free, task, steps=100, lr=4.0, updates_per_rollout=1, replicas=64)
    figure = new_figure(13, 4.2)
    shown = (("accuracy", run.accuracy), ("reward of the samples", run.reward), ("entropy, nats", run.entropy))
    for ax, (words, values) in zip(figure.subplots(1, 3), shown, strict=True):
        plot_bands({"the run": values}, ax=ax, title=words.capitalize(), x="step", y=words, legend=False)
        ax.set_ylim(0, 2.4 if "nats" in words else 1)
    return figure


RUN = Unlabelled(
    draw=_draw,
    does="every action is right equally often",
    why={
        "a baseline, as in the lesson": "then the accuracy would rise to .8.",
        "no baseline, and 10 added to every reward": "then the runs would differ in the share that they get right: "
        "some find the best action. Here it is the same number in all runs, at every step.",
        "the sign of the loss is lost": "then the best action would become rarer, and the accuracy would fall to .4.",
        "every action is right equally often": "the accuracy is .44 in all runs, whatever the policy plays, so no "
        "action is better. Entropy falls all the same: luck pushes some action up, and what is played more often is "
        "pushed more often. A falling entropy alone does not say that something was learned.",
        "a learning rate of 0": "then the policy would stand still, and its entropy stay at ln 10 = 2.3.",
    },
)
