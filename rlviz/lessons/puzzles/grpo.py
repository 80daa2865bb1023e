"""GRPO: a test for dead groups that rounding defeats, and a run whose groups are small and whose rollouts are reused."""

from dataclasses import replace

from matplotlib.figure import Figure
from torch import Tensor

from rlviz.algorithms import GRPO
from rlviz.lessons.puzzles import Bug, Unlabelled
from rlviz.lessons.puzzles.panels import draw_run
from rlviz.training import TrainSettings


def standardized(rewards: Tensor) -> Tensor:
    std = rewards.std(1, keepdim=True)
    return (rewards - rewards.mean(1, keepdim=True)) / (std + 1e-6)


BUG = Bug(
    standardized,
    "→ return torch.where(std > 0, (rewards - rewards.mean(1, keepdim=True)) / std, 0.0)",
    choices=(
        "a group with one right answer gets advantages of 0",
        "equal rewards can get advantages near −1, out of rounding errors",
        "prompts are compared with each other, not responses",
        "the std divides by G, not by G − 1",
    ),
    does="equal rewards can get advantages near −1, out of rounding errors",
    why="the mean of eight rewards of 0.1 is not quite 0.1 in 32 bits, so the std is 8e-9 and passes the test; the deviation "
    "over it is −0.94, as for a real failure. Ask whether the largest reward is the smallest, or add 1e-6 to the std.",
)


def _draw() -> Figure:
    settings = TrainSettings(
        steps=20,
        num_prompts=64,
        group_size=2,
        updates_per_rollout=4,
        lr_warmup_steps=0,
        evaluate_every=0,
        details_every=0,
    )
    return draw_run(
        replace(GRPO, kl=None),
        settings,
        {
            "accuracy": ("How often is it right?", "share of sampled answers"),
            "contributing": ("How many responses teach?", "share of responses"),
            "clipped": ("How many tokens are clipped?", "share of tokens"),
        },
    )


RUN = Unlabelled(
    draw=_draw,
    does="64 groups of 2, 4 updates a rollout",
    why={
        "16 groups of 8, 1 update a rollout": "with groups of 8 nearly all responses would teach at first; here about half do.",
        "16 groups of 8, 4 updates a rollout": "with groups of 8 nearly all responses would teach at first; here about half do.",
        "64 groups of 2, 1 update a rollout": "with one update every ratio is 1 and nothing is clipped; here some tokens are.",
        "64 groups of 2, 4 updates a rollout": "about half of the responses teach, as in groups of 2, and some tokens "
        "are clipped, so the ratios have left 1.",
        "64 groups of 2, 4 updates, old_logp computed anew before each": "then every ratio would be 1, and nothing clipped.",
    },
)
