"""Which groups reach the loss. (rewards [P, G]) → indices of groups, each as often as it is used.

Selection sees the raw outcome (right or wrong), before weights and shaping: a length penalty would make every group differ.
A selection's `uses`, rewards [..., P, G] → [..., P], says how often each group is used, in the mean over what it draws: indices
are as many as the numbers say, which a picture that is computed in a page cannot follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rlviz.pieces.advantages import all_equal
from rlviz.pieces.words import explained
from rlviz.ranges import Checked, within
from rlviz.types import Responses


def _uses_all(rewards: Float[Tensor, "*B P G"]) -> Float[Tensor, "*B P"]:
    """Return 1 for every group."""
    return torch.ones_like(rewards[..., 0])


def _uses_informative(rewards: Float[Tensor, "*B P G"]) -> Float[Tensor, "*B P"]:
    """Return 1 for groups whose rewards are not all equal, else 0."""
    return (~all_equal(rewards)).to(rewards.dtype)


def _uses_informative_again(rewards: Float[Tensor, "*B P G"]) -> Float[Tensor, "*B P"]:
    """Return P / N for each of the N informative groups and 0 for the others, or 1 for all where there is no informative one."""
    informative = _uses_informative(rewards)
    count = informative.sum(-1, keepdim=True)
    return torch.where(count > 0, informative * rewards.shape[-2] / count.clamp(min=1), 1.0)


@explained(
    why="no group is left out; one whose rewards are all equal adds no gradient, and counts in the mean.",
    formula="all_groups",
)
def keep_all(rewards: Responses) -> Int[Tensor, " N"]:
    """Return every group once."""
    return torch.arange(len(rewards), device=rewards.device)


@explained(
    why="all right or all wrong means advantage 0, which would only dilute the mean.",
    formula="groups_with(max_reward > min_reward)",
)
def drop_all_equal(rewards: Responses) -> Int[Tensor, " N"]:
    """Return the informative groups: those whose rewards are not all equal.

    Source: DAPO (arXiv 2503.14476) Eq. 11, without its further prompts: see `DynamicSampling`.
    """
    return (~all_equal(rewards)).nonzero().squeeze(1)


@explained(
    why="an all-equal group would only dilute the mean, and dropping it alone would leave the batch small.",
    formula="sampled_until_P(groups_with(max_reward > min_reward), max_rounds)",
)
@dataclass(frozen=True)
class DynamicSampling(Checked):
    """Return the informative groups; training samples further prompts in place of the others, until P are informative.

    As many prompts are sampled next as informative groups are missing, so that it takes no more than one by one would: P / q
    in the mean, where a share q is informative. When max_rounds · P prompts were sampled, or no prompt is left, training goes on
    with the groups that there are. Raises ValueError for max_rounds below 1.
    Source: dynamic sampling, DAPO (arXiv 2503.14476) §3.2, Eq. 11.
    """

    max_rounds: int = within(10, at_least=1)
    uses: ClassVar[Callable[[Tensor], Tensor]] = staticmethod(_uses_informative)

    def __str__(self) -> str:
        return f"dynamic sampling, up to {self.max_rounds} × P"

    def __call__(self, rewards: Responses) -> Int[Tensor, " N"]:
        return drop_all_equal(rewards)


@explained(
    why="the batch stays full without a single further rollout; the price is that some groups count twice.",
    formula="repeated_to_P(groups_with(max_reward > min_reward))",
)
def duplicate_informative(rewards: Responses, generator: torch.Generator | None = None) -> Int[Tensor, " N"]:
    """Return P groups: the informative ones, and in place of each other one a random informative one again.

    With no informative group every group stays. `generator` draws, on the CPU.
    Source: DUPO in WebSailor (arXiv 2507.02592).
    """
    informative = drop_all_equal(rewards)
    if not len(informative):
        return keep_all(rewards)
    missing = len(rewards) - len(informative)
    drawn = torch.randint(len(informative), (missing,), generator=generator).to(informative.device)
    return torch.cat([informative, informative[drawn]])


keep_all.uses = _uses_all  # type: ignore[attr-defined]
drop_all_equal.uses = _uses_informative  # type: ignore[attr-defined]
duplicate_informative.uses = _uses_informative_again  # type: ignore[attr-defined]
