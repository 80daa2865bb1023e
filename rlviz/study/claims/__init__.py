"""The sources' claims, tested on small models: a module each with `CLAIM = Claim(...)`; `rlviz experiment` runs them.

`NAMES` lists the modules, in the order of the list and of the table of verdicts.
"""

from __future__ import annotations

from importlib import import_module

import pandas as pd

from rlviz.names import closest
from rlviz.study.effects import Claim, Effect, arithmetic

NAMES = (
    "starved",
    "entropy_clip",
    "length_bias",
    "std_weighting",
    "dead_groups",
    "ratio_variance",
    "routing",
    "kl_estimators",
    "stale_samples",
    "critic_cost",
    "group_size",
    "reward_hacking",
    "entropy_knobs",
    "dcpo_headline",
    "dupo_headline",
    "dapo_headline",
    "overlong",
    "two_engines",
    "sharpening",
    "turn_credit",
    "observations",
    "teacher",
)


def _of_module(name: str) -> Claim:
    """Return the claim that the file of this name declares. Until all are converted, an old one is read as a new one."""
    module = import_module(f"{__name__}.{name}")
    if isinstance(module.CLAIM, Claim):
        return module.CLAIM
    from rlviz.study.verdict import Arithmetic, Part

    def effects(frame: pd.DataFrame) -> list[Effect]:
        said = [part for part in module.judge(frame).said if isinstance(part, Part | Arithmetic)]
        return [
            Effect(part.words, part.values, part.smallest, part.claimed)
            if isinstance(part, Part)
            else arithmetic(part.words, part.values)
            for part in said
        ]

    def numbers(frame: pd.DataFrame) -> list[str]:
        return [line for part in module.judge(frame).said if isinstance(part, str) for line in part.split("; ")]

    return Claim(name, module.CLAIM, module.SOURCE, module.SECONDS, module.trial, effects, (), numbers)


CLAIMS: tuple[Claim, ...] = tuple(map(_of_module, NAMES))


def find_claim(name: str) -> Claim:
    """Return the claim with this name; raises ValueError that offers the nearest names."""
    known = {claim.name: claim for claim in CLAIMS}
    return known[closest("experiment", name, list(known))]
