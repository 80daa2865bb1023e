"""Lesson 16: a constant that is judged on the seeds that chose it."""

from rlviz.exercises.mistakes.reports import judged_on_the_seeds_that_chose
from rlviz.exercises.puzzles import Bug

BUG = Bug(
    function=judged_on_the_seeds_that_chose,
    lines=(5,),
    choices=(
        "a rule that does nothing shows a gain: the best of five lucky numbers",
        "the gain is too small, for the mean is over five constants",
        "the constant that needs most rollouts is chosen",
        "GRPO is trained with another seed than the rule",
    ),
    right="a rule that does nothing shows a gain: the best of five lucky numbers",
    why="the seeds that chose c also judge it. Of five rules without any effect, five seeds each, the best shows half a standard "
    "deviation of a seed on average (1.16 / √5). Judge on seeds that have chosen nothing.",
)
