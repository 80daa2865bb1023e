"""Start here: a run with small groups."""

from dataclasses import replace

from matplotlib.figure import Figure

from rlviz.algorithms import GRPO
from rlviz.lessons.puzzles import Unlabelled
from rlviz.pictures.base import dress, new_figure
from rlviz.runs.learning import plot_metrics
from rlviz.training import TrainSettings, history, train


def _draw() -> Figure:
    settings = TrainSettings(steps=40, group_size=2, evaluate_every=0, details_every=0)
    run = history(list(train("chain", replace(GRPO, kl=None), settings)))
    figure = new_figure(13, 4.2)
    shown = (
        ("Reward", {"reward": "reward"}, "mean of the step"),
        ("Dead groups", {"zero_variance_groups": "dead groups"}, "share of the groups"),
        ("Clipped tokens", {"clip_fraction_low": "below", "clip_fraction_high": "above"}, "share of the tokens"),
    )
    for ax, (title, columns, unit) in zip(figure.subplots(1, 3), shown, strict=True):
        plot_metrics(run, columns, ax=dress(ax, title=title, x="step", y=unit)).set_ylim(-0.02, 1)
    return figure


RUN = Unlabelled(
    draw=_draw,
    does="one update a rollout, groups of 2",
    why={
        "one update a rollout, groups of 8": "nothing is clipped, so it is one update; but with groups of 8 hardly "
        "any group would be dead at the start, where one answer in three is right.",
        "one update a rollout, groups of 2": "no token is ever clipped, so every ratio was 1: one update. And half "
        "of the groups are dead from the first step on, as p² + (1 − p)² says for p = .34: .55.",
        "eight updates a rollout, groups of 8, ε = 0.02": "with eight updates ratios leave 1, and so narrow a clip "
        "would cut some tokens; here none is cut.",
        "eight updates a rollout, groups of 2, ε = 0.02": "the groups are small, as the dead ones show; but with "
        "eight updates so narrow a clip would cut some tokens.",
        "one update a rollout, groups of 8, a learning rate of 0": "then the reward would stay near a third.",
    },
)
