"""What it costs to fill a batch with groups that teach something, and what then is in the batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import DAPO, DCPO, DUPO, GRPO, GroupPolicyGradient
from rlviz.page.picture import Axis, Bars, Beside, Draws, Line, Mark, Panel, Picture, Points, Rule, Say, Slider, Text
from rlviz.page.tracing import Curve
from rlviz.pictures.groups import (
    GROUP_NEEDS,
    LARGEST_GROUP,
    MOST_VISITS,
    group_advantages,
    history_before,
    learns_from_a_group,
    share_all_equal,
)
from rlviz.pictures.spec import Algorithms, explorer
from rlviz.pieces.advantages import all_equal

STEPS, PROMPTS, ROUNDS = 32, 16, 10  # simulated; groups wanted; groups sampled at most, in units of these


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


def replacement_price(informative: Tensor, wanted: int = PROMPTS, rounds: int = ROUNDS) -> Tensor:
    """Return the expected number of groups sampled ÷ P until every dead one is replaced, at each share of informative ones.

    One samples until P = wanted are informative or M = rounds · P were sampled, so as many are found as of M groups would be
    informative, but P at most: F = E min(P, B), B binomial with M and q. Each group sampled is informative with probability q,
    whatever came before, so F = q · (expected number sampled), by Wald's identity.
    """
    q, few = informative.unsqueeze(-1), torch.arange(wanted, dtype=torch.double)
    most = torch.full_like(few, rounds * wanted)
    ways = torch.lgamma(most + 1) - torch.lgamma(few + 1) - torch.lgamma(most - few + 1)
    chance = (ways + torch.xlogy(few, q) + torch.special.xlog1py(most - few, -q)).exp()
    filled = 1 - (chance * (1 - few / wanted)).sum(-1)
    return torch.where(informative > 0, filled / torch.where(informative > 0, informative, 1.0), float(rounds))


def sampling_curve(algorithm: GroupPolicyGradient) -> Curve:
    """Return the curve: what replacing dead groups costs against the success rate, and what the algorithm's batches hold.

    An algorithm with dynamic sampling takes further prompts until P groups are used, or ROUNDS · P were sampled. Groups are
    always the same ones, [steps, rounds, prompts, responses]: sliders move the picture, not the luck.
    """
    rule = algorithm.without_kl()
    rounds = ROUNDS if rule.can.max_rounds > 1 else 1

    def curve(
        success_rate: Tensor,
        spread: Tensor,
        group_size: Tensor,
        visits: Tensor,
        responses: Tensor,
        coins: Tensor,
        kinds: Tensor,
        earlier: Tensor,
    ) -> dict[str, Tensor]:
        size = responses.shape[0]
        rate = torch.where(kinds[:, :rounds] < 0.5, *two_kinds(success_rate, spread)).flatten(1)
        outcomes = (coins[:, :rounds, :, :size].flatten(1, 2) < rate.unsqueeze(-1)).double()  # [steps, rounds · P, G]

        # The batch of each step: which groups are in it [steps, P], and how often; the first P are sampled at first.
        at_first, at_most = rule.uses(outcomes[:, :PROMPTS]), rule.uses(outcomes)
        short = at_first.sum(-1, keepdim=True) < PROMPTS - 1e-9
        order = (at_most == 0).double().sort(dim=-1, stable=True).indices[:, :PROMPTS]  # those that are used come first
        index = torch.where(short, order, torch.arange(PROMPTS))
        weights = torch.where(short, at_most.gather(1, order), at_first)
        further = torch.where((weights > 0).all(-1), index[:, -1] + 1, outcomes.shape[1])
        sampled = torch.where(short.squeeze(-1), further, PROMPTS).double().mean() / PROMPTS  # groups ÷ groups wanted

        # Their advantages, with the rewards of earlier visits.
        now = outcomes.gather(1, index.unsqueeze(-1).expand(*index.shape, size))
        past = earlier[..., :size] < rate.gather(1, index).unsqueeze(-1).unsqueeze(-1)
        A = group_advantages(rule, now.flatten(0, 1), history_before(rule, past.double().flatten(0, 1), visits))
        equal, weights = all_equal(now).flatten(), weights.flatten()
        rates = (torch.arange(99, dtype=torch.double) + 1) / 100
        informative = informative_share(success_rate, spread, group_size)

        # What the places of a batch hold, as shares and as the upper ends of a stacked bar.
        places = weights.sum().clamp(min=STEPS * PROMPTS)
        alive, once = (A != 0).any(1), weights.clamp(max=1)
        parts = {
            "fresh": once * (alive & ~equal),
            "repeated": (weights - once) * alive,
            "remembered": once * (alive & equal),
            "dead": weights * ~alive,
        }
        shares = {name: groups.sum() / places for name, groups in parts.items()}
        ends = torch.stack(list(shares.values())).cumsum(0)
        return {
            **shares,
            **{f"{name}_top": ends[i] for i, name in enumerate(parts)},
            "alive": ends[2],
            "rates": rates,
            "price": replacement_price(informative_share(rates, spread, group_size)),
            "replaced": replacement_price(informative.reshape(1))[0],
            "informative": informative,
            "sampled": sampled,
            "sampled_responses": sampled * PROMPTS * group_size,
            "wanted": PROMPTS * group_size,
            "can_remember": (equal.any() & rule.asks_for("advantage", "history")).double(),
        }

    return curve


def past_draws(algorithm: GroupPolicyGradient) -> Mapping[str, Any]:
    """Return the coins of earlier visits, the latest first; of none where the advantage has no memory."""
    visits = MOST_VISITS - 1 if algorithm.asks_for("advantage", "history") else 0
    return {"earlier": Draws("uniform", (STEPS, PROMPTS, visits, LARGEST_GROUP), 32)}


KINDS: dict[str, dict[str, Any]] = {
    "fresh": {"colour": "blue", "label": "right and wrong"},
    "repeated": {"colour": "green", "fill": "hatch", "label": "repeated"},
    "remembered": {"colour": "vermilion", "fill": "hatch", "label": "from memory"},
    "dead": {"colour": "grey", "fill": "none", "label": "no gradient"},
}


def _bar(x: float, prefix: str) -> tuple[Mark, ...]:
    """Return an algorithm's batch as a stacked bar, its name below, above it the responses that it took to fill it."""
    tops = [f"{prefix}{kind}_top" for kind in KINDS]
    bases: list[str | float] = [0.0, *tops[:-1]]
    return (
        *(
            Bars(x, top, 0.62, base, when=f"{prefix}{kind}", **looks)
            for (kind, looks), top, base in zip(KINDS.items(), tops, bases, strict=True)
        ),
        Text(f"{{{prefix}name}}", x, -0.07, when=f"{prefix}wanted"),
        Text(f"{{{prefix}sampled_responses:d}}", x, 1.07, colour="grey", when=f"{prefix}wanted"),
    )


SAMPLING = Picture(
    title="What do groups that teach nothing cost?",
    look="Drag the success rate towards 1: nearly solved prompts give groups that are all right.",
    notice="Keep them, replace them, repeat informative ones, or remember earlier visits. See what each answer costs in "
    "responses as the success rate comes near 1.",
    alt="Left a graph of responses sampled for each one wanted against the success rate; right a bar for each algorithm, "
    "cut into what the places of its batch hold.",
    panels=(
        Panel(
            "The price of replacing dead groups",
            Axis("success rate p of the prompts", 0, 1, ticks=(0, 0.25, 0.5, 0.75, 1)),
            Axis("responses sampled / wanted", 0.85, 12, log=1, ticks=(1, 2, 5, 10)),
            (
                Rule("success_rate", dash="6 2 1 2", width=1.5, colour="ink", drag="success_rate"),
                Line("rates", "price", colour="grey", label="expected"),
                Points("success_rate", "replaced", "D", 12, colour="ink", fill="none", label="here"),
                Points("success_rate", "sampled", label="{name}, simulated"),
            ),
            wide=0.9,
        ),
        Panel(
            "What a batch holds; responses sampled",
            Axis("", 0.5, 4.9, ticks=None),
            Axis("share of the batch's places", -0.14, 1.14, ticks=(0, 0.25, 0.5, 0.75, 1)),
            (
                *(mark for x, prefix in enumerate(("", "b1_", "b2_", "b3_"), 1) for mark in _bar(x, prefix)),
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
        "visits": Slider(1, MOST_VISITS, 1, 3, "visit of the prompt", when="can_remember", rare=True),
    },
    data={
        "responses": Draws("uniform", ("group_size",), 0),  # a size is the length of an input
        "coins": Draws("uniform", (STEPS, ROUNDS, PROMPTS, LARGEST_GROUP), 30),
        "kinds": Draws("uniform", (STEPS, ROUNDS, PROMPTS), 31),
    },
    conclusion=(
        Say(
            "Replacing dead groups takes {replaced:.2f} times the responses. For a batch of {wanted:d}, {name} samples "
            "{sampled_responses:d}, and {alive:.0%} of its places have a gradient."
        ),
    ),
)

explore_sampling = explorer(
    "sampling",
    SAMPLING,
    sampling_curve,
    algorithms=Algorithms(learns_from_a_group, DAPO, needs=GROUP_NEEDS),
    data=past_draws,
    free=True,
    example={"group_size": 5},
    named={
        "success rate 0.9": {},
        "success rate 0.5": {"success_rate": 0.5},
        "half nearly solved": {"spread": 0.8},
        "groups of 4": {"group_size": 4},
    },
)
