"""Lesson 13: a reward model's score that depends on the batch."""

from rlviz.exercises import mistakes
from rlviz.exercises.puzzles import Bug

BUG = Bug(
    function=mistakes.reward_model.mean_over_all_places,
    lines=(3,),
    choices=(
        "the score of a response depends on which other responses are in its batch",
        "long responses have higher scores, whatever they say",
        "the score has no gradient",
        "all responses of a batch get the same score",
    ),
    right="the score of a response depends on which other responses are in its batch",
    why="it averages over padding, and the longest response of the batch decides how much of that there is. (It also leaves out "
    "the last place, where the whole response has been read.)",
)
