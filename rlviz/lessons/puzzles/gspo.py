"""GSPO: one value a response that meets a mask with one value a token, and a run of two updates."""

from matplotlib.figure import Figure
from torch import Tensor

from rlviz.algorithms import GSPO
from rlviz.lessons.puzzles import Bug, Unlabelled
from rlviz.lessons.puzzles.panels import draw_run
from rlviz.training import TrainSettings


def of_responses(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    log_ratio = (logp - old_logp).masked_fill(~mask, 0.0)
    s = (log_ratio.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)).exp()  # [N, 1]
    return (s * A.unsqueeze(-1)).mean()


BUG = Bug(
    of_responses,
    "A.unsqueeze(-1)).mean() → A.unsqueeze(-1) * mask).sum(-1).mean()",
    choices=(
        "the root 1/|y| is missing, so long responses have larger ratios",
        "padding has a ratio of its own",
        "s is added up on every token, so a long response counts more",
        "the advantage is averaged over the group",
    ),
    does="s is added up on every token, so a long response counts more",
    why="s · A has one value a response; times the mask it has one a token, and the sum counts it as often as the response is "
    "long: (2 − 8) / 2 = −3 for the two responses above, in place of 0.",
)


def _draw() -> Figure:
    settings = TrainSettings(
        steps=14,
        num_prompts=12,
        lr=3e-4,
        lr_warmup_steps=5,
        updates_per_rollout=2,
        evaluate_every=0,
        details_every=0,
    )
    return draw_run(
        GSPO,
        settings,
        {
            "clipped": ("How many tokens are clipped?", "share of tokens"),
            "sequence_ratio_std": ("How far does s spread?", "standard deviation"),
            "accuracy": ("How often is it right?", "share of sampled answers"),
        },
    )


RUN = Unlabelled(
    draw=_draw,
    does="GSPO, limits 0.9997 and 1.0004, 2 updates",
    why={
        "GRPO, limits 0.8 and 1.2, 8 updates a rollout": "token ratios with these limits clip about 5 % in the lesson's table; "
        "here it is 30 % and more.",
        "GSPO, limits 0.97 and 1.03, 8 updates": "these limits lie beyond most s of the middle picture, whose spread is "
        "0.03 at most, so they would clip far fewer tokens.",
        "GSPO, limits 0.9997 and 1.0004, 8 updates": "seven of eight updates could clip, and 75 % were clipped in the table; "
        "here the share never passes one half.",
        "GSPO, limits 0.9997 and 1.0004, 2 updates": "only the second of two updates can clip, so one half is the ceiling, and "
        "the curve stays below it; limits this narrow catch nearly all that moved, however little s spreads.",
        "GSPO, limits 0.9997 and 1.0004, 1 update": "with one update every ratio is 1, and nothing is clipped.",
    },
)
