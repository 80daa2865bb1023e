"""The sources' claims, tested on small models: a file a claim, a verdict that is computed, `rlviz experiment` to run them.

A file says CLAIM, SOURCE and SECONDS, has the functions `trial` and `judge`, and lists its PANELS, all as `Claim` describes them.
Its name in `NAMES`, which the list and the table of verdicts follow in order, is all else that a claim needs to be run.
"""

from __future__ import annotations

from importlib import import_module

from rlviz.names import closest
from rlviz.study.claim import Claim

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
    """Return the claim that the file of this name declares."""
    of = import_module(f"{__name__}.{name}")
    return Claim(name, of.CLAIM, of.SOURCE, of.SECONDS, of.trial, of.judge, of.PANELS)


CLAIMS: tuple[Claim, ...] = tuple(map(_of_module, NAMES))


def find_claim(name: str) -> Claim:
    """Return the claim with this name; raises ValueError that offers the nearest names."""
    known = {claim.name: claim for claim in CLAIMS}
    return known[closest("experiment", name, list(known))]
