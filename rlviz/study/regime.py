"""The settings of a regime map: what its axes can be, what is measured, and how many runs. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal

from rlviz.names import closest
from rlviz.settings import RUN, SEEDS, check_settings, declarations, documented, setting
from small_models.checks import check_number

REGIME = "What there is to learn, and from how much"
Measure = Literal["accuracy", "entropy", "rollouts", "dead"]
Rates = Literal["same", "tuned"]
MOST = 1024  # of what one rollout of a table has, beyond which a typo fills a machine's memory
MOST_CELLS = 100  # on each side of a map


@documented
@dataclass(frozen=True)
class Regime:
    """What a table of logits learns, and how. Raises ValueError for a setting out of its range.

    A response is right when it is right at each position. There, one common good action and ten rare ones share the
    probability of being right, and nine wrong ones the rest. Prompts with a spread lie at the quantiles of a normal
    distribution, each with rows of its own.
    """

    updates_per_rollout: int = setting(4, "Updates on each rollout.", REGIME, at_least=1, at_most=MOST)
    group_size: int = setting(8, "Responses in a group, G.", REGIME, at_least=2, at_most=MOST)
    groups: int = setting(1, "Groups sampled for each prompt in a rollout.", REGIME, at_least=1, at_most=MOST)
    prompts: int = setting(1, "Prompts, each with rows of its own in the table.", REGIME, at_least=1, at_most=MOST)
    success: float = setting(0.4, "Success rate: probability of a right response at first.", REGIME, above=0, below=1)
    rare: float = setting(
        0.25, "Share of it that ten rare good actions have; one common good action has the rest.", REGIME,
        at_least=0, at_most=1,
    )  # fmt: skip
    noise: float = setting(
        0.0, "Probability that a position's check is a coin's throw; at 1 half of all responses pass.", REGIME,
        at_least=0, at_most=1,
    )  # fmt: skip
    positions: int = setting(1, "Length of a response; each position must be right.", REGIME, at_least=1, at_most=MOST)
    lr: float = setting(1.0, "Learning rate of plain gradient ascent; see --rates.", REGIME, above=0)
    spread: float = setting(
        0.0, "Spread of difficulty: standard deviation of the prompts' success rates, in log-odds.", REGIME, at_least=0
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.spread and self.prompts == 1:
            raise ValueError(f"spread must be 0 where there is one prompt; got {self.spread:g} (see prompts)")

    @property
    def responses(self) -> int:
        """Responses in a rollout."""
        return self.prompts * self.groups * self.group_size


@documented
@dataclass(frozen=True)
class PolicyRegime:
    """What a small transformer learns, and how, where a map has one in place of the table; each run begins with the same policy.

    Raises ValueError for a setting out of its range.
    """

    policy: str = setting("trip", "Starting policy: a shipped name, a folder, or a hub name.", REGIME)
    task: str = setting("trip", "Task that it learns.", REGIME)
    updates_per_rollout: int = setting(4, "Updates on each rollout.", REGIME, at_least=1, at_most=MOST)
    group_size: int = setting(8, "Responses in a group, G.", REGIME, at_least=2, at_most=MOST)
    groups: int = setting(8, "Groups in a rollout, each of another prompt.", REGIME, at_least=1, at_most=MOST)
    noise: float = setting(0.0, "Probability that a response's check is a coin's throw.", REGIME, at_least=0, at_most=1)
    lr: float = setting(1e-4, "Learning rate of AdamW.", REGIME, above=0)

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def responses(self) -> int:
        """Responses in a rollout."""
        return self.groups * self.group_size


@documented
@dataclass(frozen=True)
class MapSettings:
    """How long each run of a map is, and how many there are. Raises ValueError for a setting out of its range."""

    replicas: int = setting(
        64, "Runs of each algorithm in each cell; with a policy 3 unless told.", RUN, at_least=2, at_most=10_000
    )
    steps: int = setting(60, "Rollouts of each run; with a policy 30 unless told.", RUN, at_least=1)
    responses: int = setting(
        0, "Responses sampled in each run, in place of --steps, so that cells have equal budgets; 0: --steps.", RUN,
        at_least=0,
    )  # fmt: skip
    level: float = setting(
        0.8, "Accuracy at which entropies are compared, and to which rollouts are counted; with a policy .5 unless told.",
        RUN, above=0, below=1,
    )  # fmt: skip
    rates: Rates = setting(
        "same",
        "Learning rates: the same for both; or tuned, in each cell for each algorithm the best of lr × ¼, ½, 1, 2 and 4.",
        RUN,
    )
    seed: int = setting(0, "The same seed gives the same map.", RUN, at_least=0, below=SEEDS)

    def __post_init__(self) -> None:
        check_settings(self)

    @classmethod
    def for_policy(cls, **changed: Any) -> MapSettings:
        """Return settings that a laptop can wait for where cells are trained on a transformer, `changed` by name."""
        return cls(**{"replicas": 3, "steps": 30, "level": 0.5, **changed})

    def rollouts(self, regime: Regime | PolicyRegime) -> int:
        """Return the rollouts of each run in a cell, at least one."""
        return max(1, self.responses // regime.responses) if self.responses else self.steps


@dataclass(frozen=True)
class Axis:
    """A setting that can be an axis: its label with the unit, and the range that a map has unless it is told."""

    label: str
    low: float
    high: float
    by_factors: bool = False

    def values(self, count: int, *, whole: bool) -> tuple[float, ...]:
        """Return so many values from low to high, by equal steps or factors; whole ones all differ, and may end above."""
        shares = [place / max(1, count - 1) for place in range(count)]
        if self.by_factors:
            found = [self.low * (self.high / self.low) ** share for share in shares]
        else:
            found = [self.low + (self.high - self.low) * share for share in shares]
        if not whole:
            return tuple(float(f"{value:.3g}") for value in found)
        values: list[int] = []
        for value in found:
            values.append(max(round(value), values[-1] + 1 if values else 0))
        return tuple(values)


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
POLICY_AXES: Mapping[str, Axis] = MappingProxyType(
    {
        **{name: AXES[name] for name in ("updates_per_rollout", "group_size", "noise")},
        "groups": Axis(AXES["groups"].label, 4, 32, by_factors=True),
        "lr": Axis(AXES["lr"].label, 3e-5, 1e-3, by_factors=True),
    }
)


@dataclass(frozen=True)
class Words:
    """What a measure is called. title: with {level}; unit: of a difference; more: what more of it is.

    least: a difference of interest; the colours of a map reach at least so far, so that smaller ones look small.
    """

    title: str
    unit: str
    more: str
    least: float


MEASURES: Mapping[str, Words] = MappingProxyType(
    {
        "accuracy": Words("accuracy after equally many responses", "accuracy", "a higher accuracy", 0.05),
        "entropy": Words("entropy at accuracy {level:g}", "nats", "more entropy", 0.1),
        "rollouts": Words("rollouts to accuracy {level:g}", "rollouts", "more rollouts", 2.0),
        "dead": Words("share of dead groups over a run", "share", "more dead groups", 0.05),
    }
)


def is_whole(name: str) -> bool:
    """Return whether this setting of a `Regime` is a whole number."""
    return next(field.type for field in fields(Regime) if field.name == name) == "int"


def regime_of(settings: Mapping[str, Any]) -> Regime | PolicyRegime:
    """Return the regime with these settings: with a policy a transformer's, else a table's.

    Raises ValueError for a setting that only the other one has, and for one out of its range.
    """
    kind = PolicyRegime if "policy" in settings else Regime
    for name in settings:
        if name not in declarations(kind):
            raise ValueError(f"{name} is a setting of the table alone; with a policy its task decides")
    return kind(**settings)


def values_of(
    name: str, given: int | tuple[float, ...], what: str, axes: Mapping[str, Axis] = AXES
) -> tuple[float, ...]:
    """Return the values of an axis: so many over its own range, or those given.

    what: the argument's name, for refusals. axes: AXES, or those of a policy. Raises ValueError for a setting that cannot be an
    axis, and for values that do not grow.
    """
    known = closest(what, name, list(AXES))
    if known not in axes:
        raise ValueError(f"{what} cannot be {known}, which only the table has; with a policy it is {', '.join(axes)}")
    axis = axes[known]
    if isinstance(given, int):
        check_number("cells", given, lambda number: 1 <= number <= MOST_CELLS, f"from 1 to {MOST_CELLS}", whole=True)
        return axis.values(given, whole=is_whole(name))
    for value in given:
        check_number(f"{what}_values", value, lambda number: True, "numbers")
    values = tuple(int(value) if is_whole(name) and value == int(value) else value for value in given)
    if not values or any(b <= a for a, b in pairwise(values)):
        raise ValueError(f"{what}_values must grow from one to the next; got {', '.join(f'{v:g}' for v in values)}")
    return values
