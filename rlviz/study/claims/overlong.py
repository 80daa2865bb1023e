"""DAPO's two answers to responses that grow too long: a soft punishment, and no loss on responses that were cut off.

The punishment begins beyond what a sound answer takes, else it taxes reasoning; and where there is filler, some sound answers
are cut off too, or leaving those out of the loss would have nothing to save. (With 12 tokens, and a punishment of 1 from 8 on,
.02 fewer answers were right in the end.)

The paper pays 1 for right and −1 for wrong, and takes off up to 1. Rewards here are 1 and 0, half as far apart, so a punishment
of ½ is the paper's; one of 1 weighs twice as much as the paper's, and is the contrast.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from rlviz.pieces.aggregation import token_mean
from rlviz.pieces.shaping import OverlongFilter, SoftOverlongPunishment
from rlviz.study.effects import Claim, Effect
from rlviz.study.frames import gap, late, means, scaled
from rlviz.study.trials import FREE, SMALL, load_shipped, train_arms
from small_models.tasks import Ramble

SAYS = (
    "A soft punishment keeps responses from being cut off; it makes the policy better, and so does leaving out of the loss "
    "those that were."
)
SOURCE = "DAPO, arXiv 2503.14476, overlong reward shaping"

ROOM, CACHE = 13, 3  # the running sums, the answer and the end are 8 tokens: the punishment begins two beyond
PLAIN, SOFT, TWICE, FILTER = "no remedy", "soft punishment", "double punishment", "filter"
PLAIN_GRPO = replace(FREE, aggregate=token_mean)
ARMS = {
    PLAIN: PLAIN_GRPO,
    SOFT: replace(PLAIN_GRPO, shape=SoftOverlongPunishment(ROOM, CACHE, factor=0.5, floor=-0.5)),
    TWICE: replace(PLAIN_GRPO, shape=SoftOverlongPunishment(ROOM, CACHE)),
    FILTER: replace(PLAIN_GRPO, shape=OverlongFilter()),
}
ACCURACY = "held_out_accuracy"
COLUMNS = (ACCURACY, "accuracy", "response_length", "truncated")


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train each arm with little room for filler."""
    steps = scaled(60, scale)
    settings = replace(SMALL, steps=steps, lr=1e-4, max_new_tokens=ROOM, evaluate_every=5, seed=seed)
    return train_arms(load_shipped("ramble"), Ramble(), ARMS, settings, *COLUMNS)


def effects(frame: pd.DataFrame) -> list[Effect]:
    second = late(frame, 0.5)
    looks = frame.dropna(subset=ACCURACY)
    first = looks[looks["step"] <= max(0.5 * frame["step"].max(), looks["step"].min())]
    cut_off = gap(second, "truncated", PLAIN, SOFT)
    return [
        Effect("share of responses that the soft punishment keeps from being cut off", cut_off, 0.01),
        *(
            Effect(f"accuracy gained by the {arm} in the {half} half", gap(steps, ACCURACY, arm, PLAIN), 0.01)
            for arm in (SOFT, TWICE, FILTER)
            for half, steps in (("first", first), ("second", second))
        ),
    ]


def numbers(frame: pd.DataFrame) -> list[str]:
    second, last = late(frame, 0.5), frame[frame["step"] == frame["step"].max()]
    return [
        f"mean length in the second half: {means(second, 'response_length', 1)}",
        f"share cut off in the second half: {means(second, 'truncated', 4)}",
        f"held-out accuracy in the second half: {means(second, ACCURACY, 3)}",
        f"at the last look alone: {means(last, ACCURACY, 3)}",
    ]


CLAIM = Claim("overlong", SAYS, SOURCE, seconds=27, trial=trial, effects=effects, numbers=numbers)
