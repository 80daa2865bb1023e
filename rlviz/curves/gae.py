"""Credit from a critic over the tokens of one answer, and what γ and λ trade: the critic's error against the future's noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.base import GroupPolicyGradient, PolicyGradient
from rlviz.curves.arrays import Array, array
from rlviz.pieces.gae import GAE
from small_models.checks import checked

MOST_TOKENS = 24
LAMBDAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)  # closer where the noise bends
ANSWERS = 400  # over which bias and noise are taken
GROUP = 8
MARGIN = 0.7  # how clearly the drawn answer ends right or wrong, in standard deviations of its walk


@dataclass(frozen=True)
class GAECurve:
    """Values and advantages of one answer's T tokens, and the error of the credit against λ.

    right: whether the answer is, which earns 1 on its last token, else 0. value: [T], the chance of a right answer before
    each token, discounted by γ. critic: [T], what the critic says. advantages: [T], the algorithm's, before whitening;
    whitens: whether it then whitens them. one_step, whole: [T], of the critic at λ = 0 and at λ = 1. lam: [L]. bias, noise:
    [L], root mean square over tokens and answers of A + V less the chance of a right answer after the token: of what is wrong
    on average, and of what the rest of the answer adds by chance. lam_at, bias_at, noise_at: at the algorithm's own λ; gamma:
    its own; these are None where it has none. name: its.
    """

    name: str
    has_critic: bool
    gamma: float | None
    right: bool
    value: Array
    critic: Array
    advantages: Array
    whitens: bool
    one_step: Array
    whole: Array
    lam: Array
    bias: Array
    noise: Array
    lam_at: float | None
    bias_at: float | None
    noise_at: float | None


@checked
def gae_curve(
    algorithm: PolicyGradient,
    *,
    tokens: int = 12,
    answer: str = "right",
    start: float = 0.5,
    offset: float = 0.0,
    wiggle: float = 0.15,
) -> GAECurve:
    """Return the credit of each token of an answer under an algorithm, and bias and noise of that credit against λ.

    The answer is a random walk: each token moves it by a draw from N(0, 1), and it is right when it ends above 0, so after t
    tokens the chance is Φ(place / √(T − t)), exactly. start: the chance before the first token. The critic says that
    chance, discounted, plus offset, plus wiggle times a fixed draw, of mean 0 and std 1, for each token. Advantages are not
    whitened, and rewards carry no KL. An algorithm without a critic compares with a group of 8, the other 7 right as often
    as start says.

    Bias is that of A + V, what the critic's state is worth after the token: V itself is a baseline, which moves all choices
    at that token alike. GAE is linear in rewards and values, so bias and noise come from the critic's error alone and from true
    values alone; the target is the chance itself, not discounted, so γ < 1 is a bias too.
    Raises ValueError for tokens outside [2, 24], an answer neither "right" nor "wrong", start
    not between 0 and 1, offset outside [−1, 1], wiggle outside [0, 1].
    """
    if not 2 <= tokens <= MOST_TOKENS:
        raise ValueError(f"tokens must be from 2 to {MOST_TOKENS}; got {tokens}")
    if answer not in ("right", "wrong"):
        raise ValueError(f'answer must be "right" or "wrong"; got {answer!r}')
    if not 0 < start < 1:
        raise ValueError(f"start must be above 0 and below 1; got {start}")
    if not -1 <= offset <= 1:
        raise ValueError(f"offset must be from −1 to 1; got {offset}")
    if not 0 <= wiggle <= 1:
        raise ValueError(f"wiggle must be from 0 to 1; got {wiggle}")
    has_critic, right = isinstance(algorithm, ActorCritic), answer == "right"
    piece = algorithm.advantage if isinstance(algorithm.advantage, GAE) else None
    gamma = piece.gamma if piece else 1.0
    mask = torch.ones(1, 1, tokens, dtype=torch.bool)
    discounts = gamma ** torch.arange(tokens - 1, -1, -1, dtype=torch.double)
    value = discounts * _drawn_answer(tokens, start, right)
    errors = offset + wiggle * _wiggles(tokens)
    critic = value + errors
    rewards = torch.zeros(1, 1, tokens, dtype=torch.double)
    rewards[..., -1] = float(right)

    credit = _returns(critic, rewards[0, :, -1:], gamma, LAMBDAS)[:, 0] - critic
    bias, noise = _errors(errors, start, gamma, LAMBDAS)
    here = None if piece is None else _errors(errors, start, gamma, (piece.lam,))
    return GAECurve(
        name=algorithm.name,
        has_critic=has_critic,
        gamma=piece.gamma if piece else None,
        right=right,
        value=array(value),
        critic=array(critic),
        advantages=array(_advantages(algorithm, rewards, critic.view(1, 1, -1), mask, start)),
        whitens=piece is not None and piece.whiten,
        one_step=array(credit[0]),
        whole=array(credit[-1]),
        lam=np.array(LAMBDAS),
        bias=bias,
        noise=noise,
        lam_at=piece.lam if piece else None,
        bias_at=None if here is None else float(here[0][0]),
        noise_at=None if here is None else float(here[1][0]),
    )


def _advantages(algorithm: PolicyGradient, rewards: Tensor, critic: Tensor, mask: Tensor, start: float) -> Tensor:
    if isinstance(algorithm, ActorCritic):
        if isinstance(algorithm.advantage, GAE):
            algorithm = replace(algorithm, advantage=replace(algorithm.advantage, whiten=False))
        return algorithm.advantages(rewards, critic, mask)[0]
    assert isinstance(algorithm, GroupPolicyGradient)
    others = (torch.arange(GROUP - 1) < round((GROUP - 1) * start)).double()
    group = torch.cat([rewards[0, 0, -1:], others]).unsqueeze(0)
    return algorithm.without_kl().advantages(group, mask.expand(1, GROUP, -1))[0][:, :1]


def _chance(places: Tensor) -> Tensor:
    """Return Φ(place / √(T − t)) before each of the T tokens, for walks [..., T + 1] of which the last entry is the end."""
    left = torch.arange(places.shape[-1] - 1, 0, -1, dtype=torch.double)
    return torch.special.ndtr(places[..., :-1] / left.sqrt())


def _beginning(tokens: int, start: float) -> float:
    return float(torch.special.ndtri(torch.tensor(start, dtype=torch.double))) * tokens**0.5


@lru_cache(maxsize=1)
def _draws() -> Tensor:
    return torch.randn(ANSWERS, MOST_TOKENS, generator=torch.Generator().manual_seed(5), dtype=torch.double)


def _wiggles(tokens: int) -> Tensor:
    drawn = torch.rand(MOST_TOKENS, generator=torch.Generator().manual_seed(7), dtype=torch.double)
    return (drawn[:tokens] - 0.5) * 12**0.5  # mean 0, std 1


def _drawn_answer(tokens: int, start: float, right: bool) -> Tensor:
    """Return the chance before each token of an answer whose walk is bent so that it ends right, or wrong."""
    walk = torch.cat([torch.zeros(1, dtype=torch.double), _draws()[0, :tokens].cumsum(0)])
    share = torch.arange(tokens + 1, dtype=torch.double) / tokens
    beginning, end = _beginning(tokens, start), (MARGIN if right else -MARGIN) * tokens**0.5
    return _chance(walk - share * walk[-1] + (1 - share) * beginning + share * end)


@lru_cache(maxsize=256)
def _weights(tokens: int, gamma: float, lam: float) -> Tensor:
    """Return what A + V makes of a value of 1 at each token alone, and of a reward of 1 on the last: [T + 1, T]."""
    alone = torch.eye(tokens + 1, dtype=torch.double).unsqueeze(1)
    values, rewards = alone[..., :-1].clone(), torch.zeros(tokens + 1, 1, tokens, dtype=torch.double)
    rewards[-1, 0, -1] = 1.0
    return GAE(gamma=gamma, lam=lam, whiten=False)(rewards, values, torch.ones_like(rewards, dtype=torch.bool))[1][:, 0]


def _returns(values: Tensor, reward: Tensor, gamma: float, lams: tuple[float, ...]) -> Tensor:
    """Return GAE's A + V, [L, N, T], which is linear in values [N, T] and the reward of the last token [N, 1]."""
    weights = torch.stack([_weights(values.shape[-1], gamma, lam) for lam in lams])
    return torch.cat([values.view(-1, values.shape[-1]), reward], 1) @ weights


@lru_cache(maxsize=256)
def _noise(tokens: int, start: float, gamma: float, lams: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Return the noise at each λ with a critic that is right, and what γ leaves out of the chance after each token [N, T]."""
    walks = _beginning(tokens, start) + torch.cat(
        [torch.zeros(ANSWERS, 1, dtype=torch.double), _draws()[:, :tokens].cumsum(1)], 1
    )
    right = (walks[:, -1:] > 0).double()
    discounts = gamma ** torch.arange(tokens - 1, -1, -1, dtype=torch.double)
    chance = _chance(walks)
    after = torch.cat([chance[:, 1:], right], 1)
    noise = _returns(discounts * chance, right, gamma, lams) - discounts * after
    return noise.square().mean((1, 2)).sqrt(), (discounts - 1) * after


def _errors(errors: Tensor, start: float, gamma: float, lams: tuple[float, ...]) -> tuple[Array, Array]:
    noise, left_out = _noise(len(errors), start, gamma, lams)
    bias = _returns(errors, torch.zeros(1, 1, dtype=torch.double), gamma, lams) + left_out
    return bias.square().mean((1, 2)).sqrt().numpy(), noise.numpy()
