"""DAPO's two answers to responses that grow too long: a punishment that begins softly, and no loss on those cut off.

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
from rlviz.study.claim import Panel
from rlviz.study.frames import after, gap, means, scaled
from rlviz.study.trials import FREE, SMALL, shipped, train_arms
from rlviz.study.verdict import Part, Verdict, judged
from small_models.tasks import Ramble

CLAIM = (
    "A soft punishment keeps responses from being cut off; it makes the policy better, and so does leaving out of the loss "
    "those that were."
)
SOURCE = "DAPO, arXiv 2503.14476, overlong reward shaping"
SECONDS = 27
SMALLEST = 0.01  # share of responses of interest

ROOM, CACHE = 13, 3  # the running sums, the answer and the end are 8 tokens: the punishment begins two beyond
PLAIN, SOFT, FILTER = "no remedy", "soft punishment", "filter"
TWICE = "double punishment"
PLAIN_GRPO = replace(FREE, aggregate=token_mean)
ARMS = {
    PLAIN: PLAIN_GRPO,
    SOFT: replace(PLAIN_GRPO, shape=SoftOverlongPunishment(ROOM, CACHE, factor=0.5, floor=-0.5)),
    TWICE: replace(PLAIN_GRPO, shape=SoftOverlongPunishment(ROOM, CACHE)),
    FILTER: replace(PLAIN_GRPO, shape=OverlongFilter()),
}
COLUMNS = ("held_out_accuracy", "accuracy", "response_length", "truncated")


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train each arm with little room for filler."""
    settings = replace(SMALL, steps=scaled(60, scale), lr=1e-4, max_new_tokens=ROOM, evaluate_every=5, seed=seed)
    return train_arms(shipped("ramble"), Ramble(), ARMS, settings, *COLUMNS)


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare what is cut off in the second half of the steps, and in both halves each remedy's held-out accuracy."""
    late, last = after(frame, 0.5), frame[frame["step"] == frame["step"].max()]
    looked = frame.dropna(subset="held_out_accuracy")
    early = looked[looked["step"] <= max(0.5 * frame["step"].max(), looked["step"].min())]
    fewer_cut = gap(late, "truncated", PLAIN, SOFT)
    return judged(
        Part("share of responses that the soft punishment keeps from being cut off", fewer_cut, SMALLEST).titled(
            "cut", "under the soft punishment {} of responses [fewer|more] are cut off", form="{:.1%}"
        ),
        *(
            Part(
                f"accuracy gained by the {arm} in the {half} half", gap(rows, "held_out_accuracy", arm, PLAIN), SMALLEST
            ).titled("accuracy", f"{half} half: [more|less] accuracy with {{}}", f"the {arm}", form="{:.2g}")
            for arm in (SOFT, TWICE, FILTER)
            for half, rows in (("first", early), ("second", late))
        ),
        f"mean length in the second half: {means(late, 'response_length', 1)}",
        f"share cut off in the second half: {means(late, 'truncated', 4)}",
        f"held-out accuracy in the second half: {means(late, 'held_out_accuracy', 3)}",
        f"at the last look alone: {means(last, 'held_out_accuracy', 3)}",
    )


PANELS = [
    [
        Panel("length", "response_length", "tokens", x="step", title="Length of responses", smooth=5),
        Panel("cut", "truncated", "cut off, share of responses", x="step", smooth=5),
        Panel("accuracy", "held_out_accuracy", "accuracy", x="step", against=PLAIN),
    ]
]
