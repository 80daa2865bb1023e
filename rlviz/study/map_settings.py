"""What a map's tables of logits learn and from how much, and which of these settings can be an axis. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

from rlviz.settings import RUN, SEEDS, check_settings, documented, setting

TABLE = "What there is to learn, and from how much"
MOST = 1024  # of what one rollout of a table has, beyond which a typo fills a machine's memory
Measure = Literal["accuracy", "entropy", "rollouts", "dead"]


@documented
@dataclass(frozen=True)
class MapSettings:
    """What a table of logits learns in a cell of a map, and how. Raises ValueError for a setting out of its range.

    A response is right when it is right at each position. There, one common good action and ten rare ones share the
    probability of being right, and nine wrong ones the rest. Prompts with a spread lie at the quantiles of a normal
    distribution, each with rows of its own.
    """

    updates_per_rollout: int = setting(4, "Updates on each rollout.", TABLE, at_least=1, at_most=MOST)
    group_size: int = setting(8, "Responses in a group, G.", TABLE, at_least=2, at_most=MOST)
    groups: int = setting(1, "Groups sampled for each prompt in a rollout.", TABLE, at_least=1, at_most=MOST)
    prompts: int = setting(1, "Prompts, each with rows of its own in the table.", TABLE, at_least=1, at_most=MOST)
    success: float = setting(0.4, "Success rate: probability of a right response at first.", TABLE, above=0, below=1)
    rare: float = setting(0.25, "Share of it that the ten rare good actions have.", TABLE, at_least=0, at_most=1)
    noise: float = setting(
        0.0, "Share of coin throws among the checks; at 1 half of all responses pass.", TABLE, at_least=0, at_most=1
    )
    positions: int = setting(1, "Length of a response; each position must be right.", TABLE, at_least=1, at_most=MOST)
    lr: float = setting(1.0, "Learning rate of plain gradient ascent, for both algorithms.", TABLE, above=0)
    spread: float = setting(
        0.0, "Spread of difficulty: standard deviation of the prompts' success rates, in log-odds.", TABLE, at_least=0
    )
    replicas: int = setting(64, "Runs of each algorithm in each cell.", RUN, at_least=2, at_most=10_000)
    steps: int = setting(60, "Rollouts of each run.", RUN, at_least=1)
    level: float = setting(
        0.8, "Accuracy at which entropies are compared, and to which rollouts are counted.", RUN, above=0, below=1
    )
    seed: int = setting(0, "The same seed gives the same map.", RUN, at_least=0, below=SEEDS)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.spread and self.prompts == 1:
            raise ValueError(f"spread must be 0 where there is one prompt; got {self.spread:g} (see prompts)")


class Axis(NamedTuple):
    """A setting that can be an axis: its label with the unit, and its range where no values are given."""

    label: str
    low: float
    high: float
    by_factors: bool = False


AXES: Mapping[str, Axis] = MappingProxyType(
    {
        "updates_per_rollout": Axis("updates a rollout", 1, 16, by_factors=True),
        "group_size": Axis("group size (responses)", 2, 32, by_factors=True),
        "groups": Axis("groups in a rollout", 1, 16, by_factors=True),
        "success": Axis("success rate at first", 0.05, 0.75),
        "rare": Axis("share of rare good actions", 0.0, 0.9),
        "noise": Axis("noise of the reward (share of coin throws)", 0.0, 0.7),
        "positions": Axis("length (positions)", 1, 8),
        "lr": Axis("learning rate", 0.1, 4, by_factors=True),
        "spread": Axis("spread of difficulty (log-odds)", 0.0, 3.0),
    }
)
