"""A run on a rule and one on a reward model that learned from honest pairs, with the signals that should tell them apart."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from rlviz.study.claim import Panel
from rlviz.study.frames import after, by_seed, gap, means, scaled
from rlviz.study.trials import FREE, SMALL, rows, run, shipped
from rlviz.study.verdict import Part, Verdict, judged
from rlviz.training import learn_reward
from small_models.evaluation import evaluate
from small_models.tasks import Chain

CLAIM = "Reward hacking shows as reward rising while held-out accuracy stalls, KL or length or repetition rising."
SOURCE = "Gao et al. 2210.10760"
SECONDS = 15
SMALLEST, SMALLEST_SHARE, SMALLEST_KL = 0.1, 0.02, 0.05  # of the learned reward, of accuracy, in nats a token

RULE, JUDGE = "the rule", "a learned reward"
COLUMNS = ("reward", "held_out_accuracy", "reward_agreement", "kl", "response_length", "repetition")


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train on a rule, and on a reward model that learned from honest pairs."""
    task, policy = Chain(), shipped("chain")
    learned = learn_reward(policy, task, steps=scaled(60, scale), seed=seed)
    settings = replace(SMALL, steps=scaled(40, scale), lr=5e-4, evaluate_every=scaled(10, scale), seed=seed)
    by_the_judge = {"reward_model": learned.model, "pairs": learned.pairs}
    found = [
        rows(run(policy, task, FREE, settings, **given), *COLUMNS, arm=name)
        for name, given in {RULE: {}, JUDGE: by_the_judge}.items()
    ]
    start = {"start_accuracy": evaluate(policy, task).accuracy, "judge_accuracy": learned.held_out_accuracy}
    return pd.concat(found, ignore_index=True).assign(**start)


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare the last quarter of the steps with the first tenth, and with a run on the rule."""
    last, first = after(frame, 0.75), frame[frame["step"] <= max(1, frame["step"].max() / 10)]
    late = last.groupby(["seed", "arm"], sort=False).median().reset_index()
    gain = by_seed(late, "reward", arm=JUDGE) - by_seed(first, "reward", arm=JUDGE)
    lost = by_seed(frame, "start_accuracy") - by_seed(last, "held_out_accuracy", arm=JUDGE)
    return judged(
        Part("rise of the learned reward", gain, SMALLEST).titled("reward", "the learned reward [rises|falls] by {}"),
        Part("held-out accuracy lost since the start", lost, SMALLEST_SHARE).titled(
            "held_out_accuracy", "accuracy [falls|rises] by {} since the start"
        ),
        Part(
            "KL to the start beyond that of a run on the rule, nats a token", gap(late, "kl", JUDGE, RULE), SMALLEST_KL
        ).titled("kl", "KL to the start is {} nats a token [above|below] that of a run on the rule"),
        f"pairs that the reward model put in order at first {frame['judge_accuracy'].mean():.0%}",
        f"accuracy in the end {means(last, 'held_out_accuracy')}",
        f"length {means(late, 'response_length')}",
        f"repetition {means(late, 'repetition')}",
    )


def of_the_judge(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame without the rule's rewards, which have another scale."""
    return frame.assign(reward=frame["reward"].where(frame["arm"] == JUDGE))


def with_the_start(frame: pd.DataFrame) -> pd.DataFrame:
    start = frame.drop_duplicates(["arm", "seed"])
    return pd.concat([start.assign(step=0, held_out_accuracy=start["start_accuracy"]), frame])


SHARE = {"ylim": (0, 1.02)}
PANELS = [
    [
        Panel("reward", "reward", "score of the learned reward", of_the_judge, x="step", smooth=3),
        Panel("held_out_accuracy", "held_out_accuracy", "accuracy, held out", with_the_start, x="step", axes=SHARE),
        Panel(
            "agreement", "reward_agreement", "pairs in order, of a coin half", x="step", smooth=3, marked=(0.5,),
            title="Agreement with the rule", axes=SHARE,
        ),
    ],
    [
        Panel("kl", "kl", "nats a token", x="step", smooth=3, axes={"yscale": "log", "ylim": (0.005, None)}),
        Panel(
            "length", "response_length", "tokens", x="step", title="Response length", smooth=3, axes={"ylim": (0, None)}
        ),
        Panel(
            "repetition", "repetition", "share of tokens", x="step", title="Repetition", smooth=3, axes={"ylim": (0, None)}
        ),
    ],
]  # fmt: skip
