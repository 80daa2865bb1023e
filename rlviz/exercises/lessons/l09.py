"""Lesson 09: one value a response that meets a mask with one value a token."""

from rlviz.exercises import mistakes
from rlviz.exercises.puzzles import Bug

BUG = Bug(
    function=mistakes.gspo.gspo_summed_over_tokens,
    lines=(4,),
    choices=(
        "the root 1/|y| is missing, so long responses have larger ratios",
        "padding has a ratio of its own",
        "s is added up on every token, so a long response counts more",
        "the advantage is averaged over the group",
    ),
    right="s is added up on every token, so a long response counts more",
    why="s · A has one value a response; times the mask it has one a token, and the sum counts it as often as the response is "
    "long: (2 − 8) / 2 = −3 for the two responses above, in place of 0.",
)
