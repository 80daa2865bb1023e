"""Advantages from the rewards of a group. (rewards [P, G]) → advantages [P, G]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from jaxtyping import Bool, Float
from torch import Tensor

Scale = Literal["group_std", "batch_std", "none"]


def all_equal(rewards: Float[Tensor, "P G"]) -> Bool[Tensor, " P"]:
    """Return which groups have one reward only. Compares max and min: three rewards of 0.1 have a std of 1e-17, not 0."""
    return rewards.amax(1) == rewards.amin(1)


@dataclass(frozen=True)
class GroupAdvantage:
    """A = (R − mean of the group) / (std + eps), exactly 0 for a group whose rewards are all equal.

    scale says which std: "group_std" the group's (GRPO, arXiv 2402.03300 §4.1.2), "batch_std" that of all P·G rewards
    (Lite PPO, 2508.08221), "none" no division (Dr.GRPO, 2503.20783). The std is the unbiased one (n − 1), as in verl and
    TRL; the papers do not say. eps is verl's 1e-6 (TRL: 1e-4). Calling raises ValueError for groups of one.
    """

    scale: Scale = "group_std"
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.scale not in get_args(Scale):
            raise ValueError(f"scale must be one of {', '.join(get_args(Scale))}; got {self.scale!r}")
        if self.eps < 0:
            raise ValueError(f"eps must be 0 or above; got {self.eps}")

    def __call__(self, rewards: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]:
        if rewards.shape[1] < 2:
            raise ValueError("group_size must be at least 2: one response has no group to be compared with; got 1")
        centred = rewards - rewards.mean(1, keepdim=True)
        if self.scale == "group_std":
            centred = centred / (rewards.std(1, keepdim=True) + self.eps)
        elif self.scale == "batch_std":
            centred = centred / (rewards.std() + self.eps)
        return centred.masked_fill(all_equal(rewards).unsqueeze(1), 0.0)
