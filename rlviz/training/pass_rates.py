"""pass@k of a policy on held-out prompts: how often one of k samples is right."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlviz.pieces.advantages import pass_at_k
from rlviz.training.rewards import check_accuracy
from small_models.checks import check_number, check_seed, checked
from small_models.policies import Policy
from small_models.sampling import sample
from small_models.tasks import Task

AT_ONCE = 2048  # responses


@checked
def pass_rates(
    policy: Policy,
    task: Task,
    ks: Sequence[int] = (1, 2, 4, 8, 16),
    *,
    samples: int = 16,
    num_prompts: int = 200,
    temperature: float = 1.0,
    seed: int = 0,
) -> dict[int, float]:
    """Return k → pass@k, the share of held-out prompts of which one of k responses is right, by the unbiased estimate.

    ks: from 1 to samples. samples: responses to each prompt, from which all k are estimated (`pass_at_k`). num_prompts: held-out
    prompts, all there are where they are fewer. pass@1 is the accuracy. The random numbers are this function's own. Raises
    ValueError for a setting out of its range, and for a task without right answers.
    """
    check_accuracy("pass_rates", task)
    check_number("samples", samples, lambda n: n >= 1, "at least 1", integer=True)
    check_number("num_prompts", num_prompts, lambda n: n >= 1, "at least 1", integer=True)
    check_seed(seed)
    if not ks or not all(isinstance(k, int) and 1 <= k <= samples for k in ks):
        raise ValueError(
            f"ks must be numbers from 1 to the number of responses to a prompt, {samples}; got {tuple(ks)}"
        )
    prompts = task.held_out_prompts[:num_prompts]
    generator, right = torch.Generator().manual_seed(seed), []
    at_once = max(1, AT_ONCE // samples)
    for start in range(0, len(prompts), at_once):
        part = prompts[start : start + at_once]
        samples_of_part = sample(
            policy,
            part,
            task=task,
            group_size=samples,
            max_new_tokens=task.max_new_tokens,
            temperature=temperature,
            generator=generator,
        )
        texts = samples_of_part.texts(policy)
        right += [sum(bool(task.score(p, text).correct) for text in row) for p, row in zip(part, texts, strict=True)]
    counts = torch.tensor(right)
    return {k: float(pass_at_k(counts, samples, k).mean()) for k in ks}
