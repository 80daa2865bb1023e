"""Supervised warm-up: a few seconds of imitation, so that reinforcement learning has something to reinforce.

`python -m small_models.warm_start chain` rebuilds the shipped policy of a task.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from torch.nn import functional as F

from small_models.evaluation import evaluate
from small_models.policies import CHECKPOINTS, Policy, build_policy, one_thread_if_small
from small_models.sampling import encode_prompts, encode_responses, response_logits
from small_models.tasks import TASKS, Task


@dataclass(frozen=True)
class WarmUpRecord:
    """One look during the warm-up: updates so far, cross-entropy (nats per token), held-out sampled accuracy."""

    step: int
    loss: float
    accuracy: float


def warm_start(
    policy: Policy,
    task: Task,
    *,
    target_accuracy: float,
    max_steps: int = 1000,
    batch_size: int = 128,
    lr: float = 2e-3,
    evaluate_every: int = 5,
    seed: int = 0,
) -> Iterator[WarmUpRecord]:
    """Imitate the task's demonstrations until held-out accuracy, sampled at temperature 1, reaches the target.

    Changes the policy in place and yields a record every `evaluate_every` updates; stop by not asking for the next.
    Raises ValueError for a target outside (0, 1], and RuntimeError when `max_steps` updates do not reach it.
    """
    if not 0 < target_accuracy <= 1:
        raise ValueError(f"target_accuracy must be above 0 and at most 1; got {target_accuracy}")
    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=lr, weight_decay=0.0)
    accuracy = 0.0
    for step in range(1, max_steps + 1):
        with one_thread_if_small(policy):
            prompts = rng.choices(task.train_prompts, k=batch_size)
            tokens, mask = encode_responses(
                policy, [task.turns(prompt, task.demonstrate(prompt, rng)) for prompt in prompts]
            )
            prompt_ids, prompt_mask = encode_prompts(policy, prompts)
            logits = response_logits(policy, prompt_ids, prompt_mask, tokens)
            targets = tokens.masked_fill(~mask, -100)
            loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=-100)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
            optimizer.step()
        if step % evaluate_every == 0:
            accuracy = evaluate(policy, task, num_prompts=512).accuracy
            yield WarmUpRecord(step, float(loss.detach()), accuracy)
            if accuracy >= target_accuracy:
                return
    raise RuntimeError(f"{max_steps} updates reached accuracy {accuracy:.2f}, not {target_accuracy}; allow more steps")


def _main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Build a warm-started policy for a task.")
    parser.add_argument("task", choices=[task.name for task in TASKS])
    parser.add_argument("--target-accuracy", type=float, default=0.4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder to write (default: the shipped checkpoint of the task)")
    options = parser.parse_args(arguments)
    task = next(task for task in TASKS if task.name == options.task)
    out = options.out or CHECKPOINTS / task.name
    policy = build_policy(seed=options.seed, device="cpu")
    for record in warm_start(policy, task, target_accuracy=options.target_accuracy, seed=options.seed):
        print(f"update {record.step:4d}  loss {record.loss:.3f}  held-out accuracy {record.accuracy:.3f}", flush=True)
    policy.save(out)
    made = {
        "command": "python -m small_models.warm_start "
        + shlex.join(arguments if arguments is not None else sys.argv[1:]),
        "updates": record.step,
        "held_out_accuracy_sampled": evaluate(policy, task).accuracy,
        "held_out_accuracy_greedy": evaluate(policy, task, temperature=0).accuracy,
        "parameters": policy.num_parameters,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    temporary = out / ".made.json"
    temporary.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, out / "made.json")
    print(json.dumps(made, indent=2))


if __name__ == "__main__":
    _main()
