"""The run of each lesson whose setting is not told: how its picture is made, and above it the settings of which one made it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rlviz.algorithms import DCPO, DPO, GRPO, GSPO, PPO, RLOO
from rlviz.lessons.puzzles import Unlabelled, read_choices
from rlviz.pictures.base import dress, new_figure
from rlviz.pieces.aggregation import sequence_sum
from rlviz.pieces.kl import KLInLoss, k1
from rlviz.pieces.preference import LengthNormalized
from rlviz.pieces.shaping import SoftOverlongPunishment
from rlviz.pieces.surrogate import unclipped
from rlviz.runs import diagnose, import_run
from rlviz.runs.learning import plot_bands, plot_learning_curves, plot_metrics
from rlviz.tabular import TableTask, train_table
from rlviz.training import RunFolder, default_settings, history, train

Limits = tuple[float | None, float | None]
UP: Limits = (0, None)
ANY: Limits = (None, None)
QUIET = {"evaluate_every": 0, "details_every": 0}
ACCURACY = ("How often is it right?", "share of sampled answers", "accuracy", UP)
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
RUNS: dict[str, Unlabelled] = {}


def unlabelled(table: str) -> Callable[[Callable[[], Figure]], Callable[[], Figure]]:
    """Make a function the drawing of a lesson's run. table: `lesson: what it is about`, then what `read_choices` reads."""

    def noted(draw: Callable[[], Figure]) -> Callable[[], Figure]:
        lesson, _, rest = table.strip().partition(":")
        RUNS[lesson] = Unlabelled(*read_choices(rest), draw)
        return draw

    return noted


def _history(algorithm: Any, settings: Mapping[str, Any]) -> pd.DataFrame:
    """Train the warm start of `chain`; return what was measured, a row a step."""
    return history(list(train("chain", algorithm, default_settings(algorithm, **settings))))


def _trained(
    algorithm: Any,
    settings: Mapping[str, Any],
    *panels: tuple[str, str, str | dict[str, str], Limits],
    width: float = 14,
    x: str = "step",
) -> Figure:
    """Train, and draw the history. panels: title, unit, column (or columns with words), limits."""
    run = _history(algorithm, settings)
    run["clipped"] = run.get("clip_fraction_low", 0) + run.get("clip_fraction_high", 0)
    figure = new_figure(width, 4.2)
    for ax, (title, unit, columns, limits) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        shown = {columns: title} if isinstance(columns, str) else columns
        plot_metrics(run, shown, ax=dress(ax, title=title, x=x, y=unit)).set_ylim(*limits)
    return figure


def _tabulated(*panels: tuple[str, str, NDArray[Any], Limits], width: float = 13, x: str = "rollout") -> Figure:
    """Draw what runs on a table of logits gave. panels: title, unit, values [R, S], limits."""
    figure = new_figure(width, 4.2)
    for ax, (title, unit, values, limits) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        plot_bands({"the run": values}, ax=ax, title=title, x=x, y=unit, legend=False).set_ylim(*limits)
    return figure


@unlabelled("""
start_here: small groups
- one update a rollout, groups of 8
  nothing is clipped, so it is one update; but with groups of 8 hardly any group would be dead at the start, where one
  answer in three is right.
+ one update a rollout, groups of 2
  no token is ever clipped, so every ratio was 1: one update. And half of the groups are dead from the first step on,
  as p² + (1 − p)² says for p = .34: .55.
- eight updates a rollout, groups of 8, ε = 0.02
  with eight updates ratios leave 1, and so narrow a clip would cut some tokens; here none is cut.
- eight updates a rollout, groups of 2, ε = 0.02
  the groups are small, as the dead ones show; but with eight updates so narrow a clip would cut some tokens.
- one update a rollout, groups of 8, a learning rate of 0
  then the reward would stay near a third.
""")
def small_groups() -> Figure:
    return _trained(
        replace(GRPO, kl=None),
        {"steps": 40, "group_size": 2, **QUIET},
        ("Reward", "mean of the step", "reward", (-0.02, 1)),
        ("Dead groups", "share of the groups", "zero_variance_groups", (-0.02, 1)),
        (
            "Clipped tokens",
            "share of the tokens",
            {"clip_fraction_low": "below", "clip_fraction_high": "above"},
            (-0.02, 1),
        ),
        width=13,
    )


@unlabelled("""
policy_gradients: nothing to learn
- a baseline, as in the lesson
  then the accuracy would rise to .8.
- no baseline, and 10 added to every reward
  then the runs would differ in the share that they get right: some find the best action. Here it is the same number
  in all runs, at every step.
- the sign of the loss is lost
  then the best action would become rarer, and the accuracy would fall to .4.
+ every action is right equally often
  the accuracy is .44 in all runs, whatever the policy plays, so no action is better. Entropy falls all the same: luck
  pushes some action up, and what is played more often is pushed more often. A falling entropy alone does not say that
  something was learned.
- a learning rate of 0
  then the policy would stand still, and its entropy stay at ln 10 = 2.3.
""")
def equal_actions() -> Figure:
    free, task = replace(RLOO, kl=None), TableTask(success=(0.44,) * 10)
    run = train_table(free, task, steps=100, lr=4.0, updates_per_rollout=1, replicas=64)
    return _tabulated(
        ("Accuracy", "accuracy", run.accuracy, (0, 1)),
        ("Reward of the samples", "reward of the samples", run.reward, (0, 1)),
        ("Entropy, nats", "entropy, nats", run.entropy, (0, 2.4)),
        x="step",
    )


@unlabelled("""
the_ratio: no limit
- one update a rollout
  then all ratios are 1, and all 64 runs would come to the best action or near it, slowly.
- 16 updates, clip ±0.2
  with a clip some tokens would be clipped from the first rollouts on; here none ever is.
+ 16 updates, no clip
  nothing is ever clipped, entropy falls to nearly 0 soon, and many runs stay at .4: they settled on what was lucky.
- 16 updates, a learning rate 16 times smaller, no clip
  as slow as one update: entropy would not vanish so soon.
- random rewards
  then the accuracy would not rise on average.
""")
def many_updates() -> Figure:
    free = replace(GRPO, kl=None, surrogate=unclipped)
    task = TableTask(success=(0.8,) + (0.4,) * 9)
    run = train_table(free, task, steps=100, lr=2.0, updates_per_rollout=16, replicas=16)
    return _tabulated(
        ("Accuracy?", "accuracy", run.accuracy, ANY),
        ("Entropy, nats?", "entropy, nats", run.entropy, ANY),
        ("Share of tokens clipped?", "share of tokens clipped", run.clip_low + run.clip_high, ANY),
    )


@unlabelled("""
grpo: small groups, and rollouts that are used again
- 16 groups of 8, 1 update a rollout
  with groups of 8 nearly all responses would teach at first; here about half do.
- 16 groups of 8, 4 updates a rollout
  with groups of 8 nearly all responses would teach at first; here about half do.
- 64 groups of 2, 1 update a rollout
  with one update every ratio is 1 and nothing is clipped; here some tokens are.
+ 64 groups of 2, 4 updates a rollout
  about half of the responses teach, as in groups of 2, and some tokens are clipped, so the ratios have left 1.
- 64 groups of 2, 4 updates, old_logp computed anew before each
  then every ratio would be 1, and nothing clipped.
""")
def pairs_reused() -> Figure:
    return _trained(
        replace(GRPO, kl=None),
        {"steps": 20, "num_prompts": 64, "group_size": 2, "updates_per_rollout": 4, "lr_warmup_steps": 0, **QUIET},
        ACCURACY,
        ("How many responses teach?", "share of responses", "contributing", UP),
        ("How many tokens are clipped?", "share of tokens", "clipped", UP),
    )


@unlabelled("""
ppo: a critic that is trusted alone
- PPO as in the lesson, λ = 0.95
  then the reward would rise from the first rollouts on, to more than .8.
+ λ = 0: the critic is trusted alone
  nothing is gained before the critic explains something, because all credit comes from it. Then it knows a guess from
  running sums, and guesses go. It cannot tell right sums from wrong ones, so the reward stays near .6, which is what
  running sums earned before training.
- λ = 1: the outcome is trusted alone
  then the reward would rise at once, whatever the critic knows.
- a critic that always says the same number
  then it would explain nothing, at any time; and the reward would rise at once.
- the policy stands still, only the critic learns
  then reward and entropy would stay where they began.
""")
def critic_alone() -> Figure:
    return _trained(
        PPO.with_parameters(lam=0.0),
        {"steps": 24, "lr_warmup_steps": 0, **QUIET},
        ("Reward", "mean of the rollout", "reward", (-0.1, 1)),
        ("Entropy", "nats per token", "entropy", (-0.1, 1)),
        ("The critic", "explained variance", "explained_variance", (-0.1, 1)),
        width=13,
        x="rollout",
    )


@unlabelled("""
which_mean: the weights of one rule
- GRPO's sequence mean
  the shape is the same, but there three responses weigh 1 together: a third each.
- DAPO's token mean
  then a token would weigh 1/14 in every response.
- Dr.GRPO's constant, 16
  then a token would weigh the same in every response, 1/48.
+ DCPO's sequence sum
  each response weighs 1, so a token weighs 1 / length: a mean within the response, then a sum.
- a plain sum over tokens
  then a token would weigh 1 and a response its length.
""")
def weights_of_one_rule() -> Figure:
    lengths = [2, 4, 8]
    rows = sequence_sum(torch.arange(max(lengths)) < torch.tensor(lengths).view(1, -1, 1))[0]
    figure = new_figure(11, 4.2)
    for ax, words, values in zip(
        figure.subplots(1, 2),
        ("one token", "a response"),
        ([row[0] for row in rows], [row.sum() for row in rows]),
        strict=True,
    ):
        bars = ax.bar(range(len(lengths)), [float(value) for value in values], color="#0072B2")
        ax.bar_label(bars, fmt="%.3g")
        dress(ax, title=f"What does {words} weigh?", x="tokens of the response", y="weight")
        ax.set_xticks(range(len(lengths)), [str(length) for length in lengths])
    return figure


@unlabelled("""
dapo: a punishment of length that shortens
- GRPO without KL
  then the reward would be the accuracy; here it lies far below.
- with dynamic sampling
  sampling changes no reward: it would be the accuracy among what is sampled.
- with a soft punishment from 12 to 16 tokens
  no response on chain is so long, so it would take nothing off.
+ with a soft punishment from 5 to 9 tokens
  the reward lies far below the accuracy, and the more the longer responses are: an answer with its sums loses three
  quarters.
- with cut responses left out
  the filter leaves rewards as they are.
""")
def punished() -> Figure:
    return _trained(
        replace(GRPO, kl=None, shape=SoftOverlongPunishment(max_length=9, cache=4)),
        {"steps": 24, "num_prompts": 16, "group_size": 4, **QUIET},
        ACCURACY,
        ("How long are responses?", "tokens", "response_length", UP),
        ("What do they earn?", "reward", "reward", ANY),
    )


@unlabelled("""
gspo: two updates
- GRPO, limits 0.8 and 1.2, 8 updates a rollout
  token ratios with these limits clip about 5 % in the lesson's table; here it is 30 % and more.
- GSPO, limits 0.97 and 1.03, 8 updates
  these limits lie beyond most s of the middle picture, whose spread is 0.03 at most, so they would clip far fewer
  tokens.
- GSPO, limits 0.9997 and 1.0004, 8 updates
  seven of eight updates could clip, and 75 % were clipped in the table; here the share never passes one half.
+ GSPO, limits 0.9997 and 1.0004, 2 updates
  only the second of two updates can clip, so one half is the ceiling, and the curve stays below it; limits this
  narrow catch nearly all that moved, however little s spreads.
- GSPO, limits 0.9997 and 1.0004, 1 update
  with one update every ratio is 1, and nothing is clipped.
""")
def two_updates() -> Figure:
    return _trained(
        GSPO,
        {"steps": 14, "num_prompts": 12, "lr": 3e-4, "lr_warmup_steps": 5, "updates_per_rollout": 2, **QUIET},
        ("How many tokens are clipped?", "share of tokens", "clipped", UP),
        ("How far does s spread?", "standard deviation", "sequence_ratio_std", UP),
        ACCURACY,
    )


@unlabelled("""
dcpo: one piece of DCPO
- GRPO, one update a rollout
  with one update every ratio is 1, and nothing is clipped.
- GRPO, 8 updates
  GRPO's lower limit of 0.8 clips 1.7 % of the tokens in the table; here it is about half a per cent.
+ GRPO with DCPO's bounds, 8 updates
  few tokens are clipped below, as under limits that let rare tokens fall further; and the share of responses that
  teach comes down as groups die, so there is no memory.
- GRPO with DCPO's memory, 8 updates
  with a memory nearly all responses teach once prompts come back; here their share comes down.
- DCPO, 8 updates
  DCPO has the memory, too: nearly all responses would teach once prompts come back.
""")
def limits_of_dcpo() -> Figure:
    often = {"updates_per_rollout": 8, "prompt_pool": 48, "lr": 1e-4, "lr_warmup_steps": 5}
    return _trained(
        replace(GRPO.without_kl(), bounds=DCPO.bounds),
        {"steps": 20, "num_prompts": 12, **often, **QUIET},
        ("How many tokens are clipped below?", "share of tokens", "clip_fraction_low", UP),
        ("How many responses teach?", "share of responses", "contributing", UP),
        ACCURACY,
    )


@unlabelled("""
kl: a KL term that destroys
- no KL term, 4 updates a rollout
  without a term accuracy would go on rising, to .8 and beyond.
- β = 1, k3 in the loss, 4 updates
  k3 at β = 1 holds the policy near the start: the KL would stay near .03.
- β = 1, k1 in the loss, 1 update
  with one update k1 pulls nowhere on average: accuracy would go on rising.
+ β = 1, k1 in the loss, 4 updates
  the KL grows without end and accuracy falls: from the second update on, k1 pushes away from the policy that sampled.
- β = 0.04, k3 in the loss, 4 updates
  so small a β is hardly felt: accuracy would go on rising.
""")
def k1_in_the_loss() -> Figure:
    return _trained(
        replace(GRPO, kl=KLInLoss(beta=1.0, estimator=k1)),
        {"steps": 16, "num_prompts": 16, "updates_per_rollout": 4, **QUIET},
        ACCURACY,
        ("How large is the logged KL?", "nats per token", "kl", UP),
        ("How undecided is it?", "entropy, nats per token", "entropy", UP),
    )


@unlabelled("""
preferences_and_dpo: no reference
- DPO, β = 0.1
  with a reference the first margin is exactly 0 and the first weight ½; and with β = 0.1 rejected responses lose
  three times as many nats.
- DPO, β = 1
  the nats would fit. But with a reference the first margin is exactly 0 and the first weight ½, whatever β is: look
  at update 1.
- DPO, chosen and rejected exchanged
  with a reference the first margin is exactly 0 and the first weight ½, whichever response is called chosen: look at
  update 1.
- DPO, a learning rate of 0
  then margin, weight and log-probabilities would stay at 0, ½ and 0.
+ no reference: 2 · the mean log π of a token is the reward
  at update 1 the policy is its own reference, so DPO's margin would be 0 and its weight ½. Here the margin is above 1
  at once: the start already finds chosen responses likelier.
""")
def without_a_reference() -> Figure:
    return _trained(
        replace(DPO, reward=LengthNormalized(2.0)),
        {"steps": 60, "batch_size": 16, "lr": 6e-4, "num_pairs": 300, "evaluate_every": 0},
        ("How far apart are the two rewards?", "margin", "margin", UP),
        ("What weight does a pair have?", "mean weight", "pull", (0, 0.5)),
        ("How far did rejected ones move?", "nats, against the start", "rejected_gain", (None, 0)),
    )


@unlabelled("""
two_engines: a sampler that is not the trainer
- one engine
  with one engine every w is 1, and no token is apart.
- a sampler of 3 bits
  rounding is there from step 1, as here; but a rounded sampler is nearly as often right as the trainer. Look at the
  gap in the middle.
- a sampler 8 steps old
  in step 1 there are no older weights: an old sampler begins at 0. Here they are apart at once.
- a sampler 8 steps old, with TIS
  in step 1 there are no older weights: an old sampler begins at 0, corrected or not.
+ a sampler at temperature 1.3
  apart from step 1 on, so it is not age; and the sampled responses are right far less often than the trainer's own,
  to the end: a hot sampler errs more, and the trainer learns from its errors.
""")
def hot_sampler() -> Figure:
    both = {"accuracy": "sampled responses", "held_out_accuracy": "held out, by the trainer"}
    return _trained(
        GRPO.without_kl(),
        {"steps": 48, "num_prompts": 16, "seed": 3, "sampler_temperature": 1.3, **QUIET, "evaluate_every": 8},
        ("When are the engines apart?", "tokens with w outside .8 to 1.2", "mismatch_outside", UP),
        ("Who is right more often?", "accuracy", both, UP),
        ("How unsure is the trainer?", "nats per token", "entropy", UP),
    )


@unlabelled("""
take_it_home: the log of a run that disappoints, as TRL writes it
- a learning rate of 1e-2
  large steps break a policy that began well: here something is wrong in step 1.
- a learning rate of 1e-6
  then nothing would change; here the length and the entropy do.
+ responses of five tokens at most
  responses are cut off from step 1 on. A running sum such as 38058#8 needs eight tokens, so only guesses fit; that
  most groups are all wrong comes later, and is a consequence.
- temperature 2
  then the responses would begin as noise, with two nats a token and more.
- nothing: it only needs more steps
  what is longer than the limit can never be sampled, however many steps.
""")
def cut_short() -> Figure:
    run = _history(
        GRPO.without_kl(), {"steps": 24, "num_prompts": 8, "lr_warmup_steps": 2, "max_new_tokens": 5, **QUIET}
    )
    rows = run[list(LOGGED)].rename(columns=LOGGED).to_dict("records")
    with tempfile.TemporaryDirectory() as folder:
        log, back = Path(folder) / "trainer_state.json", Path(folder) / "back"
        log.write_text(json.dumps({"log_history": rows}), encoding="utf-8")
        import_run(log, back)
        for finding in diagnose(back):
            print(f"{finding.grade}: {finding.finding}\n    try {finding.setting}: {finding.advice}")  # noqa: T201
        return plot_learning_curves(RunFolder.open(back).metrics, title="What went wrong in this run?")


@unlabelled("""
keeping_entropy: a bonus of entropy that keeps it undecided
- a learning rate of 0.1 in place of 0.5
  small steps only delay: both curves would still be moving at the end. Here they have come to rest.
+ an entropy bonus of 0.3
  both curves come to rest early, at about 2 nats and .8 right: there reward and bonus pull with equal force, and more
  steps change nothing.
- a coin for a reward
  then the accuracy could not rise: there is nothing to learn.
- groups of 2 in place of 8
  small groups learn late, and then go on: the entropy would fall below 1 nat by the end.
- no limits
  without limits eight updates decide it in a few rollouts: the entropy would be below 0.3 after ten.
""")
def with_a_bonus() -> Figure:
    run = train_table(replace(GRPO, kl=None), steps=60, lr=0.5, updates_per_rollout=8, entropy_weight=0.3, replicas=16)
    return _tabulated(
        ("How undecided is it?", "entropy, nats", run.entropy, UP),
        ("How often is it right?", "accuracy", run.accuracy, UP),
        width=11,
    )
