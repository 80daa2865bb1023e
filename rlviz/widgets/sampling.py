"""explore_sampling: what it costs to fill a batch with groups that teach something."""

from __future__ import annotations

from rlviz.algorithms import DAPO, GroupPolicyGradient
from rlviz.curves.sampling import SamplingCurve, sampling_curve
from rlviz.plots.sampling import SamplingPicture
from rlviz.widgets.advantages import learns_from_a_group
from rlviz.widgets.explorer import AlgorithmControl, Explorer
from rlviz.widgets.live import float_control, int_control
from small_models.checks import checked


@checked
def explore_sampling(
    algorithm: GroupPolicyGradient = DAPO,
    *,
    success_rate: float = 0.9,
    spread: float = 0.0,
    group_size: int = 8,
    num_prompts: int = 16,
    max_rounds: int = 10,
    visits: int = 3,
) -> Explorer[SamplingCurve]:
    """Return a picture of four answers to dead groups, and an algorithm's own: keep, replace, repeat, remember.

    Left the price of replacing them, responses sampled for each one wanted, against the prompts' success rate, expected and
    simulated through the algorithm's selection. Right what the places of each algorithm's batch hold at one success rate. A
    selection that lets too few groups out samples on, as training does for `DynamicSampling`, DAPO's.

    success_rate: mean over the prompts, 0.01 to 0.99. spread: 0, all prompts alike, to 1: half of them as much harder and half
    as much easier as goes. group_size: responses to a prompt, 2 to 64. num_prompts: groups wanted in a batch, 1 to 32.
    max_rounds: at most so many times as many groups are sampled, 1 to 10, by DAPO too. visits: how often each prompt was
    sampled, this time included, 1 to 10; matters to an advantage with a memory, as DCPO's.
    Raises ValueError for a value out of range, or an algorithm whose advantage needs more than rewards and their history.
    """
    return Explorer(
        explore_sampling,
        SamplingPicture,
        sampling_curve,
        [
            float_control("success_rate", success_rate, 0.02, 0.98, 0.01, "success rate p"),
            float_control("spread", spread, 0.0, 1.0, 0.05, "spread of p"),
            int_control("group_size", group_size, 2, 64, "group size G"),
            int_control("num_prompts", num_prompts, 4, 32, "groups wanted P"),
            int_control("max_rounds", max_rounds, 1, 10, "rounds at most"),
            int_control("visits", visits, 1, 10, "visit of the prompt"),
        ],
        AlgorithmControl(algorithm, fits=learns_from_a_group),
    )
