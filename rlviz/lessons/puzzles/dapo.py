"""DAPO: groups chosen by shaped rewards, and a run that a punishment of length shortens."""

from dataclasses import replace

from matplotlib.figure import Figure
from torch import Tensor

from rlviz.algorithms import GRPO
from rlviz.lessons.puzzles import Bug, Unlabelled
from rlviz.lessons.puzzles.panels import draw_run
from rlviz.pieces.selection import drop_all_equal
from rlviz.pieces.shaping import SoftOverlongPunishment
from rlviz.training import TrainSettings


def groups_that_teach(rewards: Tensor, lengths: Tensor) -> Tensor:
    """With a punishment from 5 to 9 tokens."""
    return drop_all_equal(rewards)


BUG = Bug(
    groups_that_teach,
    "→ shaped = SoftOverlongPunishment(max_length=9, cache=4)(rewards, lengths) ⏎ return drop_all_equal(shaped)",
    choices=(
        "groups that are all right are thrown away",
        "all-wrong groups whose lengths differ are kept, and teach length alone",
        "responses that were cut off leave the loss",
        "the batch is never full",
    ),
    does="all-wrong groups whose lengths differ are kept, and teach length alone",
    why="it looks at rewards after the punishment: an all-wrong group is alive again if its lengths differ, and then the one "
    "that tried to reason is blamed and the guesses are praised. Choose by right and wrong, before anything is added.",
)


def _draw() -> Figure:
    settings = TrainSettings(steps=24, num_prompts=16, group_size=4, evaluate_every=0, details_every=0)
    return draw_run(
        replace(GRPO, kl=None, shape=SoftOverlongPunishment(max_length=9, cache=4)),
        settings,
        {
            "accuracy": ("How often is it right?", "share of sampled answers"),
            "response_length": ("How long are responses?", "tokens"),
            "reward": ("What do they earn?", "reward"),
        },
    )


RUN = Unlabelled(
    draw=_draw,
    does="with a soft punishment from 5 to 9 tokens",
    why={
        "GRPO without KL": "then the reward would be the accuracy; here it lies far below.",
        "with dynamic sampling": "sampling changes no reward: it would be the accuracy among what is sampled.",
        "with a soft punishment from 12 to 16 tokens": "no response on chain is so long, so it would take nothing off.",
        "with a soft punishment from 5 to 9 tokens": "the reward lies far below the accuracy, and the more the longer "
        "responses are: an answer with its sums loses three quarters.",
        "with cut responses left out": "the filter leaves rewards as they are.",
    },
)
