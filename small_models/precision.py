"""In which precision a model computes: bfloat16 by autocast, its weights staying what they are, or that of its weights; and
weights rounded to a few bits."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def is_autocast(device: torch.device) -> bool:
    """Return whether matrix products on this device are computed in another precision than their inputs'."""
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)


def in_bfloat16(device: torch.device) -> AbstractContextManager[Any]:
    """Within it, matrix products are in bfloat16, and what would suffer (softmax, sums, losses) in float32.

    A weight is converted whenever it is used: what autocast would keep of it is not told when an optimizer has moved it.
    """
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Within it, all is computed in the precision of the weights, whatever stands around it."""
    return torch.autocast(device.type, enabled=False) if is_autocast(device) else nullcontext()


def round_to_bits(weight: Tensor, bits: int) -> Tensor:
    """Return a weight whose matrices are on a grid of whole numbers of so many bits: round(w / s) · s.

    s = max |w| / (2^(bits − 1) − 1) of each row [..., in], as weights are stored for inference in int8. What is no matrix stays.
    """
    if weight.dim() < 2:
        return weight
    step = weight.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    return (weight / step.clamp(min=torch.finfo(weight.dtype).tiny)).round() * step
