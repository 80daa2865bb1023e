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
from rlviz.maps.regime import AXES, POLICY_AXES, MapSettings, Measure, PolicyRegime, Regime, regime_of, values_of
from rlviz.maps.stored import Place, RegimeMap, cell_from, cell_line, read_map
from rlviz.names import closest
from rlviz.parallel import LOCAL, check_engine, run_on
from rlviz.training.files import append_line, json_text, write_text
from small_models.checks import check_at_least, checked

OVERHEAD = 1_500  # tokens whose arithmetic takes as long as an update's fixed cost
POLICY_OVERHEAD, EVALUATION = 80, 300  # the same in a transformer's responses, and what is evaluated for each rollout


@dataclass(frozen=True)
class _Job:
    place: Place
    algorithm: GroupPolicyGradient
    against: GroupPolicyGradient
    regime: Regime | PolicyRegime
    settings: MapSettings

    @property
    def cost(self) -> float:
        """About how long it takes, in no unit."""
        one, replicas = self.regime, self.settings.replicas
        if isinstance(one, PolicyRegime):
            rollout = replicas * ((one.updates_per_rollout + 1) * (one.responses + POLICY_OVERHEAD) + EVALUATION)
        else:
            rollout = (one.updates_per_rollout + 1) * (one.responses * one.positions * replicas + OVERHEAD)
        return self.settings.rollouts(one) * rollout


def _work(job: _Job) -> Iterator[tuple[Place, Cell]]:
    yield job.place, run_pair(job.algorithm, job.against, job.regime, job.settings)


def of_groups(option: str, algorithm: Any) -> GroupPolicyGradient:
    """Return the algorithm. Raises ValueError unless a map can train it, and it can differ there."""
    if not isinstance(algorithm, GroupPolicyGradient):
        raise ValueError(f"{option} must learn from groups of responses, as GRPO does; got {algorithm.name}")
    if algorithm.can.from_teacher:
        raise ValueError(f"{option} must learn without a teacher, which a map does not have; got {algorithm.name}")
    if any("sampler_logp" in asked for asked in algorithm.can.asks.values()):
        raise ValueError(
            f"{option} must not correct for another sampler: on a map the policy itself samples, and its weights are all 1; "
            f"got {algorithm.name}"
        )
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
    cells: tuple[int, int] | None = None,
    measure: Measure = "accuracy",
    regime: Regime | PolicyRegime | None = None,
    settings: MapSettings | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = 1,
    on: str = LOCAL,
) -> Making:
    """Return an iterator that runs a regime map, a cell a step; its `result()` is the `RegimeMap`.

    x, y: settings that `AXES` has, or with a policy `POLICY_AXES`; x_values, y_values: theirs, unless given so many as `cells`
    says (8 × 8, with a policy 3 × 3) over the axis's own range. measure: the one that is drawn; all are kept. regime: the other
    settings; a `PolicyRegime` trains small transformers in place of the table, with `MapSettings.for_policy()` unless told. out:
    a file ending in .jsonl, in which each cell is kept; those that it has are not run again. jobs: processes. on: the
    engine that runs them, local, ray, or ray:ADDRESS of a cluster. Both algorithms learn as they are, KL term and all.
    Unless settings.rates is "tuned", one learning rate serves both and is tuned for neither.
    Raises ValueError for what cannot be trained, an axis that there is not, and a file that holds another map.
    """
    for option, one in (("algorithm", algorithm), ("against", against)):
        of_groups(option, one)
    regime = regime or Regime()
    of_policy = isinstance(regime, PolicyRegime)
    settings = settings or (MapSettings.for_policy() if of_policy else MapSettings())
    cells, axes = cells or ((3, 3) if of_policy else (8, 8)), POLICY_AXES if of_policy else AXES
    check_at_least(1, jobs=1 if jobs is None else jobs)
    check_engine(on)
    if settings.rates == "tuned" and "lr" in (x, y):
        raise ValueError("rates cannot be tuned where lr is an axis")
    if x == y:
        raise ValueError(f"x and y must be two settings; both are {x}")
    columns = values_of(x, cells[0] if x_values is None else tuple(x_values), "x", axes)
    rows = values_of(y, cells[1] if y_values is None else tuple(y_values), "y", axes)
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
        _Job((column, row), algorithm, against, regime_of({**fixed, x: columns[column], y: rows[row]}), settings)
        for row in range(len(rows))
        for column in range(len(columns))
    ]
    for corner in (every[0], every[-1]):  # what cannot be trained is refused before minutes of work
        run_pair(algorithm, against, replace(corner.regime, updates_per_rollout=1), MapSettings(replicas=2, steps=1))
    return Making(plan, every, None if out is None else Path(out), jobs, on)


class Making(Iterator[tuple[Place, Cell]]):
    """A map in the making. done: its cells; share: of the work that is done, from 0 to 1."""

    def __init__(
        self, plan: dict[str, object], every: Sequence[_Job], file: Path | None, jobs: int | None, on: str = LOCAL
    ) -> None:
        self.plan, self.file = plan, file
        self.done = _kept(plan, file)
        self._costs = {job.place: job.cost for job in every}
        missing = sorted((job for job in every if job.place not in self.done), key=lambda job: -job.cost)
        at_most = None if jobs is None else min(jobs, max(1, len(missing)))
        self._found = run_on(on, _work, missing, jobs=at_most, at_once=True)

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
