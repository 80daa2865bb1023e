"""Spread of a response's importance weight by its length: of one token, of the product, and of the geometric mean."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import torch

from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.study.claim import Panel
from rlviz.study.frames import doublings, in_words, scaled
from rlviz.study.trials import FREE, SMALL, logp_under, warmed_up
from rlviz.study.verdict import Arithmetic, Part, Verdict, judged
from rlviz.training import train
from small_models.sampling import sample
from small_models.tasks import Ramble

CLAIM = "A token ratio is a one-sample importance weight: the weight's variance grows with length; the geometric mean tames it."
SOURCE = "GSPO, arXiv 2507.18071"
SECONDS = 15
SMALLEST = 0.1  # of a log2: seven per cent of a spread

TOKEN, PRODUCT, GEOMETRIC = "one token", "product", "geometric mean"
LENGTHS = (1, 2, 3, 4, 6, 8, 10)


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Make 8 updates on each rollout, and take the ratios of the first n tokens of fresh responses that the old policy wrote.

    Only responses of 10 tokens or more are used, so that it is the same ones at every n.
    """
    task, found = Ramble(), []
    policy, prompts = warmed_up(task, seed, scale), task.held_out_prompts[: scaled(1000, scale, 64)]
    settings = replace(SMALL, steps=scaled(6, scale), lr=1e-4, lr_warmup_steps=0, updates_per_rollout=8, seed=seed)
    steps, generator = train(policy, task, FREE, settings), torch.Generator().manual_seed(seed)
    for step in range(1, settings.steps + 1):
        drawn = sample(policy, prompts, max_new_tokens=task.max_new_tokens, generator=generator)
        long = drawn.lengths >= LENGTHS[-1]
        next(steps)
        logp, old_logp = (each[long].unsqueeze(1) for each in (logp_under(policy, drawn), drawn.logp))
        for n in LENGTHS:
            first = logp[..., :n], old_logp[..., :n], torch.ones_like(logp[..., :n], dtype=torch.bool)
            tokens = token_ratio(*first).log()
            spreads = {TOKEN: tokens, PRODUCT: tokens.sum(-1), GEOMETRIC: sequence_ratio(*first)[..., 0].log()}
            found += [
                {"arm": name, "step": step, "length": n, "spread": float(values.std())}
                for name, values in spreads.items()
            ]
    return pd.DataFrame(found)


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare ten tokens with one, and the geometric mean of ten with a single one of them."""
    arms = (TOKEN, PRODUCT, GEOMETRIC)
    growth = {arm: doublings(frame, "spread", 10, 1, by="length", arm=arm) for arm in arms}
    narrower = doublings(frame, "spread", TOKEN, GEOMETRIC, length=10)
    changes = in_words({arm: 2 ** of.mean() for arm, of in growth.items()}, "×{:.2f}")
    return judged(
        Part(
            "log2 of how much wider the log of the product of 10 tokens' ratios spreads than that of 1",
            growth[PRODUCT],
            SMALLEST,
        ).titled("spread", "the product of 10 tokens' ratios spreads [more|less] than 1 token's, {}", base=2),
        Arithmetic("log2 of how much narrower their geometric mean's is than one token's", narrower).titled(
            "spread", "their geometric mean spreads [less|more], {}", base=2
        ),
        "a token's own ratio has no length: tested is the product of a response's, which is the response's weight",
        f"from 1 token to 10 of the same responses the spread changes: {changes}",
        f"tokens that moved alike and independently would give ×1.00, ×{10**0.5:.2f}, ×{10**-0.5:.2f}",
    )


PANELS = [
    [
        Panel(
            "spread", "spread", "std of the log ratio after 8 updates, nats", x="length",
            axes={"yscale": "log", "xlabel": "first tokens of the response"},
        )
    ]
]  # fmt: skip
