"""Whether what is about to be computed fits into the memory that is free."""

from __future__ import annotations

import torch

GIGABYTE = 10**9


def free_bytes(device: torch.device) -> int | None:
    """Return the bytes that new tensors on this device could take, None where nothing says so."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    try:
        import psutil  # comes with ipykernel
    except ImportError:
        return None
    return int(psutil.virtual_memory().available) if device.type == "cpu" else None


def check_fits(needed: int, device: torch.device, what: str, remedy: str) -> None:
    """Raise ValueError, in one sentence that ends with the remedy, where `what` needs more bytes than are free."""
    if needed < GIGABYTE:  # not worth asking
        return
    free = free_bytes(device)
    if free is not None and needed > free:
        raise ValueError(
            f"{what} would take {needed / GIGABYTE:,.1f} GB at least, and {free / GIGABYTE:,.1f} GB of this {device.type}'s "
            f"memory are free; {remedy}"
        )
