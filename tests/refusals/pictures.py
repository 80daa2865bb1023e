"""What pictures refuse: algorithms that they cannot show, and numbers that their curves have no meaning for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
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
from rlviz.pictures.gae import explore_gae, gae_curve
from rlviz.pictures.groups import without_kl
from rlviz.pictures.idea import Explorer
from rlviz.pictures.importance import importance_curve
from rlviz.pictures.kl import kl_curve
from rlviz.pictures.map import explore_map, find_map, map_curve
from rlviz.pictures.mismatch import explore_mismatch
from rlviz.pictures.overlong import explore_overlong
from rlviz.pictures.process import compares_a_group, explore_process
from rlviz.pictures.ratio import explore_ratio
from rlviz.pictures.sampling import explore_sampling
from rlviz.pictures.weights import token_weights
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.aggregation import sequence_mean
from tests.refusals.row import Row, of

MINE = replace(GRPO, name="Mine")


def of_gae(**given: Any) -> Any:
    return gae_curve(PPO, **given)


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


def a_readme() -> None:
    Path("README.md").write_text("no map")


def shows(explore: Any, *algorithms: Any) -> list[Row]:
    """Return rows of algorithms that have nothing that a picture shows."""
    return of(explore, *(((a,), f"algorithm: {a.name} has nothing that this picture shows; …") for a in algorithms))


ANY_ALGORITHM = [name for name in EXPLORERS if find_explorer(name).idea.algorithms is not None]
NO_GROUP = [a for a in RELATIVES if not compares_a_group(a)]
BESIDE = "beside must be a list of algorithms, such as GRPO; got "
WHICH = "which must be one of dcpo-limits, …, or a file ending in .jsonl that `rlviz map` made; …got '{}'"
CELL = [
    ({"row": 99}, "row must be from 1 to 6…; got 99"),
    ({"row": 2.5}, "row must be a whole number; got 2.5"),
    ({"column": 0}, "column must be from 1 to 6…; got 0"),
    ({"row": 0}, "row must be from 1 to 6…; got 0"),
]
ROWS = [
    # every picture of algorithms
    *(
        row
        for name in ANY_ALGORITHM
        for row in of(find_explorer(name), (("grpo",), "algorithm must be an algorithm, such as GRPO; got 'grpo'"))
    ),
    *shows(explore_aggregation, DPO),
    *shows(explore_entropy, PPO, GRPO_PROCESS),
    *shows(explore_gae, GRPO_PROCESS),
    *shows(explore_mismatch, GRPO_PROCESS),
    *shows(explore_overlong, PPO),
    *shows(explore_process, PPO),
    *shows(explore_ratio, DPO),
    *of(
        explore_bounds,
        *(
            ((algorithm,), f"algorithm: {algorithm.name} limits the ratio of a whole response; …")
            for algorithm in (GSPO, GSPO_TOKEN)
        ),
        ((DPO,), "algorithm: DPO has no ratio that could be limited"),
    ),
    *of(
        explore_advantages,
        ((PPO,), "algorithm: PPO does not learn from groups of responses…"),
        ((GRPO_PROCESS,), "algorithm: GRPO (process)'s advantage needs step_ends, which …"),
        ((GDPO,), f"algorithm: {GDPO.name}'s advantage needs correct and well_formed, which a picture of …"),
        ((FORKING_TOKENS,), f"algorithm: {FORKING_TOKENS.name}'s advantage needs old_entropy, which a picture of …"),
    ),
    *of(
        explore_sampling,
        ((PPO,), "algorithm: PPO does not learn from groups of responses…"),
        (
            (replace(MINE, select=lambda rewards: rewards),),
            "select must return indices of groups, whole numbers from …",
        ),
    ),
    *of(
        explore_dpo,
        ((ORPO,), "algorithm: ORPO has no loss on the margin of a pair"),
        ((PPO,), "algorithm: PPO has no loss on the margin of a pair"),
        ({"algorithm": GRPO, "beta": 0.1}, "beta: GRPO has no such parameter in this picture…"),
    ),
    *of(explore_mismatch, ((IPO,), "algorithm: IPO …"), ((PPO,), "algorithm: PPO …")),
    *of(gae_curve, ((IPO,), "algorithm: IPO learns from pairs, and no token of it has an advantage")),
    # TIS needs a sampler's probabilities, distillation a teacher's; ORPO has no group: no picture of rewards has them
    *of(gae_curve, *(((algorithm,), f"algorithm: {algorithm.name}…") for algorithm in NO_GROUP)),
    *of(
        lambda algorithm: without_kl(algorithm, "step_ends"),
        *(((algorithm,), f"algorithm: {algorithm.name}…") for algorithm in NO_GROUP),
    ),
    # arguments of pictures, beyond the sliders' ranges, which `declared` tries
    *of(
        explore_aggregation,
        ({"lengths": (1, 2)}, "lengths must be 4 numbers; got (1, 2)"),
        ({"lengths": 7}, "lengths must be 4 numbers; got 7"),
        ({"lengths": (1, 2, 3, 99)}, "lengths must be from 1 to 16; got 99"),
        ({"lengths": (1, 2, 3, "a")}, "lengths must be a number; got 'a'"),
        ({"lengths": (1, 2, 3, 4.5)}, "lengths must be a whole number; got 4.5"),
    ),
    *of(
        explore_entropy,
        ({"reward": "none"}, "reward must be one of 3 good of 20, …; got 'none'"),
        ({"step": 61}, "step must be from 0 to 60; got 61"),
        ({"beside": "dapo"}, BESIDE + "'dapo'"),
    ),
    *(
        row
        for explore in (explore_clip, explore_bounds)
        for row in of(
            explore,
            ({"beside": np.array([1, 2])}, BESIDE + "…"),
            ({"beside": np.array(3)}, BESIDE + "…"),
            ({"beside": np.array(["DAPO"])}, BESIDE + "…"),
            ({"beside": ("dapo",)}, BESIDE + "…'dapo'…"),
            ({"beside": "dapo"}, BESIDE + "'dapo'"),
        )
    ),
    *(
        row
        for explore in (explore_clip, explore_bounds)
        for row in of(
            beside_it,
            ((lambda old_logp: 0.8, explore), "Mine's bounds, …, must return two limits, lower and upper, …; got 0.8"),
            (
                (lambda old_logp: (torch.full((7,), 0.8), torch.full((7,), 1.2)), explore),
                "Mine's bounds, …, must return two limits, lower and upper, …; got a tensor [7] and a tensor [7]",
            ),
            ((lambda old_logp: (1.2, 0.8), explore), "Mine's bounds, …, must give limits with lower ≤ upper; …"),
        )
    ),
    *of(
        explore_mismatch,
        ({"bits": 7}, "bits must be one of 3, 4, 5, 6, 8, 16; got 7"),
        ({"lag": 3}, "lag must be one of 0, 1, 2, 4, 8, 16; got 3"),
        ({"cap": 0.0}, "cap must be above 0 and finite; got 0.0"),
        ({"lowest": 0.1}, "lowest: TIS has no such parameter in this picture…"),
        ({"algorithm": ICE_POP, "lowest": 1.5}, "…0 ≤ lowest ≤ 1 ≤ highest; got 1.5 and 5.0"),
        ({"algorithm": SEQUENCE_MASK, "delta": -1.0}, "delta must be above 0 and finite; got -1.0"),
    ),
    *of(
        of_gae,
        ({"tokens": 1}, "tokens must be from 2 to 24; got 1"),
        ({"tokens": 25}, "tokens must be from 2 to 24; got 25"),
        ({"answer": "maybe"}, "answer must be …; got 'maybe'"),
        ({"start": 0.0}, "start must be above 0 and below 1; got 0.0"),
        ({"start": 1.0}, "start must be above 0 and below 1; got 1.0"),
        ({"offset": 1.5}, "offset must be from −1 to 1; got 1.5"),
        ({"wiggle": -0.1}, "wiggle must be from 0 to 1; got -0.1"),
        ({"wiggle": 1.1}, "wiggle must be from 0 to 1; got 1.1"),
        ({"lam": 2.0}, "lam must be from 0 to 1; got 2.0"),
    ),
    *of(
        of_kl,
        ({"apart": 10.5}, "apart must be from 0 to 10; got 10.5"),
        ({"apart": -0.1}, "apart must be from 0 to 10; got -0.1"),
        ({"weight": -0.1}, "weight must be from 0 to 1; got -0.1"),
        ({"weight": 1.1}, "weight must be from 0 to 1; got 1.1"),
        ({"distance": 0.0}, "distance must be above 0 and finite; got 0.0"),
        ({"distance": float("inf")}, "distance must be above 0 and finite; got inf"),
    ),
    *of(
        of_clip,
        ({"advantage": 0.0}, "advantage must be above or below 0; got 0"),
        ({"old_prob": 0.0}, "old_prob must be above 0 and at most 1; got 0.0"),
        ({"old_prob": 1.5}, "old_prob must be above 0 and at most 1; got 1.5"),
        ({"max_ratio": 0.0}, "max_ratio must be above 0; got 0.0"),
        ({"points": 1}, "points must be at least 2; got 1"),
    ),
    *of(without_gradient, ({}, "Mine's surrogate, …, must have a gradient by the ratio…")),
    *of(wrong_at_a_fifth, ({}, "Mine's bounds, …, must give limits …; for old probability 0.2 got 2 and 1.2")),
    *of(
        responses_of,
        (
            ([type("Record", (), {"groups": ()})()] * 3,),
            "run: none of its 3 steps recorded tokens, as every 10th does unless details_every says otherwise; train for 10 "
            "steps or more, or with TrainSettings(details_every=1)",
        ),
    ),
    *of(misnamed_channel, ({}, "…clip: Line's x is 'rattio', which is no control…did you mean ratio…")),
    *of(twice_the_name, ({}, "…'eps_low' is a control and a parameter of the algorithms…")),
    *of(
        explore_map,
        *(((which,), WHICH.format(which)) for which in ("dcpo-limit", "nowhere.jsonl", "README.md")),
        folder=a_readme,
    ),
    *of(find_map, (("dcpo-limit",), "which must be one of …; did you mean dcpo-limits? got 'dcpo-limit'")),
    *of(explore_map, *CELL),
    *of(map_curve, *CELL),
    # plots of numbers
    *of(
        importance_curve,
        ({"old_prob": 1.0}, "old_prob must be above 0 and below 1; got 1.0"),
        ({"samples": 0}, "samples must be at least 1; got 0"),
    ),
    *of(
        token_weights,
        ((sequence_mean, [0, 0]), "lengths must be numbers of tokens, one of them at least 1; got [0, 0]"),
    ),
    *of(difficulty_curve, ((GroupAdvantage(), 1), "group_size must be at least 2; got 1")),
]
