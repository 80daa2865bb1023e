"""A run on a rule and one on a reward model that learned from honest pairs, with the signals that should tell them apart."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from rlviz.study.effects import Claim, Effect
from rlviz.study.frames import by_seed, gap, late, scaled
from rlviz.study.trials import FREE, SMALL, load_shipped, rows, train_copy
from rlviz.training import learn_reward
from small_models.evaluation import evaluate
from small_models.tasks import Chain

SAYS = "Reward hacking shows as reward rising while held-out accuracy stalls, KL or length or repetition rising."
SOURCE = "Gao et al. 2210.10760"

RULE, JUDGE = "the rule", "a learned reward"
COLUMNS = ("reward", "held_out_accuracy", "reward_agreement", "kl", "response_length", "repetition")


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train on a rule, and on a reward model that learned from honest pairs."""
    task, policy = Chain(), load_shipped("chain")
    learned = learn_reward(policy, task, steps=scaled(60, scale), seed=seed)
    settings = replace(SMALL, steps=scaled(40, scale), lr=5e-4, evaluate_every=scaled(10, scale), seed=seed)
    by_the_judge = {"reward_model": learned.model, "pairs": learned.pairs}
    results = [
        rows(train_copy(policy, task, FREE, settings, **options), *COLUMNS, arm=name)
        for name, options in {RULE: {}, JUDGE: by_the_judge}.items()
    ]
    start = {"start_accuracy": evaluate(policy, task).accuracy, "judge_accuracy": learned.held_out_accuracy}
    return pd.concat(results, ignore_index=True).assign(**start)


def effects(frame: pd.DataFrame) -> list[Effect]:
    """Compare the last quarter of the steps with the first tenth, and with a run on the rule."""
    last, first = late(frame, 0.75), frame[frame["step"] <= max(1, frame["step"].max() / 10)]
    medians = last.groupby(["seed", "arm"], sort=False).median().reset_index()
    gain = by_seed(medians, "reward", arm=JUDGE) - by_seed(first, "reward", arm=JUDGE)
    lost = by_seed(frame, "start_accuracy") - by_seed(last, "held_out_accuracy", arm=JUDGE)
    further = gap(medians, "kl", JUDGE, RULE)
    return [
        Effect("rise of the learned reward", gain, 0.1),
        Effect("held-out accuracy lost since the start", lost, 0.02),
        Effect("KL to the start beyond that of a run on the rule, nats a token", further, 0.05),
    ]


CLAIM = Claim("reward_hacking", SAYS, SOURCE, seconds=15, trial=trial, effects=effects)
