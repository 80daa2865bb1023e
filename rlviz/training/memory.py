"""Whether a step's logits fit into memory, asked before a run begins."""

from __future__ import annotations

from rlviz.settings import TrainSettings
from small_models.memory import check_fits
from small_models.pairs import EncodedPairs
from small_models.policies import Policy
from small_models.tasks import Task

BYTES = 2 * 4  # of a logit: itself and, in float32, its gradient, or without gradients what the softmax makes of it


def check_rollout_fits(policy: Policy, task: Task, settings: TrainSettings, *, reference: bool) -> None:
    """Raise ValueError where the logits of a minibatch, or with a reference of a rollout, cannot be in memory.

    Counted are responses of full length, and nothing but logits: rows × tokens × vocabulary × 8 bytes. With micro-batches the
    rows are one, or with a reference, which reads whole groups, a group.
    """
    rows = settings.num_prompts * settings.group_size
    parts = 1 if reference else settings.minibatches
    length = settings.max_new_tokens or task.max_new_tokens
    at_once = -(-rows // parts)
    if settings.micro_batch_tokens:
        at_once = settings.group_size if reference else 1
    minibatches = "" if reference else ", or raise minibatches (and updates_per_rollout, a multiple of it)"
    remedy = f"lower num_prompts, group_size or max_new_tokens, or set micro_batch_tokens{minibatches}"
    _check(policy, at_once, length, remedy)


def check_pairs_fit(policy: Policy, pairs: EncodedPairs, batch_size: int) -> None:
    """Raise ValueError where the logits of a batch of pairs cannot be in memory, as `check_rollout_fits` counts them."""
    _check(policy, 2 * batch_size, pairs.tokens.shape[-1], "lower batch_size, or leave out the longest pairs")


def _check(policy: Policy, rows: int, length: int, remedy: str) -> None:
    vocabulary = policy.weights.get_output_embeddings().weight.shape[0]
    what = f"the logits of {rows:,} responses of {length:,} tokens over a vocabulary of {vocabulary:,}, with their gradients,"
    check_fits(rows * length * vocabulary * BYTES, policy.device, f"settings: {what}", remedy)
