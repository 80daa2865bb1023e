"""Credit from a critic over the tokens of one answer, and what γ and λ trade: the critic's error against the future's noise."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.collections import PolyCollection
from torch import Tensor

from rlviz.algorithms import (
    GRPO,
    PPO,
    ActorCritic,
    Algorithm,
    PolicyGradient,
    PreferenceOptimization,
)
from rlviz.pictures.arguments import Menu, Slider, WholeSlider
from rlviz.pictures.arrays import Array, array
from rlviz.pictures.base import BLUE, GREEN, GREY, LINE, TEXT, VERMILION, Handle, Picture, dress, signed
from rlviz.pictures.explore import Algorithms, explorer, with_given
from rlviz.pictures.groups import learns_from_a_group, without_kl
from rlviz.pictures.marks import Marks
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
    its own; these are None where it has none. name: its. offset: as given.
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
    offset: float


@checked
def gae_curve(
    algorithm: PolicyGradient = PPO,
    *,
    gamma: float | None = None,
    lam: float | None = None,
    tokens: int = 12,
    answer: Literal["right", "wrong"] = "right",
    start: float = 0.5,
    offset: float = 0.0,
    wiggle: float = 0.2,
) -> GAECurve:
    """Return the credit of each token of an answer under an algorithm, and bias and noise of such credit against λ.

    The answer is a random walk: each token moves it by a draw from N(0, 1), and it is right when it ends above 0, so after t
    tokens the chance is Φ(place / √(T − t)), exactly. The critic says that chance, discounted, plus offset, plus wiggle times a
    fixed draw, of mean 0 and std 1, for each token. Advantages are not whitened, and rewards carry no KL. An algorithm without a
    critic compares with a group of 8, the other 7 right as often as start says, and gives one number to all tokens.

    Bias is that of A + V, what the critic's state is worth after the token: V itself is a baseline, which moves all choices
    at that token alike. GAE is linear in rewards and values, so bias and noise come from the critic's error alone and from true
    values alone; the target is the chance itself, not discounted, so γ < 1 is a bias too.

    gamma, lam: of GAE; None: the algorithm's own. tokens: in the answer, 2 to 24. answer: "right" or "wrong". start: the chance
    of a right answer before the first token. offset, wiggle: how wrong the critic is, everywhere alike and token by token, in
    rewards. Raises ValueError for a value out of range, or an algorithm that needs rewards of single steps.
    """
    if isinstance(algorithm, PreferenceOptimization):
        raise ValueError(f"algorithm: {algorithm.name} learns from pairs, and no token of it has an advantage")
    algorithm = with_given(algorithm, gamma=gamma, lam=lam)
    if not 2 <= tokens <= MOST_TOKENS:
        raise ValueError(f"tokens must be from 2 to {MOST_TOKENS}; got {tokens}")
    if not 0 < start < 1:
        raise ValueError(f"start must be above 0 and below 1; got {start}")
    if not -1 <= offset <= 1:
        raise ValueError(f"offset must be from −1 to 1; got {offset}")
    if not 0 <= wiggle <= 1:
        raise ValueError(f"wiggle must be from 0 to 1; got {wiggle}")
    has_critic, right = isinstance(algorithm, ActorCritic), answer == "right"
    piece = algorithm.advantage if isinstance(algorithm.advantage, GAE) else None
    discount = piece.gamma if piece else 1.0
    mask = torch.ones(1, 1, tokens, dtype=torch.bool)
    discounts = discount ** torch.arange(tokens - 1, -1, -1, dtype=torch.double)
    value = discounts * _drawn_answer(tokens, start, right)
    errors = offset + wiggle * _wiggles(tokens)
    critic = value + errors
    rewards = torch.zeros(1, 1, tokens, dtype=torch.double)
    rewards[..., -1] = float(right)

    credit = _returns(critic, rewards[0, :, -1:], discount, LAMBDAS)[:, 0] - critic
    bias, noise = _errors(errors, start, discount, LAMBDAS)
    here = None if piece is None else _errors(errors, start, discount, (piece.lam,))
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
        offset=offset,
    )


def _advantages(algorithm: PolicyGradient, rewards: Tensor, critic: Tensor, mask: Tensor, start: float) -> Tensor:
    if isinstance(algorithm, ActorCritic):
        if isinstance(algorithm.advantage, GAE):
            algorithm = replace(algorithm, advantage=replace(algorithm.advantage, whiten=False))
        return algorithm.advantages(rewards, critic, mask)[0]
    others = (torch.arange(GROUP - 1) < round((GROUP - 1) * start)).double()
    group = torch.cat([rewards[0, 0, -1:], others]).unsqueeze(0)
    return without_kl(algorithm).advantages(group, mask.expand(1, GROUP, -1))[0][:, :1]


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


TOPS = (0.5, 1.0)  # of bias and noise
HIGHEST = {
    True: (1.35, 1),
    False: (2.7, 2),
}  # has a critic? → top and tick of the advantages; standardised ones are larger
OWN = "the algorithm's own λ"
MOST_NUMBERS = 12  # of tokens; of a longer answer every other one has its number
PURPLE, BROWN, INDIGO = "#AA4499", "#8C510A", "#332288"  # a colour means the same thing in all three graphs


def _tops(curve: GAECurve) -> float:
    highest = np.hypot(curve.bias, curve.noise).max()
    return next((top for top in TOPS if highest < top), TOPS[-1])


class GAEPicture(Picture[GAECurve]):
    """Left values above and advantages below, token by token; right bias and noise of the credit against λ."""

    size = (10, 4.6)
    alt = (
        "Three graphs: what a critic says before each token of an answer beside the true value, the advantage of each "
        "token as bars, and bias and noise of such credit against λ."
    )

    def draw(self, curve: GAECurve) -> Sequence[Artist]:
        grid = self.figure.add_gridspec(2, 2, height_ratios=(2, 3))
        above, below = (self.figure.add_subplot(grid[row, 0]) for row in range(2))
        self.right = self.figure.add_subplot(grid[:, 1])
        self.above, self.below = above, below
        dress(above, title="Which token gets the credit?", x="", y="value")
        dress(below, title="", x="token", y="advantage A")
        dress(self.right, title="How far is A + V from the true chance?", x="λ", y="root mean square, in rewards")
        for ax in (above, below):
            ax.set(xlim=(0, 1), xticks=[])
            ax.axhline(0, color=GREY, linewidth=1)
        above.set(ylim=(-0.55, 1.6), yticks=[0, 0.5, 1])
        below.xaxis.labelpad = 22
        self.numbers = Marks(below, size=TEXT - 1, where=below.get_xaxis_transform())
        self.right.set(xlim=(-0.03, 1.07), xticks=np.arange(6) / 5)
        (self.value,) = above.plot([], [], color="black", linewidth=1.8, marker="o", markersize=5, label="true value")
        (self.critic,) = above.plot([], [], color=PURPLE, linestyle="--", linewidth=LINE, label="critic's V")
        self.bars = PolyCollection([], facecolor="#a6cfe8", edgecolor=BLUE, linewidth=1, label="A of the algorithm")
        below.add_collection(self.bars, autolim=False)
        (self.one_step,) = below.plot(
            [], [], color=VERMILION, linestyle="--", linewidth=1.8, marker="^", markersize=7, label="A at λ = 0"
        )
        (self.whole,) = below.plot(
            [], [], color=GREEN, linestyle=":", linewidth=LINE, marker="D", markersize=6, label="A at λ = 1"
        )
        self.at = self.right.axvline(0, color=BLUE, linestyle="-.", linewidth=2, label=OWN)
        (self.bias,) = self.right.plot(
            [], [], color=BROWN, linestyle="--", linewidth=LINE + 0.5, label="bias: wrong on average"
        )
        (self.noise,) = self.right.plot(
            [], [], color=INDIGO, linestyle=":", linewidth=LINE + 0.5, label="noise: off by chance"
        )
        (self.both,) = self.right.plot([], [], color=GREY, linewidth=1.8, label="both together")
        (self.bias_at,) = self.right.plot([], [], color=BROWN, marker="o", markersize=10, linestyle="none")
        (self.noise_at,) = self.right.plot([], [], color=INDIGO, marker="s", markersize=9, linestyle="none")
        left = [self.value, self.critic, self.bars, self.one_step, self.whole]
        named = [*left, self.bias, self.noise, self.both, self.at]
        legend = self.figure.legend(
            named,
            [str(artist.get_label()) for artist in named],
            loc="outside lower center",
            ncols=3,
            fontsize=TEXT - 1,
            frameon=False,
        )
        self._own = legend.legend_handles[-1], legend.get_texts()[-1]
        return [self.numbers, *left, self.at, self.both, self.bias, self.noise, self.bias_at, self.noise_at]

    def show(self, curve: GAECurve) -> None:
        tokens = len(curve.advantages)
        middles = (np.arange(tokens) + 0.5) / tokens
        self.value.set_data(middles, curve.value)
        self.critic.set_data(middles, curve.critic)
        steps = range(0, tokens, 1 if tokens <= MOST_NUMBERS else 2)
        self.numbers.write((str(token + 1), middles[token], -0.08) for token in steps)
        half = 0.4 / tokens
        self.bars.set_verts(
            [
                [(x - half, 0), (x - half, a), (x + half, a), (x + half, 0)]
                for x, a in zip(middles, curve.advantages, strict=True)
            ]
        )
        self.one_step.set_data(middles, curve.one_step)
        self.whole.set_data(middles, curve.whole)
        self.bias.set_data(curve.lam, curve.bias)
        self.noise.set_data(curve.lam, curve.noise)
        self.both.set_data(curve.lam, np.hypot(curve.bias, curve.noise))
        here = [] if curve.lam_at is None else [curve.lam_at]
        handle, text = self._own
        if handle is not None:
            handle.set_visible(bool(here))
        text.set_text(OWN if here else " ")
        self.at.set_data(here * 2, [0, 1] if here else [])
        for mark, value in ((self.bias_at, curve.bias_at), (self.noise_at, curve.noise_at)):
            mark.set_data(here, [] if value is None else [value])
        highest, tick = HIGHEST[curve.has_critic]
        self.below.set(ylim=(-highest, highest), yticks=(-tick, 0, tick))  # as wide in words, so that nothing shifts
        self.right.set_ylim(-0.03 * _tops(curve), _tops(curve))

    def still(self, curve: GAECurve) -> Hashable:
        return curve.has_critic, curve.lam_at is None, _tops(curve)

    def handles(self, curve: GAECurve) -> list[Handle]:
        last = float(curve.critic[-1])
        return [
            Handle(self.right, "x", math.inf if curve.lam_at is None else curve.lam_at, "lam"),
            Handle(self.above, "y", last, "offset", lambda value: curve.offset + value - last),
        ]

    def conclusion(self, curve: GAECurve) -> str:
        if curve.lam_at is None:
            least, most = signed(curve.advantages.min()), signed(curve.advantages.max())
            if least == most:
                return f"{curve.name} gives each of the {len(curve.advantages)} tokens the same A = {most}."
            return f"{curve.name} gives its {len(curve.advantages)} tokens an A from {least} to {most}."
        return (
            f"{curve.name} at λ = {curve.lam_at:g}: the critic's errors leave a bias of {curve.bias_at:.2f} in the credit of a "
            f"token, and chance a noise of {curve.noise_at:.2f}."
        )

    def words(self, curve: GAECurve) -> str:
        answer = f"a {'right' if curve.right else 'wrong'} answer of {len(curve.advantages)} tokens"
        if not curve.has_critic:
            return (
                f"It has no critic and no λ: A comes from the outcome alone, here {answer}. In rewards that credit is as good as "
                f"a critic's at λ = 1: no bias from the critic's errors, and the whole noise of the outcome, "
                f"{curve.noise[-1]:.2f}. The lines are what a critic would give."
            )
        best, worst = int(curve.advantages.argmax()), int(curve.advantages.argmin())
        said = [
            f"Of {answer}{_discount(curve)}, most credit on token {best + 1} "
            f"({signed(curve.advantages[best])}), least on token {worst + 1} ({signed(curve.advantages[worst])})"
            f"{', before whitening, which shifts and scales all tokens of a batch alike' if curve.whitens else ''}."
        ]
        ends = [
            f"{bias:.2f} and {noise:.2f}" for bias, noise in zip(curve.bias[[0, -1]], curve.noise[[0, -1]], strict=True)
        ]
        said.append(
            "A + V should be the chance of a right answer once the token is there; over many answers it is wrong on average "
            f"(bias) and off by chance (noise) by {ends[0]} at λ = 0, by {ends[1]} at λ = 1."
        )
        if curve.gamma == 0:
            said.append("With γ = 0 A is the token's own reward less V, whatever λ: nothing that follows counts.")
        elif curve.gamma is not None and curve.gamma < 1:
            said.append(f"γ = {curve.gamma:g} makes early tokens hear less of the outcome: a bias at every λ.")
        return " ".join(said)


def _discount(curve: GAECurve) -> str:
    return "" if curve.gamma is None else f" at γ = {curve.gamma:g}"


def judges_outcomes(algorithm: Algorithm) -> bool:
    """Return whether the algorithm makes advantages of one reward an answer."""
    return isinstance(algorithm, ActorCritic) or learns_from_a_group(algorithm)


explore_gae = explorer(
    "gae",
    gae_curve,
    GAEPicture,
    algorithms=Algorithms(fits=judges_outcomes, parameters=("gamma", "lam")),
    controls={
        "offset": Slider(-0.3, 0.3, 0.05, "critic: offset"),
        "wiggle": Slider(0.0, 0.3, 0.05, "critic: wiggle"),
        "answer": Menu({"right": "right", "wrong": "wrong"}, "the answer is", rare=True),
        "tokens": WholeSlider(4, MOST_TOKENS, "tokens", rare=True),
        "start": Slider(0.1, 0.9, 0.05, "chance at the start", rare=True),
    },
    grid={
        "algorithm": (PPO, GRPO),
        "answer": ("right", "wrong"),
        "offset": (-0.3, -0.15, 0.0, 0.15, 0.3),
        "lam": (0.0, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0),
    },
    twin={
        "λ = 0: the critic alone": {"lam": 0.0},
        "λ = 0.95, PPO's own": {},
        "GRPO: no critic, the outcome alone": {"algorithm": GRPO},
    },
)
