"""Samples the tokens that `explore_mismatch` shows: `python -m rlviz.runs.sampled_tokens`.

A policy learns chain for 24 steps. Then each sampler, its weights `lag` steps older and rounded to `bits` bits, answers the same
prompts with the same luck, and the trainer, as it is after those steps, says how likely it finds each token.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch

from rlviz.algorithms import GRPO
from rlviz.pictures.mismatch_tokens import BITS, FILE, LAGS, STEPS
from rlviz.training import TrainSettings, train
from small_models.policies import load_policy
from small_models.precision import round_to_bits
from small_models.sampling import response_logits, sample, token_logp
from small_models.tasks import Chain

STEP, GROUPS, GROUP_SIZE = 24, 16, 4  # groups: the first ones in which some responses are right and some are wrong
PROMPTS = 60  # enough for so many groups


def record(path: Path = FILE) -> None:
    """Train, sample with every sampler, and write the tokens."""
    task, policy = Chain(), load_policy("chain", device="cpu")
    past = [policy.frozen_copy()]
    settings = TrainSettings(steps=STEP, num_prompts=16, evaluate_every=0, details_every=0)
    for _ in train(policy, task, replace(GRPO, kl=None), settings):
        past.append(policy.frozen_copy())
    prompts, rows = task.held_out_prompts[:PROMPTS], []
    for bits, lag in product(BITS, LAGS):
        engine = past[-1 - lag].frozen_copy()
        chance = torch.Generator().manual_seed(0)  # the same luck for every sampler
        with torch.no_grad():
            for weight in engine.weights.parameters():
                weight.copy_(round_to_bits(weight, bits))
        length = task.max_new_tokens
        samples = sample(engine, prompts, group_size=GROUP_SIZE, max_new_tokens=length, generator=chance)
        with torch.no_grad():
            logp = token_logp(response_logits(policy, **samples.model_inputs), samples.tokens)
        grades = [
            [task.grade(p, t).correct for t in row] for p, row in zip(prompts, samples.texts(policy), strict=True)
        ]
        right = torch.tensor(grades)
        mixed = (right.any(1) & ~right.all(1)).nonzero().squeeze(1)[:GROUPS]
        assert len(mixed) == GROUPS, f"of {PROMPTS} prompts {len(mixed)} have responses of both kinds: ask more"
        wide = torch.zeros(2, GROUPS, GROUP_SIZE, length)
        for column, values in zip(wide, (logp, logp - samples.logp), strict=True):
            column[..., : values.shape[-1]] = (values * samples.mask)[mixed]
        rows.append((*wide, samples.lengths[mixed], right[mixed]))
    columns = (torch.stack(column).unflatten(0, (len(BITS), len(LAGS))) for column in zip(*rows, strict=True))
    names = {"trainer_logp": np.int16, "log_weight": np.int16, "lengths": np.uint8, "right": np.bool_}
    stored = {
        name: (values / STEPS.get(name, 1)).round().numpy().astype(kind)
        for (name, kind), values in zip(names.items(), columns, strict=True)
    }
    np.savez_compressed(path, **stored)


if __name__ == "__main__":
    record()
