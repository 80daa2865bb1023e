"""Preferences and DPO: a reference that is the policy itself, and a run without a reference."""

from dataclasses import replace

from matplotlib.figure import Figure
from torch import Tensor

from rlviz import training
from rlviz.algorithms import DPO
from rlviz.lessons.puzzles import Bug, Unlabelled
from rlviz.lessons.puzzles.panels import draw_columns
from rlviz.pieces.preference import LengthNormalized
from rlviz.training import PairSettings


def reference(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """In the place of the reference's log-probabilities."""
    return ref_logp


BUG = Bug(
    reference,
    "return ref_logp → return logp.detach()",
    choices=(
        "nothing is learned, since all gradients are 0",
        "the policy learns, every margin stays 0, and every pair has weight ½ for ever",
        "the rejected responses are made likelier",
        "the policy is held at the start more tightly than β says",
    ),
    does="the policy learns, every margin stays 0, and every pair has weight ½ for ever",
    why="the reference moves along, so the margin is 0 by construction, and the loss ln 2. Only the policy's side has a "
    "gradient, with weight σ(0) = ½: the linear loss at half its strength, with no pull to the reference. The log shows it: loss "
    "0.6931 and margin 0 at every update.",
)


def _draw() -> Figure:
    settings = PairSettings(steps=60, batch_size=16, lr=6e-4, num_pairs=300, evaluate_every=0)
    run = training.history(list(training.train("chain", replace(DPO, reward=LengthNormalized(2.0)), settings)))
    figure = draw_columns(
        run,
        {
            "margin": ("How far apart are the two rewards?", "margin"),
            "pull": ("What weight does a pair have?", "mean weight"),
            "rejected_gain": ("How far did rejected ones move?", "nats, against the start"),
        },
    )
    for ax, limits in zip(figure.axes, ((0, None), (0, 0.5), (None, 0)), strict=True):
        ax.set_ylim(*limits)
    return figure


RUN = Unlabelled(
    draw=_draw,
    does="no reference: 2 · the mean log π of a token is the reward",
    why={
        "DPO, β = 0.1": "with a reference the first margin is exactly 0 and the first weight ½; and with β = 0.1 rejected "
        "responses lose three times as many nats.",
        "DPO, β = 1": "the nats would fit. But with a reference the first margin is exactly 0 and the first weight ½, whatever β "
        "is: look at update 1.",
        "DPO, chosen and rejected exchanged": "with a reference the first margin is exactly 0 and the first weight ½, whichever "
        "response is called chosen: look at update 1.",
        "DPO, a learning rate of 0": "then margin, weight and log-probabilities would stay at 0, ½ and 0.",
        "no reference: 2 · the mean log π of a token is the reward": "at update 1 the policy is its own reference, so DPO's "
        "margin would be 0 and its weight ½. Here the margin is above 1 at once: the start already finds chosen "
        "responses likelier.",
    },
)
