"""What is done about responses that grow too long: to the reward of one, and to the advantages of a group."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.legend import Legend
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from torch import Tensor

from rlviz.algorithms import DAPO, DR_GRPO, GroupPolicyGradient, numbers
from rlviz.pictures.arguments import Menu, Slider, Values, WholeSlider
from rlviz.pictures.arrays import Array, array
from rlviz.pictures.base import BLUE, FAINT, GREEN, GREY, LINE, TEXT, VERMILION, Handle, Picture, dress, signed
from rlviz.pictures.explore import Algorithms, explorer
from rlviz.pictures.groups import group_advantages, learns_from_a_group, without_kl
from rlviz.pieces.shaping import OverlongFilter, SoftOverlongPunishment
from rlviz.pieces.words import label
from small_models.checks import checked

LONGEST = 28  # tokens, of the lengths shown
AWAY = (-6, -4, -3, -1, 1, 2, 4, 7)  # tokens, of the group's lengths from their mean
RIGHT_FIRST = (6, 1, 4, 3, 0, 7, 2, 5)  # places in AWAY, in the order in which responses become right


@dataclass(frozen=True)
class OverlongCurve:
    """Rewards against length, and a group of eight before and after shaping. Lengths are tokens, those that a response would
    have if nothing were cut off; one of more than max_length is cut there and has no answer, so it counts as wrong.

    name: of the algorithm. shaping, rule: which, as `overlong_curve` takes it, and in words. floor: below 0, the most that the
    rule adds to a reward, None where it has no such number. max_length: tokens. cache: tokens before max_length from which the
    soft punishment grows, None for another shaping.
    lengths [N], plain [N], shaped [N]: reward of a right response without and with the shaping. own [N]: with that of the
    algorithm itself, None where it has none or is what is shown.
    group_lengths, right, cut, out [8]: of the group's responses; out: it leaves the loss. rewards, new_rewards, before, after
    [8]: rewards and advantages without and with the shaping; A is 0 where a response is out. plus_minus_rewards, plus_minus [8]:
    what `new_rewards` and `after` would be if a right response earned 1 and a wrong one −1, as in DAPO's paper, in place of 1
    and 0; plus_minus is None where the algorithm refuses such rewards.
    """

    name: str
    shaping: str
    rule: str
    floor: float | None
    max_length: int
    cache: int | None
    lengths: Array
    plain: Array
    shaped: Array
    own: Array | None
    group_lengths: Array
    right: NDArray[np.bool_]
    cut: NDArray[np.bool_]
    out: NDArray[np.bool_]
    rewards: Array
    new_rewards: Array
    before: Array
    after: Array
    plus_minus_rewards: Array
    plus_minus: Array | None


@dataclass(frozen=True)
class _Responses:
    """Responses [1, G] that would have these lengths and answers: cut at max_length, they have neither."""

    lengths: Tensor
    right: Tensor
    max_length: int

    @property
    def cut(self) -> Tensor:
        return self.lengths > self.max_length

    @property
    def rewards(self) -> Tensor:
        return (self.right & ~self.cut).double()

    def shaped(self, algorithm: GroupPolicyGradient, *, wrong: float = 0.0) -> Tensor:
        """Return rewards after shaping, of 1 for right and `wrong` for wrong ones before it."""
        return algorithm.shaped(
            self.rewards + wrong * (1 - self.rewards),
            self.lengths.clamp(max=self.max_length),
            truncated=self.cut,
            correct=self.rewards,
            well_formed=(~self.cut).double(),
        )


@checked
def overlong_curve(
    algorithm: GroupPolicyGradient = DAPO,
    *,
    shaping: Literal["soft", "own", "filter", "none"] = "soft",
    max_length: int = 16,
    cache: int = 4,
    factor: float = 1.0,
    mean_length: int = 11,
    number_right: int = 5,
) -> OverlongCurve:
    """Return what shaping does to long responses: to their rewards, and to advantages in a group of eight.

    The reward of a right response against the length that it would have: past `max_length` it is cut off and counts as wrong, a
    cliff that the soft punishment turns into a slope. And the algorithm's advantages of a group, its lengths spread around
    `mean_length`, with the shaping, without it, and with the shaping of rewards 1 and −1: twice as far apart, so that the same
    punishment weighs half as much. The group is the batch; no prompt was sampled before; KL and selection are left out.

    shaping: "soft", a `SoftOverlongPunishment` of max_length, cache and factor, as DAPO's; "own", the algorithm's; "filter", the
    `OverlongFilter`: truncated responses leave the loss; "none". max_length: tokens after which the sampler cuts. cache: tokens
    before max_length over which the punishment grows, below it. factor: the punishment at max_length; its floor is −1, so that
    never more than 1 is taken off. mean_length: tokens, 7 to 21. number_right: responses of the eight that would be right.
    Raises ValueError for a value out of range, and what the pieces raise.
    """
    algorithm = without_kl(algorithm)
    for name, value, least, most in (
        ("max_length", max_length, 2, LONGEST),
        ("mean_length", mean_length, 1 - min(AWAY), LONGEST - max(AWAY)),
        ("number_right", number_right, 0, len(AWAY)),
    ):
        if not least <= value <= most:
            raise ValueError(f"{name} must be from {least} to {most}; got {value}")
    pieces = {
        "soft": SoftOverlongPunishment(max_length=max_length, cache=cache, factor=factor),
        "own": algorithm.shape,
        "filter": OverlongFilter(),
        "none": None,
    }
    shown = replace(algorithm, shape=pieces[shaping])

    grid = torch.arange(1, LONGEST + 1).unsqueeze(0)
    long = _Responses(grid, torch.ones_like(grid, dtype=torch.bool), max_length)
    right = torch.zeros(1, len(AWAY), dtype=torch.bool)
    right[0, list(RIGHT_FIRST[:number_right])] = True
    group = _Responses(mean_length + torch.tensor([AWAY]), right, max_length)
    rewards, plus_minus_rewards = (group.shaped(shown, wrong=wrong) for wrong in (0.0, -1.0))
    kept = shown.loss_mask(torch.ones(1, len(AWAY), 1, dtype=torch.bool), group.cut)[..., 0]
    after = group_advantages(shown, rewards) * kept
    try:
        plus_minus = array(group_advantages(shown, plus_minus_rewards) * kept)
    except ValueError:  # MaxRL divides by the mean, which must be above 0
        plus_minus = None
    return OverlongCurve(
        name=algorithm.name,
        shaping=shaping,
        rule="none" if shown.shape is None else label(shown.shape),
        floor=numbers(shown).get("floor"),
        max_length=max_length,
        cache=cache if shaping == "soft" else None,
        lengths=array(grid.double()),
        plain=array(long.rewards),
        shaped=array(long.shaped(shown)),
        own=None if algorithm.shape is None or shown.shape == algorithm.shape else array(long.shaped(algorithm)),
        group_lengths=array(group.lengths.double()),
        right=array(right & ~group.cut),
        cut=array(group.cut),
        out=array(~kept),
        rewards=array(group.rewards),
        new_rewards=array(rewards),
        before=array(group_advantages(algorithm, group.rewards)),
        after=array(after),
        plus_minus_rewards=array(plus_minus_rewards),
        plus_minus=plus_minus,
    )


WIDEST = 28.5  # tokens
DOTS = (0, (1, 1))
REWARDS, ADVANTAGES = (-1.2, 1.2), (-4.0, 4.0)  # usual limits of the axes; no z of eight is above √7
HOW = {
    "soft": "with a soft punishment",
    "own": "with its own shaping",
    "filter": "with the overlong filter",
    "none": "without shaping",
}


class OverlongPicture(Picture[OverlongCurve]):
    """Left a right response's reward against its length, right a group's advantages at their lengths."""

    size = (10, 4.5)
    alt = (
        "Two graphs against length in tokens: left the reward of a right response with and without shaping; right the "
        "advantages of a group of eight responses, a bar each, and what they were without shaping."
    )

    def draw(self, curve: OverlongCurve) -> list[Artist]:
        left, right = self.axes = self.figure.subplots(1, 2)
        dress(
            left, title="What a right response of each length earns", x="length, tokens, if not cut off", y="reward R"
        )
        dress(right, title="Advantages in a group of eight", x="length, tokens, if not cut off", y="advantage A")
        self.beyond = [self._shade(ax) for ax in (left, right)]
        self.edges = [ax.axvline(1, color=GREY, linewidth=1.5) for ax in (left, right)]
        self.start, self.mean = (ax.axvline(1, color=GREY, linestyle=DOTS, linewidth=2) for ax in (left, right))
        self.start.set_label("punished from here")
        self.mean.set_label("mean length")
        (self.plain,) = left.plot([], [], color=GREY, linewidth=LINE + 2, label="without shaping")
        (self.shaped,) = left.plot([], [], color=BLUE, linewidth=LINE, marker="o", markersize=4, label="shaped")
        (self.own,) = left.plot([], [], color=GREEN, linewidth=LINE, linestyle="--", label="the algorithm's own")
        self.bars = {
            True: PolyCollection([], facecolor=BLUE, edgecolor=BLUE, linewidth=1.5, label="right: A"),
            False: PolyCollection(
                [], facecolor="white", edgecolor=VERMILION, hatch="///", linewidth=1.5, label="wrong: A"
            ),
        }
        for bars in self.bars.values():
            right.add_collection(bars, autolim=False)
        (self.before,) = right.plot([], [], "D", color="black", markersize=8, markerfacecolor="white")
        self.before.set_label("A without shaping")
        (self.out,) = right.plot([], [], "x", color="black", markersize=8, markeredgewidth=2.5, label="out of the loss")
        (self.plus_minus,) = right.plot([], [], "_", color="black", markersize=16, markeredgewidth=2.5)
        self.plus_minus.set_label("A with rewards ±1")
        self.named = [self.plain, self.shaped, self.own, *self.bars.values(), self.before, self.plus_minus, self.out]
        self.legend: Legend | None = None
        self.rules = [*self.edges, self.start, self.mean]
        return [*self.beyond, *self.rules, *self.named]

    def _name(self, curve: OverlongCurve) -> None:
        """Say in the legend what is drawn, and nothing else."""
        drawn = [artist for artist, is_drawn in zip(self.named, self._drawn(curve), strict=True) if is_drawn]
        also = [self.mean, *([] if curve.cache is None else [self.start]), self.beyond[0]]
        labels = [str(artist.get_label()) for artist in (*drawn, *also)]
        if self.legend is not None:
            if [text.get_text() for text in self.legend.get_texts()] == labels:
                return
            self.legend.remove()
        self.legend = self.figure.legend(
            handles=[*drawn, *also],
            loc="outside lower center",
            ncols=5,
            fontsize=TEXT - 1,
            frameon=False,
            columnspacing=0.5,
            handlelength=1.2,
            handletextpad=0.5,
        )

    @staticmethod
    def _drawn(curve: OverlongCurve) -> tuple[bool, ...]:
        """Return which of the artists in `named` have something to draw."""
        shaped, has_bar = curve.rule != "none", curve.after != 0
        bars = [bool((has_bar & (curve.right == kind)).any()) for kind in (True, False)]
        return (
            True,
            shaped,
            curve.own is not None,
            *bars,
            shaped,
            any(bars) and curve.plus_minus is not None,
            curve.shaping == "filter" or bool(curve.out.any()),
        )

    @staticmethod
    def _shade(ax: Axes) -> Rectangle:
        ax.set(xlim=(0, WIDEST), xticks=range(0, 29, 4))
        ax.axhline(0, color=GREY, linewidth=1)
        beyond = Rectangle((0, 0), 0, 1, facecolor=FAINT, edgecolor=GREY, hatch="//", linewidth=0)
        beyond.set_label("cut off, wrong")
        ax.add_patch(beyond)
        return beyond

    def show(self, curve: OverlongCurve) -> None:
        for ax, beyond, (low, high) in zip(self.axes, self.beyond, self._spans(curve), strict=True):
            if ax.get_ylim() != (low, high):
                ax.set_ylim(low, high)
            beyond.set_bounds(curve.max_length + 0.5, low, WIDEST - curve.max_length - 0.5, high - low)
        places = (*[curve.max_length + 0.5] * 2, _start(curve), float(curve.group_lengths.mean()))
        for rule, place in zip(self.rules, places, strict=True):
            rule.set_xdata([place, place])
        self._name(curve)
        _, shaped, *_ = self._drawn(curve)
        for line, rewards in (
            (self.plain, curve.plain),
            (self.shaped, curve.shaped if shaped else None),
            (self.own, curve.own),
        ):
            line.set_data(*(([], []) if rewards is None else _with_cliff(curve, rewards)))
        self.shaped.set_markevery([i for i, x in enumerate(self.shaped.get_xdata()) if x == int(x)])
        for kind, bars in self.bars.items():
            chosen = (curve.right == kind) & ~curve.out & (curve.after != 0)
            bars.set_verts(
                [
                    [(x - 0.4, 0), (x + 0.4, 0), (x + 0.4, a), (x - 0.4, a)]
                    for x, a in zip(curve.group_lengths[chosen], curve.after[chosen], strict=True)
                ]
            )
        self.before.set_data(*((curve.group_lengths, curve.before) if shaped else ([], [])))
        ticks = ~curve.out & bool(curve.after.any()) & (curve.plus_minus is not None)
        self.plus_minus.set_data(curve.group_lengths[ticks], _plus_minus(curve)[ticks])
        self.out.set_data(curve.group_lengths[curve.out], np.zeros(int(curve.out.sum())))

    @staticmethod
    def _spans(curve: OverlongCurve) -> tuple[tuple[float, float], tuple[float, float]]:
        rewards = np.concatenate([curve.shaped, curve.plain if curve.own is None else curve.own])
        advantages = np.concatenate([curve.before, curve.after, _plus_minus(curve)])
        return _span(rewards, *REWARDS), _span(advantages, *ADVANTAGES)

    def still(self, curve: OverlongCurve) -> Hashable:
        return self._spans(curve), self._drawn(curve), curve.cache is None

    def handles(self, curve: OverlongCurve) -> list[Handle]:
        left, right = self.axes
        end = curve.max_length

        def cut_at(place: float) -> float:
            return place - 0.5

        return [
            Handle(left, "x", end + 0.5, "max_length", cut_at),
            Handle(left, "x", _start(curve), "cache", lambda place: end - place),
            Handle(right, "x", float(curve.group_lengths.mean()), "mean_length"),
            Handle(right, "x", end + 0.5, "max_length", cut_at),
        ]

    def conclusion(self, curve: OverlongCurve) -> str:
        return _say_change(curve) or _say_same(curve)

    def words(self, curve: OverlongCurve) -> str:
        rule = "" if curve.shaping == "none" else f" ({curve.rule}{_say_floor(curve)})"
        said = [f"{curve.name} {HOW[curve.shaping]}{rule}; the sampler cuts at {curve.max_length} tokens."]
        if _say_change(curve) and curve.cut.any():
            said.append(f"{_say_cut(curve)}.")
        return " ".join([*said, *_say_scale(curve)])


def _plus_minus(curve: OverlongCurve) -> Array:
    """Return the advantages with rewards 1 and −1, or those shown where the algorithm refuses such rewards."""
    return curve.after if curve.plus_minus is None else curve.plus_minus


def _start(curve: OverlongCurve) -> float:
    """Return the longest length that goes without punishment, or where nobody sees it."""
    return math.inf if curve.cache is None else float(curve.max_length - curve.cache)


def _with_cliff(curve: OverlongCurve, rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return lengths and rewards with a vertical step between the last response that is whole and the first that is cut."""
    first = int(np.searchsorted(curve.lengths, curve.max_length + 0.5))
    if first == len(rewards):
        return curve.lengths, rewards
    at = [first, first]
    return np.insert(curve.lengths, at, curve.max_length + 0.5), np.insert(rewards, at, rewards[[first - 1, first]])


def _span(values: np.ndarray, low: float, high: float) -> tuple[float, float]:
    """Return the usual limits, or wider ones where a value lies outside of them."""
    return float(f"{min(low, 1.1 * values.min()):.2g}"), float(f"{max(high, 1.1 * values.max()):.2g}")


def _say_floor(curve: OverlongCurve) -> str:
    """Say how much is taken off a reward at most, where the rule has a floor."""
    if curve.floor is None or not np.isfinite(curve.floor):
        return ""
    off = curve.plain - curve.shaped
    first = curve.lengths[np.argmax(off > off.max() - 1e-9)]
    return f": it takes off up to {off.max():.2f}, from {first:.0f} tokens on, and never more than {-curve.floor:g}, the floor"


def _change(curve: OverlongCurve) -> Array:
    return np.where(curve.out, 0.0, np.abs(curve.after - curve.before))


def _most_changed(curve: OverlongCurve) -> int:
    """Return whose advantage changes most, a right one's if any does."""
    change = _change(curve)
    answered = change * curve.right
    return int(np.argmax(answered if answered.max() >= 0.005 else change))


def _called(curve: OverlongCurve, place: int) -> str:
    kind = "right" if curve.right[place] else "cut" if curve.cut[place] else "wrong"
    return f"{kind} response of {min(curve.group_lengths[place], curve.max_length):.0f} tokens"


def _say_change(curve: OverlongCurve) -> str:
    """Return whose advantage changes most, and by how much; nothing if none does."""
    most = _most_changed(curve)
    if _change(curve)[most] < 0.005:
        return ""
    return (
        f"The {_called(curve, most)} has reward {curve.new_rewards[most]:.2f} and A = {signed(curve.after[most])}, without "
        f"shaping {curve.rewards[most]:.2f} and A = {signed(curve.before[most])}."
    ).replace("reward -", "reward −")


def _say_same(curve: OverlongCurve) -> str:
    if curve.shaping == "none":
        end, beyond = curve.plain[[0, -1]]
        said = f"A right response earns {end:.0f} up to {curve.max_length} tokens and {beyond:.0f} beyond"
    elif (most := np.abs(curve.new_rewards - curve.rewards).max()) > 0.005:
        said = f"Shaping changes rewards by up to {most:.2f}, but no advantage"
    else:
        said = "No response in the loss has another advantage than without shaping"
    return f"{said}; {_say_cut(curve)}."


def _say_cut(curve: OverlongCurve) -> str:
    cut = int(curve.cut.sum())
    if not cut:
        return "none of the eight is cut off"
    lost = ("leaves the loss", "leave the loss") if curve.out.any() else ("counts as wrong", "count as wrong")
    return f"{cut} of the eight {'is' if cut == 1 else 'are'} cut off and {lost[cut > 1]}"


def _say_scale(curve: OverlongCurve) -> list[str]:
    """Say what becomes of advantages with rewards 1 and −1: the same, all as many times as large, or one of them."""
    rewards = "With rewards 1 and −1 in place of 1 and 0"
    if curve.plus_minus is None:
        return [f"{rewards} {curve.name} refuses this group."]
    largest, other = np.abs(curve.after).max(), np.abs(curve.plus_minus).max()
    if not largest and not other:
        return ["All advantages are 0."]
    if np.allclose(curve.plus_minus, curve.after, atol=0.005):
        spread, twice = np.ptp(curve.new_rewards), np.ptp(curve.plus_minus_rewards)
        why = ": the scale is divided out" if np.isclose(twice, 2 * spread) else ""
        return [f"{rewards} every advantage would be the same{why}."]
    if largest and np.allclose(largest * curve.plus_minus, other * curve.after, atol=0.005):
        return [f"{rewards} advantages would be {other / largest:.1f} times as large."]
    if curve.cache is not None:
        rewards = "With rewards 1 and −1, as in DAPO's paper, the same punishment weighs half as much:"
    most = _most_changed(curve)
    return [f"{rewards} the {_called(curve, most)} would have A = {signed(curve.plus_minus[most])}."]


def _soft(values: Values) -> bool:
    return bool(values["shaping"] == "soft")


explore_overlong = explorer(
    "overlong",
    overlong_curve,
    OverlongPicture,
    algorithms=Algorithms(fits=learns_from_a_group),
    controls={
        "shaping": Menu(
            {"soft punishment": "soft", "the algorithm's own": "own", "overlong filter": "filter", "none": "none"},
            "shaping",
        ),
        "max_length": WholeSlider(9, 24, "maximum length"),
        "cache": WholeSlider(1, 8, "cache", shown=_soft),
        "factor": Slider(0.25, 2.0, 0.25, "factor", shown=_soft, rare=True),
        "mean_length": WholeSlider(8, 20, "mean length"),
        "number_right": WholeSlider(0, 8, "right responses"),
    },
    grid={
        "shaping": ("soft", "filter", "none"),
        "algorithm": (DAPO, DR_GRPO),
        "max_length": (12, 14, 16, 20),
        "cache": (2, 4, 8),
        "mean_length": (8, 11, 14, 17),
    },
    twin={
        "DAPO, soft punishment from 12 to 16 tokens": {},
        "DAPO, overlong filter": {"shaping": "filter", "mean_length": 13},
        "DAPO, all right: a small punishment, divided by a small deviation": {
            "factor": 0.25,
            "mean_length": 9,
            "number_right": 8,
        },
    },
)
