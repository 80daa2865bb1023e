"""The sources' claims, tested on small models: a module a claim, a verdict that is computed, `rlviz experiment` to run them.

A module says CLAIM, SOURCE and SECONDS, and has the functions `trial`, `judge` and `draw`, all as `Experiment` describes them.
Its name in `NAMES`, which the list and the table of verdicts follow in order, is all else that a claim needs to be run.
"""

from __future__ import annotations

from importlib import import_module

from rlviz.experiments.base import Experiment
from rlviz.experiments.parts import Part, Verdict, judged
from rlviz.experiments.quoting import quoted as quoted
from rlviz.names import closest

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
)


def _of_module(name: str) -> Experiment:
    """Return the experiment that the module of this name declares."""
    of = import_module(f"{__name__}.{name}")
    return Experiment(name, of.CLAIM, of.SOURCE, of.SECONDS, of.trial, of.judge, of.draw)


EXPERIMENTS: tuple[Experiment, ...] = tuple(map(_of_module, NAMES))


def find_experiment(name: str) -> Experiment:
    """Return the experiment with this name; raises ValueError that offers the nearest names."""
    known = {experiment.name: experiment for experiment in EXPERIMENTS}
    return known[closest("experiment", name, list(known))]
