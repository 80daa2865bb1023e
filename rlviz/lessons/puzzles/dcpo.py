"""DCPO: DCPO's limits, of the probability that a token has now, and a run with one piece of DCPO."""

from dataclasses import replace

import torch
from matplotlib.figure import Figure
from torch import Tensor

from rlviz.algorithms import DCPO, GRPO
from rlviz.lessons.puzzles import Bug, Unlabelled
from rlviz.lessons.puzzles.panels import draw_run
from rlviz.pieces.bounds import DynamicBounds
from rlviz.training import TrainSettings


def limits_of_the_old_probability(
    ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor, old_logp: Tensor
) -> Tensor:
    """A surrogate with DCPO's limits in it."""
    old_prob = old_logp.exp()
    lower, upper = DynamicBounds()(old_prob.log())
    return torch.minimum(ratio * advantages, torch.clamp(ratio, lower, upper) * advantages)


BUG = Bug(
    limits_of_the_old_probability,
    "old_prob = old_logp.exp() → new_prob = ratio * old_logp.exp()\nold_prob.log() → new_prob.log()",
    choices=(
        "the token is never clipped, so it grows without a limit",
        "the limits are swapped, so bad tokens grow",
        "it clips the objective in the place of the ratio",
        "its limit falls as the token grows, so the good token is pushed down",
    ),
    does="its limit falls as the token grows, so the good token is pushed down",
    why="the limits are those of the new probability: for .04 the upper one is 2.79. They carry a gradient, so the objective "
    "falls as the token grows. Limits belong to the old probability, which is frozen.",
)


def _draw() -> Figure:
    settings = TrainSettings(
        steps=20,
        num_prompts=12,
        lr=1e-4,
        lr_warmup_steps=5,
        updates_per_rollout=8,
        prompt_pool=48,
        evaluate_every=0,
        details_every=0,
    )
    return draw_run(
        replace(GRPO.without_kl(), bounds=DCPO.bounds),
        settings,
        {
            "clip_fraction_low": ("How many tokens are clipped below?", "share of tokens"),
            "contributing": ("How many responses teach?", "share of responses"),
            "accuracy": ("How often is it right?", "share of sampled answers"),
        },
    )


RUN = Unlabelled(
    draw=_draw,
    does="GRPO with DCPO's bounds, 8 updates",
    why={
        "GRPO, one update a rollout": "with one update every ratio is 1, and nothing is clipped.",
        "GRPO, 8 updates": "GRPO's lower limit of 0.8 clips 1.7 % of the tokens in the table; here it is about half a per cent.",
        "GRPO with DCPO's bounds, 8 updates": "few tokens are clipped below, as under limits that let rare tokens fall further; "
        "and the share of responses that teach comes down as groups die, so there is no memory.",
        "GRPO with DCPO's memory, 8 updates": "with a memory nearly all responses teach once prompts come back; here their "
        "share comes down.",
        "DCPO, 8 updates": "DCPO has the memory, too: nearly all responses would teach once prompts come back.",
    },
)
