"""Accuracy and reward of a policy on prompts that training never shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from small_models.checks import check_number, check_seed, check_type, checked
from small_models.policies import SMALL, Policy, one_thread_if_small
from small_models.sampling import encode_prompts, encode_responses, response_logits, sample, token_logp
from small_models.tasks import Score, Task
from small_models.tasks.base import share_right

MOST_PROMPTS = 10_000_000  # prompts that are graded
BATCH = 64  # of a policy that is not small: the keys and values of 1000 responses would fill a GPU


@dataclass(frozen=True)
class Evaluation:
    """Shares of responses that are right and well formed, the mean number and entropy (nats) of the policy's tokens, mean reward.

    accuracy: None where the task has no right answers.
    """

    accuracy: float | None
    well_formed: float
    length: float
    entropy: float
    reward: float


def evaluate(
    policy: Policy,
    task: Task,
    *,
    temperature: float = 1.0,
    num_prompts: int = 1000,
    max_new_tokens: int | None = None,
    seed: int = 0,
) -> Evaluation:
    """Return how good one response to each of `num_prompts` held-out prompts is.

    Where there are fewer, each is asked once, or again from the first if `task.repeats_prompts`. Random numbers come from a
    generator of this function, so evaluating never changes a training run. `temperature=0` is greedy; max_new_tokens: None
    takes the task's. Raises ValueError for a setting out of its range.
    """
    check_type("policy", policy, Policy)
    check_type("task", task, Task)
    words = f"at least 1 and at most {MOST_PROMPTS:,}"
    check_number("num_prompts", num_prompts, lambda n: 1 <= n <= MOST_PROMPTS, words, integer=True)
    check_seed(seed)
    held_out = task.held_out_prompts
    if not task.repeats_prompts:
        num_prompts = min(num_prompts, len(held_out))
    prompts = [held_out[index % len(held_out)] for index in range(num_prompts)]
    batch_size = num_prompts if policy.num_parameters <= SMALL else BATCH
    generator = torch.Generator().manual_seed(seed)
    scores: list[Score] = []
    tokens, entropy = torch.zeros((), dtype=torch.long), torch.zeros(())
    for start in range(0, num_prompts, batch_size):
        part = prompts[start : start + batch_size]
        samples = sample(
            policy,
            part,
            task=task,
            max_new_tokens=task.max_new_tokens if max_new_tokens is None else max_new_tokens,
            temperature=temperature,
            generator=generator,
        )
        scores += [task.score(prompt, row[0]) for prompt, row in zip(part, samples.texts(policy), strict=True)]
        tokens, entropy = tokens + samples.mask.sum().cpu(), entropy + (samples.entropy * samples.mask).sum().cpu()
    return Evaluation(
        accuracy=share_right(scores),
        well_formed=sum(score.format for score in scores) / num_prompts,
        length=float(tokens / num_prompts),
        entropy=float(entropy / tokens),
        reward=sum(score.reward for score in scores) / num_prompts,
    )


@checked
def beginning_logp(policy: Policy, prompts: Sequence[str], beginnings: Sequence[str]) -> Tensor:
    """Return the log-probability [P] (nats, temperature 1) that a response to each prompt begins with each of these texts."""
    tokens, mask = encode_responses(policy, beginnings)
    prompt_ids, prompt_mask = encode_prompts(policy, prompts)
    with one_thread_if_small(policy), torch.no_grad():
        logp = token_logp(response_logits(policy, prompt_ids, prompt_mask, tokens), tokens)
    written = mask & (tokens != policy.end_id)  # a beginning has no end of sequence
    return (logp * written).sum((1, 2))
