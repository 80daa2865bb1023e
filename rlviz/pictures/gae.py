"""Credit from a critic over the tokens of one answer, and what γ and λ trade: the critic's error against the future's noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import (
    GRPO,
    PPO,
    ActorCritic,
    Algorithm,
    GroupPolicyGradient,
    PolicyGradient,
    numbers,
)
from rlviz.algorithms.base import with_tensors
from rlviz.page.picture import Axis, Bars, Choice, Draws, Line, Panel, Picture, Points, Rule, Say, Slider
from rlviz.page.tracing import Curve
from rlviz.pictures.groups import learns_from_a_group, without_kl
from rlviz.pictures.idea import Algorithms, explorer
from rlviz.pieces.gae import GAE

MOST_TOKENS = 24
LAMBDAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)  # closer where the noise bends
ANSWERS = 400  # over which bias and noise are taken
GROUP = 8
MARGIN = 0.7  # how clearly the drawn answer ends right or wrong, in standard deviations of its walk
TOPS = (0.5, 1.0)  # of bias and noise
HIGHEST = {True: 1.35, False: 2.7}  # has a critic? → the largest advantage drawn; standardised ones are larger
LUCK = {"luck": Draws("normal", (ANSWERS, MOST_TOKENS), 5), "wiggles": Draws("uniform", (MOST_TOKENS,), 7)}


def judges_outcomes(algorithm: Algorithm) -> bool:
    """Return whether the algorithm makes advantages of one reward an answer."""
    return isinstance(algorithm, ActorCritic) or learns_from_a_group(algorithm)


def gae(algorithm: PolicyGradient) -> Curve:
    """Return the curve: the credit of each token of an answer, and bias and noise of such credit against λ.

    The answer is a random walk: each token moves it by a draw from N(0, 1), and it is right when it ends above 0, so after t
    tokens the chance is Φ(place / √(T − t)), exactly. The critic says that chance, discounted, plus offset, plus wiggle times a
    fixed draw, of mean 0 and std 1, for each token. Advantages are not whitened, and rewards carry no KL. An algorithm without
    a critic compares with a group of 8, the other 7 right as often as start says, and gives one number to all tokens.

    Bias is that of A + V, what the critic's state is worth after the token: V itself is a baseline, which moves all choices at
    that token alike. GAE is linear in rewards and values, so bias and noise come from the critic's error alone and from true
    values alone; the target is the chance itself, not discounted, so γ < 1 is a bias too. Both are root mean squares over
    tokens and answers.

    There are always 24 tokens, of which those that the answer lacks are masked: NaN in what is drawn.
    """
    piece = _piece(algorithm)
    if isinstance(algorithm, ActorCritic):
        own: ActorCritic | GroupPolicyGradient = (
            replace(algorithm, advantage=replace(piece, whiten=False)) if piece else algorithm
        )
    else:
        own = without_kl(algorithm)
    rule = replace(PPO, advantage=GAE(gamma=1.0, whiten=False))

    def curve(
        tokens: Tensor,
        answer: Tensor,
        start: Tensor,
        offset: Tensor,
        wiggle: Tensor,
        luck: Tensor,
        wiggles: Tensor,
        **discounting: Tensor,
    ) -> dict[str, Tensor]:
        place = torch.arange(MOST_TOKENS, dtype=torch.double)
        mask = place < tokens
        left = (tokens - place).clamp(min=1.0)  # tokens still to come, this one too
        gamma = discounting.get("gamma", torch.ones_like(tokens))
        discounts = gamma ** (left - 1)
        beginning = torch.special.ndtri(start) * tokens.sqrt()

        def weights(lams: Tensor) -> Tensor:
            """Return what A + V makes of a value of 1 at each token alone, and of a reward of 1 on the last: [T + 1, L · T]."""
            each = torch.arange(MOST_TOKENS + 1).unsqueeze(-1)
            shape = (len(lams), MOST_TOKENS + 1, MOST_TOKENS)
            values = (each == place).double().expand(shape)
            rewards = ((each == MOST_TOKENS) & (place == tokens - 1)).double().expand(shape)
            judge = with_tensors(rule, {"gamma": gamma, "lam": lams.unsqueeze(-1)}).advantage  # a λ for each prompt
            return judge(rewards, values, mask.expand(shape))[1].transpose(0, 1).reshape(MOST_TOKENS + 1, -1)

        right = 1 - answer
        value = discounts * _drawn_answer(luck[0], mask, left, beginning, (2 * right - 1) * MARGIN * tokens.sqrt())
        errors = offset + wiggle * (wiggles - 0.5) * 12**0.5  # of mean 0 and std 1
        critic = value + errors
        A = _advantages(
            with_tensors(own, discounting), torch.where(place == tokens - 1, right, 0.0), critic, mask, right, start
        )

        chance, is_right = _chances(luck, mask, left, beginning)
        after = torch.where(place == tokens - 1, is_right.unsqueeze(-1), torch.cat([chance[:, 1:], chance[:, :1]], 1))
        true = torch.cat([discounts * chance, is_right.unsqueeze(-1)], 1)
        lost = torch.where(mask, (discounts - 1) * after, 0.0)  # what γ leaves out of the chance
        ours = torch.stack(
            [torch.cat([critic, right.reshape(1)]), torch.cat([errors, torch.zeros_like(right).reshape(1)])]
        )

        def against(lams: Tensor) -> dict[str, Tensor]:
            """Return at each λ the critic's credit of the drawn answer [L, T], and bias and noise over all answers [L]."""
            made = weights(lams)
            returns, bias = (ours @ made).reshape(2, len(lams), MOST_TOKENS)
            missed = (true @ made).reshape(ANSWERS, len(lams), MOST_TOKENS) - (discounts * after).unsqueeze(1)
            noise = torch.where(mask, missed, 0.0).square().sum((0, 2)) / (ANSWERS * tokens)
            off = bias.square() + 2 * bias * lost.mean(0) + lost.square().mean(0)  # the mean of (bias + lost)²
            off = torch.where(mask, off, 0.0).sum(-1).clamp(min=0.0) / tokens
            return {"credit": returns - critic, "bias": off.sqrt(), "noise": noise.sqrt()}

        lines = against(torch.tensor(LAMBDAS, dtype=torch.double))
        here = against(discounting["lam"].reshape(1)) if "lam" in discounting else {}

        def shown(values: Tensor) -> Tensor:
            return torch.where(mask, values, math.nan)

        return {
            "token": place + 1,
            "end": tokens + 0.5,
            "value": shown(value),
            "critic": shown(critic),
            "credits": shown(A),
            "one_step": shown(lines["credit"][0]),
            "whole": shown(lines["credit"][-1]),
            "highest": torch.full_like(tokens, HIGHEST[isinstance(own, ActorCritic)]),
            "lowest": torch.full_like(tokens, -HIGHEST[isinstance(own, ActorCritic)]),
            **_told(A, mask, discounting),
            **_against_lambda(lines, here),
        }

    return curve


def _piece(algorithm: Algorithm) -> GAE | None:
    piece = algorithm.advantage if isinstance(algorithm, ActorCritic) else None
    return piece if isinstance(piece, GAE) else None


def _chances(luck: Tensor, mask: Tensor, left: Tensor, beginning: Tensor) -> tuple[Tensor, Tensor]:
    """Return the chance before each token of each answer, Φ(place / √(T − t)), and whether it ends right."""
    steps = torch.where(mask, luck, 0.0)
    before = beginning + steps.cumsum(-1) - steps
    return torch.special.ndtr(before / left.sqrt()), (beginning + steps.sum(-1) > 0).double()


def _drawn_answer(luck: Tensor, mask: Tensor, left: Tensor, beginning: Tensor, end: Tensor) -> Tensor:
    """Return the chance before each token of an answer whose walk is bent so that it ends at `end`."""
    steps = torch.where(mask, luck, 0.0)
    share = 1 - left / left[0]
    walk = steps.cumsum(-1) - steps - share * steps.sum(-1) + (1 - share) * beginning + share * end
    return torch.special.ndtr(walk / left.sqrt())


def _advantages(
    algorithm: ActorCritic | GroupPolicyGradient,
    rewards: Tensor,
    critic: Tensor,
    mask: Tensor,
    right: Tensor,
    start: Tensor,
) -> Tensor:
    if isinstance(algorithm, ActorCritic):
        one = (1, 1, MOST_TOKENS)
        return algorithm.advantages(rewards.view(one), critic.view(one), mask.view(one))[0].flatten()
    others = (torch.arange(GROUP - 1) < ((GROUP - 1) * start).round()).double()
    group = torch.cat([right.reshape(1), others]).unsqueeze(0)
    judged: Any = algorithm
    return judged.advantages(group, mask.expand(1, GROUP, MOST_TOKENS))[0][0, 0].double()


def _told(A: Tensor, mask: Tensor, discounting: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what is said of the advantages: the largest and the least, and whose they are."""
    high, low = torch.where(mask, A, -torch.inf), torch.where(mask, A, torch.inf)
    most, least = high.amax(), low.amin()
    gamma = discounting.get("gamma", torch.ones_like(most))
    return {
        "most": most,
        "least": least,
        "best": (high.argmax() + 1).double(),
        "worst": (low.argmin() + 1).double(),
        "all_alike": (most - least < 0.005).double(),
        "no_future": (gamma == 0).double(),
        "hears_less": ((gamma > 0) & (gamma < 1)).double(),
    }


def _against_lambda(lines: Mapping[str, Tensor], here: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the lines against λ, their ends, and where they are at the algorithm's own λ."""
    bias, noise = lines["bias"], lines["noise"]
    both = (bias.square() + noise.square()).sqrt()
    found = {"lams": torch.tensor(LAMBDAS, dtype=torch.double), "bias": bias, "noise": noise, "both": both}
    for name in ("bias", "noise"):
        found |= {f"{name}_first": lines[name][0], f"{name}_last": lines[name][-1]}
        if here:
            found[f"{name}_at"] = here[name][0]
    top = TOPS[1] + (TOPS[0] - TOPS[1]) * (both.amax() < TOPS[0]).double()
    return found | {"top": top, "bottom": -0.12 * top}  # below 0 a handle lies over no dot


def texts(algorithm: PolicyGradient) -> dict[str, str]:
    """Return which of the sentences are the algorithm's."""
    piece, has_critic = _piece(algorithm), isinstance(algorithm, ActorCritic)
    flags = {"has_lam": piece, "whitens": piece and piece.whiten, "has_critic": has_critic, "no_critic": not has_critic}
    return {name: "yes" if flag else "" for name, flag in flags.items()}


def discounting(algorithm: Algorithm) -> dict[str, int | float]:
    """Return γ and λ of an algorithm's GAE."""
    return numbers(algorithm) if _piece(algorithm) else {}


GAE_PICTURE = Picture(
    title="Which token gets the credit?",
    look="Drag λ from 0, the critic alone, to 1, the outcome alone.",
    notice="λ trades the critic's errors against chance. At λ = 0 the critic's bias decides, at λ = 1 the outcome's noise.",
    alt="Three graphs: what a critic says before each token of an answer beside the true value, the advantage of each token as "
    "bars, and bias and noise of such credit against λ.",
    panels=(
        Panel(
            "What does the critic say before each token?",
            Axis("", 0.5, "end", ticks=None),
            Axis("chance of right", -0.55, 1.6, ticks=(0.0, 0.5, 1.0)),
            (
                Line("token", "value", "", 2.5, "o", colour="ink", label="true", direct=True),
                Line("token", "critic", "6 3", colour="purple", label="critic V", direct=True, drag="offset"),
            ),
            tall=0.54,
        ),
        Panel(
            "How far is A + V from the true chance?",
            Axis("λ", -0.03, 1.03, ticks=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
            Axis("root mean square, in rewards", "bottom", "top"),
            (
                Line("lams", "both", colour="grey", width=2, label="both", direct=True),
                Line("lams", "bias", "6 3", 3, colour="vermilion", label="bias", direct=True),
                Line("lams", "noise", "2 3", 3, colour="green", label="noise", direct=True),
                Rule("lam", dash="6 2 1 2", when="has_lam", drag="lam", colour="ink"),
                Points("lam", "bias_at", size=9, colour="vermilion", when="has_lam"),
                Points("lam", "noise_at", shape="s", size=9, colour="green", when="has_lam"),
            ),
            tall=1.22,
        ),
        Panel(
            "How much credit does each get?",
            Axis("token", 0.5, "end", whole=True),
            Axis("advantage A", "lowest", "highest"),
            (
                Rule(0.0, axis="y", dash="", width=1),
                Bars("token", "credits", label="A of {name}"),
                Line("token", "one_step", "6 3", 1.5, "^", colour="vermilion", label="λ = 0", direct=True),
                Line("token", "whole", "2 3", 1.5, "D", colour="green", label="λ = 1", direct=True),
            ),
            tall=0.68,
        ),
    ),
    controls={
        "offset": Slider(-0.3, 0.3, 0.05, 0.0, "critic: offset"),
        "wiggle": Slider(0.0, 0.3, 0.05, 0.2, "critic: wiggle"),
        "answer": Choice({"right": "right", "wrong": "wrong"}, "right", "the answer is", rare=True),
        "tokens": Slider(4, MOST_TOKENS, 1, 12, "tokens", rare=True),
        "start": Slider(0.1, 0.9, 0.05, 0.5, "chance at the start", rare=True),
    },
    data=LUCK,
    conclusion=(
        Say(
            "{name} at λ = {lam}: the critic's errors leave a bias of {bias_at:.2f} in the credit of a token, and chance a noise "
            "of {noise_at:.2f}.",
            "has_lam",
        ),
        Say("{name} gives each of the {tokens:d} tokens the same A = {most:+.2f}.", "all_alike"),
        Say("{name} gives its {tokens:d} tokens an A from {least:+.2f} to {most:+.2f}."),
    ),
    says=(
        Say(
            "It has no critic and no λ: A comes from the outcome alone, here a {answer} answer of {tokens:d} tokens. In rewards "
            "that credit is as good as a critic's at λ = 1: no bias from the critic's errors, and the whole noise of the "
            "outcome, {noise_last:.2f}. The lines are what a critic would give.",
            "no_critic",
        ),
        Say(
            "Of a {answer} answer of {tokens:d} tokens, most credit on token {best:d} ({most:+.2f}), least on token {worst:d} "
            "({least:+.2f}).",
            "has_critic",
        ),
        Say("That is before whitening, which shifts and scales all tokens of a batch alike.", "whitens"),
        Say(
            "A + V should be the chance of a right answer once the token is there; over many answers it is wrong on average "
            "(bias) and off by chance (noise) by {bias_first:.2f} and {noise_first:.2f} at λ = 0, by {bias_last:.2f} and "
            "{noise_last:.2f} at λ = 1.",
            "has_critic",
        ),
        Say("With γ = 0 A is the token's own reward less V, whatever λ: nothing that follows counts.", "no_future"),
        Say("γ = {gamma} makes early tokens hear less of the outcome: a bias at every λ.", "hears_less"),
    ),
)

explore_gae = explorer(
    "gae",
    GAE_PICTURE,
    gae,
    algorithms=Algorithms(judges_outcomes, PPO, ("gamma", "lam"), numbers=discounting),
    texts=texts,
    named={
        "PPO's λ = 0.95": {},
        "λ = 0": {"lam": 0.0},
        "a critic that hopes": {"offset": 0.3, "lam": 0.5},
        "GRPO": {"algorithm": GRPO},
    },
)
