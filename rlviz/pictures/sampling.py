"""What it costs to fill a batch with groups that teach something, and what then is in the batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import DAPO, DCPO, DUPO, GRPO, GroupPolicyGradient
from rlviz.page.picture import (
    Axis,
    Bars,
    Beside,
    Channel,
    Draws,
    Line,
    Mark,
    Panel,
    Picture,
    Points,
    Rule,
    Say,
    Slider,
    Text,
)
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
from rlviz.pieces.advantages import all_equal
from rlviz.pieces.words import label

POINTS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95)
MOST_PROMPTS, MOST_ROUNDS = 32, 10
STEPS, AT_A_POINT = 32, 512  # simulated steps; groups at each point of the line


def two_kinds(success_rate: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """Return the success rates of harder and of easier prompts, equally frequent, whose mean is `success_rate`.

    They lie success_rate ± spread · (the room to 0 or 1, whichever is nearer).
    """
    away = spread * torch.minimum(success_rate, 1 - success_rate)
    return success_rate - away, success_rate + away


def informative_share(success_rate: Tensor, spread: Tensor, group_size: Tensor) -> Tensor:
    """1 − mean of p^G + (1 − p)^G over both kinds of prompts: the share of groups with right and wrong responses."""
    hard, easy = two_kinds(success_rate, spread)
    return 1 - (share_all_equal(hard, group_size) + share_all_equal(easy, group_size)) / 2


def replacing(informative: Tensor, prompts: int, num_prompts: Tensor, max_rounds: Tensor) -> tuple[Tensor, Tensor]:
    """Return what it takes to replace every other group: groups sampled ÷ P, and groups found ÷ P; both expected, at each share.

    One samples until P are informative or M = max_rounds · P were sampled, so as many are found as of M groups would be
    informative, but P at most: F = E min(P, B), B binomial with M and q. Each group sampled is informative with probability q,
    whatever came before, so F = q · (expected number sampled), by Wald's identity. prompts: P as a size.
    """
    most, q = max_rounds * num_prompts, informative.unsqueeze(-1)
    found = torch.arange(prompts, dtype=torch.double)  # fewer than P
    ways = torch.lgamma(most + 1) - torch.lgamma(found + 1) - torch.lgamma(most - found + 1)
    chance = (ways + torch.xlogy(found, q) + torch.special.xlog1py(most - found, -q)).exp()
    filled = 1 - (chance * (1 - found / num_prompts)).sum(-1)
    return torch.where(informative > 0, filled / torch.where(informative > 0, informative, 1.0), max_rounds), filled


def always_full(algorithm: GroupPolicyGradient) -> bool:
    """Return whether the selection uses as many groups as it is given, be they none, some or all of them informative."""
    if algorithm.can.uses is None:
        return False
    groups = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.double)
    batches = torch.stack([groups[[0, 0, 2]], groups, groups[[1, 1, 1]]])
    return bool((algorithm.uses(batches).sum(-1) - 3).abs().max() < 1e-9)


def sampling(algorithm: GroupPolicyGradient) -> Curve:
    """Return the curve: what replacing dead groups costs against the success rate, and what the algorithm's batches hold.

    An algorithm whose selection uses fewer than P groups samples further prompts until they are as many, or max_rounds · P were
    sampled; max_rounds is the picture's, whatever the algorithm's own. Groups are always the same ones, [steps, rounds, prompts,
    responses], so that sliders move the picture and not the luck.
    """
    own = algorithm.without_kl()
    history, full = memory(own), always_full(own)

    def curve(
        success_rate: Tensor,
        spread: Tensor,
        group_size: Tensor,
        num_prompts: Tensor,
        max_rounds: Tensor,
        visits: Tensor,
        sizes: Tensor,
        past_visits: Tensor,
        coins: Tensor,
        kinds: Tensor,
        earlier: Tensor,
    ) -> dict[str, Tensor]:
        rounds, prompts, size = sizes.shape
        before = max(past_visits.shape[0] - 1, 1)

        def rates_of(rate: Tensor, kinds: Tensor) -> Tensor:
            return torch.where(kinds < 0.5, *two_kinds(rate, spread))

        def price(rate: Tensor) -> Tensor:
            """Return how many groups the selection takes in for one that it lets out, at most max_rounds."""
            part = kinds.flatten()[:AT_A_POINT]
            outcomes = coins.flatten(0, 2)[:AT_A_POINT, :size] < rates_of(rate, part).unsqueeze(-1)
            used = own.uses(outcomes.double()).sum()
            return torch.minimum((AT_A_POINT / used.clamp(min=1)).clamp(min=1), max_rounds)

        rounds = 1 if full else rounds  # more are never asked for
        rate = rates_of(success_rate, kinds[:, :rounds, :prompts]).flatten(1)
        outcomes = (coins[:, :rounds, :prompts, :size].flatten(1, 2) < rate.unsqueeze(-1)).double()
        index, weights, sampled = _batch(own, outcomes, prompts, num_prompts, max_rounds)
        now = outcomes.gather(1, index.unsqueeze(-1).expand(*index.shape, size))
        past = earlier[:, :prompts, :before, :size] < rate.gather(1, index).unsqueeze(-1).unsqueeze(-1)
        A = group_advantages(own, now.flatten(0, 1), history(past.double().flatten(0, 1), visits))
        shares = _shares(A, all_equal(now).flatten(), weights.flatten(), STEPS * num_prompts)

        rates = (torch.arange(99, dtype=torch.double) + 1) / 100
        points = torch.tensor(POINTS, dtype=torch.double)
        informative = informative_share(success_rate, spread, group_size)
        replaced, filled = replacing(informative.reshape(1), prompts, num_prompts, max_rounds)
        wanted = num_prompts * group_size
        hard, easy = two_kinds(success_rate, spread)
        return {
            **shares,
            "there": torch.ones(1, dtype=torch.double),
            "rates": rates,
            "price": replacing(informative_share(rates, spread, group_size), prompts, num_prompts, max_rounds)[0],
            "points": points,
            "simulated": torch.stack([price(points[i]) for i in range(len(POINTS))]),
            "informative": informative,
            "replaced": replaced[0],
            "filled": filled[0],
            "replaced_responses": replaced[0] * wanted,
            "sampled": sampled,
            "sampled_responses": sampled * wanted,
            "wanted": wanted,
            "most": max_rounds * num_prompts,
            "hard": hard,
            "easy": easy,
            "spread_out": (spread > 0).double(),
        }

    return curve


def _batch(
    algorithm: GroupPolicyGradient, outcomes: Tensor, prompts: int, num_prompts: Tensor, max_rounds: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return which groups of each step are in its batch [steps, P], how often each, and groups sampled ÷ groups wanted.

    outcomes: [steps, rounds · P, G], of which the first P are sampled at first.
    """
    at_first, at_most = algorithm.uses(outcomes[:, :prompts]), algorithm.uses(outcomes)
    short = at_first.sum(-1, keepdim=True) < num_prompts - 1e-9
    order = (at_most == 0).double().sort(dim=-1, stable=True).indices[:, :prompts]  # those that are used come first
    index = torch.where(short, order, torch.arange(prompts))
    weights = torch.where(short, at_most.gather(1, order), at_first)
    full = (weights > 0).all(-1)
    further = torch.where(full, index[:, -1] + 1, max_rounds * num_prompts)
    return index, weights, torch.where(short.squeeze(-1), further, num_prompts).mean() / num_prompts


def _shares(A: Tensor, equal: Tensor, weights: Tensor, places: Tensor) -> dict[str, Tensor]:
    """Return what the places of a batch hold: as shares, as the lower ends of stacked bars, and the mean |A| of two kinds."""
    places = torch.maximum(weights.sum(), places)
    alive, once = (A != 0).any(1), weights.clamp(max=1)
    size = A.abs().mean(1)
    fresh, remembered = once * (alive & ~equal), once * (alive & equal)
    parts = {
        "fresh": fresh.sum() / places,
        "repeated": ((weights - once) * alive).sum() / places,
        "remembered": remembered.sum() / places,
        "dead": (weights * ~alive).sum() / places,
    }
    ends = torch.stack(list(parts.values())).cumsum(0)
    return {
        **parts,
        **{f"{name}_top": ends[i] for i, name in enumerate(parts)},
        "alive": ends[2],
        "empty": (1 - ends[3]).clamp(min=0),
        "fresh_size": (fresh * size).sum() / fresh.sum(),
        "remembered_size": (remembered * size).sum() / remembered.sum(),
        "both_sizes": ((fresh.sum() > 0) & (remembered.sum() > 0)).double(),
    }


def texts(algorithm: GroupPolicyGradient) -> dict[str, str]:
    """Return what the algorithm does about dead groups."""
    memory = " + memory" if remembers(algorithm) else ""
    return {"rules": f"{label(algorithm.select).partition(',')[0]}{memory}"}


def past(algorithm: GroupPolicyGradient) -> Mapping[str, Any]:
    """Return the coins of earlier visits, the latest first; of none where the advantage has no memory."""
    return {
        "earlier": Draws(
            "uniform", (STEPS, MOST_PROMPTS, MOST_VISITS - 1 if remembers(algorithm) else 0, LARGEST_GROUP), 32
        )
    }


KINDS: dict[str, dict[str, Any]] = {
    "fresh": {"colour": "blue", "label": "right and wrong"},
    "repeated": {"colour": "green", "fill": "hatch", "label": "repeated"},
    "remembered": {"colour": "vermilion", "fill": "hatch", "label": "from memory"},
    "dead": {"colour": "grey", "fill": "none", "label": "no gradient"},
}


def _bar(place: int) -> tuple[Mark, ...]:
    """Return an algorithm's batch as a stacked bar, its name below, above it what it took to fill it."""
    prefix = f"b{place - 1}_" if place > 1 else ""
    bars: list[Bars] = []
    base: Channel = 0.0
    for kind, looks in KINDS.items():
        bars.append(Bars(float(place), f"{prefix}{kind}_top", 0.62, base, when=f"{prefix}{kind}", **looks))
        base = f"{prefix}{kind}_top"
    words: dict[str, Any] = {"x": float(place), "when": f"{prefix}there"}
    return (
        *bars,
        Text(f"{{{prefix}name}}", y=-0.07, **words),
        Text(f"{{{prefix}sampled_responses:d}}", y=1.07, colour="grey", **words),
    )


def _told(prefix: str) -> tuple[Say, ...]:
    """Return the sentences about an algorithm's batch, in numbers."""
    shares = {"fresh": "informative", "repeated": "repeats", "remembered": "all equal with a gradient from memory"}
    shares |= {"dead": "without gradient", "empty": "empty"}
    told = ", ".join(f"{{{prefix}{share}:.0%}} {words}" for share, words in shares.items())
    return (
        Say(f"{{{prefix}name}} ({{{prefix}rules}}): of the batch's places {told}.", f"{prefix}there"),
        Say(
            f"From memory the mean |A| is {{{prefix}remembered_size:.2f}}, of informative groups {{{prefix}fresh_size:.2f}}.",
            f"{prefix}both_sizes",
        ),
    )


SAMPLING = Picture(
    title="What do groups that teach nothing cost?",
    look="Drag the success rate towards 1: nearly solved prompts give groups that are all right.",
    notice=(
        "Keep them, replace them, repeat informative ones, or remember earlier visits. See what each answer costs in "
        "responses as the success rate comes near 1."
    ),
    alt="Left a graph of responses sampled for each one wanted against the success rate; right a bar for each algorithm, "
    "cut into what the places of its batch hold.",
    panels=(
        Panel(
            "What replacing dead groups costs",
            Axis("success rate p of the prompts", 0, 1, ticks=(0, 0.25, 0.5, 0.75, 1)),
            Axis("responses sampled / wanted", 0.85, 12, log=1, ticks=(1, 2, 5, 10)),
            (
                Rule("success_rate", dash="6 2 1 2", width=1.5, colour="ink", drag="success_rate"),
                Line("rates", "price", colour="grey", label="expected"),
                Points("points", "simulated", label="{name}, simulated"),
            ),
            wide=0.9,
        ),
        Panel(
            "What a batch holds, and the responses sampled for it",
            Axis("", 0.5, 4.9, ticks=None),
            Axis("share of the batch's places", -0.14, 1.14, ticks=(0, 0.25, 0.5, 0.75, 1)),
            (
                *(mark for place in (1, 2, 3, 4) for mark in _bar(place)),
                Rule("informative", "y", "2 3", 2.5, colour="ink", drag="group_size", label="expected"),
            ),
            wide=1.1,
        ),
    ),
    controls={
        "success_rate": Slider(0.02, 0.98, 0.01, 0.9, "success rate p", plays=True),
        "spread": Slider(0.0, 1.0, 0.05, 0.0, "spread of p"),
        "group_size": Slider(2, LARGEST_GROUP, 1, 8, "group size G"),
        "beside": Beside(3, value=(GRPO.name, DUPO.name, DCPO.name)),
        "num_prompts": Slider(4, MOST_PROMPTS, 1, 16, "groups wanted P", rare=True),
        "max_rounds": Slider(1, MOST_ROUNDS, 1, 10, "rounds at most", rare=True),
        "visits": Slider(1, MOST_VISITS, 1, 3, "visit of the prompt", rare=True),
    },
    data={
        "sizes": Draws("uniform", ("max_rounds", "num_prompts", "group_size"), 0),  # a size is the length of an input
        "past_visits": Draws("uniform", ("visits",), 0),
        "coins": Draws("uniform", (STEPS, MOST_ROUNDS, MOST_PROMPTS, LARGEST_GROUP), 30),
        "kinds": Draws("uniform", (STEPS, MOST_ROUNDS, MOST_PROMPTS), 31),
    },
    conclusion=(
        Say(
            "{informative:.0%} of groups have right and wrong responses: {name} samples {sampled_responses:d} responses for a "
            "batch of {wanted:d}, {alive:.0%} of it with a gradient."
        ),
    ),
    says=(
        Say("All prompts have success rate {hard:.2f}.", "!spread_out"),
        Say("Half of the prompts have success rate {hard:.2f}, half {easy:.2f}.", "spread_out"),
        Say(
            "Replacing all-equal groups, up to {most:d} groups in all, is expected to take {replaced_responses:d} responses, "
            "{replaced:.2f} times as many, and to fill {filled:.0%} of the places."
        ),
        *(say for prefix in ("", "b1_", "b2_", "b3_") for say in _told(prefix)),
    ),
)

explore_sampling = explorer(
    "sampling",
    SAMPLING,
    sampling,
    algorithms=Algorithms(learns_from_a_group, DAPO, check=check_learns_from_a_group),
    texts=texts,
    data=past,
    free=True,
    example={"max_rounds": 3, "num_prompts": 6, "group_size": 5, "visits": 4},
    named={
        "success rate 0.9": {},
        "success rate 0.5": {"success_rate": 0.5},
        "half nearly solved": {"spread": 0.8},
        "groups of 4": {"group_size": 4},
    },
)
