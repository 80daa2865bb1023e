"""The policy of one hump that is nearest to a target of two, in either direction of the KL divergence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import StepPatch
from torch import Tensor

from rlviz.pictures.arrays import Array
from rlviz.pictures.base import BLUE, FAINT, GREY, LINE, VERMILION, dress
from rlviz.pieces.kl import k1

FORWARD, REVERSE = "forward", "reverse"
POSITION = np.linspace(-30, 30, 241)  # so far out that even the widest policy in sight is whole
MEANS, WIDTHS = np.linspace(-5, 5, 81), 2.0 ** (np.arange(-12, 40) / 12)
STEPS = np.linspace(-1, 1, 9)  # of the grid, in which a fit is looked for more closely
SAME = 1e-9  # KL in nats below which two fits count as equally good
SEEN = np.abs(POSITION) <= 8.25  # what is drawn of the positions


@dataclass(frozen=True)
class Fits:
    """A target with two humps over X positions, and the policy of one hump that is nearest to it, in either direction.

    apart, weight: as `nearest_fits` takes them. position, target: [X]. forward, reverse: [X], the policies with the least
    KL(target‖policy) and KL(policy‖target). mean, forward_kl, reverse_kl: [M], for each place of the policy's hump the least KL
    over 52 widths, in nats; over all widths it is less by 0.005 at most. forward_at, reverse_at: (mean, width, KL) of the two
    fits. humps: how many the target has. covers: whether both its humps lie within two widths of the reverse fit.
    """

    apart: float
    weight: float
    position: Array
    target: Array
    forward: Array
    reverse: Array
    mean: Array
    forward_kl: Array
    reverse_kl: Array
    forward_at: tuple[float, float, float]
    reverse_at: tuple[float, float, float]
    humps: int
    covers: bool


class _Humps:
    """Policies of one hump at each mean in each width: logp, probs [means, widths, positions], plogp their Σ p log p."""

    def __init__(self, means: Array, widths: Array) -> None:
        position, mean, width = torch.tensor(POSITION), torch.tensor(means), torch.tensor(widths)
        self.logp = (-((position - mean.view(-1, 1, 1)) / width.view(-1, 1)).square() / 2).log_softmax(-1)
        self.probs = self.logp.exp()
        self.plogp = (self.probs * self.logp).sum(-1)


@lru_cache(maxsize=1)
def _grid() -> _Humps:
    return _Humps(MEANS, WIDTHS)


@lru_cache(maxsize=2048)  # every value of both sliders, 12 MB at the most
def nearest_fits(apart: float, weight: float) -> Fits:
    """Return the two fits to a target whose humps lie so far apart, in widths of one; weight: of the left one."""
    places, target = (-apart / 2, apart / 2), _two_humps(apart, weight)
    log_target = target.log()
    own = target @ log_target

    def forward(policies: _Humps) -> Tensor:  # k1's mean over the target; k1 is linear, so that it is k1 of the means
        means = policies.logp @ target
        return k1(own.expand_as(means), means)

    def reverse(policies: _Humps) -> Tensor:
        return k1(policies.plogp, policies.probs @ log_target)

    rising = np.diff(target.numpy()) > 0
    forward_kl, forward_at = _nearest(forward)
    reverse_kl, reverse_at = _nearest(reverse)
    return Fits(
        apart=apart,
        weight=weight,
        position=POSITION,
        target=target.numpy(),
        forward=_probs(*forward_at[:2]),
        reverse=_probs(*reverse_at[:2]),
        mean=MEANS,
        forward_kl=forward_kl,
        reverse_kl=reverse_kl,
        forward_at=forward_at,
        reverse_at=reverse_at,
        humps=int((rising[:-1] & ~rising[1:]).sum()),
        covers=max(abs(place - reverse_at[0]) for place in places) <= 2 * reverse_at[1],
    )


def _two_humps(apart: float, weight: float) -> Tensor:
    """Return the probability of each position, [X]."""
    position = torch.tensor(POSITION)
    left, right = ((-(position - place).square() / 2).softmax(-1) for place in (-apart / 2, apart / 2))
    return weight * left + (1 - weight) * right


def height(apart: float, weight: float) -> float:
    """Return how probable the target is in the middle of its left hump; it grows with the hump's weight in a straight line."""
    return float(np.interp(-apart / 2, POSITION, _two_humps(apart, weight)))


def weight_at(apart: float, place: float) -> float:
    """Return the left hump's weight with which its middle stands at this height; the humps must not lie on each other."""
    return float(np.interp(place, (height(apart, 0.0), height(apart, 1.0)), (0.0, 1.0)))


def _probs(mean: float, width: float) -> Array:
    hump: Array = _Humps(np.array([mean]), np.array([width])).probs.flatten().numpy()
    return hump


def _nearest(divergence: Callable[[_Humps], Tensor]) -> tuple[Array, tuple[float, float, float]]:
    """Return the least KL for each of MEANS, and mean, width and KL of the least of all, sought closely in every valley."""
    best, widths = (found.numpy() for found in divergence(_grid()).min(-1))
    around = np.pad(best, 1, constant_values=np.inf)
    valleys = np.flatnonzero((best <= around[:-2]) & (best <= around[2:]))
    fits = [_closely(divergence, float(MEANS[place]), float(WIDTHS[widths[place]])) for place in valleys]
    least = min(kl for _, _, kl in fits)
    return best, next(fit for fit in fits if fit[2] <= least + SAME)  # of two equally good ones the left one


def _closely(divergence: Callable[[_Humps], Tensor], mean: float, width: float) -> tuple[float, float, float]:
    """Return mean, width and KL of the best hump near this one of the grid."""
    least = float("inf")
    for closer in 0.25 ** np.arange(5):
        means = mean + STEPS * closer * (MEANS[1] - MEANS[0])
        near = width * (WIDTHS[1] / WIDTHS[0]) ** (STEPS * closer)
        found = divergence(_Humps(means, near))
        at = divmod(int(found.argmin()), len(STEPS))
        mean, width, least = float(means[at[0]]), float(near[at[1]]), float(found[at])
    return mean, width, least


class FitsView:
    """Left the target and its two fits, right the least KL for each place of the hump; a ring where the algorithm pulls."""

    def __init__(self, left: Axes, right: Axes) -> None:
        self.axes = (left, right)
        dress(left, title="Which policy of one hump is nearest?", x="position", y="probability")
        left.set(xlim=(-8, 8), ylim=(0, 0.115))
        dress(
            right, title="The least KL, by where the hump stands", x="middle of the policy's hump", y="least KL, nats"
        )
        right.set(xlim=(-5, 5), ylim=(-0.05, 1.6))
        self.target = StepPatch([0], [0, 1], fill=True, facecolor=FAINT, edgecolor=GREY, linewidth=1.5, label="target")
        left.add_artist(self.target)
        self.middles = [left.plot([], [], color=GREY, linewidth=1.5)[0] for _ in range(2)]
        (self.height,) = left.plot([], [], color=GREY, linewidth=1.5, linestyle=(0, (1, 2)))
        self.lines, self.bottoms = [], []
        for name, colour, style, marker in (
            ("forward fit, KL(target‖policy)", BLUE, "-", "o"),
            ("reverse fit, KL(policy‖target)", VERMILION, "--", "^"),
        ):
            (fit,) = left.plot([], [], color=colour, linestyle=style, linewidth=LINE + 0.5, label=name)
            (kl,) = right.plot([], [], color=colour, linestyle=style, linewidth=LINE + 0.5)
            (bottom,) = right.plot([], [], color=colour, linestyle="none", marker=marker, markersize=11)
            self.lines.append((fit, kl))
            self.bottoms.append(bottom)
        (self.ring,) = right.plot([], [], color="black", linestyle="none", marker="o", markersize=21)
        self.ring.set(markerfacecolor="none", markeredgewidth=2.5, label="algorithm's pull")
        self.named: list[Artist] = [self.target, self.lines[0][0], self.lines[1][0], self.ring]
        self.moving: list[Artist] = [
            self.target,
            *self.middles,
            self.height,
            *(line for pair in self.lines for line in pair),
            *self.bottoms,
            self.ring,
        ]

    def show(self, fits: Fits, pull: str | None) -> None:
        """Move the artists to other fits; pull: the direction in which the algorithm's term pulls."""
        half = (fits.position[1] - fits.position[0]) / 2
        seen = fits.position[SEEN]
        self.target.set_data(fits.target[SEEN], np.append(seen - half, seen[-1] + half))
        for line, middle in zip(self.middles, (-fits.apart / 2, fits.apart / 2), strict=True):
            line.set_data([middle, middle], [0, np.interp(middle, fits.position, fits.target)])
        self.height.set_data([-fits.apart / 2, 8], [height(fits.apart, fits.weight)] * 2)
        found = ((fits.forward, fits.forward_kl, fits.forward_at), (fits.reverse, fits.reverse_kl, fits.reverse_at))
        for (fit, kl), bottom, (probs, least, at) in zip(self.lines, self.bottoms, found, strict=True):
            fit.set_data(seen, probs[SEEN])
            kl.set_data(fits.mean, least)
            bottom.set_data([at[0]], [at[2]])
        ringed = [at for way, (_, _, at) in zip((FORWARD, REVERSE), found, strict=True) if way == pull]
        self.ring.set_data([mean for mean, _, _ in ringed], [kl for _, _, kl in ringed])


def conclude_fits(fits: Fits) -> str:
    """Return in words what the fits cover, with their widths."""
    forward, reverse = (width for _, width, _ in (fits.forward_at, fits.reverse_at))
    if fits.humps == 1:
        return f"the target has one hump, and both fits lie on it (widths {forward:.1f} and {reverse:.1f})"
    if fits.covers:
        return f"both fits cover both humps (widths {forward:.1f} forward and {reverse:.1f} reverse)"
    return f"the forward fit covers both humps (width {forward:.1f}), the reverse fit takes one (width {reverse:.1f})"


def say_fits(fits: Fits) -> str:
    """Return in words where the two fits stand, and why."""
    forward, reverse = (
        f"middle {round(mean, 1) + 0.0:.1f}, KL {abs(kl):.2f} nats".replace("-", "−")
        for mean, _, kl in (fits.forward_at, fits.reverse_at)
    )
    if fits.humps == 1:
        return f"Forward: {forward}. Reverse: {reverse}."
    seeking = "the valley is still shallow" if fits.covers else "mode seeking"
    return (
        "The forward fit has the target's own mean and spread, so it fills the valley between the humps too (mode covering): "
        f"{forward}. The reverse fit avoids what the target avoids ({seeking}): {reverse}."
    )
