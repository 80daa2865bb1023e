"""What TRL, ms-swift, verl, OpenRLHF, SkyRL, NeMo-RL and slime call their metrics, and which column of rlviz's records each is.

A log is read by the names that it shares with one of these, no matter which program wrote it (`writer_of`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from rlviz.runs.measures import NAN
from rlviz.runs.rules import Program
from rlviz.types import PART

Names = Mapping[str, str]
TAG = "tag-"  # before the name of a metric in the name of TensorBoard's file, in which _ stands for each /
LONGEST_NAME = 200  # characters of a metric's name
SEPARATOR = re.compile(r" */ *")  # a table that was copied from a notebook has spaces around it
PART_MEAN = re.compile(r"rewards/([^/]+)(/mean)?")  # older TRL wrote the mean of a part without saying so
VALIDATION = re.compile(r"val-(core|aux)/.+/acc/mean@\d+|validation/accuracy")
ACCURACY = re.compile(r"(eval_)?rewards/\w*(accuracy|correct)\w*(/mean)?")

GRPO: Names = {
    "reward": "reward",
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "lr",
    "entropy": "entropy",
    "kl": "kl",
    "completion_length": "response_length",
    "completions/mean_length": "response_length",
    "completions/clipped_ratio": "truncated",
    "frac_reward_zero_std": "zero_variance_groups",
    "clip_ratio/low_mean": "clip_fraction_low",
    "clip_ratio/high_mean": "clip_fraction_high",
    "clip_ratio/dual_mean": "clip_fraction_dual",
    "step_time": "seconds",
}
DPO: Names = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "lr",
    "entropy": "entropy",
    "rewards/margins": "margin",
    "rewards/accuracies": "pair_accuracy",
    "rewards/chosen": "chosen_reward",
    "rewards/rejected": "rejected_reward",
    "logps/chosen": "chosen_logp",
    "logps/rejected": "rejected_logp",
}
RLOO: Names = {  # of TRL's RLOOTrainer before 0.22; since then it writes what GRPOTrainer does
    "objective/scores": "reward",
    "policy/entropy_avg": "entropy",
    "loss/policy_avg": "loss",
    "lr": "lr",
}
PPO: Names = {  # of TRL's PPOTrainer; env/ and ppo/ are those of 0.11 and before
    "env/reward_mean": "reward",
    "ppo/policy/entropy": "entropy",
    "ppo/loss/total": "loss",
    "ppo/learning_rate": "lr",
    "ppo/val/var_explained": "explained_variance",
    "tokens/responses_len_mean": "response_length",
    **RLOO,
    "loss/value_avg": "value_loss",
}
VERL: Names = {  # as its trainer/ppo/ray_trainer.py and metric_utils.py of 0.9.1 write them, and older ones
    "critic/rewards/mean": "reward",
    "actor/pg_loss": "loss",
    "actor/loss": "loss",  # with the KL term, which pg_loss leaves out
    "actor/grad_norm": "grad_norm",
    "actor/lr": "lr",
    "actor/entropy_loss": "entropy",  # its name until 2025-05
    "actor/entropy": "entropy",
    "critic/kl": "kl",
    "actor/reward_kl_penalty": "kl",
    "actor/kl_loss": "kl",
    "response_length/mean": "response_length",
    "response_length/clip_ratio": "truncated",
    "actor/pg_clipfrac_lower": "clip_fraction_dual",
    "timing_s/step": "seconds",
    "rollout_corr/k3_kl": "mismatch_kl",
    "critic/vf_loss": "value_loss",
    "critic/vf_explained_var": "explained_variance",
}
OPENRLHF: Names = {
    "reward": "reward",
    "policy_loss": "loss",
    "actor_loss": "loss",
    "actor_lr": "lr",
    "actor_grad_norm": "grad_norm",
    "kl": "kl",
    "entropy_loss": "entropy",
    "response_length": "response_length",
    "truncated": "truncated",
    "critic_loss": "value_loss",
    "vllm_kl": "mismatch_kl",
}
SKYRL: Names = {
    "loss/avg_final_rewards": "reward",
    "reward/avg_raw_reward": "reward",
    "policy/policy_loss": "loss",
    "policy/final_loss": "loss",
    "policy/grad_norm": "grad_norm",
    "policy/raw_grad_norm": "grad_norm",
    "policy/policy_lr": "lr",
    "policy/policy_kl": "kl",
    "policy/policy_entropy": "entropy",
    "generate/avg_num_tokens": "response_length",
    "timing/step": "seconds",
}
NEMO_RL: Names = {
    "reward": "reward",
    "loss": "loss",
    "grad_norm": "grad_norm",
    "lr": "lr",
    "kl_penalty": "kl",
    "approx_entropy": "entropy",
    "mean_gen_tokens_per_sample": "response_length",
    "gen_kl_error": "mismatch_kl",
}
SLIME: Names = {  # which puts train/ before all but what it says of a rollout
    "rollout/raw_reward": "reward",
    "pg_loss": "loss",
    "loss": "loss",
    "grad_norm": "grad_norm",
    "lr-pg_0": "lr",
    "entropy_loss": "entropy",
    "kl_loss": "kl",
    "rollout/response_len/mean": "response_length",
    "rollout/truncated_ratio": "truncated",
    "perf/step_time": "seconds",
}
MORE: Names = {  # what no record of rlviz has, and `diagnose` looks at
    "reward_std": "reward_std",
    "sampling/sampling_logp_difference/mean": "sampler_logp_gap",
    "policy/rollout_train_logprobs_abs_diff_mean": "sampler_logp_gap",
    "train_rollout_logprob_abs_diff": "sampler_logp_gap",
    "training/rollout_probs_diff_mean": "sampler_prob_gap",
    "sampling/importance_sampling_ratio/mean": "importance_ratio",
    "rollout_corr/rollout_is_mean": "importance_ratio",
    "sampling_importance_ratio": "importance_ratio",
    "critic/rewards/max": "reward_max",
    "critic/rewards/min": "reward_min",
    "val/num_eos_tokens": "end_tokens",
    "objective/kl": "kl_sum",
    "objective/rlhf_reward": "rlhf_reward",
}
UPDATE = {"loss", "grad_norm"}  # columns that are no measurements: with NaN there the policy is lost
CRITIC_NORM = "critic/grad_norm"  # verl's, beside the losses
SWIFT = {"global_step/max_steps", "train_speed(iter/s)", "train_speed(s/it)", "memory(GiB)", "entropy/mean"}


@dataclass(frozen=True)
class Writer:
    """A program that writes logs. title: whose names they are; names: its metric → column; program: whose options advice has."""

    title: str
    names: Names
    program: Program


WRITERS: Mapping[str, Writer] = {  # of as many shared names the first one's
    "trl": Writer("TRL's GRPOTrainer or RLOOTrainer", GRPO, "trl"),
    "verl": Writer("verl's trainer", VERL, "verl"),
    "trl-dpo": Writer("TRL's DPOTrainer", DPO, "trl"),
    "trl-rloo": Writer("TRL's older RLOOTrainer", RLOO, "plain"),
    "trl-ppo": Writer("TRL's PPOTrainer", PPO, "plain"),
    "openrlhf": Writer("OpenRLHF's trainer", OPENRLHF, "plain"),
    "skyrl": Writer("SkyRL's trainer", SKYRL, "plain"),
    "nemo-rl": Writer("NeMo-RL's trainer", NEMO_RL, "plain"),
    "slime": Writer("slime's trainer", SLIME, "plain"),
    "ms-swift": Writer("ms-swift's GRPO trainer", {**GRPO, "entropy/mean": "entropy"}, "plain"),
}
ALL_NAMES: Names = {**{n: column for writer in WRITERS.values() for n, column in writer.names.items()}, **MORE}
# a printed dictionary that has one of them is a step of training; a configuration has others
STEP_NAMES = {name for name, column in ALL_NAMES.items() if column in ("reward", "loss", "margin")}
FLAT = {name.replace("/", "_"): name for name in ALL_NAMES}
TABLE_NAMES = {"Training Loss": "loss", "Validation Loss": "eval_loss"}  # in the table that Trainer draws in a notebook


def writer_of(logged: Set[str]) -> str:
    """Return whose names these are, a key of WRITERS: the program that shares most of them."""
    if logged & SWIFT and logged & set(GRPO):
        return "ms-swift"
    return max(WRITERS, key=lambda key: len(logged & set(WRITERS[key].names)) - (key == "ms-swift"))


def metric_name(name: str) -> str:
    """Return the trainer's name of a metric, before which W&B and TensorBoard put train/."""
    if name.startswith(TAG):
        flat = name.removeprefix(TAG).removeprefix("train_")
        return FLAT.get(flat, re.sub(r"^rewards_(\w+)_mean$", r"rewards/\1/mean", flat))
    name = SEPARATOR.sub("/", TABLE_NAMES.get(name, name))
    return re.sub(r"^eval/", "eval_", name.removeprefix("train/"))


def nonfinite_columns(rows: Iterable[Mapping[str, float]]) -> list[dict[str, float]]:
    """Return for each step 1 for a metric that was logged as no finite number, and 0 where only another step's was none.

    The columns are a kind of NAN and the metric's name. What the policy's update is made of is left out.
    """
    rows = list(rows)
    columns = {}
    for name in sorted({name for row in rows for name, value in row.items() if not abs(value) < math.inf}):
        column = ALL_NAMES.get(name)
        if column == "value_loss" or name == CRITIC_NORM:
            kind = "critic"
        else:
            kind = "kl" if column == "kl" else "clip" if "clip" in name else "other"
        if column not in UPDATE:
            columns[name] = f"{NAN[kind]}{name}"
    return [{columns[n]: float(not abs(value) < math.inf) for n, value in row.items() if n in columns} for row in rows]


def is_accuracy(name: str) -> bool:
    """Return whether a metric is a share of right responses."""
    return bool(ACCURACY.fullmatch(name) or VALIDATION.fullmatch(name))


def extra_column(name: str) -> str | None:
    """Return the column of what `diagnose` looks at beside a record's: one of MORE, or the mean of a part of the reward."""
    part = PART_MEAN.fullmatch(name)
    return MORE.get(name) or (f"{PART}{part[1]}" if part and name not in DPO and not is_accuracy(name) else None)
