"""All explorers by name, with the settings that their static twins show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlviz.algorithms import DAPO, DCPO, DPO_LINEAR, DR_GRPO, GRPO, GSPO, PPO
from rlviz.names import closest
from rlviz.widgets.advantages import explore_advantages
from rlviz.widgets.aggregation import explore_aggregation
from rlviz.widgets.bounds import explore_bounds
from rlviz.widgets.clip import explore_clip
from rlviz.widgets.dpo import explore_dpo
from rlviz.widgets.entropy import explore_entropy
from rlviz.widgets.explorer import Explorer
from rlviz.widgets.gae import explore_gae
from rlviz.widgets.kl import explore_kl
from rlviz.widgets.overlong import explore_overlong
from rlviz.widgets.process import explore_process
from rlviz.widgets.ratio import explore_ratio
from rlviz.widgets.sampling import explore_sampling


@dataclass(frozen=True)
class Entry:
    """One explorer: `explore` makes it; `twin` maps a heading to the arguments of one of its small multiples."""

    explore: Callable[..., Explorer[Any]]
    twin: Mapping[str, Mapping[str, Any]]


EXPLORERS: Mapping[str, Entry] = {
    "advantages": Entry(
        explore_advantages,
        {
            "GRPO, 8 responses, 0.8 of them right": {},
            "GRPO, 2 responses": {"group_size": 2},
            "Dr.GRPO, no division by the standard deviation": {"algorithm": DR_GRPO},
            "DCPO, fifth visit, an easy prompt": {"algorithm": DCPO, "visits": 5, "success_rate": 0.95},
        },
    ),
    "aggregation": Entry(
        explore_aggregation,
        {
            "DAPO, lengths 2, 4, 8, 16, cut in halves": {},
            "DAPO, equal lengths, cut in halves": {"lengths": (8, 8, 8, 8)},
            "GRPO, lengths 2, 4, 8, 16, cut in halves": {"algorithm": GRPO},
            "GRPO, lengths 2, 4, 8, 16, cut after the first": {"algorithm": GRPO, "cut": 1},
        },
    ),
    "bounds": Entry(
        explore_bounds,
        {
            "GRPO, the same limits for every token": {"algorithm": GRPO, "beside": ()},
            "DAPO, clip-higher": {"algorithm": DAPO, "beside": ()},
            "DCPO, limits that widen as the token gets rarer": {"beside": (), "scale": "log"},
        },
    ),
    "clip": Entry(
        explore_clip,
        {
            "GRPO, ε = 0.2": {},
            "clip-higher, 0.2 and 0.5": {"eps_high": 0.5},
            "DCPO, a token of old probability 0.1": {
                "algorithm": DCPO,
                "old_prob": 0.1,
                "beside": (GRPO,),
                "up_to": 4.0,
            },
        },
    ),
    "dpo": Entry(
        explore_dpo,
        {
            "DPO: fades, and the chosen response falls too": {},
            "DPO, less alike: the chosen response rises": {"shared": 0.3},
            "DPO (linear), less alike: never lets go": {"algorithm": DPO_LINEAR, "shared": 0.3},
            "GRPO on the same pair: the clip stops dead": {"algorithm": GRPO},
        },
    ),
    "entropy": Entry(
        explore_entropy,
        {
            "three good actions of twenty": {"beside": DAPO},
            "a rare good action, 16 updates a rollout": {
                "reward": "rare good",
                "updates_per_rollout": 16,
                "beside": DCPO,
            },
            "a reward of pure chance": {"reward": "random", "updates_per_rollout": 8, "beside": DCPO},
        },
    ),
    "gae": Entry(
        explore_gae,
        {
            "λ = 0: the critic alone": {"lam": 0.0},
            "λ = 0.95, PPO's own": {},
            "GRPO: no critic, the outcome alone": {"algorithm": GRPO},
        },
    ),
    "kl": Entry(
        explore_kl,
        {
            "forward and reverse fit": {},
            "the estimators' value": {"show": "value"},
            "their gradient, as a loss": {"show": "gradient"},
            "their gradient, as part of the reward": {"algorithm": PPO, "show": "gradient"},
        },
    ),
    "overlong": Entry(
        explore_overlong,
        {
            "DAPO, soft punishment from 12 to 16 tokens": {},
            "DAPO, overlong filter": {"shaping": "filter", "mean_length": 13},
            "DAPO, all right: a small punishment, divided by a small deviation": {
                "factor": 0.25,
                "mean_length": 9,
                "number_right": 8,
            },
        },
    ),
    "process": Entry(
        explore_process,
        {
            "no answer is right": {"right_others": 0},
            "one other answer is right": {"right_others": 1},
            "answer 1 is right, and no other": {"right_steps": 8, "right_others": 0},
        },
    ),
    "ratio": Entry(
        explore_ratio,
        {
            "GRPO, limits for a token's ratio": {},
            "GSPO, limits for a response's ratio": {"algorithm": GSPO},
            "GSPO, small steps": {"algorithm": GSPO, "noise": 0.005, "length": 200},
        },
    ),
    "sampling": Entry(
        explore_sampling,
        {
            "success rate 0.5, nearly every group differs inside": {"success_rate": 0.5},
            "success rate 0.9": {},
            "0.9 on average, half of the prompts nearly solved": {"spread": 0.8},
        },
    ),
}


def find_explorer(name: str) -> Entry:
    """Return the explorer of this name; raises ValueError that offers the nearest."""
    return EXPLORERS[closest("picture", name.replace("_", "-"), list(EXPLORERS))]
