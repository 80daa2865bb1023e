"""Groups of responses drawn by coin, always the same for the same setting, and what an algorithm makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

import torch
from torch import Tensor

from rlviz.algorithms import Algorithm, GroupPolicyGradient
from rlviz.pictures.arrays import Array

LARGEST_GROUP, MOST_VISITS = 64, 10
SEED = 7
ALONE = {"mask", "history"}  # what an advantage may ask for that rewards are enough for
Rate = TypeVar("Rate", float, Array)


def learns_from_a_group(algorithm: Algorithm, *given: str) -> bool:
    """Return whether the algorithm's advantages need no more than rewards, those of earlier visits, and what is given."""
    return isinstance(algorithm, GroupPolicyGradient) and set(algorithm.can.asks["advantage"]) <= {*ALONE, *given}


def without_kl(
    algorithm: object, *given: str, success_rate: float = 0.5, group_size: int = 2, visits: int = 1
) -> GroupPolicyGradient:
    """Return the algorithm without its KL term, which no picture of groups needs.

    given: what its advantage may ask for beside rewards. Raises ValueError for one that does not learn from groups or asks for
    more, and for groups that cannot be drawn.
    """
    if not isinstance(algorithm, GroupPolicyGradient):
        raise ValueError(f"algorithm: {getattr(algorithm, 'name', algorithm)} does not learn from groups of responses")
    if more := set(algorithm.can.asks["advantage"]) - {*ALONE, *given}:
        raise ValueError(
            f"algorithm: {algorithm.name}'s advantage needs {' and '.join(sorted(more))}, which a picture of rewards has not"
        )
    if not 0.01 <= success_rate <= 0.99:
        raise ValueError(f"success_rate must be from 0.01 to 0.99; got {success_rate}")
    if not 2 <= group_size <= LARGEST_GROUP:
        raise ValueError(f"group_size must be from 2 to {LARGEST_GROUP}; got {group_size}")
    if not 1 <= visits <= MOST_VISITS:
        raise ValueError(f"visits must be from 1 to {MOST_VISITS}; got {visits}")
    return algorithm.without_kl()


@lru_cache(maxsize=4)
def coins(groups: int) -> Tensor:
    """Return numbers in [0, 1), [visits, groups, responses]; a response is right where its number is below the success rate.

    The latest visit comes first. Fewer visits', or a smaller group's, are a part of them: sliders move the picture, not the luck.
    """
    return torch.rand(MOST_VISITS, groups, LARGEST_GROUP, generator=torch.Generator().manual_seed(SEED))


@lru_cache(maxsize=4)
def noise(groups: int) -> Tensor:
    """Return standard normal numbers of the shape of `coins`."""
    shape = (MOST_VISITS, groups, LARGEST_GROUP)
    return torch.randn(shape, generator=torch.Generator().manual_seed(SEED + 1), dtype=torch.double)


def group_advantages(algorithm: GroupPolicyGradient, rewards: Tensor, earlier: Sequence[Tensor] = ()) -> Tensor:
    """Return the advantages [P, G] of rewards [P, G], the prompts having earned `earlier`, [P, G] each, on visits before.

    Only an algorithm that asks for the history is told of earlier visits.
    Raises ValueError when the advantage needs more than rewards and history.
    """
    mask, history = torch.ones(*rewards.shape, 1, dtype=torch.bool), None
    for visit in [*earlier, rewards]:
        advantages, history = algorithm.advantages(visit, mask, history=history)
    return advantages.squeeze(-1)


def share_all_equal(success_rate: Rate, group_size: int) -> Rate:
    """p^G + (1 − p)^G: the share of groups that are all right or all wrong, at one success rate p or at each of an array.

    G independent responses, each right with probability p, are all right with p · p · … = p^G, all wrong with (1 − p)^G,
    and never both.
    """
    return success_rate**group_size + (1 - success_rate) ** group_size
