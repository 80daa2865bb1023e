"""explore_advantages: what a response's luck in its group does to its advantage."""

from __future__ import annotations

from typing import Literal

from rlviz.algorithms import GRPO, Algorithm, GroupPolicyGradient
from rlviz.curves.advantages import AdvantagesCurve, advantages_curve
from rlviz.plots.advantages import AdvantagesPicture
from rlviz.widgets.explorer import AlgorithmControl, Explorer
from rlviz.widgets.live import Pick, float_control, int_control
from small_models.checks import checked


def learns_from_a_group(algorithm: Algorithm) -> bool:
    """Return whether the algorithm's advantages need no more than a group's rewards, and those of earlier visits."""
    return isinstance(algorithm, GroupPolicyGradient) and not any(
        algorithm.asks_for("advantage", name) for name in ("old_logp", "ref_logp", "step_ends")
    )


@checked
def explore_advantages(
    algorithm: GroupPolicyGradient = GRPO,
    *,
    success_rate: float = 0.8,
    group_size: int = 8,
    rewards: Literal["outcome", "score"] = "outcome",
    visits: int = 1,
    rule: Literal["own", "leave_one_out"] = "own",
) -> Explorer[AdvantagesCurve]:
    """Return a picture of the advantages that an algorithm gives to groups of responses, drawn by coin with a fixed seed.

    Left the advantages of right and wrong responses over many groups, all of prompts with one success rate, and those of dead
    groups, whose advantages are all 0. In the middle the share of dead groups against the success rate, by the formula and
    simulated. Right two errors against group size: that of the group's mean, and that of a right response's advantage.

    success_rate: of each response, 0.01 to 0.99. group_size: responses to a prompt, 2 to 64. rewards: "outcome", 1 or 0 for
    right or wrong; "score", the same plus normal noise of standard deviation 0.25, as of a reward model. visits: which visit
    of its prompt the group is, 1 to 10; in sight only where the advantage has a memory, as DCPO's. rule: "own", the algorithm's
    advantage, or "leave_one_out" (RLOO) in its place.
    Raises ValueError for a value out of range, or an algorithm whose advantage needs more than rewards and their history.
    """
    chosen = AlgorithmControl(algorithm, fits=learns_from_a_group)
    visit = int_control("visits", visits, 1, 10, "visit of the prompt")
    whose = Pick("rule", rule, [("the algorithm's own", "own"), ("leave-one-out (RLOO)", "leave_one_out")], "advantage")

    def follow() -> None:
        visit.hide(whose.value != "own" or not chosen.algorithm.asks_for("advantage", "history"))

    follow()
    chosen.pick.observe(follow)
    whose.observe(follow)
    return Explorer(
        explore_advantages,
        AdvantagesPicture,
        advantages_curve,
        [
            float_control("success_rate", success_rate, 0.02, 0.98, 0.01, "success rate p"),
            int_control("group_size", group_size, 2, 64, "group size G"),
            Pick(
                "rewards",
                rewards,
                [("right or wrong: 1 or 0", "outcome"), ("scores: 1 or 0, and noise of sd 0.25", "score")],
            ),
            visit,
            whose,
        ],
        chosen,
    )
