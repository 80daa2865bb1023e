"""Routing flips in a mixture of experts: one step's ratios with the new choice of experts, and with the old one replayed.

Routing replay separates flips from all else that a step changes: the same new weights, but each token goes through the experts
that it went through when it was sampled.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import torch

from rlviz.pieces.ratios import sequence_ratio
from rlviz.settings import Routing
from rlviz.study.effects import Claim, Effect
from rlviz.study.frames import by_seed, gap, log2_ratio, means, scaled, select
from rlviz.study.trials import FREE, SMALL, load_shipped, rows, score_samples
from rlviz.training import train
from small_models.routing import flipped, record_routes, replay_routes, routed
from small_models.sampling import sample
from small_models.tasks import Chain

SAYS = (
    "In a mixture of experts, routing flips make token ratios jump between π_old and π_θ; sequence ratios hardly move."
)
SOURCE = "GSPO, arXiv 2507.18071; rollout routing replay, 2510.11370"

BITS = 4  # of the weights that sample, where another engine does
NEW, OLD = "new routes", "old routes put back"
ARMS: dict[str, Routing] = {NEW: "free", OLD: "replayed"}
FLIPPED, OTHERS = "flipped tokens", "the other tokens"
TOKEN, SEQUENCE = "token ratio", "sequence ratio"
ENGINE, LEARNT = "another engine", "learnt"


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train a mixture of experts with 8 updates per rollout, and compare its last step with and without replay."""
    policy, task = load_shipped("chain-experts"), Chain()
    eight_updates = replace(SMALL, num_prompts=12, updates_per_rollout=8, lr=3e-4, lr_warmup_steps=5)
    settings = replace(eight_updates, steps=scaled(16, scale, 2), seed=seed)
    records = train(policy, task, FREE, settings)
    for _ in range(settings.steps - 1):
        next(records)
    prompts = task.held_out_prompts[: scaled(500, scale, 16)]
    generator = torch.Generator().manual_seed(seed)
    samples = sample(policy, prompts, max_new_tokens=task.max_new_tokens, generator=generator)
    inputs, mask = (samples.prompt_ids, samples.prompt_mask, samples.tokens), samples.mask
    before, routes = routed(policy, *inputs), record_routes(policy, *inputs)
    old = score_samples(policy, samples)
    next(records)  # the step whose ratios are compared
    logps = {NEW: score_samples(policy, samples)}
    with replay_routes(policy, *routes):
        logps[OLD] = score_samples(policy, samples)
    after = routed(policy, *inputs)
    assert before is not None
    assert after is not None
    flips = flipped(before, after).any(-1)
    results = []
    for arm, logp in logps.items():
        jumps, log_s = (logp - old).abs(), sequence_ratio(logp, old, mask).log()
        results += [
            {"arm": arm, "of": FLIPPED, "jump": float(jumps[mask & flips].mean())},
            {"arm": arm, "of": OTHERS, "jump": float(jumps[mask & ~flips].mean())},
            {"arm": arm, "of": TOKEN, "spread": float((logp - old)[mask].std())},
            {"arm": arm, "of": SEQUENCE, "spread": float(log_s[mask].std())},
        ]
    for arm, routing in ARMS.items():
        options = replace(settings, num_prompts=32, sampler_bits=BITS, routing=routing)
        rollout = train(load_shipped("chain-experts"), task, FREE, options).collect()
        jump = (rollout.old_logp - rollout.sampler_logp)[rollout.mask].abs().mean()
        steps, evaluate_every = scaled(32, scale), scaled(4, scale)
        options = replace(settings, steps=steps, evaluate_every=evaluate_every, routing=routing)
        looks = rows(train(load_shipped("chain-experts"), task, FREE, options), "held_out_accuracy").dropna()
        results += [
            {"arm": arm, "of": ENGINE, "jump": float(jump)},
            {"arm": arm, "of": LEARNT, "accuracy": looks["held_out_accuracy"].tail(3).mean()},
        ]
    return pd.DataFrame(results).assign(flips=float(flips[mask].double().mean()))


def effects(frame: pd.DataFrame) -> list[Effect]:
    wider = gap(frame, "spread", NEW, OLD, of=TOKEN) - gap(frame, "spread", NEW, OLD, of=SEQUENCE)
    in_proportion = log2_ratio(frame, "spread", NEW, OLD, of=TOKEN) - log2_ratio(frame, "spread", NEW, OLD, of=SEQUENCE)
    gone = gap(frame, "jump", NEW, OLD, of=FLIPPED)
    nearer = log2_ratio(frame, "jump", NEW, OLD, of=ENGINE)
    learnt = gap(frame, "accuracy", OLD, NEW, of=LEARNT)
    return [
        Effect("share of tokens with a flip in some layer after 8 updates", by_seed(frame, "flips"), 0.01),
        Effect("|log r| of flipped tokens that is gone once the old routes are put back", gone, 0.01),
        Effect("nats by which flips widen the spread of log r, more than that of log s", wider, 0.01),
        Effect("in proportion, log2 of how much wider flips make log r than log s", in_proportion, 0.1),
        Effect(f"log2 of how much less a sampler of {BITS} bits differs once its routes are put back", nearer, 0.1),
        Effect("accuracy after 32 steps of 8 updates with the old routes, above new ones", learnt, 0.03),
    ]


def numbers(frame: pd.DataFrame) -> list[str]:
    wider = log2_ratio(frame, "spread", NEW, OLD, of=SEQUENCE).mean()
    return [
        f"flips make log s {2**wider:.1f} times as wide: it does move",
        f"mean |log r| of {FLIPPED}: {means(select(frame, of=FLIPPED), 'jump', 3)}",
    ]


CLAIM = Claim("routing", SAYS, SOURCE, seconds=40, trial=trial, effects=effects, numbers=numbers)
