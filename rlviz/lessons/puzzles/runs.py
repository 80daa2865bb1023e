"""The run of each lesson whose setting is not told, drawn from a table that was made once; `runs.md` has the choices.

`python -m rlviz.lessons.puzzles.runs` makes the tables anew, in minutes.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure

from rlviz.algorithms import DCPO, DPO, GRPO, GSPO, PPO, RLOO
from rlviz.lessons.puzzles import Unlabelled, read_choices
from rlviz.pictures.base import dress, new_figure
from rlviz.pieces.aggregation import sequence_sum
from rlviz.pieces.kl import KLInLoss, k1
from rlviz.pieces.preference import LengthNormalized
from rlviz.pieces.shaping import SoftOverlongPunishment
from rlviz.pieces.surrogate import unclipped
from rlviz.pieces.words import label
from rlviz.runs import diagnose, import_run
from rlviz.runs.learning import draw_band, plot_learning_curves, plot_metrics
from rlviz.tabular import TableTask, train_table
from rlviz.training import RunFolder, default_settings, history, train

TABLES = Path(__file__).with_name("tables")
FREE = replace(GRPO, kl=None)
HOW: dict[str, tuple[Any, dict[str, Any]]] = {  # algorithm and settings; with replicas it is a table of logits
    "start_here": (FREE, {"steps": 40, "group_size": 2}),
    "policy_gradients": (
        replace(RLOO, kl=None),
        {"task": TableTask(success=(0.44,) * 10), "steps": 100, "lr": 4.0, "updates_per_rollout": 1, "replicas": 64},
    ),
    "the_ratio": (
        replace(FREE, surrogate=unclipped),
        {
            "task": TableTask(success=(0.8,) + (0.4,) * 9),
            "steps": 100,
            "lr": 2.0,
            "updates_per_rollout": 16,
            "replicas": 64,
        },
    ),
    "grpo": (FREE, {"steps": 20, "num_prompts": 64, "group_size": 2, "updates_per_rollout": 4, "lr_warmup_steps": 0}),
    "ppo": (PPO.with_parameters(lam=0.0), {"steps": 24, "lr_warmup_steps": 0}),
    "dapo": (
        replace(FREE, shape=SoftOverlongPunishment(max_length=9, cache=4)),
        {"steps": 24, "num_prompts": 16, "group_size": 4},
    ),
    "gspo": (GSPO, {"steps": 14, "num_prompts": 12, "lr": 3e-4, "lr_warmup_steps": 5, "updates_per_rollout": 2}),
    "dcpo": (
        replace(GRPO.without_kl(), bounds=DCPO.bounds),
        {
            "steps": 20,
            "num_prompts": 12,
            "updates_per_rollout": 8,
            "prompt_pool": 48,
            "lr": 1e-4,
            "lr_warmup_steps": 5,
        },
    ),
    "kl": (
        replace(GRPO, kl=KLInLoss(beta=1.0, estimator=k1)),
        {"steps": 16, "num_prompts": 16, "updates_per_rollout": 4},
    ),
    "preferences_and_dpo": (
        replace(DPO, reward=LengthNormalized(2.0)),
        {"steps": 60, "batch_size": 16, "lr": 6e-4, "num_pairs": 300},
    ),
    "two_engines": (
        GRPO.without_kl(),
        {"steps": 48, "num_prompts": 16, "seed": 3, "sampler_temperature": 1.3, "evaluate_every": 8},
    ),
    "take_it_home": (
        GRPO.without_kl(),
        {"steps": 24, "num_prompts": 8, "lr_warmup_steps": 2, "max_new_tokens": 5},
    ),
    "keeping_entropy": (
        FREE,
        {"steps": 60, "lr": 0.5, "updates_per_rollout": 8, "entropy_weight": 0.3, "replicas": 16},
    ),
}
UP = (0, None)
ANY = (None, None)
SHARE = (-0.02, 1)
ACCURACY = ("How often is it right?", "share of sampled answers", "accuracy", UP)
PANELS: dict[str, list[tuple[str, str, str | dict[str, str], tuple[float | None, float | None]]]] = {
    # title, unit, column (or columns with words for a legend), limits
    "start_here": [
        ("Reward", "mean of the step", "reward", SHARE),
        ("Dead groups", "share of the groups", "zero_variance_groups", SHARE),
        ("Clipped tokens", "share of the tokens", {"clip_fraction_low": "below", "clip_fraction_high": "above"}, SHARE),
    ],
    "policy_gradients": [
        ("Accuracy", "accuracy", "accuracy", (0, 1)),
        ("Reward of the samples", "reward of the samples", "reward", (0, 1)),
        ("Entropy, nats", "entropy, nats", "entropy", (0, 2.4)),
    ],
    "the_ratio": [
        ("Accuracy?", "accuracy", "accuracy", ANY),
        ("Entropy, nats?", "entropy, nats", "entropy", ANY),
        ("Share of tokens clipped?", "share of tokens clipped", "clipped", ANY),
    ],
    "grpo": [
        ACCURACY,
        ("How many responses teach?", "share of responses", "contributing", UP),
        ("How many tokens are clipped?", "share of tokens", "clipped", UP),
    ],
    "ppo": [
        ("Reward", "mean of the rollout", "reward", (-0.1, 1)),
        ("Entropy", "nats per token", "entropy", (-0.1, 1)),
        ("The critic", "explained variance", "explained_variance", (-0.1, 1)),
    ],
    "dapo": [
        ACCURACY,
        ("How long are responses?", "tokens", "response_length", UP),
        ("What do they earn?", "reward", "reward", ANY),
    ],
    "gspo": [
        ("How many tokens are clipped?", "share of tokens", "clipped", UP),
        ("How far does s spread?", "standard deviation", "sequence_ratio_std", UP),
        ACCURACY,
    ],
    "dcpo": [
        ("How many tokens are clipped below?", "share of tokens", "clip_fraction_low", UP),
        ("How many responses teach?", "share of responses", "contributing", UP),
        ACCURACY,
    ],
    "kl": [
        ACCURACY,
        ("How large is the logged KL?", "nats per token", "kl", UP),
        ("How undecided is it?", "entropy, nats per token", "entropy", UP),
    ],
    "preferences_and_dpo": [
        ("How far apart are the two rewards?", "margin", "margin", UP),
        ("What weight does a pair have?", "mean weight", "pull", (0, 0.5)),
        ("How far did rejected ones move?", "nats, against the start", "rejected_gain", (None, 0)),
    ],
    "two_engines": [
        ("When are the engines apart?", "tokens with w outside .8 to 1.2", "mismatch_outside", UP),
        (
            "Who is right more often?",
            "accuracy",
            {"accuracy": "sampled responses", "held_out_accuracy": "held out, by the trainer"},
            UP,
        ),
        ("How unsure is the trainer?", "nats per token", "entropy", UP),
    ],
    "keeping_entropy": [
        ("How undecided is it?", "entropy, nats", "entropy", UP),
        ("How often is it right?", "accuracy", "accuracy", UP),
    ],
}
LOGGED = {  # our column → TRL's name
    "step": "step",
    "reward": "reward",
    "accuracy": "rewards/correct/mean",
    "grad_norm": "grad_norm",
    "entropy": "entropy",
    "response_length": "completions/mean_length",
    "truncated": "completions/clipped_ratio",
    "zero_variance_groups": "frac_reward_zero_std",
}


def describe_run(lesson: str) -> str:
    """Return in a line the algorithm's pieces and the settings that make a lesson's table: its first line."""
    algorithm, settings = HOW[lesson]
    slots = algorithm.slots() | {"reward": getattr(algorithm, "reward", None)}
    pieces = ", ".join(f"{slot} {label(piece)}" for slot, piece in slots.items() if piece is not None)
    return f"# {pieces}; {', '.join(f'{name} {value}' for name, value in settings.items())}"


def make_table(lesson: str) -> pd.DataFrame:
    """Train, and return the columns that a lesson's picture draws; of replicas their mean, and the 10th and 90th percentile."""
    algorithm, settings = HOW[lesson]
    names = [
        name
        for *_, columns, _ in PANELS.get(lesson, ())
        for name in ([columns] if isinstance(columns, str) else columns)
    ]
    if "replicas" in settings:
        table = train_table(algorithm, **settings)
        curves = {
            "accuracy": table.accuracy,
            "reward": table.reward,
            "entropy": table.entropy,
            "clipped": table.clip_low + table.clip_high,
        }
        rows = {"step": range(table.accuracy.shape[1])}
        for name in names:
            values = pd.DataFrame(curves[name])
            rows |= {name: values.mean(), f"{name} low": values.quantile(0.1), f"{name} high": values.quantile(0.9)}
        return pd.DataFrame(rows)
    quiet = {"evaluate_every": 0} if lesson == "preferences_and_dpo" else {"evaluate_every": 0, "details_every": 0}
    run = history(list(train("chain", algorithm, default_settings(algorithm, **(quiet | settings)))))
    run["clipped"] = run.get("clip_fraction_low", 0) + run.get("clip_fraction_high", 0)
    return run[list(LOGGED) if lesson == "take_it_home" else ["step", *names]]


def draw(lesson: str) -> Figure:
    """Return the picture of a lesson's run."""
    rows, panels = pd.read_csv(TABLES / f"{lesson}.csv", comment="#"), PANELS[lesson]
    figure = new_figure(4.6 * len(panels), 4.2)
    for ax, (title, unit, columns, limits) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        dress(ax, title=title, x="step", y=unit)
        if f"{columns} low" in rows:
            draw_band(ax, rows["step"], rows[f"{columns} low"], rows[columns], rows[f"{columns} high"], 0)
        else:
            plot_metrics(rows, {columns: title} if isinstance(columns, str) else columns, ax=ax)
        ax.set_ylim(*limits)
    return figure


def draw_weights() -> Figure:
    """Return the weights of DCPO's rule as bars: of one token, and of a whole response."""
    lengths = torch.tensor([2, 4, 8])
    weights = sequence_sum(torch.arange(8) < lengths.view(1, 3, 1))[0]
    figure = new_figure(11, 4.2)
    for ax, words, values in zip(
        figure.subplots(1, 2), ("one token", "a response"), (weights[:, 0], weights.sum(1)), strict=True
    ):
        ax.bar_label(ax.bar(range(3), values.tolist(), color="#0072B2"), fmt="%.3g")
        dress(ax, title=f"What does {words} weigh?", x="tokens of the response", y="weight")
        ax.set_xticks(range(3), [str(length) for length in lengths.tolist()])
    return figure


def diagnose_log() -> Figure:
    """Print what is found in the log of a run that disappoints, as TRL writes it, and return its curves."""
    rows = pd.read_csv(TABLES / "take_it_home.csv", comment="#").rename(columns=LOGGED).to_dict("records")
    with tempfile.TemporaryDirectory() as folder:
        log, back = Path(folder) / "trainer_state.json", Path(folder) / "back"
        log.write_text(json.dumps({"log_history": rows}), encoding="utf-8")
        import_run(log, back)
        for finding in diagnose(back):
            print(f"{finding.grade}: {finding.finding}\n    try {finding.setting}: {finding.advice}")  # noqa: T201
        return plot_learning_curves(RunFolder.open(back).metrics, title="What went wrong in this run?")


DRAWN = {lesson: partial(draw, lesson) for lesson in PANELS} | {
    "which_mean": draw_weights,
    "take_it_home": diagnose_log,
}
RUNS = {lesson: Unlabelled(*choices, DRAWN[lesson]) for lesson, choices in read_choices("runs").items()}

if __name__ == "__main__":
    for lesson in HOW:
        text = make_table(lesson).to_csv(index=False, float_format="%.6g", lineterminator="\n")
        (TABLES / f"{lesson}.csv").write_text(f"{describe_run(lesson)}\n{text}", encoding="utf-8")
