"""What is done about responses that grow too long: to the reward of one, and to the advantages of a group."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.patches import Rectangle

from rlviz.curves.overlong import OverlongCurve
from rlviz.plots.picture import Picture
from rlviz.plots.style import BLUE, FAINT, GREEN, GREY, LINE, TEXT, VERMILION, dress
from small_models.checks import checked

WIDEST = 28.5  # tokens
REWARDS, ADVANTAGES = (-1.2, 1.2), (-4.0, 4.0)  # usual limits of the axes; no z of eight is above √7
HOW = {
    "soft": "with a soft punishment",
    "own": "with its own shaping",
    "filter": "with the overlong filter",
    "none": "without shaping",
}


class OverlongPicture(Picture[OverlongCurve]):
    """Left a right response's reward against its length, right a group's advantages at their lengths."""

    size = (10, 4.8)
    alt = (
        "Two graphs against length in tokens: left the reward of a right response with and without shaping; right the "
        "advantages of a group of eight responses, a bar each, and what they were without shaping."
    )

    def draw(self, curve: OverlongCurve) -> list[Artist]:
        left, right = self.axes = self.figure.subplots(1, 2)
        dress(left, title="Reward of a right response", x="length, tokens, if not cut off", y="reward R")
        dress(right, title="Advantages in a group of eight", x="length, tokens, if not cut off", y="advantage A")
        self.beyond = [self._shade(ax) for ax in (left, right)]
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
        (self.doubled,) = right.plot([], [], "_", color="black", markersize=16, markeredgewidth=2.5)
        self.doubled.set_label("A with 2 R + 1 for R")
        self.named = [self.plain, self.shaped, self.own, *self.bars.values(), self.before, self.doubled, self.out]
        self.legend: Legend | None = None
        return [*self.beyond, *self.named]

    def _name(self, curve: OverlongCurve) -> None:
        """Say in the legend what is drawn, and nothing else."""
        drawn = [artist for artist, is_drawn in zip(self.named, self._drawn(curve), strict=True) if is_drawn]
        labels = [str(artist.get_label()) for artist in (*drawn, self.beyond[0])]
        if self.legend is not None:
            if [text.get_text() for text in self.legend.get_texts()] == labels:
                return
            self.legend.remove()
        self.legend = self.figure.legend(
            handles=[*drawn, self.beyond[0]],
            loc="outside lower center",
            ncols=4,
            fontsize=TEXT - 1,
            frameon=False,
            columnspacing=1.5,
        )

    @staticmethod
    def _drawn(curve: OverlongCurve) -> tuple[bool, ...]:
        """Return which of the artists in `named` have something to draw."""
        shaped, has_bar = curve.rule != "none", curve.after != 0
        bars = [bool((has_bar & (curve.right == kind)).any()) for kind in (True, False)]
        return True, shaped, curve.own is not None, *bars, shaped, any(bars), bool(curve.out.any())

    @staticmethod
    def _shade(ax: Axes) -> Rectangle:
        ax.set(xlim=(0, WIDEST), xticks=range(0, 29, 4))
        ax.axhline(0, color=GREY, linewidth=1)
        beyond = Rectangle((0, 0), 0, 1, facecolor=FAINT, edgecolor=GREY, hatch="//", linewidth=0)
        beyond.set_label("cut off: counts as wrong")
        ax.add_patch(beyond)
        return beyond

    def show(self, curve: OverlongCurve) -> None:
        for ax, beyond, (low, high) in zip(self.axes, self.beyond, self._spans(curve), strict=True):
            if ax.get_ylim() != (low, high):
                ax.set_ylim(low, high)
            beyond.set_bounds(curve.max_length + 0.5, low, WIDEST - curve.max_length - 0.5, high - low)
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
        ticks = ~curve.out & bool(curve.after.any())
        self.doubled.set_data(curve.group_lengths[ticks], curve.doubled[ticks])
        self.out.set_data(curve.group_lengths[curve.out], np.zeros(int(curve.out.sum())))

    @staticmethod
    def _spans(curve: OverlongCurve) -> tuple[tuple[float, float], tuple[float, float]]:
        rewards = np.concatenate([curve.shaped, curve.plain if curve.own is None else curve.own])
        advantages = np.concatenate([curve.before, curve.after, curve.doubled])
        return _span(rewards, *REWARDS), _span(advantages, *ADVANTAGES)

    def still(self, curve: OverlongCurve) -> Hashable:
        return self._spans(curve), self._drawn(curve)

    def words(self, curve: OverlongCurve) -> str:
        rule = "" if curve.shaping == "none" else f" ({curve.rule}{_say_floor(curve)})"
        said = [f"{curve.name} {HOW[curve.shaping]}{rule}; the sampler cuts at {curve.max_length} tokens."]
        cut = int(curve.cut.sum())
        if cut:
            lost = "leaves the loss" if cut == 1 else "leave the loss"
            wrong = "counts as wrong" if cut == 1 else "count as wrong"
            said.append(
                f"{cut} of the eight {'is' if cut == 1 else 'are'} cut off and {lost if curve.out.any() else wrong}."
            )
        return " ".join([*said, _say_change(curve), *_say_scale(curve)])


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


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−") if abs(value) >= 0.005 else "0.00"


def _say_floor(curve: OverlongCurve) -> str:
    """Say how much is taken off a reward at most, where the rule has a floor."""
    if curve.floor is None or not np.isfinite(curve.floor):
        return ""
    off = curve.plain - curve.shaped
    first = curve.lengths[np.argmax(off > off.max() - 1e-9)]
    return f": it takes off up to {off.max():.2f}, from {first:.0f} tokens on, and never more than {-curve.floor:g}, the floor"


def _say_change(curve: OverlongCurve) -> str:
    change = np.where(curve.out, 0.0, np.abs(curve.after - curve.before))
    if change.max() < 0.005:
        if np.abs(curve.new_rewards - curve.rewards).max() > 0.005:
            return "Shaping changes rewards, but no advantage."
        return "No response in the loss has another advantage than without shaping."
    answered = change * curve.right
    most = int(np.argmax(answered if answered.max() >= 0.005 else change))
    kind = "right" if curve.right[most] else "cut" if curve.cut[most] else "wrong"
    return (
        f"The {kind} response of {min(curve.group_lengths[most], curve.max_length):.0f} tokens has reward "
        f"{curve.new_rewards[most]:.2f} and A = {_signed(curve.after[most])}, without shaping {curve.rewards[most]:.2f} and "
        f"A = {_signed(curve.before[most])}."
    ).replace("reward -", "reward −")


def _say_scale(curve: OverlongCurve) -> list[str]:
    if curve.scaled is None:
        return ["All advantages are 0."]
    if abs(curve.scaled - 1) < 0.005:
        return ["With 2 R + 1 in place of each reward R every advantage would be the same: the scale is divided out."]
    return [f"With 2 R + 1 in place of each reward R advantages would be {curve.scaled:.1f} times as large."]


@checked
def plot_overlong(curve: OverlongCurve) -> Figure:
    """Draw a right response's reward against length and what shaping does to a group's advantages; return the figure."""
    return OverlongPicture.alone(curve)
