"""KL: k3 computed and k1 returned, and a run that a KL term destroys."""

from dataclasses import replace

import torch
from matplotlib.figure import Figure
from torch import Tensor

from rlviz.algorithms import GRPO
from rlviz.lessons.puzzles import Bug, Unlabelled
from rlviz.lessons.puzzles.panels import draw_run
from rlviz.pieces.kl import KLInLoss, k1
from rlviz.training import TrainSettings


def kl_of_tokens(logp: Tensor, ref_logp: Tensor) -> Tensor:
    x = ref_logp - logp
    _ = torch.expm1(x) - x
    return _


BUG = Bug(
    kl_of_tokens,
    "return _ → return -x",
    choices=(
        "its mean is not the KL",
        "its mean is the KL; as a loss it pulls nowhere",
        "as a loss it pushes away from the reference",
        "its gradient is that of the other direction",
    ),
    does="its mean is the KL; as a loss it pulls nowhere",
    why="it computes k3 and returns −x, which is k1. The logged mean is right; the mean gradient as a loss is E[∇log π] = 0.",
)


def _draw() -> Figure:
    settings = TrainSettings(steps=16, num_prompts=16, updates_per_rollout=4, evaluate_every=0, details_every=0)
    return draw_run(
        replace(GRPO, kl=KLInLoss(beta=1.0, estimator=k1)),
        settings,
        {
            "accuracy": ("How often is it right?", "share of sampled answers"),
            "kl": ("How large is the logged KL?", "nats per token"),
            "entropy": ("How undecided is it?", "entropy, nats per token"),
        },
    )


RUN = Unlabelled(
    draw=_draw,
    does="β = 1, k1 in the loss, 4 updates",
    why={
        "no KL term, 4 updates a rollout": "without a term accuracy would go on rising, to .8 and beyond.",
        "β = 1, k3 in the loss, 4 updates": "k3 at β = 1 holds the policy near the start: the KL would stay near .03.",
        "β = 1, k1 in the loss, 1 update": "with one update k1 pulls nowhere on average: accuracy would go on rising.",
        "β = 1, k1 in the loss, 4 updates": "the KL grows without end and accuracy falls: from the second update on, "
        "k1 pushes away from the policy that sampled.",
        "β = 0.04, k3 in the loss, 4 updates": "so small a β is hardly felt: accuracy would go on rising.",
    },
)
