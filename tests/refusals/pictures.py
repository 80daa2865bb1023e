"""What pictures refuse: algorithms that they cannot show, and numbers that their curves have no meaning for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from rlviz.algorithms import (
    DPO,
    FORKING_TOKENS,
    GDPO,
    GRPO,
    GRPO_PROCESS,
    GSPO,
    GSPO_TOKEN,
    ICE_POP,
    IPO,
    ORPO,
    PPO,
    RELATIVES,
    SEQUENCE_MASK,
)
from rlviz.page.picture import Line, Slider
from rlviz.pictures.advantages import explore_advantages
from rlviz.pictures.aggregation import explore_aggregation
from rlviz.pictures.bounds import explore_bounds, responses_of
from rlviz.pictures.catalogue import EXPLORERS, find_explorer
from rlviz.pictures.clip import clip_curve, explore_clip
from rlviz.pictures.difficulty import difficulty_curve
from rlviz.pictures.dpo import explore_dpo
from rlviz.pictures.entropy import explore_entropy
from rlviz.pictures.gae import explore_gae
from rlviz.pictures.groups import without_kl
from rlviz.pictures.idea import Explorer
from rlviz.pictures.importance import importance_curve
from rlviz.pictures.kl import kl_curve
from rlviz.pictures.length import explore_length
from rlviz.pictures.loop import explore_loop
from rlviz.pictures.map import explore_map, find_map, map_curve
from rlviz.pictures.mismatch import explore_mismatch
from rlviz.pictures.overlong import explore_overlong
from rlviz.pictures.process import compares_a_group, explore_process
from rlviz.pictures.ratio import explore_ratio
from rlviz.pictures.sampling import explore_sampling
from rlviz.pictures.weights import token_weights
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.aggregation import sequence_mean
from tests.refusals.row import of, table
from tests.refusals.things import file

MINE = replace(GRPO, name="Mine")


def of_kl(**given: Any) -> Any:
    return kl_curve(GRPO, **given)


def of_clip(**given: Any) -> Any:
    return clip_curve(GRPO, **{"advantage": 1.0, **given})


def without_gradient() -> Any:
    still = replace(MINE, surrogate=lambda ratio, advantages, lower, upper: (ratio * advantages).detach())
    return explore_clip(algorithm=still)


def wrong_at_a_fifth() -> Any:
    def at_a_fifth(old_logp: Any) -> Any:
        return torch.where((old_logp.exp() - 0.2).abs() < 0.02, 2.0, 0.8), 1.2

    return explore_clip(replace(MINE, bounds=at_a_fifth)).set(old_prob=0.2)


def beside_it(rule: Any, explore: Any) -> Any:
    return explore(beside=(replace(MINE, bounds=rule),))


def misnamed_channel() -> Any:
    idea = explore_clip.idea
    panel, *others = idea.picture.panels
    marks = tuple(replace(mark, x="rattio") if isinstance(mark, Line) else mark for mark in panel.marks)
    picture = replace(idea.picture, panels=(replace(panel, marks=marks), *others))
    return Explorer(replace(idea, picture=picture), {})


def twice_the_name() -> Any:
    idea = explore_clip.idea
    controls = {**idea.picture.controls, "eps_low": Slider(0, 1, 0.1, 0.5, "mine")}
    return replace(idea, picture=replace(idea.picture, controls=controls))


ROWS = table(
    globals(),
    r"""
# every picture of algorithms
explore_bounds(DPO) → algorithm: DPO has no ratio that could be limited
explore_advantages(PPO) → algorithm: PPO does not learn from groups of responses…
explore_advantages(GRPO_PROCESS) → algorithm: GRPO (process)'s advantage needs step_ends, which …
explore_advantages(GDPO) → algorithm: GDPO's advantage needs correct and well_formed, which a picture of …
explore_advantages(FORKING_TOKENS)
    → algorithm: Forking tokens's advantage needs old_entropy, which a picture of …
explore_sampling(PPO) → algorithm: PPO does not learn from groups of responses…
explore_sampling(replace(MINE, select=lambda rewards: rewards))
    → select must return indices of groups, whole numbers from …
explore_dpo(ORPO) → algorithm: ORPO has no loss on the margin of a pair
explore_dpo(PPO) → algorithm: PPO has no loss on the margin of a pair
explore_dpo(algorithm=GRPO, beta=0.1) → beta: GRPO has no such parameter in this picture…
explore_mismatch(IPO) → algorithm: IPO …
explore_mismatch(PPO) → algorithm: PPO …
explore_gae(IPO) → algorithm: IPO has nothing that this picture shows; …
# arguments of pictures, beyond the sliders' ranges, which `declared` tries
explore_aggregation(lengths=(1, 2)) → lengths must be 4 numbers; got (1, 2)
explore_aggregation(lengths=7) → lengths must be 4 numbers; got 7
explore_aggregation(lengths=(1, 2, 3, 99)) → lengths must be from 1 to 16; got 99
explore_aggregation(lengths=(1, 2, 3, 'a')) → lengths must be a number; got 'a'
explore_aggregation(lengths=(1, 2, 3, 4.5)) → lengths must be a whole number; got 4.5
explore_entropy(reward='none') → reward must be one of 3 good of 20, …; got 'none'
explore_entropy(step=61) → step must be from 0 to 60; got 61
explore_entropy(beside='dapo') → beside must be a list of algorithms, such as GRPO; got 'dapo'
explore_loop(part='grade') → part must be one of whole, sample, compare, push, repeat; got 'grade'
explore_loop(moment=3.5) → moment must be a whole number; got 3.5
explore_loop(PPO) → algorithm: PPO has nothing that this picture shows; …
explore_loop(FORKING_TOKENS) → algorithm: Forking tokens has nothing that this picture shows; …
explore_length(PPO) → algorithm: PPO does not learn from groups of responses…
explore_mismatch(bits=7) → bits must be one of 3, 4, 5, 6, 8, 16; got 7
explore_mismatch(lag=3) → lag must be one of 0, 1, 2, 4, 8, 16; got 3
explore_mismatch(cap=0.0) → cap must be above 0 and finite; got 0.0
explore_mismatch(lowest=0.1) → lowest: TIS has no such parameter in this picture…
explore_mismatch(algorithm=ICE_POP, lowest=1.5) → …0 ≤ lowest ≤ 1 ≤ highest; got 1.5 and 5.0
explore_mismatch(algorithm=SEQUENCE_MASK, delta=-1.0) → delta must be above 0 and finite; got -1.0
of_kl(apart=⟨-0.1 | 10.5⟩) → apart must be from 0 to 10; got ⟨⟩
of_kl(weight=⟨-0.1 | 1.1⟩) → weight must be from 0 to 1; got ⟨⟩
of_kl(distance=0.0) → distance must be above 0 and finite; got 0.0
of_kl(distance=float('inf')) → distance must be above 0 and finite; got inf
of_clip(advantage=0.0) → advantage must be above or below 0; got 0
of_clip(old_prob=⟨0.0 | 1.5⟩) → old_prob must be above 0 and at most 1; got ⟨⟩
of_clip(max_ratio=0.0) → max_ratio must be above 0; got 0.0
of_clip(points=1) → points must be at least 2; got 1
without_gradient() → Mine's surrogate, …, must have a gradient by the ratio…
wrong_at_a_fifth() → Mine's bounds, …, must give limits …; for old probability 0.2 got 2 and 1.2
responses_of([type('Record', (), {'groups': ()})()] * 3)
    → run: none of its 3 steps recorded tokens, as every 10th does unless details_every says otherwise; train
    for 10 steps or more, or with TrainSettings(details_every=1)
misnamed_channel() → …clip: Line's x is 'rattio', which is no control…did you mean ratio…
twice_the_name() → …'eps_low' is a control and a parameter of the algorithms…
find_map('dcpo-limit') → which must be one of …; did you mean dcpo-limits? got 'dcpo-limit'
# plots of numbers
importance_curve(old_prob=1.0) → old_prob must be above 0 and below 1; got 1.0
importance_curve(samples=0) → samples must be at least 1; got 0
token_weights(sequence_mean, [0, 0]) → lengths must be numbers of tokens, one of them at least 1; got [0, 0]
difficulty_curve(GroupAdvantage(), 1) → group_size must be at least 2; got 1
⟨explore_map | map_curve⟩(row=⟨99 | 0⟩) → row must be from 1 to 6…; got …
⟨explore_map | map_curve⟩(row=2.5) → row must be a whole number; got 2.5
⟨explore_map | map_curve⟩(column=0) → column must be from 1 to 6…; got 0
⟨explore_aggregation | explore_ratio⟩(DPO) → algorithm: DPO has nothing that this picture shows; …
⟨explore_entropy | explore_overlong | explore_process⟩(PPO)
    → algorithm: PPO has nothing that this picture shows; …
⟨explore_entropy | explore_gae | explore_mismatch⟩(GRPO_PROCESS)
    → algorithm: GRPO (process) has nothing that this picture shows; …
explore_bounds(⟨GSPO | GSPO_TOKEN⟩) → algorithm: GSPO… limits the ratio of a whole response; …
⟨explore_clip | explore_bounds⟩(beside=np.array(⟨[1, 2] | 3 | ['DAPO']⟩))
    → beside must be a list of algorithms, such as GRPO; got …
⟨explore_clip | explore_bounds⟩(beside=⟨('dapo',) | 'dapo'⟩)
    → beside must be a list of algorithms, such as GRPO; got …'dapo'…
beside_it(lambda old_logp: 0.8, ⟨explore_clip | explore_bounds⟩)
    → Mine's bounds, …, must return two limits, lower and upper, …; got 0.8
beside_it(lambda old_logp: (torch.full((7,), 0.8), 1.2), ⟨explore_clip | explore_bounds⟩)
    → Mine's bounds, …, must return two limits, …; got a tensor [7] and 1.2
beside_it(lambda old_logp: (1.2, 0.8), ⟨explore_clip | explore_bounds⟩)
    → Mine's bounds, …, must give limits with lower ≤ upper; …
explore_map(⟨'dcpo-limit' | 'nowhere.jsonl'⟩)
    → which must be one of dcpo-limits, …, or a file ending in .jsonl that `rlviz map` made; …got ⟨⟩
explore_map(file('README.md', 'no map'))
    → which must be one of dcpo-limits, …, or a file ending in .jsonl that `rlviz map` made; …got '…README.md'
""",
)
# TIS needs a sampler's probabilities, distillation a teacher's; ORPO has no group: no picture of rewards has them
for algorithm in (each for each in RELATIVES if not compares_a_group(each)):
    ROWS += of(without_kl, ((algorithm, "step_ends"), f"algorithm: {algorithm.name}…"))
for name in EXPLORERS:
    if find_explorer(name).idea.algorithms is not None:
        ROWS += of(find_explorer(name), (("grpo",), "algorithm must be an algorithm, such as GRPO; got 'grpo'"))
