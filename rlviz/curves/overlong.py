"""What is done about responses that grow too long: to the reward of one, and to the advantages of a group."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlviz.algorithms.base import GroupPolicyGradient, numbers
from rlviz.curves.arrays import Array, array
from rlviz.curves.groups import group_advantages, without_kl
from rlviz.pieces.shaping import OverlongFilter, SoftOverlongPunishment
from rlviz.pieces.words import label
from small_models.checks import checked

SHAPINGS = ("soft", "own", "filter", "none")
LONGEST = 28  # tokens, of the lengths shown
AWAY = (-6, -4, -3, -1, 1, 2, 4, 7)  # tokens, of the group's lengths from their mean
RIGHT_FIRST = (6, 1, 4, 3, 0, 7, 2, 5)  # places in AWAY, in the order in which responses become right


@dataclass(frozen=True)
class OverlongCurve:
    """Rewards against length, and a group of eight before and after shaping. Lengths are tokens, those that a response would
    have if nothing were cut off; one of more than max_length is cut there and has no answer, so it counts as wrong.

    name: of the algorithm. shaping, rule: which, as `overlong_curve` takes it, and in words. floor: below 0, the most that the
    rule adds to a reward, None where it has no such number. max_length: tokens.
    lengths [N], plain [N], shaped [N]: reward of a right response without and with the shaping. own [N]: with that of the
    algorithm itself, None where it has none or is what is shown.
    group_lengths, right, cut, out [8]: of the group's responses; out: it leaves the loss. rewards, new_rewards, before, after
    [8]: rewards and advantages without and with the shaping; A is 0 where a response is out. doubled [8]: what `after` would
    be with 2 R + 1 in place of every shaped reward R.
    """

    name: str
    shaping: str
    rule: str
    floor: float | None
    max_length: int
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
    doubled: Array

    @property
    def scaled(self) -> float | None:
        """How many times as large the largest |A| is in `doubled`; None where all A are 0."""
        largest = float(np.abs(self.after).max())
        return float(np.abs(self.doubled).max()) / largest if largest else None


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

    def shaped(self, algorithm: GroupPolicyGradient) -> Tensor:
        return algorithm.shaped(
            self.rewards,
            self.lengths.clamp(max=self.max_length),
            truncated=self.cut,
            correct=self.rewards,
            well_formed=(~self.cut).double(),
        )


@checked
def overlong_curve(
    algorithm: GroupPolicyGradient,
    *,
    shaping: str = "soft",
    max_length: int = 16,
    cache: int = 4,
    factor: float = 1.0,
    mean_length: int = 11,
    number_right: int = 5,
) -> OverlongCurve:
    """Return the reward of a right response against its length, and what shaping does to a group of eight.

    shaping: "soft", a `SoftOverlongPunishment` of max_length, cache and factor; "filter", the `OverlongFilter`; "own", the
    algorithm's; "none". max_length: tokens after which the sampler cuts. mean_length: of the group, tokens. number_right: of
    the group's responses, were none cut. The group is the batch; no prompt was sampled before; KL and selection are left out.
    Raises ValueError for a value out of range, and what the pieces raise.
    """
    algorithm = without_kl(algorithm)
    if shaping not in SHAPINGS:
        raise ValueError(f"shaping must be one of {', '.join(SHAPINGS)}; got {shaping!r}")
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
    rewards, kept = (
        group.shaped(shown),
        shown.loss_mask(torch.ones(1, len(AWAY), 1, dtype=torch.bool), group.cut)[..., 0],
    )
    after, doubled = (group_advantages(shown, r) * kept for r in (rewards, 2 * rewards + 1))
    return OverlongCurve(
        name=algorithm.name,
        shaping=shaping,
        rule="none" if shown.shape is None else label(shown.shape),
        floor=numbers(shown).get("floor"),
        max_length=max_length,
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
        doubled=array(doubled),
    )
