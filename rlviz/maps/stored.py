"""A regime map as a file: a line of JSON that says what it is, then a line a cell, and a CSV for others."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlviz.maps.cells import Cell
from rlviz.maps.measures import Array, Measured
from rlviz.maps.regime import AXES, MEASURES, MapSettings, PolicyRegime, Regime, regime_of
from rlviz.training.files import json_text
from small_models.checks import checked

Place = tuple[int, int]  # column and row of a cell, from 0
CURVES = ("accuracy", "entropy")


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

    def to_csv(self) -> str:
        """Return all measures as CSV: a row a cell and measure."""
        (x, columns), (y, rows) = self.x, self.y
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        numbers = ("mine", "other", "difference", "error", "counted", "sign")
        writer.writerow([x, y, "measure", "algorithm", "against", *numbers, "lr_mine", "lr_other"])
        for column, row in sorted(self.cells):
            cell = self.cells[column, row]
            for measure in MEASURES:
                found = cell.measured[measure]
                values = [f"{getattr(found, name):.6g}" for name in numbers]
                writer.writerow([f"{columns[column]:g}", f"{rows[row]:g}", measure, *self.names, *values, *cell.rates])
        return text.getvalue()


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
