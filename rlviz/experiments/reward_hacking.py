"""Claim 12: a hacked reward shows as reward that rises while held-out accuracy stalls, and KL, length or repetition rise."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from rlviz.experiments.base import Experiment, Part, Verdict, by_seed, gap, judged, means, scaled
from rlviz.experiments.runs import FREE, rows, run, shipped
from rlviz.runs.hacking import plot_hacking
from rlviz.training import TrainSettings, learn_reward
from small_models.evaluation import evaluate
from small_models.tasks import Chain

RULE, JUDGE = "the rule", "a learned reward"
COLUMNS = ("reward", "held_out_accuracy", "reward_agreement", "kl", "response_length", "repetition")


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train on a rule, and on a reward model that learned from honest pairs."""
    task, policy = Chain(), shipped("chain")
    learned = learn_reward(policy, task, steps=scaled(60, scale), seed=seed)
    settings = TrainSettings(
        steps=scaled(40, scale),
        num_prompts=16,
        lr=5e-4,
        evaluate_every=scaled(10, scale, 1),
        details_groups=1,
        seed=seed,
    )
    by_the_judge = {"reward_model": learned.model, "pairs": learned.pairs}
    found = [
        rows(run(policy, task, FREE, settings, **given), *COLUMNS, arm=name)
        for name, given in {RULE: {}, JUDGE: by_the_judge}.items()
    ]
    start = {"start_accuracy": evaluate(policy, task).accuracy, "judge_accuracy": learned.held_out_accuracy}
    return pd.concat(found, ignore_index=True).assign(**start)


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare the last quarter of the steps with the first tenth, and with a run on the rule."""
    last, first = (
        frame[frame["step"] > 0.75 * frame["step"].max()],
        frame[frame["step"] <= max(1, frame["step"].max() / 10)],
    )
    late = last.groupby(["seed", "arm"], sort=False).median().reset_index()
    gain = by_seed(late, "reward", arm=JUDGE) - by_seed(first, "reward", arm=JUDGE)
    lost = by_seed(frame, "start_accuracy") - by_seed(last, "held_out_accuracy", arm=JUDGE)
    return judged(
        Part("rise of the learned reward", tuple(gain)),
        Part("held-out accuracy lost since the start", tuple(lost)),
        Part("KL to the start beyond that of a run on the rule, nats a token", gap(late, "kl", JUDGE, RULE)),
        f"pairs that the reward model put in order at first {frame['judge_accuracy'].mean():.0%}",
        f"accuracy in the end {means(last, 'held_out_accuracy')}",
        f"length {means(late, 'response_length')}",
        f"repetition {means(late, 'repetition')}",
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw what there is to watch, a line an arm."""
    runs = {
        str(arm): [of_seed.reset_index(drop=True) for _, of_seed in part.groupby("seed")]
        for arm, part in frame.groupby("arm", sort=False)
    }
    return plot_hacking(runs, start_accuracy=float(frame["start_accuracy"].mean()))


EXPERIMENT = Experiment(
    "reward_hacking",
    "Reward hacking shows as reward rising while held-out accuracy stalls, KL or length or repetition rising.",
    "Gao et al. 2210.10760",
    15,
    trial,
    judge,
    draw,
)
