"""The policy of one hump that is nearest to a target of two, in either direction of the KL divergence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlviz.page.picture import Area, Axis, Bars, Line, Panel, Points
from rlviz.pieces.kl import k1

FORWARD, REVERSE = "forward", "reverse"
FURTHEST, PLACES = 30, 241  # so far out that even the widest policy in sight is whole
IN_SIGHT = slice(87, 154)  # what is drawn of the positions: −8.25 to 8.25
CLOSER = [0.25**step for step in range(5)]  # parts of the grid's steps in which a fit is looked for more closely
SAME = 1e-9  # KL in nats below which two fits count as equally good
FITTED = "show=forward and reverse fit"

Divergence = Callable[[Tensor, Tensor], Tensor]  # means [n, a] and widths [n, b] of policies → KL of each, [n, a · b]


def fits(apart: Tensor, weight: Tensor) -> dict[str, Tensor]:
    """Return a target of two humps and the policy of one hump that is nearest to it, in either direction.

    apart: between the humps, in widths of one. weight: of the left one. target, forward, reverse: probabilities of the positions
    in sight, the latter two with the least KL(target‖policy) and KL(policy‖target) in nats, forward_least and reverse_least.
    forward_kl, reverse_kl: for each mean of the policy the least KL over 52 widths; over all widths it is less by 0.005 at most.
    """
    position = (torch.arange(PLACES, dtype=torch.double) / (PLACES - 1) * 2 - 1) * FURTHEST
    middles = torch.stack([-apart, apart]) / 2
    around = torch.cat([position, middles])
    left, right = ((-(around - middle).square() / 2).exp() for middle in middles)
    mixture = weight * left / left[:PLACES].sum() + (1 - weight) * right / right[:PLACES].sum()
    target, heights = mixture[:PLACES], mixture[PLACES:]
    log_target = target.log()
    negative_entropy = target @ log_target

    def humps(mean: Tensor, width: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log weights and weights [policies, positions], and the weights' sums: logp = log weight − log sum."""
        (n, a), b = mean.shape, width.shape[1]
        square = (position - mean.unsqueeze(-1)).square().reshape(n * a, 1, PLACES)
        scale = (-0.5 / width.square()).unsqueeze(1).expand(n, a, b).reshape(n * a, b, 1)
        log_weight = (scale @ square).flatten(0, 1)  # a product of one term, by which a page spreads it fastest
        weights = log_weight.exp()
        return log_weight, weights, weights.sum(-1)

    def forward(mean: Tensor, width: Tensor) -> Tensor:  # k1 is linear, so its mean over the target is k1 of the means
        log_weight, _, total = humps(mean, width)
        means = log_weight @ target - total.log()
        return k1(negative_entropy.expand_as(means), means).reshape(len(mean), -1)

    def reverse(mean: Tensor, width: Tensor) -> Tensor:
        log_weight, weights, total = humps(mean, width)
        means = (weights * log_weight).sum(-1) / total - total.log()
        return k1(means, weights @ log_target / total).reshape(len(mean), -1)

    outputs = {"position": position[IN_SIGHT], "target": target[IN_SIGHT], "middles": middles, "heights": heights}
    outputs |= {"right": middles[1], "right_height": heights[1]}
    for direction, divergence, valleys in ((FORWARD, forward, 1), (REVERSE, reverse, 2)):
        means, kl, (mean, width, lowest) = nearest_policy(divergence, valleys)
        _, weights, total = humps(mean.reshape(1, 1), width.reshape(1, 1))
        outputs |= {"means": means, f"{direction}_kl": kl, direction: weights[0, IN_SIGHT] / total}
        outputs |= {f"{direction}_mean": mean, f"{direction}_width": width, f"{direction}_least": lowest}
    return outputs


def nearest_policy(divergence: Divergence, valleys: int) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Return 81 means, the least KL at each, and mean, width and KL of the nearest policy.

    It is looked for on a grid of means and widths, and then more closely in the (at most 2) deepest valleys.
    """
    means = torch.arange(81, dtype=torch.double) / 8 - 5
    widths = ((torch.arange(52, dtype=torch.double) - 12) / 12).exp2()
    kl = divergence(means.unsqueeze(0), widths.unsqueeze(0)).reshape(81, 52)
    lowest, best_width = kl.amin(-1), kl.argmin(-1)
    edge = torch.full((1,), torch.inf, dtype=torch.double)
    valley = (lowest <= torch.cat([edge, lowest[:-1]])) & (lowest <= torch.cat([lowest[1:], edge]))
    deepest = torch.where(valley, lowest, torch.inf).sort().indices[:valleys].sort().values  # from left to right
    mean, width = means[deepest].unsqueeze(1), widths[best_width[deepest]].unsqueeze(1)
    steps = torch.arange(9, dtype=torch.double) / 4 - 1
    for closer in CLOSER:
        near, wide = mean + steps * closer / 8, width * (steps * closer / 12).exp2()
        divergences = divergence(near, wide)
        best = divergences.argmin(1, keepdim=True)
        candidates = (near.unsqueeze(2).expand(valleys, 9, 9), wide.unsqueeze(1).expand(valleys, 9, 9), divergences)
        mean, width, depth = (values.reshape(valleys, 81).gather(1, best) for values in candidates)
    is_left = depth[0] <= depth[-1] + SAME  # of two equally good ones the left one
    return means, lowest, tuple(torch.where(is_left, fit[0], fit[-1])[0] for fit in (mean, width, depth))


RING: dict[str, Any] = {"size": 20, "fill": "none", "colour": "ink", "label": "{name} pulls here"}
PANELS = (
    Panel(
        "Which policy of one hump is nearest?",
        Axis("position", -8, 8, ticks=(-8, -4, 0, 4, 8)),
        Axis("probability", 0, 0.115),
        (
            Area("position", 0, "target", colour="grey", label="target"),
            Bars("middles", "heights", 0.03, colour="grey", drag="weight"),
            Line("position", FORWARD, width=3, colour="blue", label="forward fit"),
            Line("position", REVERSE, "8 4", 3, colour="vermilion", label="reverse fit"),
            Points("right", "right_height", size=6, colour="grey", drag="apart"),
        ),
        when=FITTED,
    ),
    Panel(
        "The least KL, by where the hump stands",
        Axis("middle of the policy's hump", -5, 5),
        Axis("least KL, nats", -0.05, 1.6),
        (
            *(Points(f"{pull}_mean", f"{pull}_least", when=f"pulls_{pull}", **RING) for pull in (FORWARD, REVERSE)),
            Line("means", "forward_kl", width=3, colour="blue", label="KL(target‖policy)", direct=True),
            Line("means", "reverse_kl", "8 4", 3, colour="vermilion", label="KL(policy‖target)", direct=True),
            Points("forward_mean", "forward_least", size=9, colour="blue"),
            Points("reverse_mean", "reverse_least", "^", 10, colour="vermilion"),
        ),
        when=FITTED,
    ),
)
