"""Wrong variants of the punishment of long responses."""

from __future__ import annotations

from torch import Tensor

from rlviz.exercises.mistakes.mistake import Mistake
from rlviz.pieces.shaping import SoftOverlongPunishment


def overlong_counts_the_prompt(rewards: Tensor, lengths: Tensor) -> Tensor:
    """For a prompt of 6 tokens."""
    return SoftOverlongPunishment(max_length=16, cache=4)(rewards, lengths + 6)


OVERLONG = (
    Mistake(
        overlong_counts_the_prompt,
        "the prompt's tokens are counted: only what the policy wrote can be overlong.",
        "the DCPO authors' reward manager, which passes the prompt's length alone",
    ),
)
