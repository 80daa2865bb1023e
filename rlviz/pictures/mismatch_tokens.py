"""Real tokens for `explore_mismatch`, as `python -m rlviz.runs.sampled_tokens` sampled them once with each sampler."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

FILE = Path(__file__).with_suffix(".npz")
BITS, LAGS = (3, 4, 5, 6, 8, 16), (0, 1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Drawn:
    """Responses that a sampler drew. old_logp: the trainer's log-probability of each token; rewards: 1 for a right response."""

    old_logp: Float[Tensor, "P G T"]
    sampler_logp: Float[Tensor, "P G T"]
    mask: Bool[Tensor, "P G T"]
    rewards: Float[Tensor, "P G"]


@cache
def _stored() -> dict[str, np.ndarray]:
    with np.load(FILE) as file:
        return dict(file)


@cache
def drawn(bits: int, lag: int) -> Drawn:
    """Return what this sampler drew. Raises ValueError for one that was not recorded."""
    for name, value, known in (("bits", bits, BITS), ("lag", lag, LAGS)):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(map(str, known))}; got {value}")
    place = BITS.index(bits), LAGS.index(lag)
    of = {name: torch.from_numpy(values[place]) for name, values in _stored().items()}
    sampler_logp = of["sampler_logp"].double()
    return Drawn(
        old_logp=sampler_logp + of["log_weight"].double(),
        sampler_logp=sampler_logp,
        mask=torch.arange(sampler_logp.shape[-1]) < of["lengths"].unsqueeze(-1),
        rewards=of["right"].double(),
    )
