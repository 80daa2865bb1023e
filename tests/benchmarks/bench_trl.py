"""Whole runs against TRL's `GRPOTrainer`: the same weights, task, rewards, batches, loss and schedule, in turns.

A pair is a run of ours and a run of the peer with one seed. `grpo` and `dapo` start from the shipped chain policy: steps of 16
prompts × 8 responses, lr 3e-4 after 10 steps of warm-up, gradient norm 1, no KL term, temperature 1, at most 9 tokens; `grpo`
takes one update a step with GRPO's mean over sequences and clip 0.2, `dapo` four with the token mean and clip 0.2 and 0.28,
without dynamic sampling and the punishment of length, which the trainer does not have. For `ppo` and `lookup` (the task with a
tool) TRL has no peer of equal mathematics: theirs is our own run by transformers' modules, each response read whole, which is
how all runs were computed before there was a plain path.
Timed is training alone, its logging included; models, data and trainers are made before. Both run on one thread, the faster
number for so small a model, so that seconds of the processor are the seconds of a quiet machine; those are compared first, and
whoever else is busy matters little. TRL is installed for this only:

    pip install -e . trl && python tests/benchmarks/bench_trl.py [grpo|dapo|ppo|lookup [PAIRS [STEPS]]]

Groups that are all right leave our update, and equal responses to a prompt are read once, so the ratio grows over a run.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from rlviz import DAPO, GRPO, PPO, train
from rlviz.algorithms.family import Algorithm
from rlviz.pieces.selection import keep_all
from rlviz.training import default_settings
from small_models.evaluation import evaluate
from small_models.policies import Policy, load_policy
from small_models.tasks import Chain, Lookup, Task

PROMPTS, GROUP, WARM_UP, LR = 16, 8, 10, 3e-4


@dataclass(frozen=True)
class Case:
    """What is run. trl: the arguments of a `GRPOConfig` that make TRL's loss ours, None where it has none."""

    algorithm: Algorithm
    task: Task
    updates: int = 1
    trl: dict[str, Any] | None = None


CASES = {
    "grpo": Case(replace(GRPO, kl=None), Chain(), trl={"loss_type": "grpo", "epsilon": 0.2}),
    "dapo": Case(
        replace(DAPO, select=keep_all, shape=None),
        Chain(),
        updates=4,
        trl={"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28, "num_iterations": 4},
    ),
    "ppo": Case(PPO, Chain()),
    "lookup": Case(replace(GRPO, kl=None), Lookup()),
}


@dataclass(frozen=True)
class Outcome:
    """A run: seconds of the processor and by the clock, mean reward of each step, held-out accuracy (sampled) in the end."""

    seconds: float
    elapsed: float
    rewards: list[float]
    accuracy: float


def ours(case: Case, steps: int, seed: int, *, on_transformers: bool = False) -> Outcome:
    policy = load_policy(case.task.name, device="cpu")
    policy = policy.on_transformers() if on_transformers else policy
    sizes = (
        {}
        if case.algorithm is PPO
        else {"num_prompts": PROMPTS, "group_size": GROUP, "updates_per_rollout": case.updates}
    )
    settings = default_settings(
        case.algorithm, steps=steps, lr=LR, lr_warmup_steps=WARM_UP, seed=seed, evaluate_every=0, details_every=0, **sizes
    )  # fmt: skip
    run = train(policy, case.task, case.algorithm, settings)
    start, clock = time.process_time(), time.perf_counter()
    records = list(run)
    spent = time.process_time() - start, time.perf_counter() - clock
    return Outcome(*spent, [record.reward for record in records], evaluate(policy, case.task).accuracy)


def theirs(case: Case, steps: int, seed: int) -> Outcome:
    if case.trl is None:
        return ours(case, steps, seed, on_transformers=True)
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    task, policy = case.task, load_policy(case.task.name, device="cpu")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(task.train_prompts), generator=generator)[: steps * PROMPTS].tolist()
    prompts = Dataset.from_dict({"prompt": [task.train_prompts[index] for index in order]})

    def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        end = policy.tokenizer.eos_token
        return [
            float(task.grade(prompt, completion.removesuffix(end)).correct)
            for prompt, completion in zip(prompts, completions, strict=True)
        ]

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder, max_steps=steps * case.updates, per_device_train_batch_size=PROMPTS * GROUP, num_generations=GROUP,
            gradient_accumulation_steps=1, max_completion_length=task.max_new_tokens, temperature=1.0,
            learning_rate=LR, lr_scheduler_type="constant_with_warmup", warmup_steps=WARM_UP, weight_decay=0.0,
            max_grad_norm=1.0, beta=0.0, scale_rewards="group", seed=seed, use_cpu=True,
            bf16=False, gradient_checkpointing=False, logging_steps=1, save_strategy="no", report_to="none",
            disable_tqdm=True, shuffle_dataset=False, **case.trl,
        )  # fmt: skip
        trainer = GRPOTrainer(
            policy.model, reward_funcs=reward, args=config, train_dataset=prompts, processing_class=policy.tokenizer
        )
        for callback in list(trainer.callback_handler.callbacks):  # no line a step on the screen
            if type(callback).__name__ == "PrinterCallback":
                trainer.remove_callback(callback)
        start, clock = time.process_time(), time.perf_counter()
        trainer.train()
        spent = time.process_time() - start, time.perf_counter() - clock
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    trained = Policy(trainer.model.eval(), policy.tokenizer, "trl")
    return Outcome(*spent, rewards, evaluate(trained, task).accuracy)


def main(name: str = "grpo", pairs: int = 5, steps: int = 200) -> None:
    case = CASES[name]
    peer = "TRL" if case.trl else "before"
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    theirs(case, 2, 0), ours(case, 2, 0)  # imports and first calls
    runs = []
    print(f"{'pair':4} {'ours':>8} {peer:>8} {'ratio':>6}   last 10 steps' reward   held-out accuracy")
    for seed in range(pairs):
        pair = (ours(case, steps, seed), theirs(case, steps, seed))
        runs.append(pair)
        seconds, rewards, accuracies = zip(
            *((r.seconds, np.mean(r.rewards[-10:]), r.accuracy) for r in pair), strict=True
        )
        print(
            f"{seed:4} {seconds[0]:6.1f} s {seconds[1]:6.1f} s {seconds[1] / seconds[0]:5.2f}×   "
            f"{rewards[0]:.3f} and {rewards[1]:.3f}        {accuracies[0]:.3f} and {accuracies[1]:.3f}",
            flush=True,
        )
    ratios = [b.seconds / a.seconds for a, b in runs]
    by_the_clock = [b.elapsed / a.elapsed for a, b in runs]
    for watch, of in (("processor", ratios), ("clock", by_the_clock)):
        print(f"median ratio by the {watch}: {np.median(of):.2f}× ({min(of):.2f} to {max(of):.2f})")
    print(f"mean reward by step, ours and {peer}, mean over the pairs")
    for first in range(0, steps, max(1, steps // 10)):
        last = min(steps, first + max(1, steps // 10))
        means = [np.mean([run.rewards[first:last] for run in side]) for side in zip(*runs, strict=True)]
        print(f"  {first + 1:4}–{last:<4} {means[0]:.3f}  {means[1]:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:2], *(int(number) for number in sys.argv[2:]))
