"""A reward per call or one at the end? Three look-ups in a row, from a policy that seldom looks, with four ways to pay.

A call is right where it looks up what has to be looked up next, which only a task that knows the way can say. The sum of the
same rewards paid at the end tells whether more reward or its place helps; a reward for any call is what is easily written.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from torch import Tensor

from rlviz.algorithms import GRPO_PROCESS
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.study.effects import Claim, Effect
from rlviz.study.frames import by_seed, gap, late, means, scaled
from rlviz.study.trials import FREE, SMALL, load_shipped, rows, sample_and_grade
from rlviz.training import train
from small_models.tasks import Lookup
from small_models.tasks.base import Step

SAYS = "In a task of several calls a reward for each right call teaches in 48 steps what one for the answer alone does not."
SOURCE = "GRPO's process supervision, arXiv 2402.03300 §4.1.3; turn-level credit, 2505.11821"

HOPS = 3
ACCURACY = "held_out_accuracy"
END, RIGHT, SUM, ANY = "the answer alone", "each right call", "the same, at the end", "any call"


class AnyCall(Lookup):
    """Lookup whose calls each earn 1, right or wrong."""

    def steps(self, prompt: str, response: str) -> tuple[Step, ...]:
        *calls, last = super().steps(prompt, response)
        return (*(replace(call, reward=1.0) for call in calls), last)


def at_the_end(rewards: Tensor, *, step_ends: Tensor) -> Tensor:
    """Return GRPO's advantage of the sum of a response's rewards."""
    return GroupAdvantage(scale="group_std")(rewards.masked_fill(~step_ends, 0.0).sum(-1))


STEPWISE = replace(GRPO_PROCESS, kl=None)
# task, algorithm and the best learning rate for each, by mean accuracy over the last looks of seeds 100 to 103: of 6e-4, 1.5e-3
# and 3e-3, and beyond an end that was best, until it falls. (The sum has .595 at 3e-4 and .593 at 6e-4, in three of four more.)
ARMS = {
    END: (Lookup, FREE, 3e-3),
    RIGHT: (Lookup, STEPWISE, 3e-3),
    SUM: (Lookup, replace(STEPWISE, advantage=at_the_end), 6e-4),
    ANY: (AnyCall, STEPWISE, 3e-4),
}


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train each arm on prompts of three look-ups; a row per look, with the calls per response after the last."""
    frames, steps = [], scaled(48, scale, 2)
    for arm, (kind, algorithm, lr) in ARMS.items():
        task, policy = kind((HOPS,)), load_shipped("lookup")
        settings = replace(SMALL, steps=steps, lr=lr, evaluate_every=max(1, steps // 12), seed=seed)
        looks = rows(train(policy, task, algorithm, settings), ACCURACY, arm=arm).dropna()
        samples, _ = sample_and_grade(policy, task, task.held_out_prompts[:200], group_size=1, seed=seed)
        calls = [group[0].count(";") for group in samples.texts(policy)]
        frames.append(looks.assign(calls=sum(calls) / len(calls)))
    return pd.concat(frames, ignore_index=True)


def effects(frame: pd.DataFrame) -> list[Effect]:
    last = late(frame, 0.74)  # a quarter of the looks
    above_end, above_sum = (gap(last, ACCURACY, RIGHT, arm) for arm in (END, SUM))
    any_below_end, needless = gap(last, ACCURACY, END, ANY), by_seed(frame, "calls", arm=ANY) - HOPS
    return [
        Effect("accuracy by a reward for each right call, above the answer's alone", above_end, 0.05),
        Effect("accuracy by these rewards in their place, above their sum at the end", above_sum, 0.05),
        Effect("accuracy by a reward for any call, below the answer's alone", any_below_end, 0.05),
        Effect("calls a response by a reward for any call, more than the three that are needed", needless, 0.5),
    ]


def numbers(frame: pd.DataFrame) -> list[str]:
    return [f"accuracy {means(late(frame, 0.74), ACCURACY)}"]


CLAIM = Claim("turn_credit", SAYS, SOURCE, seconds=40, trial=trial, effects=effects, numbers=numbers)
