"""Claim 6: the importance weight of a response varies more the longer it is; the geometric mean of its tokens' tames that."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from rlviz.experiments.base import Experiment, Part, Verdict, gap, judged, scaled
from rlviz.experiments.runs import FREE, copy_of, warmed_up
from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.runs.arms import panels, plain_ticks, plot_course
from rlviz.training import TrainSettings, train
from small_models.sampling import response_logits, sample, token_logp
from small_models.tasks import Ramble

TOKEN, PRODUCT, GEOMETRIC = "one token", "product", "geometric mean"
LENGTHS = (1, 2, 3, 4, 6, 8, 10)


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Make 8 updates on each rollout, and take the ratios of the first n tokens of fresh responses that the old policy wrote.

    Only responses of 10 tokens or more are used, so that it is the same ones at every n.
    """
    task, found = Ramble(), []
    policy = copy_of(warmed_up(task, seed, scale))
    settings = TrainSettings(
        steps=scaled(6, scale),
        num_prompts=16,
        lr=1e-4,
        lr_warmup_steps=0,
        updates_per_rollout=8,
        evaluate_every=0,
        details_every=0,
        seed=seed,
    )
    steps = train(policy, task, FREE, settings)
    generator = torch.Generator().manual_seed(seed)
    for step in range(1, settings.steps + 1):
        drawn = sample(
            policy,
            task.held_out_prompts[: scaled(1000, scale, 64)],
            max_new_tokens=task.max_new_tokens,
            generator=generator,
        )
        long = drawn.lengths >= LENGTHS[-1]
        next(steps)
        with torch.no_grad():
            logp = token_logp(response_logits(policy, drawn.prompt_ids, drawn.prompt_mask, drawn.tokens), drawn.tokens)
        logp, old_logp = logp[long].unsqueeze(1), drawn.logp[long].unsqueeze(1)
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
    frame = frame.assign(log_spread=np.log2(frame["spread"]))
    ten = frame[frame["length"] == LENGTHS[-1]]
    growth = {
        arm: gap(frame[frame["arm"] == arm], "log_spread", LENGTHS[-1], 1, by="length")
        for arm in (TOKEN, PRODUCT, GEOMETRIC)
    }
    times = ", ".join(f"{arm} ×{2 ** fmean(of):.2f}" for arm, of in growth.items())
    return judged(
        Part(
            "log2 of how much wider the log of the product of 10 tokens' ratios spreads than that of 1", growth[PRODUCT]
        ),
        Part(
            "log2 of how much narrower their geometric mean's is than one token's",
            gap(ten, "log_spread", TOKEN, GEOMETRIC),
        ),
        "a token's own ratio has no length: tested is the product of a response's, which is the response's weight",
        f"from 1 token to 10 of the same responses the spread changes: {times}",
        f"tokens that moved alike and independently would give ×1.00, ×{10**0.5:.2f}, ×{10**-0.5:.2f}",
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the spread of each kind of ratio against the number of tokens."""
    figure, (ax,) = panels(1, 7.5)
    plot_course(
        ax, frame, "length", "spread", title="Spread of the ratio after 8 updates", unit="std of log ratio, nats"
    )
    ax.set(yscale="log", xlabel="first tokens of the response")
    ax.legend(fontsize=11, framealpha=1, loc="lower left")
    plain_ticks(ax.yaxis)
    return figure


EXPERIMENT = Experiment(
    "ratio_variance",
    "A token ratio is a one-sample importance weight: the weight's variance grows with length; the geometric mean tames it.",
    "GSPO, arXiv 2507.18071",
    15,
    trial,
    judge,
    draw,
)
