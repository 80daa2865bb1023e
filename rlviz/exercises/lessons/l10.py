"""Lesson 10: DCPO's limits, of the probability that a token has now."""

from rlviz.exercises import mistakes
from rlviz.exercises.puzzles import Bug

BUG = Bug(
    function=mistakes.bounds.limits_of_the_new_probability,
    lines=(5, 6),
    choices=(
        "the token is never clipped, so it grows without a limit",
        "the limits are swapped, so bad tokens grow",
        "it clips the objective in the place of the ratio",
        "its limit falls as the token grows, so the good token is pushed down",
    ),
    right="its limit falls as the token grows, so the good token is pushed down",
    why="the limits are those of the new probability: for .04 the upper one is 2.79. They carry a gradient, so the objective "
    "falls as the token grows. Limits belong to the old probability, which is frozen.",
)
