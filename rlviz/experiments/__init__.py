"""The sources' claims, tested on small models: a module a claim, a verdict that is computed, `rlviz experiment` to run them."""

from __future__ import annotations

from rlviz.experiments import (
    critic_cost,
    dcpo_headline,
    dead_groups,
    entropy_clip,
    entropy_knobs,
    group_size,
    kl_estimators,
    length_bias,
    overlong,
    ratio_variance,
    reward_hacking,
    routing,
    sampling_headlines,
    stale_samples,
    starved,
    std_weighting,
)
from rlviz.experiments.base import Experiment, Part, Verdict, judged
from rlviz.names import closest

EXPERIMENTS: tuple[Experiment, ...] = (
    starved.EXPERIMENT,
    entropy_clip.EXPERIMENT,
    length_bias.EXPERIMENT,
    std_weighting.EXPERIMENT,
    dead_groups.EXPERIMENT,
    ratio_variance.EXPERIMENT,
    routing.EXPERIMENT,
    kl_estimators.EXPERIMENT,
    stale_samples.EXPERIMENT,
    critic_cost.EXPERIMENT,
    group_size.EXPERIMENT,
    reward_hacking.EXPERIMENT,
    entropy_knobs.EXPERIMENT,
    dcpo_headline.EXPERIMENT,
    sampling_headlines.DUPO_HEADLINE,
    sampling_headlines.DAPO_HEADLINE,
    overlong.EXPERIMENT,
)


def find_experiment(name: str) -> Experiment:
    """Return the experiment with this name; raises ValueError that offers the nearest names."""
    known = {experiment.name: experiment for experiment in EXPERIMENTS}
    return known[closest("experiment", name, list(known))]


__all__ = ["EXPERIMENTS", "Experiment", "Part", "Verdict", "find_experiment", "judged"]
