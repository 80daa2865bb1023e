"""Whether a model and the logits of a step fit into memory, asked before a run begins."""

from __future__ import annotations

import os

from rlviz.settings import TrainSettings
from small_models import memory
from small_models.memory import check_fits
from small_models.pairs import EncodedPairs
from small_models.policies import Policy, choose_device, weights_in
from small_models.sampling import response_bytes
from small_models.tasks import Task

BYTES = 2 * 4  # of a logit: itself and, in float32, its gradient, or without gradients what the softmax makes of it
LEARNING = 3 * 4  # of a weight that learns: its gradient and Adam's two moments
PEAK = 4  # an update takes up to four times what is counted, for its activations are not
COPIES = 2 * 4  # of any weight: itself, and in the policy that the run began with
EXIT = "take the algorithm to a larger machine: `rlviz export` writes it for TRL and verl"


def check_model_fits(source: str | os.PathLike[str], device: str) -> None:
    """Raise ValueError where a policy in a folder cannot learn in the memory there is, before it is read: 20 bytes a weight."""
    number = weights_in(source)
    check_fits(
        number * (COPIES + LEARNING),
        choose_device(device),
        f"policy: a run of the {number:,} weights in {source}, with the policy that it began with, gradients and Adam's moments,",
        f"begin with a smaller one, or with a LoRA adapter of it, or {EXIT}",
    )


def check_rollout_fits(policy: Policy, task: Task, settings: TrainSettings, *, reference: bool, width: int = 0) -> None:
    """Raise ValueError where the responses of a step, or the logits of a minibatch (with a reference: of a rollout), cannot be
    in memory.

    width: tokens of the longest prompt. Counted are responses of full length: while they are sampled `response_bytes` of each;
    then rows × tokens × vocabulary × 8 bytes of logits, and 12 bytes for each weight that learns. With micro-batches the rows are
    as many as one holds, but at least one, or a group, which a reference,
    a trainer that did not sample and records with the numbers of each token read whole.
    """
    reference = reference or not settings.policy_samples
    rows = settings.num_prompts * settings.group_size
    parts = 1 if reference else settings.minibatches
    length = settings.max_new_tokens or task.max_new_tokens
    check_fits(
        rows * response_bytes(policy, width, length),
        policy.device,
        f"settings: sampling {rows:,} responses of {length:,} tokens at once",
        f"lower num_prompts, group_size or max_new_tokens, or {EXIT}",
    )
    least = settings.group_size if reference or settings.details_every else 1
    batch = -(-rows // parts)
    learning = LEARNING * sum(p.numel() for p in policy.weights.parameters() if p.requires_grad)
    fewer = "lower num_prompts, group_size or max_new_tokens"
    if settings.micro_batch_tokens:
        batch = max(least, min(batch, settings.micro_batch_tokens // (width + length)))
    free = memory.free_bytes(policy.device) or 0
    fitting = (free - learning) // (length * _vocabulary(policy) * BYTES)  # rows
    if fitting >= least:
        remedy = f"set micro_batch_tokens (with {max(least, fitting // PEAK) * (width + length)} they fit)"
        split = not (reference or settings.micro_batch_tokens)
        minibatches = ", raise minibatches (and updates_per_rollout, a multiple of it)" if split else ""
        _check(policy, batch, length, learning, f"{remedy}{minibatches}, or {fewer}")
    else:
        _check(policy, batch, length, learning, f"{fewer} (micro_batch_tokens alone would not do), or {EXIT}")


def check_pairs_fit(policy: Policy, pairs: EncodedPairs, batch_size: int) -> None:
    """Raise ValueError where the logits of a batch of pairs cannot be in memory, as `check_rollout_fits` counts them."""
    remedy = f"lower batch_size, leave out the longest pairs, or {EXIT}"
    _check(policy, 2 * batch_size, pairs.tokens.shape[-1], 0, remedy)


def _check(policy: Policy, rows: int, length: int, learning: int, remedy: str) -> None:
    vocabulary = _vocabulary(policy)
    what = f"the logits of {rows:,} responses of {length:,} tokens over a vocabulary of {vocabulary:,}, with their gradients,"
    if learning:
        what += f" and {learning // LEARNING:,} weights' gradients and Adam's moments"
    needed = rows * length * vocabulary * BYTES + learning
    check_fits(needed, policy.device, f"settings: {what}", remedy)


def _vocabulary(policy: Policy) -> int:
    size: int = policy.weights.get_output_embeddings().weight.shape[0]
    return size
