"""Credit from a critic over the tokens of one answer, and what γ and λ trade: the critic's error against the future's noise."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import GRPO, PPO, ActorCritic, Algorithm, PolicyGradient, numbers
from rlviz.algorithms.base import with_tensors
from rlviz.page.picture import Axis, Bars, Choice, Draws, Line, Panel, Picture, Points, Rule, Say, Slider
from rlviz.page.tracing import Curve
from rlviz.pictures.groups import learns_from_a_group
from rlviz.pictures.spec import Algorithms, explorer
from rlviz.pieces.gae import GAE

MOST_TOKENS = 24
LAMBDAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)  # closer where the noise bends
ANSWERS = 400  # over which bias and noise are taken
GROUP = 8
MARGIN = 0.7  # how clearly the drawn answer ends right or wrong, in standard deviations of its walk
LUCK = {"luck": Draws("normal", (ANSWERS, MOST_TOKENS), 5), "wiggles": Draws("uniform", (MOST_TOKENS,), 7)}


def judges_outcomes(algorithm: Algorithm) -> bool:
    """Return whether the algorithm makes advantages of one reward an answer."""
    return isinstance(algorithm, ActorCritic) or learns_from_a_group(algorithm)


def gae_piece(algorithm: Algorithm) -> GAE | None:
    """Return the algorithm's GAE, or None where it estimates advantages otherwise."""
    piece = algorithm.advantage if isinstance(algorithm, ActorCritic) else None
    return piece if isinstance(piece, GAE) else None


def gae_curve(algorithm: PolicyGradient) -> Curve:
    """Return the curve: the credit of each token of an answer, and bias and noise of such credit against λ.

    The answer is a random walk: each token moves it by a draw from N(0, 1), and it is right when it ends above 0, so after t
    tokens at x the chance is Φ(x / √(T − t)), exactly. The critic says that chance, discounted, plus offset, plus wiggle times
    a fixed draw, of mean 0 and std 1, for each token. Advantages are not whitened, and rewards carry no KL. An algorithm without
    a critic compares with a group of 8, the other 7 right as often as start says, and gives one number to all tokens.

    Bias is that of A + V, what the critic's state is worth after the token: V itself is a baseline, which moves all choices at
    that token alike. GAE is linear in rewards and values, so bias and noise come from the critic's error alone and from true
    values alone; the target is the chance itself, not discounted, so γ < 1 is a bias too. Both are root mean squares over
    tokens and answers.

    There are always 24 tokens, of which those that the answer lacks are masked: NaN in what is drawn.
    """
    piece, has_critic = gae_piece(algorithm), isinstance(algorithm, ActorCritic)
    judge: Any = algorithm if has_critic else algorithm.without_kl()
    if piece is not None:
        judge = replace(judge, advantage=replace(piece, whiten=False))
    plain = replace(PPO, advantage=GAE(gamma=1.0, whiten=False))

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
        position = torch.arange(MOST_TOKENS, dtype=torch.double)
        mask, is_last = position < tokens, position == tokens - 1
        left = (tokens - position).clamp(min=1.0)  # tokens still to come, this one too
        gamma = discounting.get("gamma", torch.ones_like(tokens))
        discounts = gamma ** (left - 1)
        beginning = torch.special.ndtri(start) * tokens.sqrt()

        # The drawn answer: its walk is bent so that it ends clearly right or wrong.
        right = 1 - answer
        steps = torch.where(mask, luck, 0.0)
        before = steps.cumsum(-1) - steps
        share = 1 - left / left[0]
        ending = (2 * right - 1) * MARGIN * tokens.sqrt()
        walk = before[0] - share * steps[0].sum() + (1 - share) * beginning + share * ending
        value = discounts * torch.special.ndtr(walk / left.sqrt())
        errors = offset + wiggle * (wiggles - 0.5) * 12**0.5  # of mean 0 and std 1
        critic = value + errors
        # Its credit.
        if has_critic:
            terms = (torch.where(is_last, right, 0.0), critic, mask)
            A = with_tensors(judge, discounting).advantages(*(term.view(1, 1, -1) for term in terms))[0].flatten()
        else:
            others = (torch.arange(GROUP - 1) < ((GROUP - 1) * start).round()).double()
            group = torch.cat([right.reshape(1), others]).unsqueeze(0)
            A = judge.advantages(group, mask.expand(1, GROUP, MOST_TOKENS))[0][0, 0].double()

        # 400 answers by chance, whose true values are known.
        chance = torch.special.ndtr((beginning + before) / left.sqrt())
        is_right = (beginning + steps.sum(-1) > 0).double().unsqueeze(-1)
        after = torch.where(is_last, is_right, torch.cat([chance[:, 1:], chance[:, :1]], 1))
        lost = torch.where(mask, (discounts - 1) * after, 0.0)  # what γ leaves out of the chance
        # One row each: the drawn answer, the critic's errors alone, and the 400 answers.
        earned = torch.cat([right.reshape(1, 1), torch.zeros_like(right).reshape(1, 1), is_right])
        rewards = torch.where(is_last, earned, 0.0)
        values = torch.cat([torch.stack([critic, errors]), discounts * chance])

        def measure_at(lams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            """Return at each λ the critic's credit of the drawn answer [L, T], and bias and noise over all answers [L]."""
            shape = (len(lams), *values.shape)
            rule = with_tensors(plain, {"gamma": gamma, "lam": lams.unsqueeze(-1)}).advantage  # a λ for each prompt
            returns = rule(rewards.expand(shape), values.expand(shape), mask.expand(shape))[1]
            bias, missed = returns[:, 1], returns[:, 2:] - discounts * after
            noise = torch.where(mask, missed, 0.0).square().sum((1, 2)) / (ANSWERS * tokens)
            square = bias.square() + 2 * bias * lost.mean(0) + lost.square().mean(0)  # the mean of (bias + lost)²
            square = torch.where(mask, square, 0.0).sum(-1).clamp(min=0.0) / tokens
            return returns[:, 0] - critic, square.sqrt(), noise.sqrt()

        credits, bias, noise = measure_at(torch.tensor(LAMBDAS, dtype=torch.double))
        total = (bias.square() + noise.square()).sqrt()
        top = 1.0 - 0.5 * (total.amax() < 0.5).double()
        highest = torch.full_like(tokens, 1.35 if has_critic else 2.7)  # standardised advantages are larger
        lines = {"value": value, "critic": critic, "credits": A, "one_step": credits[0], "monte_carlo": credits[-1]}
        outputs = {
            "token": position + 1,
            "end": tokens + 0.5,
            **{name: torch.where(mask, line, math.nan) for name, line in lines.items()},
            "lowest": -highest,
            "highest": highest,
            "least": torch.where(mask, A, torch.inf).amin(),
            "most": torch.where(mask, A, -torch.inf).amax(),
            "lams": torch.tensor(LAMBDAS, dtype=torch.double),
            "bias": bias,
            "noise": noise,
            "both": total,
            "top": top,
            "bottom": -0.12 * top,  # below 0 a handle lies over no dot
        }
        if "lam" in discounting:
            _, bias_at, noise_at = measure_at(discounting["lam"].reshape(1))
            outputs |= {"bias_at": bias_at[0], "noise_at": noise_at[0]}
        return outputs

    return curve


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
                Line("token", "monte_carlo", "2 3", 1.5, "D", colour="green", label="λ = 1", direct=True),
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
            "{name} at λ = {lam}: the credit of a token is off by {bias_at:.2f} from the critic's errors and a γ below 1 (bias), "
            "and by {noise_at:.2f} from chance (noise).",
            "has_lam",
        ),
        Say("{name} gives the {tokens:d} tokens of a {answer} answer an A from {least:+.2f} to {most:+.2f}."),
    ),
)

explore_gae = explorer(
    "gae",
    GAE_PICTURE,
    gae_curve,
    algorithms=Algorithms(
        judges_outcomes,
        PPO,
        ("gamma", "lam"),
        numbers=lambda algorithm: numbers(algorithm) if gae_piece(algorithm) else {},
    ),
    texts=lambda algorithm: {"has_lam": "yes"} if gae_piece(algorithm) else {},
    named={
        "PPO's λ = 0.95": {},
        "λ = 0": {"lam": 0.0},
        "a critic that hopes": {"offset": 0.3, "lam": 0.5},
        "GRPO": {"algorithm": GRPO},
    },
)
