"""Wrong ways to choose the groups that teach something."""

from __future__ import annotations

from torch import Tensor

from rlviz.exercises.mistakes.mistake import Mistake
from rlviz.pieces.selection import drop_all_equal
from rlviz.pieces.shaping import SoftOverlongPunishment


def groups_by_shaped_rewards(rewards: Tensor, lengths: Tensor) -> Tensor:
    """With a punishment from 5 to 9 tokens."""
    shaped = SoftOverlongPunishment(max_length=9, cache=4)(rewards, lengths)
    return drop_all_equal(shaped)


def groups_by_their_std(rewards: Tensor, lengths: Tensor) -> Tensor:
    return (rewards.std(1) > 0).nonzero().squeeze(1)


SELECTION = (
    Mistake(
        groups_by_shaped_rewards,
        "groups are chosen by rewards with a punishment of length in them: right or wrong alike, they differ by length.",
        "NeMo-RL, issue 2431, mended in pull request 2478",
    ),
    Mistake(
        groups_by_their_std,
        "std > 0 is no test for equal rewards: ten rewards of .1 have a std above 0 once rounded. Compare the rewards.",
    ),
)
