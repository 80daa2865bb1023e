"""What a token weighs, and how hard a group pulls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlviz.curves.arrays import Array
from small_models.checks import checked


@checked
def token_weights(aggregate: Callable[[Tensor], Tensor], lengths: Sequence[int]) -> list[Array]:
    """Return, for a group of responses of these lengths, the weight that each token of each response gets.

    Raises ValueError for a negative length, or none above 0.
    """
    if not lengths or min(lengths) < 0 or max(lengths) < 1:
        raise ValueError(f"lengths must be numbers of tokens, one of them at least 1; got {list(lengths)}")
    mask = torch.arange(max(lengths)) < torch.tensor(list(lengths)).view(1, -1, 1)
    weights = aggregate(mask)[0]
    return [weights[i, :length].numpy() for i, length in enumerate(lengths)]


@dataclass(frozen=True)
class DifficultyCurve:
    """The advantages of right and wrong responses in groups of which 1, 2, … G − 1 are right, all in one batch.

    share_right, right, wrong: arrays over the groups. size: Σ|A| of each group, how hard it pulls.
    """

    share_right: Array
    right: Array
    wrong: Array
    size: Array


@checked
def difficulty_curve(advantage: Callable[[Tensor], Tensor], group_size: int = 8) -> DifficultyCurve:
    """Return the advantages that a piece gives to groups from hard to easy. Raises ValueError unless group_size ≥ 2."""
    if group_size < 2:
        raise ValueError(f"group_size must be at least 2; got {group_size}")
    rewards = (torch.arange(group_size) < torch.arange(1, group_size).unsqueeze(1)).double()
    values = advantage(rewards)
    return DifficultyCurve(
        share_right=rewards.mean(1).numpy(),
        right=values[:, 0].numpy(),
        wrong=values[:, -1].numpy(),
        size=values.abs().sum(1).numpy(),
    )
