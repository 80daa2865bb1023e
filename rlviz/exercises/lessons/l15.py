"""Lesson 15: a report of a race that takes the best evaluation on the way."""

from rlviz.exercises.mistakes.reports import best_evaluation
from rlviz.exercises.puzzles import Bug

BUG = Bug(
    function=best_evaluation,
    lines=(4,),
    choices=(
        "who is evaluated more often, or wavers more, scores higher",
        "the contender with more seeds scores higher",
        "one seed alone decides",
        "longer runs count more in the mean",
    ),
    right="who is evaluated more often, or wavers more, scores higher",
    why="the maximum over a run's evaluations can only rise with their number and with their noise, and it need not be at the "
    "budget: take the last evaluation within the budget.",
)
