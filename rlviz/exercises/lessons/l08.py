"""Lesson 08: a mask of the policy's own tokens that is one place late."""

from rlviz.exercises import mistakes
from rlviz.exercises.puzzles import Bug

BUG = Bug(
    function=mistakes.observations.one_place_late,
    lines=(2,),
    choices=(
        "the tool's tokens are counted in the mean, though not trained",
        "the tool's first token is trained, and the first of each of the policy's turns is not",
        "padding is trained like a token",
        "each response weighs the same",
    ),
    right="the tool's first token is trained, and the first of each of the policy's turns is not",
    why="roll moves the mask by one place. It happens easily, since the logits before a token are those that predict it.",
)
