"""An idea of your own: a constant that is judged on the seeds that chose it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean

from rlviz.lessons.puzzles import Bug


def tuned(gain: Callable[[float, int], float], seeds: Iterable[int]) -> tuple[float, float]:
    # gain: accuracy with the rule at this c and seed, minus GRPO's
    tried = {c: [gain(c, seed) for seed in seeds] for c in (0.1, 0.2, 0.3, 0.5, 0.8)}
    best = max(tried, key=lambda c: fmean(tried[c]))
    gains = [gain(best, 1000 + seed) for seed in seeds]
    return best, fmean(gains)


BUG = Bug(
    tuned,
    "[gain(best, 1000 + seed) for seed in seeds] → tried[best]",
    choices=(
        "a rule that does nothing shows a gain: the best of five lucky numbers",
        "the gain is too small, for the mean is over five constants",
        "the constant that needs most rollouts is chosen",
        "GRPO is trained with another seed than the rule",
    ),
    does="a rule that does nothing shows a gain: the best of five lucky numbers",
    why="the seeds that chose c also judge it. Of five rules without any effect, five seeds each, the best shows half a standard "
    "deviation of a seed on average (1.16 / √5). Judge on seeds that were not used for choosing.",
)
