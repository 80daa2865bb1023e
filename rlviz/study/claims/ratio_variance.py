"""Spread of a response's importance weight by its length: of one token, of the product, and of the geometric mean."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import torch

from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.study.effects import Claim, Effect, arithmetic
from rlviz.study.frames import log2_ratio, scaled
from rlviz.study.trials import FREE, SMALL, score_samples, warm_start_policy
from rlviz.training import train
from small_models.sampling import sample
from small_models.tasks import Ramble

SAYS = (
    "A token ratio is a one-sample importance weight: the weight's variance grows with length; the geometric mean "
    "tames it."
)
SOURCE = "GSPO, arXiv 2507.18071"

TOKEN, PRODUCT, GEOMETRIC = "one token", "product", "geometric mean"
LENGTHS = (1, 2, 3, 4, 6, 8, 10)


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Make 8 updates on each rollout, and take the ratios of the first n tokens of fresh responses that the old policy wrote.

    Only responses of 10 tokens or more are used, so that it is the same ones at every n.
    """
    task, results = Ramble(), []
    policy, prompts = warm_start_policy(task, seed, scale), task.held_out_prompts[: scaled(1000, scale, 64)]
    settings = replace(SMALL, steps=scaled(6, scale), lr=1e-4, lr_warmup_steps=0, updates_per_rollout=8, seed=seed)
    steps, generator = train(policy, task, FREE, settings), torch.Generator().manual_seed(seed)
    for step in range(1, settings.steps + 1):
        drawn = sample(policy, prompts, max_new_tokens=task.max_new_tokens, generator=generator)
        long = drawn.lengths >= LENGTHS[-1]
        next(steps)
        logp, old_logp = (values[long].unsqueeze(1) for values in (score_samples(policy, drawn), drawn.logp))
        for n in LENGTHS:
            first = logp[..., :n], old_logp[..., :n], torch.ones_like(logp[..., :n], dtype=torch.bool)
            tokens = token_ratio(*first).log()
            spreads = {TOKEN: tokens, PRODUCT: tokens.sum(-1), GEOMETRIC: sequence_ratio(*first)[..., 0].log()}
            results += [
                {"arm": name, "step": step, "length": n, "spread": float(values.std())}
                for name, values in spreads.items()
            ]
    return pd.DataFrame(results)


def effects(frame: pd.DataFrame) -> list[Effect]:
    """Compare ten tokens with one, and the geometric mean of ten with a single one of them.

    A token's ratio has no length: what is tested is the product of a response's ratios, which is the response's weight. Tokens
    that moved alike and independently would widen the product √10 times.
    """
    wider = log2_ratio(frame, "spread", 10, 1, by="length", arm=PRODUCT)
    narrower = log2_ratio(frame, "spread", TOKEN, GEOMETRIC, length=10)
    return [
        Effect("log2 of how much wider the log of the product of 10 tokens' ratios spreads than that of 1", wider, 0.1),
        arithmetic("log2 of how much narrower their geometric mean's is than one token's", narrower),
    ]


CLAIM = Claim("ratio_variance", SAYS, SOURCE, seconds=15, trial=trial, effects=effects)
