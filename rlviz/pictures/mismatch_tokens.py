"""Real tokens for `explore_mismatch`, as `python -m rlviz.runs.sampled_tokens` sampled them once with each sampler."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

FILE = Path(__file__).with_suffix(".npz")
BITS, LAGS = (3, 4, 5, 6, 8, 16), (0, 1, 2, 4, 8, 16)
# Logarithms are stored in whole steps, so that a page can hold all samplers' tokens: w is right to .1 %, a probability to
# .2 %. The trainer's are stored rather than the samplers': those of a response that several gave are the same, and pack well.
STEPS = {"trainer_logp": 1 / 256, "log_weight": 1 / 512}


@cache
def load_tokens() -> dict[str, Tensor]:
    """Return the tokens of all samplers, a row for each of BITS and LAGS, bits by bits.

    trainer_logp, log_weight (trainer's less sampler's): [36, prompts, responses, tokens], in `STEPS`. lengths, right: [36,
    prompts, responses].
    """
    with np.load(FILE) as file:
        return {name: torch.from_numpy(file[name].astype(np.float64)).flatten(0, 1) for name in file}
