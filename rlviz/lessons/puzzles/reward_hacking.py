"""Reward hacking: a reward model's score that depends on the batch."""

from torch import Tensor

from rlviz.lessons.puzzles import Bug


def reading(scores: Tensor, mask: Tensor) -> Tensor:
    """In the place of a reward model's reading of a response: scores, mask [*n, T] → [*n]."""
    return scores.gather(-1, mask.sum(-1, keepdim=True) - 1).squeeze(-1)


BUG = Bug(
    reading,
    "→ return scores[..., :-1].mean(-1)",
    choices=(
        "the score of a response depends on which other responses are in its batch",
        "long responses have higher scores, whatever they say",
        "the score has no gradient",
        "all responses of a batch get the same score",
    ),
    does="the score of a response depends on which other responses are in its batch",
    why="it averages over padding, and the longest response of the batch decides how much of that there is. (It also leaves out "
    "the last place, where the whole response has been read.)",
)
