"""Supervised warm-up: a few seconds of imitation, so that reinforcement learning has something to reinforce.

`python -m small_models.warm_start NAME` rebuilds a shipped policy by its recipe.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from small_models.evaluation import beginning_logp, evaluate
from small_models.files import replace_files
from small_models.policies import CHECKPOINTS, Policy, build_policy, one_thread_if_small
from small_models.sampling import encode_prompts, encode_responses, response_logits, sample
from small_models.shipped_files import WEIGHTS
from small_models.tasks import Chain, Lookup, Ramble, Sentences, Sort, Task, Trip
from small_models.tasks.sentences import LONGEST, TOKENS, WORDS, is_sentence
from small_models.tokenizer import CHARACTERS


@dataclass(frozen=True)
class WarmUpRecord:
    """One look during the warm-up: updates so far, cross-entropy (nats per token), held-out sampled accuracy, if there is one."""

    step: int
    loss: float
    accuracy: float | None


def warm_start(
    policy: Policy,
    task: Task,
    *,
    target_accuracy: float | None,
    max_steps: int = 1000,
    batch_size: int = 128,
    lr: float = 2e-3,
    evaluate_every: int = 5,
    seed: int = 0,
) -> Iterator[WarmUpRecord]:
    """Imitate the task's demonstrations until held-out accuracy, sampled at temperature 1, reaches the target.

    Changes the policy in place and yields a record every `evaluate_every` updates and after the last; stop by not asking for
    the next. Without a target (None) it makes `max_steps` updates, whatever they reach.
    Raises ValueError for a target outside (0, 1], or of a task without right answers, and RuntimeError when `max_steps` updates
    do not reach it.
    """
    if target_accuracy is not None and not 0 < target_accuracy <= 1:
        raise ValueError(f"target_accuracy must be above 0 and at most 1; got {target_accuracy}")
    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=lr, weight_decay=0.0)
    if target_accuracy is not None and not task.has_accuracy:
        raise ValueError(f"target_accuracy must be None, as {task.name} has no right answers; got {target_accuracy}")
    accuracy: float | None = 0.0
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
        if step % evaluate_every == 0 or step == max_steps:
            accuracy = evaluate(policy, task, num_prompts=512).accuracy
            yield WarmUpRecord(step, float(loss.detach()), accuracy)
            if target_accuracy is not None and accuracy is not None and accuracy >= target_accuracy:
                return
    if target_accuracy is None:
        return
    raise RuntimeError(f"{max_steps} updates reached accuracy {accuracy:.2f}, not {target_accuracy}; allow more steps")


@dataclass(frozen=True)
class Phase:
    """A stretch of imitation: as in `warm_start`, which makes `max_steps` updates where there is no target."""

    task: Task
    target_accuracy: float | None = None
    max_steps: int = 1000
    batch_size: int = 128
    lr: float = 2e-3


@dataclass(frozen=True)
class Recipe:
    """How the shipped policy of this name is made: phases in order, on a policy with this many experts a layer (0: dense).

    tokens: its vocabulary. half: whether it is shipped in float16. measure: what is measured beside accuracy at every look.
    """

    name: str
    phases: tuple[Phase, ...]
    experts: int = 0
    tokens: Sequence[str] = CHARACTERS
    half: bool = False
    measure: Callable[[Policy], dict[str, float]] = lambda _: {}

    @property
    def task(self) -> Task:
        """The task that the policy is made for."""
        return self.phases[-1].task

    def make(self, seed: int = 0) -> Iterator[tuple[Policy, WarmUpRecord]]:
        """Yield the policy, which changes in place, with each look at it; updates are counted over all phases."""
        policy = build_policy(experts=self.experts, tokens=self.tokens, seed=seed, device="cpu")
        done = 0
        for phase in self.phases:
            settings = {name: value for name, value in vars(phase).items() if name != "task"}
            for record in warm_start(policy, phase.task, **settings, seed=seed):
                yield policy, replace(record, step=done + record.step)
            done += record.step


def measure_reasoning(policy: Policy, num_prompts: int = 512) -> dict[str, float]:
    """Return what a `chain` policy does on held-out prompts: how probable it is to reason, and how right it is then.

    probability_of_reasoning: mean over prompts of the probability, not sampled, that the first token is the first running
    sum. accuracy_once_begun: share of right answers, one sampled a prompt, when that token is given.
    """
    task = Chain()
    prompts = task.held_out_prompts[:num_prompts]
    first = [task.running_sums(prompt)[0] for prompt in prompts]
    begun = [prompt + token for prompt, token in zip(prompts, first, strict=True)]
    samples = sample(policy, begun, max_new_tokens=task.max_new_tokens - 1, generator=torch.Generator().manual_seed(0))
    texts = [token + row[0] for token, row in zip(first, samples.texts(policy), strict=True)]
    right = [bool(task.grade(prompt, text).correct) for prompt, text in zip(prompts, texts, strict=True)]
    return {
        "probability_of_reasoning": float(beginning_logp(policy, prompts, first).exp().mean()),
        "accuracy_once_begun": sum(right) / len(right),
    }


def measure_sentences(policy: Policy) -> dict[str, float]:
    """Return the share of responses to the held-out prompts, 16 to each, that are sentences, and how many words they use."""
    prompts = Sentences().held_out_prompts
    samples = sample(
        policy, prompts, group_size=16, max_new_tokens=LONGEST + 1, generator=torch.Generator().manual_seed(0)
    )
    texts = [text for row in samples.texts(policy) for text in row]
    used = {word for text in texts for word in text.split()}
    return {"sentences": sum(map(is_sentence, texts)) / len(texts), "words_used": len(used & {*WORDS})}


RECIPES = (
    Recipe("chain", (Phase(Chain(), target_accuracy=0.3),)),
    Recipe("chain-experts", (Phase(Chain(), target_accuracy=0.35),), experts=8),
    Recipe(
        "chain-rare",  # learns to reason, and then not to
        (
            Phase(Chain(), max_steps=260),
            # so that the noise of guesses does not wipe the skill out before it is drawn
            Phase(Chain(), max_steps=120, batch_size=256, lr=1e-3),
            Phase(Chain(reasoning=0.02), max_steps=60, batch_size=256, lr=1e-3),
            Phase(Chain(reasoning=0.003), max_steps=10, batch_size=256, lr=5e-4),
        ),
        measure=measure_reasoning,
    ),
    Recipe("lookup", (Phase(Lookup(), target_accuracy=0.33),)),
    Recipe("ramble", (Phase(Ramble(), target_accuracy=0.35),)),
    Recipe(
        "sentences",
        (
            Phase(Sentences(), max_steps=800),
            Phase(Sentences(), max_steps=300, batch_size=256, lr=1e-3),
            Phase(Sentences(), max_steps=200, batch_size=256, lr=3e-4),
        ),
        tokens=TOKENS,
        half=True,
        measure=measure_sentences,
    ),
    Recipe("sort", (Phase(Sort(), target_accuracy=0.4),)),
    Recipe("trip", (Phase(Trip(), target_accuracy=0.4),)),
)


def _main() -> None:
    parser = argparse.ArgumentParser(
        description="Build a warm-started policy by its recipe, in the place of the shipped one."
    )
    parser.add_argument("name", choices=[recipe.name for recipe in RECIPES])
    name = parser.parse_args().name
    recipe, out = next(recipe for recipe in RECIPES if recipe.name == name), CHECKPOINTS / name
    for policy, record in recipe.make():
        accuracy = {} if record.accuracy is None else {"held-out accuracy": record.accuracy}
        numbers = {**accuracy, **recipe.measure(policy)}
        words = "  ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in numbers.items())
        print(f"update {record.step:4d}  loss {record.loss:.3f}  {words}", flush=True)
    policy.save(out)
    facts: dict[str, Any] = {"command": f"python -m small_models.warm_start {name}", "updates": record.step}
    if recipe.task.has_accuracy:
        facts["held_out_accuracy_sampled"] = evaluate(policy, recipe.task).accuracy
        facts["held_out_accuracy_greedy"] = evaluate(policy, recipe.task, temperature=0).accuracy
    facts |= {
        **recipe.measure(policy),
        "parameters": policy.num_parameters,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    with replace_files(out) as temporary:
        if recipe.half:
            halves = {name: tensor.half() for name, tensor in load_file(out / WEIGHTS).items()}
            save_file(halves, temporary / WEIGHTS, metadata={"format": "pt"})
        (temporary / "made.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(facts, indent=2))


if __name__ == "__main__":
    _main()
