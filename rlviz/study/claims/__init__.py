"""The sources' claims, tested on small models: a module each, which `rlviz experiment` runs.

In: a seed and a scale. Out: the frame of a trial, and the effects of all seeds' trials, one for each statement. A module begins
with what the source says (SAYS) and ends with `CLAIM = Claim(...)`. `NAMES` has the modules in the order of the table of
verdicts. Begin to read at `overlong.py` (transformers) or `entropy_knobs.py` (tables of logits).
"""

from __future__ import annotations

from importlib import import_module

from rlviz.names import closest
from rlviz.study.effects import Claim

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


CLAIMS: tuple[Claim, ...] = tuple(import_module(f"{__name__}.{name}").CLAIM for name in NAMES)


def find_claim(name: str) -> Claim:
    """Return the claim with this name; raises ValueError that offers the nearest names."""
    known = {claim.name: claim for claim in CLAIMS}
    return known[closest("experiment", name, list(known))]
