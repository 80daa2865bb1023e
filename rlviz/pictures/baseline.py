"""A group of rewards to drag, their mean, and the advantage that each response gets beside it."""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.algorithms import DR_GRPO, GRPO, RLOO, GroupPolicyGradient
from rlviz.page.picture import Axis, Draws, Line, Panel, Picture, Points, Rule, Say, Slider
from rlviz.page.tracing import Curve
from rlviz.pictures.aggregation import with_gaps
from rlviz.pictures.groups import GROUP_NEEDS, group_advantages, learns_from_a_group
from rlviz.pictures.spec import Algorithms, explorer
from rlviz.pieces.advantages import GroupAdvantage

LARGEST = 8  # responses that can be dragged
HIGHEST = 2.0  # reward
USUAL_REACH = 2.6  # of the axis of A; one right of eight has (G − 1) / √G = 2.47


def baseline_curve(algorithm: GroupPolicyGradient) -> Curve:
    """Return the curve: rewards [G] of one group, their mean and std (over G − 1), and the algorithm's advantages [G].

    Arrows are lines with gaps: from the mean to each reward, and from 0 to each advantage. The std is shown where the rule
    divides by it. Shaping, selection, KL and earlier visits have no part.
    """
    rule = algorithm.without_kl()

    def curve(rewards: Tensor, group_size: Tensor, responses: Tensor) -> dict[str, Tensor]:
        size = responses.shape[0]
        R = rewards[:size]
        A = group_advantages(rule, R.unsqueeze(0))[0].double()
        mean, std = R.mean(), R.std()
        place = torch.arange(1.0, LARGEST + 1, dtype=torch.double)
        at, zero = place[:size], torch.zeros_like(A)
        stems = with_gaps(at.unsqueeze(1).expand(-1, 2))
        reach = A.abs().amax().clamp(min=USUAL_REACH)
        teaches = (A != 0).any().double()
        return {
            "at": at,
            "end": group_size + 0.6,
            "A": A,
            "is_up": (A > 0).double(),
            "is_down": (A < 0).double(),
            "is_none": (A == 0).double(),
            "stems": stems,
            "deviation": with_gaps(torch.stack([mean.expand(size), R], -1)),
            "arrow_up": with_gaps(torch.stack([zero, A.clamp(min=0.0)], -1)),
            "arrow_down": with_gaps(torch.stack([zero, A.clamp(max=0.0)], -1)),
            "reach": 1.1 * reach,
            "minus": -1.1 * reach,
            "mean": mean,
            "mean_less_std": mean - std,
            "mean_plus_std": mean + std,
            "has_std": teaches * (rule.advantage == GroupAdvantage()),
            "most": A.amax(),
            "least": A.amin(),
            "teaches": teaches,
            **{f"has{i}": (group_size >= i).double() for i in range(3, LARGEST + 1)},
        }

    return curve


BASELINE = Picture(
    title="Which responses are pushed up, and which down?",
    look="Drag a reward: the mean moves, and with it the push on every response of the group.",
    notice="A response is compared with its group. The same reward is pushed up in a poor group and down in a good one; where "
    "all rewards are equal, nothing is pushed.",
    alt="Left, the rewards of a group of responses as dots to drag, with their mean and standard deviation; right, an arrow for "
    "the advantage of each response, up or down.",
    panels=(
        Panel(
            "The rewards of a group: drag a dot",
            Axis("response", 0.4, "end", whole=True),
            Axis("reward R", -0.6, HIGHEST + 0.1, ticks=(0.0, 0.5, 1.0, 1.5, 2.0)),
            (
                *(
                    Rule(at, axis="y", width=1.5, colour="grey", label=label, direct=True, when="has_std")
                    for at, label in (("mean_plus_std", "+ std"), ("mean_less_std", "− std"))
                ),
                Rule("mean", axis="y", dash="6 3", width=2.5, colour="green", label="mean {mean:.2f}", direct=True),
                Line("stems", "deviation", width=1.5, colour="grey", label="R − mean"),
                *(
                    Points(float(i), f"rewards{i}", size=13, colour="ink", drag=f"rewards{i}", when=f"has{i}" * (i > 2))
                    for i in range(1, LARGEST + 1)
                ),
            ),
        ),
        Panel(
            "The push on each response",
            Axis("response", 0.4, "end", whole=True),
            Axis("advantage A", "minus", "reach"),
            (
                Rule(0.0, axis="y", dash="", width=1),
                Line("stems", "arrow_up", width=4),
                Line("stems", "arrow_down", width=4, colour="vermilion"),
                Points("at", "A", "^", 15, where="is_up", label="likelier"),
                Points("at", "A", "v", 15, colour="vermilion", where="is_down", label="less likely"),
                Points("at", "A", "x", 11, colour="ink", where="is_none", label="no push"),
            ),
        ),
    ),
    controls={
        "group_size": Slider(2, LARGEST, 1, 4, "group size G"),
        "rewards": Slider(0.0, HIGHEST, 0.1, (1.0,) + 7 * (0.0,), "rewards", many=LARGEST, rare=True),
    },
    data={"responses": Draws("uniform", ("group_size",), 0)},  # a size is the length of an input
    conclusion=(
        Say(
            "{name} compares {group_size} responses with their mean, {mean:.2f}: A goes from {least:+.2f} to {most:+.2f}.",
            "teaches",
        ),
        Say("{name}: all {group_size} rewards are {mean:.2f}, so every A is 0, and the group teaches nothing."),
    ),
)

explore_baseline = explorer(
    "baseline",
    BASELINE,
    baseline_curve,
    algorithms=Algorithms(learns_from_a_group, GRPO, needs=GROUP_NEEDS),
    free=True,
    example={"group_size": 5},
    named={
        "one right of four": {},
        "three right of four": {"rewards": (1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)},
        "one right of eight": {"group_size": LARGEST},
        "all alike": {"rewards": 8 * (1.0,)},
        "no division (Dr.GRPO)": {"algorithm": DR_GRPO},
        "the mean of the others (RLOO)": {"algorithm": RLOO},
    },
)
