"""DUPO and agents: a mask of the policy's own tokens that is one place late."""

from torch import Tensor

from rlviz.lessons.puzzles import Bug
from rlviz.pieces.aggregation import token_mean


def own_tokens(turn: Tensor) -> Tensor:
    mask = turn % 2 == 0
    return token_mean(mask)


BUG = Bug(
    own_tokens,
    "turn % 2 == 0 → (turn % 2 == 0).roll(1, dims=-1) ⏎ mask[..., 0] = False",
    choices=(
        "the tool's tokens are counted in the mean, though not trained",
        "the tool's first token is trained, and the first of each of the policy's turns is not",
        "padding is trained like a token",
        "each response weighs the same",
    ),
    does="the tool's first token is trained, and the first of each of the policy's turns is not",
    why="roll moves the mask by one place. It happens easily, since the logits before a token are those that predict it.",
)
