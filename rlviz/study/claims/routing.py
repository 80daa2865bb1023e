"""What routing flips do to ratios: one step's ratios with the new choice of experts, and with the old choice put back.

Flips are told apart from all else that a step changes by routing replay: the same new weights, but each token goes through the
experts that it went through when it was sampled.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd
import torch

from rlviz.pieces.ratios import sequence_ratio
from rlviz.settings import Routing
from rlviz.study.claim import Panel
from rlviz.study.frames import by_seed, doublings, gap, means, scaled, select
from rlviz.study.trials import FREE, SMALL, logp_under, rows, shipped
from rlviz.study.verdict import Part, Verdict, judged
from rlviz.training import train
from small_models.routing import flipped, replaying, routed, routes_of
from small_models.sampling import sample
from small_models.tasks import Chain

CLAIM = (
    "In a mixture of experts, routing flips make token ratios jump between π_old and π_θ; sequence ratios hardly move."
)
SOURCE = "GSPO, arXiv 2507.18071; rollout routing replay, 2510.11370"
SECONDS = 40
SMALLEST, SMALLEST_LOG2 = 0.01, 0.1  # of |log r| and of a share of tokens; of a log2: seven per cent of a spread
SMALLEST_GAIN = 0.03  # of accuracy
BITS = 4  # of the other engine, which samples

FREELY, REPLAYED = "new routes", "old routes put back"
ARMS: dict[str, Routing] = {FREELY: "free", REPLAYED: "replayed"}
FLIPPED, OTHERS = "flipped tokens", "the other tokens"
TOKEN, SEQUENCE = "token ratio", "sequence ratio"
ENGINE, LEARNT, ACCURACY = "another engine", "learnt", "held_out_accuracy"


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train a policy of experts with 8 updates a rollout, and look at its last step with and without replay."""
    policy, task = shipped("chain-experts"), Chain()
    settings = replace(
        SMALL, steps=scaled(16, scale, 2), num_prompts=12, lr_warmup_steps=5, lr=3e-4, updates_per_rollout=8, seed=seed
    )
    records = train(policy, task, FREE, settings)
    for _ in range(settings.steps - 1):
        next(records)
    prompts = task.held_out_prompts[: scaled(500, scale, 16)]
    generator = torch.Generator().manual_seed(seed)
    samples = sample(policy, prompts, max_new_tokens=task.max_new_tokens, generator=generator)
    place, mask = (samples.prompt_ids, samples.prompt_mask, samples.tokens), samples.mask
    before = routed(policy, *place)
    routes, old = routes_of(policy, *place), logp_under(policy, samples)
    next(records)
    new = {FREELY: logp_under(policy, samples)}
    with replaying(policy, *routes):
        new[REPLAYED] = logp_under(policy, samples)
    after = routed(policy, *place)
    assert before is not None
    assert after is not None
    flips = flipped(before, after).any(-1)
    found = []
    for arm, logp in new.items():
        jumps = (logp - old).abs()
        spread = {TOKEN: (logp - old)[mask].std(), SEQUENCE: sequence_ratio(logp, old, mask).log()[mask].std()}
        of_tokens = {FLIPPED: jumps[mask & flips].mean(), OTHERS: jumps[mask & ~flips].mean()}
        found += [{"arm": arm, "of": of, "jump": float(jump)} for of, jump in of_tokens.items()]
        found += [{"arm": arm, "of": of, "spread": float(std)} for of, std in spread.items()]
    for arm, routing in ARMS.items():
        options = replace(settings, num_prompts=32, sampler_bits=BITS, routing=routing)
        rollout = train(shipped("chain-experts"), task, FREE, options).collect()
        jump = (rollout.old_logp - rollout.sampler_logp)[rollout.mask].abs().mean()
        options = replace(settings, steps=scaled(32, scale), evaluate_every=scaled(4, scale), routing=routing)
        looks = rows(train(shipped("chain-experts"), task, FREE, options), ACCURACY).dropna()[ACCURACY]
        found += [
            {"arm": arm, "of": ENGINE, "jump": float(jump)},
            {"arm": arm, "of": LEARNT, "accuracy": looks.tail(3).mean()},
        ]
    return pd.DataFrame(found).assign(flips=float(flips[mask].double().mean()))


def judge(frame: pd.DataFrame) -> Verdict:
    """How much of a step's jumps, and of the spread of ratios, is gone once the old routes are put back?"""
    gone = gap(frame, "jump", FREELY, REPLAYED, of=FLIPPED)
    spreads = {of: doublings(frame, "spread", FREELY, REPLAYED, of=of) for of in (TOKEN, SEQUENCE)}
    widened = {of: gap(frame, "spread", FREELY, REPLAYED, of=of) for of in (TOKEN, SEQUENCE)}
    return judged(
        Part("share of tokens with a flip in some layer after 8 updates", by_seed(frame, "flips"), SMALLEST).titled(
            "jumps", "{} of the tokens flip after 8 updates", form="{:.0%}"
        ),
        Part("|log r| of flipped tokens that is gone once the old routes are put back", gone, SMALLEST).titled(
            "jumps", "with the old routes they jump [less|more], by {}"
        ),
        Part(
            "nats by which flips widen the spread of log r, more than that of log s",
            widened[TOKEN] - widened[SEQUENCE],
            SMALLEST,
        ).titled("spread", "flips widen log r [more|less] than log s, by {} nats"),
        Part(
            "in proportion, log2 of how much wider flips make log r than log s",
            spreads[TOKEN] - spreads[SEQUENCE],
            SMALLEST_LOG2,
        ).titled("spread", "in proportion [more|less], {}", base=2),
        Part(
            f"log2 of how much less a sampler of {BITS} bits differs once its routes are put back",
            doublings(frame, "jump", FREELY, REPLAYED, of=ENGINE),
            SMALLEST_LOG2,
        ).titled("engine", "with its routes, the other engine differs [less|more], {}", base=2),
        Part(
            "accuracy after 32 steps of 8 updates with the old routes, above new ones",
            gap(frame, "accuracy", REPLAYED, FREELY, of=LEARNT),
            SMALLEST_GAIN,
        ).titled("learnt", "training with the old routes ends {} [above|below]"),
        f"mean |log π − log π_sampler|: {means(select(frame, of=ENGINE), 'jump', 3)}",
        f"accuracy: {means(select(frame, of=LEARNT), 'accuracy')}",
        f"flips make log s {2 ** spreads[SEQUENCE].mean():.1f} times as wide: it does move",
        *(f"mean |log r| of {of}: {means(select(frame, of=of), 'jump', 3)}" for of in (FLIPPED, OTHERS)),
        *(f"std of the log {of}: {means(select(frame, of=of), 'spread', 3)}" for of in (TOKEN, SEQUENCE)),
    )


PANELS = [
    [
        Panel("jumps", "jump", "mean |log r|", partial(select, of=(FLIPPED, OTHERS)), by="of", sets="arm", from_zero=True),
        Panel(
            "spread", "spread", "std of the log, nats", partial(select, of=(TOKEN, SEQUENCE)), by="of", sets="arm",
            from_zero=True,
        ),
    ],
    [
        Panel(
            "engine", "jump", f"mean |log π − log π_sampler|, {BITS} bits", partial(select, of=ENGINE), from_zero=True
        ),
        Panel("learnt", "accuracy", "accuracy after 32 steps", partial(select, of=LEARNT)),
    ],
]  # fmt: skip
