"""Which groups reach the loss. (rewards [P, G]) → indices of groups, each as often as it is used.

Selection sees the raw outcome (right or wrong), before weights and shaping: a length penalty would make every group differ.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rlviz.pieces.advantages import all_equal


def keep_all(rewards: Float[Tensor, "P G"]) -> Int[Tensor, " N"]:
    """Return every group once.

    Why: no group is left out; one whose rewards are all equal adds no gradient, and counts in the mean.
    """
    return torch.arange(len(rewards), device=rewards.device)


def drop_all_equal(rewards: Float[Tensor, "P G"]) -> Int[Tensor, " N"]:
    """Return the informative groups: those whose rewards are not all equal.

    Why: all right or all wrong means advantage 0, which would only dilute the mean.
    Source: dynamic sampling, DAPO (arXiv 2503.14476) Eq. 11.
    """
    return (~all_equal(rewards)).nonzero().squeeze(1)


def duplicate_informative(rewards: Float[Tensor, "P G"], generator: torch.Generator | None = None) -> Int[Tensor, " N"]:
    """Return P groups: the informative ones, and in place of each other one a random informative one again.

    With no informative group every group stays. `generator` draws, on the CPU.
    Why: the batch stays full without a single further rollout; the price is that some groups count twice.
    Source: DUPO in WebSailor (arXiv 2507.02592).
    """
    informative = drop_all_equal(rewards)
    if not len(informative):
        return keep_all(rewards)
    missing = len(rewards) - len(informative)
    drawn = torch.randint(len(informative), (missing,), generator=generator).to(informative.device)
    return torch.cat([informative, informative[drawn]])
