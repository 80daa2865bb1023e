"""Whether what is about to be computed fits into the memory that is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil  # comes with ipykernel
import torch

if TYPE_CHECKING:
    from small_models.policies import Policy

GIGABYTE = 10**9
LOGIT = 2 * 4  # bytes: itself and its gradient in float32, or without gradients what the softmax makes of it


def free_bytes(device: torch.device) -> int | None:
    """Return the bytes that new tensors on this device could take, None where nothing says so."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    return int(psutil.virtual_memory().available) if device.type == "cpu" else None


def check_fits(needed: int, device: torch.device, what: str, remedy: str) -> None:
    """Raise ValueError, in one sentence that ends with the remedy, where `what` needs more bytes than are free."""
    free = free_bytes(device) if needed >= GIGABYTE else None  # less is not worth asking
    if free is not None and needed > free:
        raise ValueError(
            f"{what} would take {needed / GIGABYTE:,.1f} GB at least, and {free / GIGABYTE:,.1f} GB of this {device.type}'s "
            f"memory are free; {remedy}"
        )


def check_logits_fit(policy: Policy, tokens: int, remedy: str) -> None:
    """Raise ValueError where the logits of so many tokens at once do not fit."""
    vocabulary = policy.weights.get_output_embeddings().weight.shape[0]
    what = f"settings: the logits of {tokens:,} tokens over a vocabulary of {vocabulary:,}, with their gradients,"
    check_fits(LOGIT * tokens * vocabulary, policy.device, what, remedy)
