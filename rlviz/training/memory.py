"""Whether a step's logits fit into memory, asked before a run begins."""

from __future__ import annotations

from collections.abc import Sequence

from rlviz.settings import PairSettings, TrainSettings
from small_models.memory import check_fits
from small_models.pairs import Pair, encode_pairs
from small_models.policies import Policy
from small_models.tasks import Task

BYTES = 2 * 4  # of a logit: itself and, in float32, its gradient, or without gradients what the softmax makes of it


def check_rollout_fits(policy: Policy, task: Task, settings: TrainSettings, *, reference: bool) -> None:
    """Raise ValueError where the logits of a minibatch, or with a reference of a rollout, cannot be in memory.

    Counted are responses of full length, and nothing but logits: rows × tokens × vocabulary × 8 bytes.
    """
    rows = settings.num_prompts * settings.group_size
    parts = 1 if reference else settings.minibatches
    length = settings.max_new_tokens or task.max_new_tokens
    help_too = "" if reference else ", or raise minibatches (and updates_per_rollout, a multiple of it)"
    _check(policy, -(-rows // parts), length, f"lower num_prompts, group_size or max_new_tokens{help_too}")


def check_pairs_fit(policy: Policy, task: Task, settings: PairSettings, pairs: Sequence[Pair]) -> None:
    """Raise ValueError where the logits of a batch of pairs cannot be in memory, as `check_rollout_fits` counts them."""
    rows = 2 * settings.batch_size
    if pairs:
        length = encode_pairs(policy, pairs, task).tokens.shape[-1]
        _check(policy, rows, length, "lower batch_size, or leave out the longest pairs")


def _check(policy: Policy, rows: int, length: int, remedy: str) -> None:
    vocabulary = policy.model.get_output_embeddings().weight.shape[0]
    what = f"the logits of {rows:,} responses of {length:,} tokens over a vocabulary of {vocabulary:,}, with their gradients,"
    check_fits(rows * length * vocabulary * BYTES, policy.device, f"settings: {what}", remedy)
