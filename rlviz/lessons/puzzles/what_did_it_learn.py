"""What did it really learn?: pass@k that counts each prompt's first samples only."""

from torch import Tensor

from rlviz.lessons.puzzles import Bug


def measured(right: Tensor, k: int) -> Tensor:
    """pass@k from right [P, G], 1 for each right response: the share of prompts for which at least one of k is right."""
    found = right[:, :k].amax(1)
    return found.mean()


BUG = Bug(
    measured,
    "amax(1) → sum(1) / k",
    choices=(
        "it does not depend on k, except for noise",
        "it is too high, because a prompt with two right responses counts twice",
        "it is right, but noisier than it needs to be",
        "it is 1 as soon as one prompt is solved",
    ),
    does="it does not depend on k, except for noise",
    why="the sum over k divided by k is the mean of k responses, whose expectation is pass@1 for every k. (The right version "
    "takes only the first k of G samples, which is unbiased, and noisier than counting all sets of k.)",
)
