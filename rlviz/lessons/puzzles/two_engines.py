"""Two engines: a weight of the wrong policy, and a run whose sampler is not the trainer."""

import torch
from matplotlib.figure import Figure
from torch import Tensor

from rlviz.algorithms import GRPO
from rlviz.lessons.puzzles import Bug, Unlabelled
from rlviz.pictures.base import dress, new_figure
from rlviz.runs.learning import plot_metrics
from rlviz.training import TrainSettings, history, load_policy, train


def weighed_by_the_policy_before(
    logp: Tensor, old_logp: Tensor, sampler_logp: Tensor, advantages: Tensor, mask: Tensor
) -> Tensor:
    ratio = (logp - old_logp).exp()
    weight = (old_logp - sampler_logp).exp().clamp(max=2.0)
    clipped = ratio.clamp(0.8, 1.2)
    objective = weight * torch.minimum(ratio * advantages, clipped * advantages)
    return -(objective * mask).sum() / mask.sum()


BUG = Bug(
    weighed_by_the_policy_before,
    "old_logp - sampler_logp → logp - sampler_logp",
    choices=(
        "a token that has moved counts its ratio twice, and the weight has a gradient of its own",
        "tokens that the trainer finds rare get no gradient",
        "the clip cuts the weight in place of the ratio",
        "padding enters the loss",
    ),
    does="a token that has moved counts its ratio twice, and the weight has a gradient of its own",
    why="it takes the policy as it is now, logp, where the trainer before its updates belongs, old_logp. So the weight is r · w, "
    "with a gradient that no clip stops; before the first update it already doubles every push below the cap.",
)


def _draw() -> Figure:
    settings = TrainSettings(
        steps=48, num_prompts=16, evaluate_every=8, details_every=0, seed=3, sampler_temperature=1.3
    )
    run = history(list(train(load_policy("chain"), "chain", GRPO.without_kl(), settings)))
    figure = new_figure(14, 4.2)
    panels = {
        "When are the engines apart?": ("tokens with w outside .8 to 1.2", {"mismatch_outside": "share"}),
        "Who is right more often?": (
            "accuracy",
            {"accuracy": "sampled responses", "held_out_accuracy": "held out, by the trainer"},
        ),
        "How unsure is the trainer?": ("nats per token", {"entropy": "entropy"}),
    }
    for ax, (title, (unit, metrics)) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        plot_metrics(run, metrics, ax=dress(ax, title=title, x="step", y=unit))
        ax.set_ylim(bottom=0)
    return figure


RUN = Unlabelled(
    draw=_draw,
    does="a sampler at temperature 1.3",
    why={
        "one engine": "with one engine every w is 1, and no token is apart.",
        "a sampler of 3 bits": "rounding is there from step 1, as here; but a rounded sampler is nearly as often right as the "
        "trainer. Look at the gap in the middle.",
        "a sampler 8 steps old": "in step 1 there are no older weights: an old sampler begins at 0. Here they are apart at once.",
        "a sampler 8 steps old, with TIS": "in step 1 there are no older weights: an old sampler begins at 0, corrected or not.",
        "a sampler at temperature 1.3": "apart from step 1 on, so it is not age; and the sampled responses are right far less "
        "often than the trainer's own, to the end: a hot sampler errs more, and the trainer learns from its errors.",
    },
)
