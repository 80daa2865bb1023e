"""Maps: two algorithms over a grid of two settings. A cell is a job of the one runner, and rows of a CSV file as it is done.

The frame has a row a cell and measure: the values of x and y (its first two columns), what both algorithms have of the measure,
the mean difference of their replicas with its standard error, and everything that was set.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.algorithms.describe import to_json
from rlviz.algorithms.slots import SLOTS
from rlviz.names import closest, nearest
from rlviz.parallel import LOCAL
from rlviz.pieces.aggregation import token_mean
from rlviz.settings import declarations
from rlviz.study.difference import paired, standard_error
from rlviz.study.map_settings import AXES, MapSettings
from rlviz.study.runner import Running, check_where
from rlviz.tabular import TableTask, at_accuracy, steps_to, train_table
from rlviz.training.files import write_text
from small_models.checks import check_number, check_type, checked, short_repr

if TYPE_CHECKING:
    import pandas as pd  # half a second, for which no picture waits that is not of it

Array = NDArray[np.float64]
Place = tuple[float, float]  # a cell: its values of x and y
FOLDER = Path(__file__).parent / "shipped"
SHIPPED: Mapping[str, Mapping[str, str]] = json.loads((FOLDER / "maps.json").read_text(encoding="utf-8"))
NAMES = ("algorithm", "against", "pieces")  # the last: a checksum of what the two algorithms are made of
NUMBERS = ("mine", "other", "difference", "error", "counted", "sign")
MEASURED = 0.5  # share of the replicas in which both algorithms must have a measure for a sign
RARE, WRONG = 10, 9  # actions
MOST_CELLS = 100  # on a side
OVERHEAD = 1_500  # tokens whose arithmetic takes as long as an update's fixed cost


def table_task(settings: MapSettings) -> TableTask:
    """Return the table: one common good action, ten rare ones, nine wrong ones, those of probability 0 left out.

    A prompt's success rate σ(logit(success) + spread · z), with z at the prompt's quantile of a normal distribution, is that
    of a whole response: each position's is its T-th root. A check that is a coin's throw passes so often that half of all
    responses would.
    """
    starts = []
    for place in range(settings.prompts):
        odds = math.log(settings.success / (1 - settings.success))
        odds += settings.spread * NormalDist().inv_cdf((place + 0.5) / settings.prompts)
        right = (1 / (1 + math.exp(-odds))) ** (1 / settings.positions)
        good = [right * (1 - settings.rare), *[right * settings.rare / RARE] * RARE]
        starts.append((*filter(None, good), *[(1 - right) / WRONG] * WRONG))
    coin = settings.noise * 0.5 ** (1 / settings.positions)
    checks = (*[1 - settings.noise + coin] * (len(starts[0]) - WRONG), *[coin] * WRONG)
    start = starts[0] if settings.prompts == 1 else tuple(starts)
    return TableTask(checks, settings.prompts, settings.positions, start)


def train_replicas(algorithm: GroupPolicyGradient, settings: MapSettings) -> dict[str, Array]:
    """Train an algorithm on all tables of a cell, and return the measures of each, [R].

    accuracy: the exact probability of a right response at the end, whatever the noise of the reward. entropy: nats a position
    where the accuracy first is `level`. rollouts: until then, all of them where it never is. dead: the expected share of groups
    whose rewards are all equal, p^G + (1 − p)^G, over the run. The token mean aggregates: responses are equally long, so the
    algorithm's own aggregation would only be a factor on the learning rate.
    """
    task, size = table_task(settings), settings.group_size
    run = train_table(
        replace(algorithm, aggregate=token_mean),
        task,
        steps=settings.steps,
        group_size=size,
        groups=settings.groups,
        updates_per_rollout=settings.updates_per_rollout,
        lr=settings.lr,
        replicas=settings.replicas,
        seed=settings.seed,
    )
    accuracy = run.probabilities[..., :-WRONG].sum(-1).prod(-1).mean(-1)  # [R, S + 1]
    passing = (run.probabilities * np.array(task.success)).sum(-1).prod(-1)[:, :-1]
    return {
        "accuracy": accuracy[:, -1],
        "entropy": at_accuracy(run.entropy, accuracy, settings.level),
        "rollouts": np.nan_to_num(steps_to(accuracy, settings.level), nan=settings.steps),
        "dead": (passing**size + (1 - passing) ** size).mean((1, 2)),
    }


def compare_replicas(mine: Array, other: Array) -> dict[str, float]:
    """Return means, difference, error and sign of two algorithms' replicas, pair by pair: both begin with the same draws.

    counted: the share of pairs in which both could be measured. sign: of the difference, 0 where it is at most 2 standard
    errors, NaN where fewer than half of the pairs count.
    """
    both = np.isfinite(mine) & np.isfinite(other)
    counted = float(both.mean())
    if both.sum() < 2:
        return dict(zip(NUMBERS, (*[math.nan] * 4, counted, math.nan), strict=True))
    gaps = (mine - other)[both].tolist()
    sign = paired(gaps).sign if counted >= MEASURED else math.nan
    numbers = (mine[both].mean(), other[both].mean(), np.mean(gaps), standard_error(gaps), counted, sign)
    return {name: float(f"{value:.6g}") for name, value in zip(NUMBERS, numbers, strict=True)}


@checked
def borrow(algorithm: GroupPolicyGradient, against: GroupPolicyGradient, slots: Sequence[str]) -> GroupPolicyGradient:
    """Return `against` with these slots of `algorithm`: bounds alone, say, compared with whole algorithms.

    Raises ValueError for an unknown slot.
    """
    names = [closest("slot", slot.strip(), list(SLOTS)) for slot in slots]
    pieces = {slot: algorithm.slots()[slot] for slot in names}
    name = f"{against.name} with {algorithm.name}'s {' and '.join(names)}"
    return replace(against, name=name, from_grpo={}, **pieces)


def check_tabular(option: str, algorithm: Any) -> GroupPolicyGradient:
    """Return the algorithm. Raises ValueError unless a map can train it, and it can differ there."""
    if not isinstance(algorithm, GroupPolicyGradient):
        raise ValueError(f"{option} must learn from groups of responses, as GRPO does; got {algorithm.name}")
    asks = {name for names in algorithm.can.asks.values() for name in names}
    if algorithm.can.from_teacher or "sampler_logp" in asks:
        raise ValueError(f"{option} must need no teacher and no other sampler, which a map lacks; got {algorithm.name}")
    return algorithm


def axis_values(option: str, name: str, count: int, values: Sequence[float] | None) -> tuple[float, ...]:
    """Return the values of an axis: those given, else so many over its own range by equal steps or factors.

    Whole ones all differ, and may end above the range. option: x or y, for refusals. Raises ValueError for a setting that
    cannot be an axis, and for values that do not grow.
    """
    name = closest(option, name, list(AXES))
    axis = AXES[name]
    is_whole = isinstance(declarations(MapSettings)[name].default, int)
    if values is not None:
        if not values or any(not a < b for a, b in pairwise(values)):
            raise ValueError(f"{option}_values must grow from one to the next; got {', '.join(map(str, values))}")
        return tuple(int(value) if is_whole and float(value).is_integer() else value for value in values)
    check_number("cells", count, lambda number: 1 <= number <= MOST_CELLS, f"from 1 to {MOST_CELLS}", integer=True)
    spaced = (np.geomspace if axis.by_factors else np.linspace)(axis.low, axis.high, count)
    if not is_whole:
        return tuple(float(f"{value:.3g}") for value in spaced)
    counts: list[int] = []
    for value in spaced:
        counts.append(max(round(value), counts[-1] + 1 if counts else 0))
    return tuple(counts)


@dataclass(frozen=True)
class Cell:
    """A job of the runner: two algorithms on the tables of a cell. plan: what its rows say beside its place and its numbers."""

    key: Place
    axes: tuple[str, str]
    pair: tuple[GroupPolicyGradient, GroupPolicyGradient]
    settings: MapSettings
    plan: Mapping[str, Any]

    @property
    def cost(self) -> float:
        """About how long it takes, in no unit."""
        s = self.settings
        tokens = s.prompts * s.groups * s.group_size * s.positions * s.replicas
        return s.steps * (s.updates_per_rollout + 1) * (tokens + OVERHEAD)

    def run(self) -> Generator[list[dict[str, Any]], None, None]:
        """Train both, and yield a row for each measure."""
        mine, other = (train_replicas(algorithm, self.settings) for algorithm in self.pair)
        place = dict(zip(self.axes, self.key, strict=True))
        yield [{**place, "measure": name, **compare_replicas(mine[name], other[name]), **self.plan} for name in mine]


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
    settings: MapSettings | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = 1,
    on: str = LOCAL,
) -> MapRun:
    """Return an iterator that runs a map, a cell a step; its `result()` is the frame, which `explore_map` draws.

    x, y: settings that `AXES` has; x_values, y_values: theirs, unless given so many as `cells` says over the axis's own range.
    settings: the others. out: a file ending in .csv, in which each cell is kept; those that it has are not run again. jobs:
    processes. on: the engine that runs them, local, ray, or ray:ADDRESS of a cluster. Both algorithms learn as they are, KL
    term and all, at one learning rate that is tuned for neither. Raises ValueError for what cannot be trained, an axis that
    there is not, and a file that holds another map.
    """
    pair = check_tabular("algorithm", algorithm), check_tabular("against", against)
    check_where(jobs, on)
    x, y = closest("x", x, list(AXES)), closest("y", y, list(AXES))
    if x == y:
        raise ValueError(f"x and y must be two settings; both are {x}")
    columns, rows = axis_values("x", x, cells[0], x_values), axis_values("y", y, cells[1], y_values)
    settings = settings or MapSettings()
    # What a file must agree with to go on: both algorithms, down to their pieces, and every setting but the axes.
    pieces = zlib.crc32(json.dumps([to_json(one) for one in pair]).encode())
    plan = dict(zip(NAMES, (algorithm.name, against.name, f"p{pieces:08x}"), strict=True))
    plan |= {name: value for name, value in asdict(settings).items() if name not in (x, y)}
    grid = [
        Cell((left, up), (x, y), pair, replace(settings, **{x: left, y: up}), plan)  # type: ignore[arg-type]
        for up, left in product(rows, columns)
    ]
    for corner in (grid[0], grid[-1]):  # what cannot be trained is refused before minutes of work
        list(replace(corner, settings=replace(corner.settings, updates_per_rollout=1, replicas=2, steps=1)).run())
    return MapRun(grid, None if out is None else Path(out), jobs, on)


class MapRun(Running[Cell, Place]):
    """A map under way; each step is the place of a cell that is done, of which `file` has the rows then."""

    def __init__(self, grid: Sequence[Cell], file: Path | None, jobs: int | None, on: str) -> None:
        self.file, self.rows = file, [] if file is None else rows_before(grid, file)
        x, y = grid[0].axes
        super().__init__(grid, {(row[x], row[y]) for row in self.rows}, jobs=jobs, on=on)

    def save(self, place: Place, rows: list[dict[str, Any]]) -> tuple[Place, bool]:
        self.rows += rows
        if self.file is not None:
            write_text(self.file, csv_text(self.frame))
        return place, True

    @property
    def frame(self) -> pd.DataFrame:
        """The cells that are done."""
        import pandas as pd

        return sort_cells(pd.DataFrame(self.rows))

    def result(self) -> pd.DataFrame:
        """Run what is left, and return the frame."""
        self.finish()
        return self.frame


def rows_before(grid: Sequence[Cell], file: Path) -> list[dict[Any, Any]]:
    """Return the rows that the file has, none where it is not there. Raises ValueError where it is another map's."""
    if file.suffix != ".csv":
        raise ValueError(f"out must end in .csv; got {file.name}")
    file.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[Any, Any]] = []
    with suppress(ValueError):
        rows = read_map(file).to_dict("records") if file.exists() else []
    x, y = axes = grid[0].axes
    keys = {cell.key for cell in grid}

    def is_here(row: dict[str, Any]) -> bool:
        same = all(row.get(name) == value for name, value in grid[0].plan.items())
        return same and (*row,)[:2] == axes and (row[x], row[y]) in keys

    if file.exists() and not (rows and all(map(is_here, rows))):
        raise ValueError(
            f"out: {file} is there already, and holds another map (of other algorithms, settings or values of the axes) or none; "
            "choose another file, or remove it"
        )
    return rows


def sort_cells(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame by x, then y; the measures of a cell stay together."""
    return frame.sort_values([*frame.columns[:2]], kind="stable", ignore_index=True)


def csv_text(frame: pd.DataFrame) -> str:
    """Return the frame as CSV, from which `read_map` reads the same numbers."""
    return frame.to_csv(index=False, na_rep="nan", lineterminator="\n")


def read_map(which: str | os.PathLike[str] | pd.DataFrame) -> pd.DataFrame:
    """Return the frame of a map that comes with rlviz, by its name, or of a CSV file of `rlviz map` or `regime_map`.

    A frame is returned as it is. Raises ValueError where there is no such map.
    """
    import pandas as pd

    check_type("which", which, str | os.PathLike | pd.DataFrame)
    try:
        if isinstance(which, pd.DataFrame):
            frame = which
        else:
            shipped = FOLDER / f"{which}.csv.gz"
            text = (gzip.decompress(shipped.read_bytes()) if which in SHIPPED else Path(which).read_bytes()).decode()
            frame = pd.read_csv(io.StringIO(text), engine="python")  # which reads each number to its last digit
        x, y = frame.columns[:2]
        if not {x, y} <= {*AXES} or {"measure", *NUMBERS, *NAMES, *declarations(MapSettings)} - {*frame.columns}:
            raise ValueError(which)
        frame[[x, y, *NUMBERS]].astype(float)  # words there are refused
    except (OSError, ValueError):
        raise ValueError(
            f"which must be one of {', '.join(SHIPPED)}, or a file ending in .csv that this version's `rlviz map` made; "
            f"{nearest(str(which)[:100], list(SHIPPED))}got {short_repr(which)}"
        ) from None
    return sort_cells(frame)
