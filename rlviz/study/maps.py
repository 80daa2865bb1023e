"""Regime maps: two algorithms over two settings, a cell a job, each kept as a line of a file as soon as it is done."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import rlviz
from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.algorithms.describe import to_json
from rlviz.algorithms.slots import SLOTS
from rlviz.names import closest
from rlviz.parallel import LOCAL
from rlviz.study.cells import Array, Cell, Measured, run_pair
from rlviz.study.regime import (
    AXES,
    MEASURES,
    POLICY_AXES,
    MapSettings,
    Measure,
    PolicyRegime,
    Regime,
    regime_of,
    values_of,
)
from rlviz.study.runner import Running, check_where
from rlviz.training.files import append_line, json_text, write_text
from small_models.checks import checked

if TYPE_CHECKING:
    import pandas as pd

Place = tuple[int, int]  # column and row of a cell, from 0
CURVES = ("accuracy", "entropy")
NUMBERS = ("mine", "other", "difference", "error", "counted", "sign")
OVERHEAD = 1_500  # tokens whose arithmetic takes as long as an update's fixed cost
POLICY_OVERHEAD, EVALUATION = 80, 300  # the same in a transformer's responses, and what is evaluated for each rollout


@dataclass(frozen=True)
class RegimeMap:
    """Two algorithms over two settings. plan: what was run, as JSON; two maps of one plan are the same map.

    cells: (column, row) → cell, those that are done.
    """

    plan: Mapping[str, Any]
    cells: Mapping[Place, Cell] = field(compare=False)

    @property
    def names(self) -> tuple[str, str]:
        """The algorithm, and the one against it."""
        return self.plan["algorithm"]["name"], self.plan["against"]["name"]

    @property
    def x(self) -> tuple[str, tuple[float, ...]]:
        """The setting from left to right, and its values."""
        return self.plan["x"]["name"], tuple(self.plan["x"]["values"])

    @property
    def y(self) -> tuple[str, tuple[float, ...]]:
        """The setting from bottom to top, and its values."""
        return self.plan["y"]["name"], tuple(self.plan["y"]["values"])

    @property
    def settings(self) -> MapSettings:
        return MapSettings(**self.plan["settings"])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.y[1]), len(self.x[1])

    @property
    def complete(self) -> bool:
        return len(self.cells) == math.prod(self.shape)

    def regime(self, place: Place) -> Regime | PolicyRegime:
        """Return the settings of a cell."""
        (x, columns), (y, rows) = self.x, self.y
        return regime_of({**self.plan["regime"], x: columns[place[0]], y: rows[place[1]]})

    def measured(self, measure: str, name: str) -> Array:
        """Return one number of a measure in all cells, [rows, columns], from the lowest y; NaN where a cell is missing.

        name: mine, other, difference, error, counted or sign; see `Measured`.
        """
        found = np.full(self.shape, np.nan)
        for (column, row), cell in self.cells.items():
            found[row, column] = getattr(cell.measured[measure], name)
        return found

    @property
    def frame(self) -> pd.DataFrame:
        """All that was measured, a row a cell and measure: the values of x and y, what is compared, and the learning rates."""
        import pandas as pd  # a map that is only drawn does without

        (x, columns), (y, rows) = self.x, self.y
        found = []
        for column, row in sorted(self.cells):
            cell = self.cells[column, row]
            lr_mine, lr_other = cell.rates
            for measure in MEASURES:
                numbers = {name: getattr(cell.measured[measure], name) for name in NUMBERS}
                compared = dict(zip(("algorithm", "against"), self.names, strict=True))
                found.append(
                    {x: columns[column], y: rows[row], "measure": measure, **compared, **numbers}
                    | {"lr_mine": lr_mine, "lr_other": lr_other}
                )
        return pd.DataFrame(found)

    def to_csv(self) -> str:
        """Return the frame as CSV, to six digits."""
        rates = {name: self.frame[name].astype(str) for name in ("lr_mine", "lr_other")}
        return self.frame.assign(**rates).to_csv(index=False, float_format="%.6g", na_rep="nan", lineterminator="\n")


def cell_line(place: Place, cell: Cell) -> str:
    """Return a cell as a line of JSON: measures to six digits, curves to three places."""
    measured = {name: [_short(value) for value in asdict(one).values()] for name, one in cell.measured.items()}
    curves = {name: np.round(getattr(cell, name), 3).tolist() for name in CURVES}
    rollouts = [int(step) for step in cell.rollouts]
    line = {"cell": list(place), "measured": measured, "rates": list(cell.rates), "rollouts": rollouts, **curves}
    return json_text(line).replace(", ", ",").replace(": ", ":")


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def cell_from(line: str) -> tuple[Place, Cell]:
    """Return what `cell_line` wrote."""
    said = json.loads(line)
    measured = {
        name: Measured(*(math.nan if value is None else value for value in values))
        for name, values in said["measured"].items()
    }
    column, row = said["cell"]
    curves = (np.array(said[name], dtype=float) for name in CURVES)
    mine, other = said["rates"]
    return (column, row), Cell(measured, (mine, other), np.array(said["rollouts"], dtype=float), *curves)


@checked
def read_map(file: str | os.PathLike[str]) -> RegimeMap:
    """Return a map from the file, ending in .jsonl, that `rlviz map` or `regime_map` writes; a torn last line is left out.

    Raises FileNotFoundError where there is none, ValueError for a file that is no map.
    """
    path = Path(file)
    try:
        first, *lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        plan = json.loads(first)
        cells = dict(cell_from(line) for line in lines if line.endswith("\n"))
        found = RegimeMap(plan, cells)
        rows, columns = found.shape
        if not {found.x[0], found.y[0]} <= set(AXES) or any(c >= columns or r >= rows for c, r in cells):
            raise ValueError(path)
        found.regime((0, 0))
        found.settings  # noqa: B018
        found.names  # noqa: B018
    except (ValueError, KeyError, TypeError, UnicodeDecodeError):
        raise ValueError(
            f"{path} is no map that this version of rlviz can read; make it anew with `rlviz map`"
        ) from None
    return found


@dataclass(frozen=True)
class _Job:
    """A cell of a map: a job of a study."""

    key: Place
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

    def run(self) -> Generator[Cell, None, None]:
        yield run_pair(self.algorithm, self.against, self.regime, self.settings)


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
    check_where(jobs, on)
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


class Making(Running[_Job, tuple[Place, Cell]]):
    """A map in the making. done: its cells."""

    def __init__(
        self, plan: dict[str, object], every: Sequence[_Job], file: Path | None, jobs: int | None, on: str
    ) -> None:
        self.plan, self.file = plan, file
        self.done = _kept(plan, file)
        at_most = None if jobs is None else min(jobs, max(1, len(every) - len(self.done)))  # one cell needs no worker
        super().__init__(sorted(every, key=lambda job: -job.cost), self.done, jobs=at_most, on=on)

    def keep(self, place: Place, cell: Cell) -> tuple[tuple[Place, Cell], bool]:
        line = cell_line(place, cell)
        if self.file is not None:
            append_line(self.file, line)
        self.done[place] = cell_from(line)[1]  # as it is read again, to the last digit
        return (place, self.done[place]), True

    def result(self) -> RegimeMap:
        """Run what is left, and return the map."""
        self.finish()
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
