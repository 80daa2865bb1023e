"""A step on a real model against TRL's `GRPOTrainer`: the same weights, prompts, loss, schedule and size, in turns.

    python tests/benchmarks/bench_real_model.py MODEL [PAIRS [PROMPT TOKENS [G [T [LORA RANK, 0: all weights]]]]]

MODEL: a folder, a .gguf file or a hub name, such as SmolLM2-135M-Instruct. A step is one prompt of so many tokens, G responses
of T tokens, one update of GRPO without a KL term. First one batch that TRL sampled: loss and gradients of both. Then pairs of a
step of each, of which the first pair is not counted: seconds by the clock of sampling, of the rest (scoring and update), and of
the whole step; at last the memory that each takes at its peak on top of the model. TRL is installed for this only.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from rlviz import GRPO, train
from rlviz.settings import TrainSettings
from rlviz.types import Batch
from small_models.policies import Policy, load_policy
from small_models.sampling import compute_logp
from small_models.tasks import Grade, Task
from tests.training.peak import peak_bytes

NO_KL = replace(GRPO, kl=None)
WORDS = "It was a long day in the old town by the sea and the people had much to tell each other about the ships "


class Vowels(Task):
    """Continue a text: the reward is the share of vowels, so that groups differ."""

    name, description = "vowels", "a text with many vowels"

    def __init__(self, prompts: list[str], longest: int) -> None:
        self.prompts, self.max_new_tokens = prompts, longest

    def all_prompts(self) -> list[str]:
        return self.prompts

    def gold(self, prompt: str) -> str:
        return ""

    def demonstrate(self, prompt: str, rng: Any) -> str:
        return ""

    def grade(self, prompt: str, response: str) -> Grade:
        return Grade(format=True, correct=False)

    def reward(self, prompt: str, response: str) -> float:
        return sum(response.count(letter) for letter in "aeiou") / max(1, len(response))


def prompts_of(policy: Policy, length: int, count: int) -> list[str]:
    """Return texts of so many tokens each."""
    ids = policy.tokenizer(WORDS * 20)["input_ids"]
    return [policy.tokenizer.decode(ids[start : start + length]) for start in range(count)]


class Ours:
    def __init__(self, policy: Policy, task: Task, group: int, lora: int, steps: int) -> None:
        self.policy = policy.with_lora(lora) if lora else policy
        settings = TrainSettings(
            steps=steps, num_prompts=1, group_size=group, max_new_tokens=task.max_new_tokens, lr=1e-6, lr_warmup_steps=0,
            evaluate_every=0, details_every=0,
        )  # fmt: skip
        self.run = train(self.policy, task, NO_KL, settings)

    def step(self) -> tuple[float, float]:
        """Do a step; return the seconds of sampling and of all of it."""
        from rlviz.training import step as module

        seconds, sample = [], module.sample_and_grade

        def timed(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = sample(*arguments)
            seconds.append(time.perf_counter() - start)
            return result

        module.sample_and_grade = timed
        start = time.perf_counter()
        next(self.run)
        module.sample_and_grade = sample
        return sum(seconds), time.perf_counter() - start


class Theirs:
    def __init__(self, policy: Policy, task: Task, group: int, lora: int, steps: int, folder: str) -> None:
        from datasets import Dataset
        from peft import LoraConfig
        from trl import GRPOConfig, GRPOTrainer

        longest = task.max_new_tokens
        config = GRPOConfig(
            output_dir=folder, max_steps=steps, per_device_train_batch_size=group, num_generations=group,
            gradient_accumulation_steps=1, max_completion_length=longest, temperature=1.0, learning_rate=1e-6,
            lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=1.0, beta=0.0, scale_rewards="group", use_cpu=True,
            bf16=False, gradient_checkpointing=False, save_strategy="no", report_to="none", disable_tqdm=True,
            loss_type="grpo", epsilon=0.2, generation_kwargs={"min_new_tokens": longest},
        )  # fmt: skip
        peft = LoraConfig(r=lora, lora_alpha=2 * lora, target_modules="all-linear") if lora else None
        self.trainer = GRPOTrainer(
            policy.model,
            reward_funcs=lambda completions, **_: [task.reward("", text) for text in completions],
            args=config,
            train_dataset=Dataset.from_dict({"prompt": list(task.train_prompts)}),
            processing_class=policy.tokenizer,
            peft_config=peft,
        )
        self.trainer.current_gradient_accumulation_steps = 1
        self.trainer.create_optimizer_and_scheduler(num_training_steps=steps)
        self.model = self.trainer.model
        self.batches = iter(self.trainer.get_train_dataloader())

    def inputs(self) -> tuple[float, Any]:
        """Return the seconds of sampling, and a batch with its advantages."""
        seconds: list[float] = []
        generate = self.trainer._generate

        def timed(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            result = generate(*arguments, **named)
            seconds.append(time.perf_counter() - start)
            return result

        self.trainer._generate = timed
        self.trainer._step = 0  # a new batch for every step
        inputs = self.trainer._prepare_inputs(next(self.batches))
        self.trainer._generate = generate
        return sum(seconds), inputs

    def step(self) -> tuple[float, float]:
        start = time.perf_counter()
        self.model.train()
        sampling, inputs = self.inputs()
        self.trainer.compute_loss(self.model, inputs).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.trainer.optimizer.step()
        self.trainer.optimizer.zero_grad()
        return sampling, time.perf_counter() - start


def compare_gradients(theirs: Theirs, policy: Policy) -> None:
    """Print how far loss and gradients of one batch are apart: TRL's, and ours of the same tokens."""
    _, inputs = theirs.inputs()
    theirs.model.eval()
    loss = theirs.trainer.compute_loss(theirs.model, inputs)
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in theirs.model.named_parameters() if p.grad is not None}
    theirs.model.zero_grad()
    same = Policy(theirs.model, policy.vocabulary, "the same")
    tokens, mask = (inputs[name].unsqueeze(0) for name in ("completion_ids", "completion_mask"))
    prompt = inputs["prompt_ids"][:1], inputs["prompt_mask"][:1].bool()
    logp, _ = compute_logp(same, *prompt, tokens, wanted=mask.bool())
    advantages = inputs["advantages"].view(1, -1, 1).expand_as(logp)
    mask = mask.bool()
    ours = NO_KL.loss(logp, Batch(logp.detach(), advantages, mask, weights=NO_KL.aggregate(mask))).loss
    ours.backward()
    far = max(
        float((p.grad - gradients[name]).abs().max() / gradients[name].abs().max().clamp(min=1e-12))
        for name, p in theirs.model.named_parameters()
        if name in gradients and gradients[name].abs().max() > 0
    )
    theirs.model.zero_grad()
    print(
        f"one batch: loss {float(loss):.6f} and {float(ours):.6f}, gradients apart by {far:.1e} of the largest",
        flush=True,
    )


def main(source: str, pairs: int = 3, length: int = 48, group: int = 8, longest: int = 24, lora: int = 16) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    policies = [load_policy(source, device="cpu") for _ in range(2)]
    task = Vowels(prompts_of(policies[0], length, 40), longest)
    with tempfile.TemporaryDirectory() as folder:
        trl = Theirs(policies[1], task, group, lora, pairs + 10, folder)
        compare_gradients(trl, policies[1])
        ours = Ours(policies[0], task, group, lora, pairs + 10)
        ours.step(), trl.step()
        what = f"{'LoRA ' + str(lora) if lora else 'all weights'}, prompt {length}, {group} × {longest} tokens"
        print(f"{what}: seconds of sampling, the rest, the step; ours | TRL | ratios", flush=True)
        ratios = []
        for _ in range(pairs):
            a, b = (
                np.array([sampling, seconds - sampling, seconds]) for sampling, seconds in (ours.step(), trl.step())
            )
            ratios.append(b / a)
            print("  ", a.round(2), "|", b.round(2), "|", (b / a).round(2), flush=True)
        print("median ratios:", np.median(ratios, 0).round(2), flush=True)
        sides: dict[str, Callable[[], object]] = {"ours": ours.step, "TRL": trl.step}
        peaks = {name: peak_bytes(step) / 2**20 for name, step in sides.items()}
        print(
            "peak of a step on top of the model:",
            {name: f"{peak:,.0f} MiB" for name, peak in peaks.items()},
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1], *(int(number) for number in sys.argv[2:]))
