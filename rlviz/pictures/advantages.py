"""What a response's luck in its group does to its advantage: the distribution, and how many groups are dead."""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.algorithms import DR_GRPO, GRPO, GroupPolicyGradient
from rlviz.page.picture import Axis, Bars, Draws, Line, Panel, Picture, Points, Rule, Say, Slider, Text
from rlviz.page.tracing import Curve
from rlviz.pictures.groups import GROUP_NEEDS, LARGEST_GROUP, group_advantages, learns_from_a_group, share_all_equal
from rlviz.pictures.spec import Algorithms, explorer
from rlviz.pieces.words import label

GROUPS, FEWER = 512, 128  # simulated at the setting; at each point of the line
POINTS = (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95)
BINS = 41  # odd: 0 is the middle of one
REACHES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)  # of the bins, whichever holds every advantage; beyond them the powers of 2
TOPS = (0.15, 0.3, 0.5, 1.0)  # of the axis of shares


def advantages_curve(algorithm: GroupPolicyGradient) -> Curve:
    """Return the curve: advantages of groups drawn by coin, all of prompts with one success rate and in one batch.

    A response is right, and earns 1, where its coin is below the success rate. Coins are those of the largest group, of which a
    smaller one is a part: sliders move the picture, not the luck. Shaping, selection, KL and earlier visits have no part. A group
    is dead if its advantages are all 0; means count dead groups, too.
    """
    rule = algorithm.without_kl()

    def curve(success_rate: Tensor, group_size: Tensor, responses: Tensor, coins: Tensor) -> dict[str, Tensor]:
        size = responses.shape[0]

        def simulate(rates: Tensor, groups: int) -> tuple[Tensor, Tensor]:
            """Return flags of right responses, and advantages, both [rates · groups, size]."""
            right = coins[:groups, :size] < rates
            return right, group_advantages(rule, right.double().flatten(0, -2))

        points = torch.tensor(POINTS, dtype=torch.double)
        right, A = simulate(success_rate, GROUPS)
        at_points = simulate(points.view(-1, 1, 1), FEWER)[1]
        rates = torch.arange(201, dtype=torch.double) / 200

        # Bins of advantage, as far as the largest one reaches; one on a limit, but for rounding, is beyond it.
        largest = A.abs().amax() * (1 + 1e-9)
        reaches, tops = (torch.tensor(steps, dtype=torch.double) for steps in (REACHES, TOPS))
        within = reaches[(largest >= reaches).sum().clamp(max=len(REACHES) - 1)]
        reach = torch.where(largest < REACHES[-1], within, 2 ** largest.log2().ceil())
        bins = ((A + reach) / (2 * reach) * BINS).floor().clamp(0, BINS - 1).long()
        # Shares of all responses in them: right ones, wrong ones, those of dead groups.
        kinds = torch.where(is_dead(A).unsqueeze(1), 2, 1 - right.long())
        counts = torch.zeros(3 * BINS, dtype=torch.double).scatter_add(
            0, (kinds * BINS + bins).flatten(), torch.ones_like(A).flatten()
        )
        shares = (counts / A.numel()).view(3, BINS)
        edges = (torch.arange(BINS + 1, dtype=torch.double) / BINS * 2 - 1) * reach
        return {
            **dict(zip(("right", "wrong", "dead"), shares, strict=True)),
            "middle": (edges[1:] + edges[:-1]) / 2,
            "bin": edges[1] - edges[0],
            "reach": reach,
            "reach_low": -reach,
            "top": tops[(shares.amax() > tops).sum()],
            "mean_right": (A * right).sum() / right.sum(),
            "mean_wrong": (A * ~right).sum() / (~right).sum(),
            "rates": rates,
            "equal_share": share_all_equal(rates, group_size),
            "points": points,
            "dead_share": is_dead(at_points).double().view(len(POINTS), FEWER).mean(1),
            "dead_at": is_dead(A).double().mean(),
        }

    return curve


def is_dead(A: Tensor) -> Tensor:
    """Return the flags of groups [P] that teach nothing: all their advantages [P, G] are 0."""
    return ~(A != 0).any(1)


def texts(algorithm: GroupPolicyGradient) -> dict[str, str]:
    """Return the algorithm's advantage in words."""
    return {"rule": label(algorithm.advantage)}


ADVANTAGES = Picture(
    title="How much credit does a response get in its group?",
    look="Drag the success rate or the group size: black groups are dead, and teach nothing.",
    notice="A response is judged against its group: a rare right answer gets much, a common one little. Move the success rate to "
    "0.95: most groups are all right, and dead.",
    alt="Two graphs: a histogram of the advantages of right and of wrong responses; the share of dead groups against the "
    "success rate.",
    panels=(
        Panel(
            "Advantages of the responses",
            Axis("A = {rule}", "reach_low", "reach"),
            Axis("share of all responses", 0, "top"),
            (
                Bars("middle", "dead", "bin", colour="ink", where="dead", label="in dead groups"),
                Bars("middle", "right", "bin", where="right", label="right"),
                Bars("middle", "wrong", "bin", colour="vermilion", fill="hatch", where="wrong", label="wrong"),
                Text("wrong: mean {mean_wrong:+.2f}", corner="nw", colour="vermilion"),
                Text("right: mean {mean_right:+.2f}", corner="ne", colour="blue"),
            ),
            wide=1.08,
        ),
        Panel(
            "How many groups are dead?",
            Axis("success rate p", -0.02, 1.02, ticks=(0, 0.25, 0.5, 0.75, 1)),
            Axis("share of groups", -0.02, 1.03),
            (
                Rule("success_rate", dash="6 2 1 2", width=1.5, colour="ink", drag="success_rate"),
                Line("rates", "equal_share", colour="grey", label="all right or all wrong"),
                Points("points", "dead_share", colour="vermilion", label="dead, simulated"),
                Points("success_rate", "dead_at", "D", 10, colour="ink", fill="none", label="here"),
            ),
            wide=0.92,
        ),
    ),
    controls={
        "success_rate": Slider(0.02, 0.98, 0.01, 0.8, "success rate p", plays=True),
        "group_size": Slider(2, LARGEST_GROUP, 1, 8, "group size G"),
    },
    data={
        "responses": Draws("uniform", ("group_size",), 0),  # a size is the length of an input
        "coins": Draws("uniform", (GROUPS, LARGEST_GROUP), 1),
    },
    conclusion=(
        Say(
            "At success rate {success_rate:.2f}, {dead_at:.1%} of {name}'s groups of {group_size} are dead; on average A is "
            "{mean_right:+.2f} for right responses, {mean_wrong:+.2f} for wrong ones."
        ),
    ),
)

explore_advantages = explorer(
    "advantages",
    ADVANTAGES,
    advantages_curve,
    algorithms=Algorithms(learns_from_a_group, GRPO, needs=GROUP_NEEDS),
    texts=texts,
    free=True,
    example={"group_size": 5},
    named={
        "GRPO, groups of 8": {},
        "groups of 2": {"group_size": 2},
        "Dr.GRPO": {"algorithm": DR_GRPO},
        "nearly all right": {"success_rate": 0.95},
    },
)
