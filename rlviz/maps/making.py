"""Making a regime map: its cells in processes, each kept as soon as it is done, so that an interrupted map goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import rlviz
from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.algorithms.describe import to_json
from rlviz.algorithms.slots import SLOTS
from rlviz.maps.cells import Cell, run_pair
from rlviz.maps.regime import MapSettings, Measure, Regime, values_of
from rlviz.maps.stored import Place, RegimeMap, cell_from, cell_line, read_map
from rlviz.names import closest
from rlviz.processes import side_by_side
from rlviz.training.files import append_line, json_text, write_text
from small_models.checks import check_at_least, checked

OVERHEAD = 1_500  # tokens whose arithmetic takes as long as an update's fixed cost


@dataclass(frozen=True)
class _Job:
    place: Place
    algorithm: GroupPolicyGradient
    against: GroupPolicyGradient
    regime: Regime
    settings: MapSettings

    @property
    def cost(self) -> float:
        """About how long it takes, in no unit."""
        one = self.regime
        tokens = one.prompts * one.groups * one.group_size * one.positions * self.settings.replicas
        return self.settings.rollouts(one) * (one.updates_per_rollout + 1) * (tokens + OVERHEAD)


def _work(job: _Job) -> Iterator[tuple[Place, Cell]]:
    yield job.place, run_pair(job.algorithm, job.against, job.regime, job.settings)


def of_groups(option: str, algorithm: Any) -> GroupPolicyGradient:
    """Return the algorithm. Raises ValueError unless it can train a table."""
    if not isinstance(algorithm, GroupPolicyGradient):
        raise ValueError(f"{option} must learn from groups of responses, as GRPO does; got {algorithm.name}")
    return algorithm


@checked
def borrow(algorithm: GroupPolicyGradient, against: GroupPolicyGradient, slots: Sequence[str]) -> GroupPolicyGradient:
    """Return `against` with these slots of `algorithm`: bounds alone, say, compared with whole algorithms.

    Raises ValueError for an unknown slot.
    """
    taken = [closest("slot", slot.strip(), list(SLOTS)) for slot in slots]
    pieces = {slot: algorithm.slots()[slot] for slot in taken}
    name = f"{against.name} with {algorithm.name}'s {' and '.join(taken)}"
    return replace(against, name=name, from_grpo={}, **pieces)


@checked
def regime_map(
    algorithm: GroupPolicyGradient,
    against: GroupPolicyGradient,
    *,
    x: str = "updates_per_rollout",
    y: str = "groups",
    x_values: Sequence[float] | None = None,
    y_values: Sequence[float] | None = None,
    cells: tuple[int, int] = (8, 8),
    measure: Measure = "accuracy",
    regime: Regime | None = None,
    settings: MapSettings | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int = 1,
) -> Making:
    """Return an iterator that runs a regime map, a cell a step; its `result()` is the `RegimeMap`.

    x, y: settings of `Regime` that `AXES` has; x_values, y_values: theirs, unless given so many as `cells` says over the axis's
    own range. measure: the one that is drawn; all are kept. regime: the other settings. out: a file ending in .jsonl, in which
    each cell is kept; those that it has are not run again. jobs: processes. Both algorithms learn as they are, KL term and all.
    Unless settings.rates is "tuned", one learning rate serves both and is tuned for neither.
    Raises ValueError for what a table cannot train, an axis that there is not, and a file that holds another map.
    """
    for option, one in (("algorithm", algorithm), ("against", against)):
        of_groups(option, one)
    regime, settings = regime or Regime(), settings or MapSettings()
    check_at_least(1, jobs=jobs)
    if settings.rates == "tuned" and "lr" in (x, y):
        raise ValueError("rates cannot be tuned where lr is an axis")
    if x == y:
        raise ValueError(f"x and y must be two settings; both are {x}")
    columns = values_of(x, cells[0] if x_values is None else tuple(x_values), "x")
    rows = values_of(y, cells[1] if y_values is None else tuple(y_values), "y")
    fixed = {name: value for name, value in asdict(regime).items() if name not in (x, y)}
    plan = {
        "rlviz": rlviz.__version__,
        "algorithm": to_json(algorithm),
        "against": to_json(against),
        "x": {"name": x, "values": list(columns)},
        "y": {"name": y, "values": list(rows)},
        "measure": measure,
        "regime": fixed,
        "settings": asdict(settings),
    }
    every = [
        _Job((column, row), algorithm, against, Regime(**{**fixed, x: columns[column], y: rows[row]}), settings)
        for row in range(len(rows))
        for column in range(len(columns))
    ]
    for corner in (every[0], every[-1]):  # what a table refuses is refused before minutes of work
        run_pair(algorithm, against, replace(corner.regime, updates_per_rollout=1), MapSettings(replicas=2, steps=1))
    return Making(plan, every, None if out is None else Path(out), jobs)


class Making(Iterator[tuple[Place, Cell]]):
    """A map in the making. done: its cells; share: of the work that is done, from 0 to 1."""

    def __init__(self, plan: dict[str, object], every: Sequence[_Job], file: Path | None, jobs: int) -> None:
        self.plan, self.file = plan, file
        self.done = _kept(plan, file)
        self._costs = {job.place: job.cost for job in every}
        missing = sorted((job for job in every if job.place not in self.done), key=lambda job: -job.cost)
        self._found = side_by_side(_work, missing, jobs=min(jobs, max(1, len(missing))), at_once=True)

    @property
    def count(self) -> int:
        """The cells of the whole map."""
        return len(self._costs)

    @property
    def share(self) -> float:
        return sum(self._costs[place] for place in self.done) / sum(self._costs.values())

    def __next__(self) -> tuple[Place, Cell]:
        place, cell = next(self._found)
        line = cell_line(place, cell)
        if self.file is not None:
            append_line(self.file, line)
        self.done[place] = cell_from(line)[1]  # as it is read again, to the last digit
        return place, self.done[place]

    def close(self) -> None:
        """Stop at once; the cells that are done are kept, those under way are lost."""
        self._found.close()

    def result(self) -> RegimeMap:
        """Run what is left, and return the map."""
        for _ in self:
            pass
        return RegimeMap(self.plan, self.done)


def _kept(plan: dict[str, object], file: Path | None) -> dict[Place, Cell]:
    """Return the cells that the file has, and begin it where it is not there. Raises ValueError where it is another map's."""
    if file is None:
        return {}
    if file.suffix != ".jsonl":
        raise ValueError(f"out must end in .jsonl; got {file.name}")
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json_text(plan) + "\n")
        return {}
    before = read_map(file)
    if other := _difference(dict(before.plan), plan):
        raise ValueError(f"out: {file} holds another map ({other}); choose another file, or remove it")
    text = file.read_text(encoding="utf-8")
    if not text.endswith("\n"):  # torn by a power cut
        write_text(file, text[: text.rfind("\n") + 1])
    return dict(before.cells)


def _difference(had: dict[str, object], wanted: dict[str, object], within: str = "") -> str:
    """Return in words the first thing in which two plans differ; nothing where they are one. What is drawn may differ."""
    for name, new in wanted.items():
        old = had.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            if found := _difference(old, new, f"{within}{name}."):
                return found
        elif old != new and name != "measure":
            return f"{within}{name} {old}, not {new}"
    return ""
