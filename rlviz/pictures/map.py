"""Regime maps to look into: where two algorithms differ over two settings, and the runs behind each cell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode

import numpy as np
import torch
from torch import Tensor

from rlviz.names import nearest
from rlviz.page.names import Array
from rlviz.page.picture import Area, Axis, Cells, Choice, Line, Mark, Panel, Picture, Say, Slider, Way
from rlviz.page.style import signed
from rlviz.page.tracing import Curve
from rlviz.pictures.idea import Idea, explorer
from rlviz.pictures.tables import TABLES, TRAINED
from rlviz.study.cells import FACTORS, Cell
from rlviz.study.confirm import carried
from rlviz.study.maps import RegimeMap, read_map
from rlviz.study.regime import AXES, MEASURES, Words
from rlviz.study.shipped import SHIPPED
from small_models.checks import checked, shown

FIRST = next(iter(SHIPPED))
ITS_OWN = "its own"
SIZE = 6  # columns and rows of a shipped map
COLUMN = 5  # unless another is asked for
MOST_WRITTEN = 8  # columns or rows up to which each cell has its number, and not its sign alone
OPTIONS = {
    "its own": ITS_OWN,
    "accuracy": "accuracy",
    "entropy at equal accuracy": "entropy",
    "rollouts to an accuracy": "rollouts",
    "share of dead groups": "dead",
}
NUMBERS = ("mine", "other", "difference", "error", "counted", "sign")


@dataclass(frozen=True)
class MapCurve:
    """A regime map and its chosen cell. place: its column and row, from 1; cell: what is known of it, None if not run.

    difference, sign: of the measure in each cell, [rows, columns]; sign is 0 where it is not certain, NaN where fewer than half
    of the replicas could be measured. sentence: what the map teaches, where it is a shipped one.
    """

    map: RegimeMap
    measure: str
    place: tuple[int, int]
    sentence: str = ""

    @property
    def difference(self) -> Array:
        return self.map.measured(self.measure, "difference")

    @property
    def sign(self) -> Array:
        return self.map.measured(self.measure, "sign")

    @property
    def cell(self) -> Cell | None:
        return self.map.cells.get((self.place[0] - 1, self.place[1] - 1))

    @property
    def words(self) -> Words:
        return MEASURES[self.measure]


@checked
def map_curve(
    which: str | Path | RegimeMap = FIRST,
    *,
    measure: Literal["its own", "accuracy", "entropy", "rollouts", "dead"] = "its own",
    column: int = COLUMN,
    row: int = 1,
) -> MapCurve:
    """Return a regime map, and the runs of one of its cells: nothing is trained, all is read from the map's file.

    which: a map that comes with rlviz, one in memory, or the path of one that `rlviz map` made, which ends in .jsonl. measure:
    "its own" (what the map was made for), "accuracy", "entropy", "rollouts" or "dead". column, row: the cell, from 1; unless
    told, column 5 of row 1, or of fewer columns the last. A cell shows the mean over replicas of the first algorithm's measure
    minus the other's; it is hatched where |mean| ≤ 2 standard errors of the replicas' paired differences, by which one of twenty
    cells without a difference passes for certain. Raises ValueError for a map that there is not, and for a cell that it lacks.
    """
    found = find_map(which)
    own, (rows, columns) = measure == ITS_OWN, found.shape
    if column == COLUMN > columns:
        column = columns
    for name, value, count in (("column", column, columns), ("row", row, rows)):
        if not 1 <= value <= count:
            raise ValueError(f"{name} must be from 1 to {count} in this map; got {value}")
    is_shipped = own and isinstance(which, str) and which in SHIPPED
    sentence = f"{SHIPPED[str(which)].sentence} {carried(str(which))}" if is_shipped else ""
    return MapCurve(found, found.plan["measure"] if own else measure, (column, row), sentence)


def find_map(which: str | Path | RegimeMap) -> RegimeMap:
    """Return a shipped map by its name, or the one in a file. Raises ValueError where there is neither."""
    if isinstance(which, RegimeMap):
        return which
    if which in SHIPPED:
        return _read(SHIPPED[str(which)].file, 0)
    path = Path(which)
    if path.suffix == ".jsonl" and path.is_file():
        return _read(path, path.stat().st_mtime_ns)
    raise ValueError(
        f"which must be one of {', '.join(SHIPPED)}, or a file ending in .jsonl that `rlviz map` made; "
        f"{nearest(str(which)[:100], list(SHIPPED))}got {shown(str(which))}"
    )


@lru_cache(maxsize=16)
def _read(path: Path, changed: int) -> RegimeMap:
    return read_map(path)


def cell(which: Any = None) -> Curve:
    """Return the curve, the same for every map: its colours and hatching, and the chosen cell's numbers and runs."""
    return _cell


def _cell(
    column: Tensor,
    row: Tensor,
    measure: Tensor,
    own_measure: Tensor,
    teaches: Tensor,
    tuned: Tensor,
    can_run: Tensor,
    x_values: Tensor,
    y_values: Tensor,
    found: Tensor,
    rates: Tensor,
    rollouts: Tensor,
    accuracy: Tensor,
    entropy: Tensor,
) -> dict[str, Tensor]:
    x, y = (column - 1).long(), (row - 1).long()
    place = torch.where(measure > 0, measure - 1, own_measure)
    every = found[place.long()]
    difference, sign = every[:, :, NUMBERS.index("difference")].flatten(), every[:, :, NUMBERS.index("sign")].flatten()
    cells = torch.where(sign.isnan(), 0.0, difference)
    least = torch.tensor([words.least for words in MEASURES.values()], dtype=torch.double)[place.long()]
    here = dict(zip(NUMBERS, every[y][x], strict=True))
    at = rollouts[y][x]
    ran, judged = ~here["counted"].isnan(), ~here["sign"].isnan()
    flags = {"tuned_here": (tuned > 0) & ran, "says_sentence": (measure == 0) & (teaches > 0)}
    flags |= {"not_run": ~ran, "unmeasured": ran & ~judged}
    for i, name in enumerate(MEASURES):
        is_it = place == i
        flags |= {f"is_{name}": is_it, f"{name}_unsure": is_it & (here["sign"] == 0)}
        flags |= {f"run_{name}": is_it & judged & (can_run > 0)}
        flags |= {f"{name}_more": is_it & (here["sign"] > 0), f"{name}_less": is_it & (here["sign"] < 0)}
    curves: dict[str, Tensor] = {}
    for name, values in (("accuracy", accuracy[y][x]), ("entropy", entropy[y][x])):
        for i, (mean, error) in enumerate(values):
            curves |= {f"{name}{i}": mean, f"{name}{i}_low": mean - error, f"{name}{i}_high": mean + error}
    return {
        "cells": cells,
        "unsure": (sign == 0).double(),
        "scale": torch.maximum(least, cells.abs().amax()),
        "x_at": x_values[x],
        "y_at": y_values[y],
        "at": at,
        "last": at.nan_to_num(0.0).amax().clamp(min=1.0),
        "most": 1.08 * entropy[:, :, :, 0].nan_to_num(0.0).amax(),
        "rate_mine": rates[y][x][0],
        "rate_other": rates[y][x][1],
        **here,
        **curves,
        **flags,
    }


def told(which: str | Path | RegimeMap) -> dict[str, Any]:
    """Return a map as names of data: numbers of its cells, [rows, columns, …] with NaN where there are none, and words."""
    found = find_map(which)
    rows, columns = found.shape
    points = max((len(each.rollouts) for each in found.cells.values()), default=2)
    arrays = {
        "found": torch.full((len(MEASURES), rows, columns, len(NUMBERS)), math.nan, dtype=torch.double),
        "rates": torch.full((rows, columns, 2), math.nan, dtype=torch.double),
        "rollouts": torch.full((rows, columns, points), math.nan, dtype=torch.double),
        "accuracy": torch.full((rows, columns, 2, 2, points), math.nan, dtype=torch.double),
        "entropy": torch.full((rows, columns, 2, 2, points), math.nan, dtype=torch.double),
    }
    for (column, row), each in found.cells.items():
        for i, measure in enumerate(MEASURES):
            numbers = [getattr(each.measured[measure], name) for name in NUMBERS]
            arrays["found"][i, row, column] = torch.tensor(numbers, dtype=torch.double)
        arrays["rates"][row, column] = torch.tensor(each.rates, dtype=torch.double)
        for name in ("rollouts", "accuracy", "entropy"):
            values = torch.from_numpy(getattr(each, name))
            arrays[name][row, column, ..., : values.shape[-1]] = values
    (x, x_values), (y, y_values), (mine, other) = found.x, found.y, found.names
    curves = {measure: map_curve(which, measure=measure, column=1) for measure in MEASURES}  # type: ignore[arg-type]
    sentence, run = map_curve(which, column=1).sentence, address(found)
    return {
        **arrays,
        "x_values": torch.tensor(x_values, dtype=torch.double),
        "y_values": torch.tensor(y_values, dtype=torch.double),
        "cell_x": torch.arange(1, columns + 1, dtype=torch.double).repeat(rows),
        "cell_y": torch.arange(1, rows + 1, dtype=torch.double).repeat_interleave(columns),
        "right": columns + 0.5,
        "top": rows + 0.5,
        "own_measure": float(list(MEASURES).index(found.plan["measure"])),
        "teaches": float(bool(sentence)),
        "tuned": float(found.settings.rates == "tuned"),
        "can_run": float(bool(run)),
        "run": run,
        "x_key": x,
        "y_key": y,
        "sentence": sentence,
        "x_name": AXES[x].label,
        "y_name": AXES[y].label,
        "x_ticks": [f"{value:g}" for value in x_values],
        "y_ticks": [f"{value:g}" for value in y_values],
        "mine_name": mine,
        "other_name": other,
        "level": f"{found.settings.level:g}",
        "rule": f"{rule(curves['accuracy'])[0].upper()}{rule(curves['accuracy'])[1:]}.",
        **{f"written_{measure}": written(curve) for measure, curve in curves.items()},
        **{f"all_{measure}": f"{conclusion(curve)}." for measure, curve in curves.items()},
    }


def address(found: RegimeMap) -> str:
    """Return what the page of tables is told of a map, but for the cell: algorithms and settings; nothing where it lacks one."""
    (x, columns), (y, rows), regime = found.x, found.y, dict(found.plan["regime"])
    has_one_prompt = regime.pop("prompts", 0) == 1 and regime.pop("spread", 1) == 0
    needed = {x: columns, y: rows, **{name: [value] for name, value in regime.items()}}
    stops = {name: getattr(control, "stops", ()) for name, control in TABLES.controls.items()}
    if not has_one_prompt or not {*found.names} <= {*TRAINED.members()}:
        return ""
    if not all({*values} <= {*stops.get(name, ())} for name, values in needed.items()):
        return ""
    told = {"algorithm": found.names[0], "beside": found.names[1], **regime}
    return urlencode({f"tables.{name}": value for name, value in told.items()}, quote_via=quote)


def written(curve: MapCurve) -> list[str]:
    """Return what stands in the cells: differences, in a large map only signs that are certain, ? where they are not known."""
    is_small = max(curve.map.shape) <= MOST_WRITTEN
    return [
        "?" if math.isnan(sign) else _number(value, curve.measure) if is_small else {1.0: "+", -1.0: "−"}.get(sign, "")
        for value, sign in zip(curve.difference.ravel(), curve.sign.ravel(), strict=True)
    ]


def _number(value: float, measure: str) -> str:
    if measure != "rollouts":
        return signed(value)
    return f"{value:+.1f}".replace("-", "−") if abs(value) >= 0.05 else "0.0"


def counts(curve: MapCurve) -> tuple[int, int, int]:
    """Return in how many cells there is certainly more, certainly less, and in how many the sign is not certain."""
    return tuple(int((curve.sign == one).sum()) for one in (1, -1, 0))  # type: ignore[return-value]


def conclusion(curve: MapCurve) -> str:
    """Return what the whole map shows as a clause."""
    (mine, other), (more, less, unsure) = curve.map.names, counts(curve)
    missing = int(np.isnan(curve.sign).sum())
    rest = f", and {missing} cannot be judged" if missing else ""
    if not more and not less:
        return f"In none of {unsure} cells do {mine} and {other} certainly differ{rest}"
    if np.all(np.abs(curve.difference[~np.isnan(curve.sign)]) < curve.words.least):
        rest += f"; nowhere by {curve.words.least:g}"  # the least of interest
    certain = f"{mine} has {curve.words.more} than {other} in {more} of {curve.sign.size} cells, less in {less}"
    return f"{certain}; in {unsure} the sign is not certain{rest}"


def rule(curve: MapCurve) -> str:
    """Return when a cell is hatched, what was trained, and what is said of the learning rate."""
    plan, settings = curve.map.plan["regime"], curve.map.settings
    rate = f"learning rate {plan['lr']:g}" if "lr" in plan else "one learning rate"
    if settings.rates == "tuned":
        largest = [max(cell.rates) >= plan["lr"] * max(FACTORS) for cell in curve.map.cells.values()]
        rate = f"learning rate tuned for each, the largest tried was best in {sum(largest)} of {len(largest)} cells"
    else:
        rate += " for both, tuned for neither"
    of = f"seeds on {plan['task']}" if "policy" in plan else "replicas"
    return f"hatched: |mean| ≤ 2 standard errors ({settings.replicas} {of}); {rate}"


def _runs(name: str, *, named: bool) -> tuple[Mark, ...]:
    """Return both algorithms' means, each in a band of one standard error; their names stand at the ends of one pair of lines."""
    looks = (("blue", "", 3.0, "{mine_name}"), ("vermilion", "8 4", 2.5, "{other_name}"))
    bands = [Area("at", f"{name}{i}_low", f"{name}{i}_high", colour=looks[i][0]) for i in (0, 1)]
    lines = [
        Line("at", f"{name}{i}", dash, width, colour=colour, label=who if named else "", direct=named)
        for i, (colour, dash, width, who) in enumerate(looks)
    ]
    return (*bands, *lines)


def _map(measure: str, words: Words) -> Panel:
    cells = Cells("cell_x", "cell_y", "cells", "scale", f"written_{measure}", "unsure", chosen=("column", "row"))
    return Panel(
        f"{{mine_name}} − {{other_name}}: {words.title.replace('{level:g}', '{level}')}",
        Axis("{x_name}", 0.5, "right", names="x_ticks"),
        Axis("{y_name}", 0.5, "top", names="y_ticks"),
        (cells,),
        when=f"is_{measure}",
        tall=1.2,
        wide=1.16,
    )


def _of_the_cell(measure: str, words: Words) -> tuple[Say, ...]:
    """Return the conclusion on one measure of the chosen cell: which has more of it, or that this is not certain."""
    here, gap = "At {x_name} {x_at:g} and {y_name} {y_at:g}", "{difference:+.2g} ± {error:.1g}"
    unit = "" if words.unit in ("accuracy", "share") else f" {words.unit}"
    more = f"{{mine_name}} has {words.more} than {{other_name}}, {{mine:.3g}} against {{other:.3g}}{unit}"
    less = f"{{other_name}} has {words.more} than {{mine_name}}, {{other:.3g}} against {{mine:.3g}}{unit}"
    return (
        Say(f"{here}, {more} ({gap}).", f"{measure}_more"),
        Say(f"{here}, {less} ({gap}).", f"{measure}_less"),
        Say(f"{here}, which has {words.more} is not certain: {gap}{unit}.", f"{measure}_unsure"),
    )


MAP = Picture(
    title="Where do {mine_name} and {other_name} differ?",
    look="Choose a cell: blue where the first has more, orange where it has less, hatched where that is not certain.",
    notice=(
        "Each cell is a pair of algorithms on one table, blue where the first has more. Click a cell to see its runs. "
        "Cells are hatched where chance could have made the sign: do not read those."
    ),
    alt="A map of coloured cells over two settings, hatched where the sign is not certain, and two graphs of the chosen "
    "cell's runs: accuracy and entropy against the rollout.",
    panels=(
        *(_map(measure, words) for measure, words in MEASURES.items()),
        Panel(
            "The chosen cell, ± standard error",
            Axis("rollout", 0, "last", whole=True),
            Axis("accuracy", 0, 1.02),
            _runs("accuracy", named=False),
            tall=0.6,
            wide=0.84,
        ),
        Panel(
            "",
            Axis("rollout", 0, "last", whole=True),
            Axis("entropy, nats", 0, "most"),
            _runs("entropy", named=True),
            tall=0.6,
            wide=0.84,
        ),
    ),
    controls={
        "which": Choice({each.title: name for name, each in SHIPPED.items()}, SHIPPED[FIRST].title, "map", picks=True),
        "measure": Choice(OPTIONS, "its own", "measure"),
        "column": Slider(1, SIZE, 1, COLUMN, "column"),
        "row": Slider(1, SIZE, 1, 1, "row"),
    },
    conclusion=(
        Say("At {x_name} {x_at:g} and {y_name} {y_at:g} nothing was run yet.", "not_run"),
        Say(
            "At {x_name} {x_at:g} and {y_name} {y_at:g} only {counted:.0%} of the replicas could be measured under both.",
            "unmeasured",
        ),
        *(say for measure, words in MEASURES.items() for say in _of_the_cell(measure, words)),
    ),
    says=(
        Say("{sentence}", "says_sentence"),
        *(Say(f"{{all_{measure}}}", f"is_{measure}") for measure in MEASURES),
        *(
            Say(f"The strongest colours are ±{{scale:.2g}} {w.unit}.", f"is_{measure}")
            for measure, w in MEASURES.items()
        ),
        Say("Here the learning rates are {rate_mine:g} and {rate_other:g}.", "tuned_here"),
        Say("{rule}"),
    ),
    ways=tuple(
        Way(
            "▶ Run this cell here: 16 tables beside the map's",
            "tables",
            f"{{run}}&tables.{{x_key}}={{x_at}}&tables.{{y_key}}={{y_at}}&tables.map_of={measure}&tables.map_at={at}"
            "&tables.map_mine={mine:.6g}&tables.map_other={other:.6g}",
            f"run_{measure}",
        )
        for measure, at in (("accuracy", "{last:d}"), ("entropy", "{level}"), ("rollouts", "{level}"))
    ),
)


def _own(idea: Idea, arguments: Mapping[str, Any]) -> Idea:
    """Return the idea of a map that is none of the shipped ones: it is alone, for its cells are others."""
    which = arguments.get("which", FIRST)
    if isinstance(which, str) and (which in SHIPPED or which in idea.controls["which"].options):  # type: ignore[union-attr]
        return idea
    rows, columns = find_map(which).shape
    sliders = {"column": Slider(1, columns, 1, min(COLUMN, columns), "column"), "row": Slider(1, rows, 1, 1, "row")}
    controls = {"measure": idea.controls["measure"], **sliders}
    data = told(which)
    picture = replace(idea.picture, controls=controls)
    return replace(idea, picture=picture, data=lambda: {}, fixed={"which": lambda _: data}, named={}, adapted=None)


explore_map = explorer(
    "map",
    MAP,
    cell,
    data=told,
    adapted=_own,
    free=True,
    example={
        "found": torch.zeros(4, 5, 7, 6),
        "rates": torch.ones(5, 7, 2),
        "rollouts": torch.zeros(5, 7, 11),
        "accuracy": torch.zeros(5, 7, 2, 2, 11),
        "entropy": torch.ones(5, 7, 2, 2, 11),
        "x_values": torch.zeros(7),
        "y_values": torch.zeros(5),
    },
    named={
        "DCPO's limits": {},
        "repeats": {"which": "dupo-repeats", "column": 1},
        "a response's ratio": {"which": "gspo-ratio", "column": 6, "row": 6},
        "no std": {"which": "std-division", "column": 1},
    },
)
