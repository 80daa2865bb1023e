"""Trains runs by TRL's own trainers on which `diagnose` is tested: `python -m tests.runs.trl_runs [NAME …]`.

Each is a small policy of ours with one thing that is wrong, or sound. What TRL logged is kept in trl_runs.json.gz, as it stands
in trainer_state.json. The second run of each sickness, and half of the sound ones, were not looked at while rules were made. Two
of these had to be made anew then (their reference was another policy's by a fault of ours, which the new rule found), and one
had not been hacked, as it was meant to be, and gave way to "long pays".
"""

from __future__ import annotations

import gzip
import json
import logging
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.runs.diagnosed_runs import train_and_keep

FILE = Path(__file__).with_suffix(".json.gz")
Rewards = tuple[Callable[..., list[float]], ...]
DEFAULTS: Mapping[str, Any] = {
    "learning_rate": 3e-4,
    "lr_scheduler_type": "constant",
    "per_device_train_batch_size": 64,
    "num_generations": 8,
    "max_completion_length": 24,
    "max_steps": 40,
    "logging_steps": 1,
    "beta": 0.0,
    "seed": 0,
}


@dataclass(frozen=True)
class Plan:
    """A run. sickness: what is wrong, "sound" where nothing is. options: of GRPOConfig, or of DPOConfig where pairs is set.
    rewards: names of the functions below. damage: what is done to the trainer before it trains."""

    sickness: str
    task: str = "chain"
    options: Mapping[str, Any] = field(default_factory=dict)
    rewards: tuple[str, ...] = ("right",)
    policy: str | None = None
    damage: str | None = None
    pairs: bool = False


PLANS = {  # of each sickness the first was looked at, and the second held out
    "constant 1": Plan("constant reward", rewards=("always_one",)),
    "constant, KL": Plan("constant reward", "sort", {"beta": 0.04, "seed": 1}, ("always_half",)),
    "lr x 100": Plan("learning rate too large", options={"learning_rate": 3e-2}),
    "lr x 30, 4 passes": Plan("learning rate too large", "sort", {"learning_rate": 1e-2, "num_iterations": 4, "seed": 2}),
    "reference moved": Plan("another reference", options={"beta": 0.04}, damage="move_reference"),
    "reference of sort": Plan("another reference", options={"beta": 0.001, "seed": 3}, damage="take_reference_of_sort"),
    "NaN from step 14": Plan("not finite", options={"num_iterations": 4}, damage="overflow_at_13"),
    "lr 1e20": Plan("not finite", "sort", {"learning_rate": 1e20, "max_grad_norm": 1e20, "num_iterations": 2, "seed": 4}),
    "4 tokens": Plan("cut off", options={"max_completion_length": 4}),
    "8 tokens, sort": Plan("cut off", "ramble", {"max_completion_length": 7, "seed": 5}),
    "hot": Plan("temperature too high", options={"temperature": 2.5}),
    "hot sort": Plan("temperature too high", "sort", {"temperature": 3.0, "seed": 6}),
    "lr / 1e5": Plan("learning rate too small", options={"learning_rate": 3e-9}),
    "lr default": Plan("learning rate too small", "trip", {"learning_rate": 1e-6, "max_steps": 60, "seed": 7}),
    "boxed": Plan("never rewarded", rewards=("boxed",)),
    "another task's policy": Plan("never rewarded", "chain", {"seed": 8}, policy="sort"),
    "leash": Plan("KL term too strong", options={"beta": 20.0}),
    "leash of 5": Plan("KL term too strong", "sort", {"beta": 5.0, "seed": 9}),
    "short pays": Plan("hacked", "chain", {"reward_weights": [1.0, 3.0], "learning_rate": 1e-3}, ("right", "short")),
    "long pays": Plan("hacked", "sort", {"reward_weights": [0.5, 2.0], "seed": 10, "max_steps": 60}, ("right", "long")),
    "bonus": Plan("entropy bonus too large", options={"entropy_coef": 1.0}),
    "bonus of 0.5": Plan("entropy bonus too large", "sort", {"entropy_coef": 0.5, "seed": 11}),
    "lr x 30, logged by 10": Plan(
        "learning rate too large", options={"learning_rate": 1e-2, "logging_steps": 10, "max_steps": 120}),
    "lr x 10, 8 passes": Plan(
        "learning rate too large", "trip", {"learning_rate": 3e-3, "num_iterations": 8, "max_steps": 80, "seed": 12}),
    "sound": Plan("sound", options={"max_steps": 60}),
    "sound sort, 4 passes": Plan("sound", "sort", {"num_iterations": 4, "seed": 13, "max_steps": 80}),
    "sound, KL": Plan("sound", options={"beta": 0.04, "loss_type": "grpo", "max_steps": 60}),
    "sound trip, groups of 4": Plan("sound", "trip", {"num_generations": 4, "seed": 14, "max_steps": 80}),
    "sound, logged by 10": Plan("sound", options={"logging_steps": 10, "max_steps": 150}),
    "sound DPO": Plan("sound", options={"seed": 15, "max_steps": 80, "learning_rate": 3e-4, "beta": 0.1}, pairs=True),
}  # fmt: skip
HELD_OUT = tuple(PLANS)[1::2]


def rewards_of(task: Any) -> dict[str, Callable[..., list[float]]]:
    """Return the reward functions by name; a trainer logs each under this name."""
    scores: dict[str, Callable[[str, str], float]] = {
        "right": lambda prompt, text: float(task.grade(prompt, text).correct),
        "always_one": lambda prompt, text: 1.0,
        "always_half": lambda prompt, text: -0.5,
        "boxed": lambda prompt, text: float(r"\boxed{" in text),
        "short": lambda prompt, text: 1 - len(text) / 24,
        "long": lambda prompt, text: len(text) / 24,
    }

    def named(name: str, score: Callable[[str, str], float]) -> Callable[..., list[float]]:
        def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
            return [score(prompt, text) for prompt, text in zip(prompts, completions, strict=True)]

        reward.__name__ = name
        return reward

    return {name: named(name, score) for name, score in scores.items()}


def move_reference(trainer: Any) -> None:
    torch.manual_seed(1)
    for weights in trainer.ref_model.parameters():
        weights.data.add_(0.1 * torch.randn_like(weights))


def take_reference_of_sort(trainer: Any) -> None:
    from small_models.policies import load_policy

    trainer.ref_model.load_state_dict(load_policy("sort", device="cpu").model.state_dict())


def overflow_at_13(trainer: Any) -> None:
    """Let one weight become infinite no number after the update of step 13, as float16 does."""
    from transformers import TrainerCallback

    class Overflow(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if state.global_step == 13:
                next(iter(model.parameters())).data[:] = float("nan")

    trainer.add_callback(Overflow())


def log_of(plan: Plan) -> list[dict[str, Any]]:
    """Train, and return what TRL logged; a run that ends by itself, too."""
    import datasets
    import trl

    from small_models.pairs import make_pairs
    from small_models.policies import load_policy
    from small_models.tasks import TASKS

    logging.disable(logging.WARNING)
    task = next(task for task in TASKS if task.name == plan.task)
    policy = load_policy(plan.policy or plan.task, device="cpu")
    common = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_strategy": "no", "bf16": False}
    with tempfile.TemporaryDirectory() as folder:
        if plan.pairs:
            pairs = make_pairs(policy, task, 400, seed=1)
            rows = [{"prompt": p.prompt, "chosen": p.chosen, "rejected": p.rejected} for p in pairs]
            only = {"per_device_train_batch_size": 16, "logging_steps": 1, "lr_scheduler_type": "constant"}
            args = trl.DPOConfig(output_dir=folder, **common, **only, **plan.options)
            trainer = trl.DPOTrainer(
                policy.model,
                args=args,
                train_dataset=datasets.Dataset.from_list(rows),
                processing_class=policy.tokenizer,
            )
        else:
            rows = [{"prompt": p} for p in task.train_prompts[:512]]
            args = trl.GRPOConfig(output_dir=folder, **common, **{**DEFAULTS, **plan.options})
            torch.manual_seed(args.seed)
            functions = rewards_of(task)
            trainer = trl.GRPOTrainer(
                policy.model,
                reward_funcs=[functions[name] for name in plan.rewards],
                args=args,
                train_dataset=datasets.Dataset.from_list(rows),
                processing_class=policy.tokenizer,
            )
        if plan.damage:
            globals()[plan.damage](trainer)
        try:
            trainer.train()
        except (RuntimeError, ValueError) as error:
            print(f"  ended by itself: {str(error).splitlines()[0]}", flush=True)
        return [{name: _short(value) for name, value in row.items()} for row in trainer.state.log_history]


def _short(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def read() -> dict[str, list[dict[str, Any]]]:
    """Return what is kept of the runs: name → log_history."""
    return json.loads(gzip.decompress(FILE.read_bytes()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    train_and_keep(FILE, PLANS, log_of)
