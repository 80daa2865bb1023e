"""Entropy collapse: a bonus on the sampled token's surprise."""

from torch import Tensor

from rlviz.lessons.puzzles import Bug


def estimate(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """In the place of a KL estimator, whose value is subtracted from a token's objective; ref_logp has no part in it."""
    return logp - ref_logp


BUG = Bug(
    estimate,
    "logp - ref_logp → logp",
    choices=(
        "the logged number is the entropy on average, but its gradient is 0 on average",
        "it lowers the entropy: the sign is wrong",
        "it counts likely tokens twice",
        "it is right on average, in value and gradient, only noisy",
    ),
    does="the logged number is the entropy on average, but its gradient is 0 on average",
    why="Σ p · ∇log p = ∇ Σ p = ∇1 = 0: each token is raised by 1/p and sampled with probability p. Rare tokens gain nothing on "
    "average. The whole distribution is at hand: take −Σ p log p over the vocabulary.",
)
