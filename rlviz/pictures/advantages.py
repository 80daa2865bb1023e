"""What a response's luck in its group does to its advantage: distribution, groups without any, error against group size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import DCPO, DR_GRPO, GRPO, GroupPolicyGradient
from rlviz.page.picture import Axis, Bars, Choice, Draws, Line, Panel, Picture, Points, Rule, Say, Slider, Text
from rlviz.page.tracing import Curve
from rlviz.pictures.groups import (
    LARGEST_GROUP,
    MOST_VISITS,
    check_learns_from_a_group,
    group_advantages,
    learns_from_a_group,
    memory,
    remembers,
    share_all_equal,
)
from rlviz.pictures.idea import Algorithms, explorer
from rlviz.pieces.advantages import LeaveOneOut
from rlviz.pieces.words import label

NOISE = 0.25  # standard deviation of a score around 0 or 1
GROUPS, FEWER = 512, 128  # simulated at the setting; at each other point of a line
LARGE = 5000  # responses of a very large group
POINTS = (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95)
SIZES = (2, 4, 8, 16, 32, 64)
BINS = 41  # odd: 0 is the middle of one
REACHES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)  # of the bins, whichever holds every advantage; beyond them the powers of 2


def judged_by(algorithm: GroupPolicyGradient, rule: str) -> GroupPolicyGradient:
    """Return the algorithm without its KL term, with its own advantage or the one of `rule`."""
    own = algorithm.without_kl()
    return replace(own, advantage=LeaveOneOut()) if rule == "leave_one_out" else own


def takes_any_score(algorithm: GroupPolicyGradient) -> bool:
    """Return whether the advantage takes groups whose mean reward is below 0."""
    try:
        group_advantages(algorithm, torch.tensor([[-1.0, 0.5]]))
    except ValueError:
        return False
    return True


def depends_on_the_batch(algorithm: GroupPolicyGradient) -> bool:
    """Return whether the advantages of a group depend on the batch's other groups."""
    rewards = torch.tensor([[0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.double)
    return not torch.allclose(group_advantages(algorithm, rewards[:1]), group_advantages(algorithm, rewards)[:1])


def advantages(algorithm: GroupPolicyGradient, rule: str = "own") -> Curve:
    """Return the curve: advantages of groups drawn by coin, all of prompts with one success rate and in one batch.

    A response is right where its coin is below the success rate; a score has luck times NOISE on it. Coins and luck are those of
    the largest group, of which a smaller one is a part: sliders move the picture, not the luck. Shaping, selection and KL have
    no part. All means and errors count dead groups, too, those whose advantages are all 0.
    """
    own = judged_by(algorithm, rule)
    history = memory(own)
    noise = NOISE if takes_any_score(own) else 0.0
    batches = len(POINTS) if depends_on_the_batch(own) else 1  # groups of several success rates may be one

    def curve(
        success_rate: Tensor,
        group_size: Tensor,
        rewards: Tensor,
        visits: Tensor,
        responses: Tensor,
        past_visits: Tensor,
        coins: Tensor,
        luck: Tensor,
        earlier: Tensor,
        earlier_luck: Tensor,
        large_luck: Tensor,
    ) -> dict[str, Tensor]:
        p, size, before = success_rate, responses.shape[0], max(past_visits.shape[0] - 1, 1)
        luck, earlier_luck, large_luck = (each * (noise * rewards) for each in (luck, earlier_luck, large_luck))

        def drawn(rate: Tensor, groups: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
            """Return which responses are right and their rewards, [..., groups, size], and those of earlier visits."""
            right = coins[:groups, :size] < rate
            past = (earlier[:groups, :before, :size] < rate.unsqueeze(-1)).double() + earlier_luck[
                :groups, :before, :size
            ]
            return right, right.double() + luck[:groups, :size], past

        def judged(now: Tensor, past: Tensor) -> Tensor:
            return group_advantages(own, now, history(past, visits))

        right, now, past = drawn(p, GROUPS, size)
        large = (torch.arange(LARGE, dtype=torch.double) >= ((1 - p) * LARGE).round()).double() + large_luck
        large = large.sort().values
        far = judged(large.unsqueeze(0), large.expand(1, before, LARGE)).squeeze(0)

        def error(right: Tensor, now: Tensor, past: Tensor) -> Tensor:
            """Return the root mean square distance of right responses' advantages from those in a very large group."""
            off = (judged(now, past) - interpolated(now, large, far)).square()
            return (torch.where(right, off, 0.0).sum() / right.sum()).sqrt()

        variance = p * (1 - p) + (noise * rewards) ** 2
        here = error(right, now, past)
        A = judged(now, past)
        sizes = torch.tensor(SIZES, dtype=torch.double)
        widest = drawn(p, FEWER, LARGEST_GROUP)
        errors = torch.stack([error(*(each[..., :other] for each in widest)) for other in SIZES])
        errors = torch.where(sizes == group_size, here, errors)
        sizes, order = torch.cat([sizes, group_size.reshape(1)]).sort()
        errors = torch.cat([errors, here.reshape(1)])[order]
        mean_error = (variance / sizes).sqrt()
        both = torch.cat([errors, mean_error])
        rates = torch.arange(201, dtype=torch.double) / 200
        learned = (visits > 1).double() * remembers(own)
        points = torch.tensor(POINTS, dtype=torch.double)
        _, *at_points = (each.chunk(batches) for each in drawn(points.view(-1, 1, 1), FEWER, size))
        dead = [_dead(judged(*(each.flatten(0, 1) for each in batch))) for batch in zip(*at_points, strict=True)]
        return {
            **_bins(right, A),
            "only_noise": (right.all(1) | ~right.any(1)).any().double() * rewards * (noise > 0) * (1 - learned),
            "rates": rates,
            "equal_share": share_all_equal(rates, group_size),
            "points": points,
            "dead_share": torch.cat(dead).double().view(len(POINTS), FEWER).mean(1),
            "equal_at": share_all_equal(p, group_size),
            "dead_at": _dead(A).double().mean(),
            "sizes": sizes,
            "mean_error": mean_error,
            "advantage_error": errors,
            "mean_error_at": (variance / group_size).sqrt(),
            "advantage_error_at": here,
            "least_error": 10 ** both.amin().clamp(min=0.01).log10().floor(),
            "most_error": 10 ** both.amax().clamp(min=1).log10().ceil(),
            "limit": interpolated(torch.ones(1, dtype=torch.double), large, far)[0],
            "learned": learned,
        }

    return curve


def _dead(A: Tensor) -> Tensor:
    return ~(A != 0).any(1)


def _bins(right: Tensor, A: Tensor) -> dict[str, Tensor]:
    """Return the shares of all responses in bins of advantage, of right and wrong ones and of those in dead groups, and means."""
    largest = A.abs().amax() * (1 + 1e-9)  # what lies on a limit, but for rounding, is beyond it
    reaches = torch.tensor(REACHES, dtype=torch.double)
    within = reaches[(largest >= reaches).sum().clamp(max=len(REACHES) - 1)]
    reach = torch.where(largest < REACHES[-1], within, 2 ** largest.log2().ceil())
    bins = ((A + reach) / (2 * reach) * BINS).floor().clamp(0, BINS - 1).long().flatten()
    dead = _dead(A).unsqueeze(1).expand(A.shape)
    kinds = torch.where(dead, 2, 1 - right.long())  # right ones, wrong ones, those of dead groups
    counts = torch.zeros(3 * BINS, dtype=torch.double).scatter_add(
        0, (kinds.flatten() * BINS + bins), torch.ones_like(A).flatten()
    )
    shares = (counts / A.numel()).view(3, BINS)
    equal = (right.all(1) | ~right.any(1)).unsqueeze(1).expand(A.shape)
    tops = torch.tensor((0.15, 0.3, 0.5, 1.0), dtype=torch.double)
    edges = (torch.arange(BINS + 1, dtype=torch.double) / BINS * 2 - 1) * reach

    def mean(values: Tensor, kind: Tensor) -> Tensor:
        return torch.where(kind, values, 0.0).sum() / kind.sum()

    return {
        **dict(zip(("right", "wrong", "dead"), shares, strict=True)),
        "middle": (edges[1:] + edges[:-1]) / 2,
        "bin": edges[1] - edges[0],
        "reach": reach,
        "reach_low": -reach,
        "top": tops[(shares.amax() > tops).sum()],
        "mean_right": mean(A, right),
        "mean_wrong": mean(A, ~right),
        "equal_size": mean(A.abs(), equal),
    }


def interpolated(x: Tensor, xs: Tensor, ys: Tensor) -> Tensor:
    """Return ys at x, linear between rising xs and constant beyond them: numpy.interp."""
    steps = xs[1:] - xs[:-1]
    slopes = torch.where(steps > 0, (ys[1:] - ys[:-1]) / steps, 0.0)
    x = torch.minimum(torch.maximum(x, xs[0]), xs[-1])
    at = (torch.searchsorted(xs, x.flatten(), right=True) - 1).clamp(max=len(xs) - 2)
    return (ys[at] + (x.flatten() - xs[at]) * slopes[at]).view(x.shape)


def texts(algorithm: GroupPolicyGradient, rule: str) -> dict[str, str]:
    """Return what the algorithm fixes of the words: its rule, and what that looks at."""
    own = judged_by(algorithm, rule)
    flags = {
        "remembers": remembers(own),
        "any_score": takes_any_score(own),
        "whole_batch": depends_on_the_batch(own),
    }
    return {"rule": label(own.advantage), **{name: "yes" if flag else "" for name, flag in flags.items()}}


def past(algorithm: GroupPolicyGradient, rule: str) -> Mapping[str, Any]:
    """Return the coins and the luck of earlier visits, the latest first; of none where the advantage has no memory."""
    shape = (GROUPS, MOST_VISITS - 1 if remembers(judged_by(algorithm, rule)) else 0, LARGEST_GROUP)
    return {"earlier": Draws("uniform", shape, 3), "earlier_luck": Draws("normal", shape, 4)}


HERE: dict[str, Any] = {"dash": "6 2 1 2", "width": 1.5, "colour": "ink"}  # of a rule at the setting
DIAMOND: dict[str, Any] = {"shape": "D", "size": 10, "colour": "ink", "fill": "none"}

ADVANTAGES = Picture(
    title="How much credit does a response get in its group?",
    look="Drag the success rate or the group size: black groups are dead, and teach nothing.",
    notice=(
        "A response is judged against its group. Move the success rate to 0.95: most groups are all right, and teach "
        "nothing. With a small group the mean is noisy."
    ),
    alt="Three graphs: a histogram of the advantages of right and of wrong responses; the share of dead groups against the "
    "success rate; errors against the group size, both axes logarithmic.",
    columns=3,
    panels=(
        Panel(
            "Advantages of the responses",
            Axis("advantage A", "reach_low", "reach"),
            Axis("share of all responses", 0, "top"),
            (
                Bars("middle", "dead", "bin", colour="ink", where="dead", label="in dead groups"),
                Bars("middle", "right", "bin", where="right", label="right"),
                Bars("middle", "wrong", "bin", colour="vermilion", fill="hatch", where="wrong", label="wrong"),
                Text("wrong: mean {mean_wrong:+.2f}", corner="nw", colour="vermilion"),
                Text("right: mean {mean_right:+.2f}", corner="ne", colour="blue"),
            ),
            wide=1.16,
            tall=1.3,
        ),
        Panel(
            "How many groups are dead?",
            Axis("success rate p", -0.02, 1.02, ticks=(0, 0.25, 0.5, 0.75, 1)),
            Axis("share of groups", -0.02, 1.03),
            (
                Rule("success_rate", **HERE, drag="success_rate"),
                Line("rates", "equal_share", colour="grey", label="all equal", direct=True),
                Points("points", "dead_share", colour="vermilion", label="dead", direct=True),
                Points("success_rate", "dead_at", **DIAMOND),
            ),
            wide=0.92,
            tall=1.3,
        ),
        Panel(
            "Larger groups err less",
            Axis("group size G", 1.7, 76, log=1, ticks=(2, 4, 8, 16, 32, 64)),
            Axis("root mean square error", "least_error", "most_error", log=1),
            (
                Rule("group_size", **HERE, drag="group_size"),
                Line("sizes", "mean_error", colour="grey", label="mean reward", direct=True),
                Line("sizes", "advantage_error", "6 3", colour="green", marker="s", label="A if right", direct=True),
                Points("group_size", "advantage_error_at", **DIAMOND),
            ),
            wide=0.92,
            tall=1.3,
        ),
    ),
    controls={
        "success_rate": Slider(0.02, 0.98, 0.01, 0.8, "success rate p", plays=True),
        "group_size": Slider(2, LARGEST_GROUP, 1, 8, "group size G"),
        "rewards": Choice(
            {"right or wrong: 1 or 0": "outcome", f"scores: 1 or 0, and noise of sd {NOISE}": "score"},
            "right or wrong: 1 or 0",
            "rewards",
            when="any_score",
            rare=True,
        ),
        "visits": Slider(1, MOST_VISITS, 1, 1, "visit of the prompt", when="remembers"),
        "rule": Choice(
            {"the algorithm's own": "own", "leave-one-out (RLOO)": "leave_one_out"},
            "the algorithm's own",
            "advantage",
            picks=True,
            rare=True,
        ),
    },
    data={
        "responses": Draws("uniform", ("group_size",), 0),  # a size is the length of an input
        "past_visits": Draws("uniform", ("visits",), 0),
        "coins": Draws("uniform", (GROUPS, LARGEST_GROUP), 1),
        "luck": Draws("normal", (GROUPS, LARGEST_GROUP), 2),
        "large_luck": Draws("normal", (LARGE,), 5),
    },
    conclusion=(
        Say(
            "At success rate {success_rate:.2f}, {dead_at:.1%} of {name}'s groups of {group_size} are dead; on average A is "
            "{mean_right:+.2f} for right responses, {mean_wrong:+.2f} for wrong ones."
        ),
    ),
    says=(
        Say(f"{{name}}: A = {{rule}}; averages are over all {GROUPS:,} simulated groups, dead ones too."),
        Say("In theory {equal_at:.1%} of the groups are all right or all wrong.", "!learned"),
        Say(
            "In theory {equal_at:.1%} of the groups are all right or all wrong; at visit {visits} an all-equal group can learn "
            "from its prompt's past.",
            "learned",
        ),
        Say(
            "In a group that is all right or all wrong A is nothing but noise of the scores, {equal_size:.2f} in size on "
            "average.",
            "only_noise",
        ),
        Say(
            "The A of a right response misses that of a very large group ({limit:+.2f}) by {advantage_error_at:.2f}, root mean "
            "square over the same groups; a group's mean reward errs by {mean_error_at:.2f}."
        ),
        Say("The scale is that of the batch, whose prompts are all equally hard here.", "whole_batch"),
        Say(
            "{name} refuses a group whose mean is not above 0, as one of scores can be: rewards are 1 or 0.",
            "!any_score",
        ),
    ),
)

explore_advantages = explorer(
    "advantages",
    ADVANTAGES,
    advantages,
    algorithms=Algorithms(learns_from_a_group, GRPO, check=check_learns_from_a_group),
    texts=texts,
    data=past,
    free=True,
    example={"group_size": 5, "visits": 4},
    named={
        "GRPO, groups of 8": {},
        "groups of 2": {"group_size": 2},
        "Dr.GRPO": {"algorithm": DR_GRPO},
        "DCPO, fifth visit": {"algorithm": DCPO, "visits": 5, "success_rate": 0.95},
    },
)
