"""Regime maps to look into: where two algorithms differ over two settings, and the runs behind each cell."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap

from rlviz.maps.cells import FACTORS, Cell
from rlviz.maps.confirm import carried
from rlviz.maps.measures import Measured
from rlviz.maps.regime import AXES, MEASURES, Words
from rlviz.maps.shipped import SHIPPED
from rlviz.maps.stored import RegimeMap, read_map
from rlviz.names import nearest
from rlviz.pictures.arguments import Choice, Menu, Spec, Values, Whole, check_whole
from rlviz.pictures.arrays import Array
from rlviz.pictures.base import BLUE, LINE, TEXT, VERMILION, Handle, Picture, dress, plain, signed
from rlviz.pictures.explore import explorer
from rlviz.pictures.marks import Marks
from small_models.checks import checked, shown

FIRST = next(iter(SHIPPED))
ITS_OWN = "its own"
COLUMN = 5  # unless another is asked for
MOST_WRITTEN = 8  # columns or rows up to which each cell has its number, and not its sign alone
INK, PAPER = "#222222", "#f4f4f4"  # the same in the light and in the dark: they lie on colours that are
COLOURS = LinearSegmentedColormap.from_list("less and more", ["#E69F00", PAPER, "#56B4E9"])  # apart for all eyes
SHADES = 21  # of the bar


def colours(shares: Array) -> list[tuple[float, float, float, float]]:
    """Return the colours of these places between the least, 0, and the most, 1."""
    return [tuple(colour) for colour in COLOURS(shares).tolist()]


def square(column: float, row: float) -> list[tuple[float, float]]:
    """Return the corners of a cell whose middle is here."""
    return [(column + a, row + b) for a, b in ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5))]


@dataclass(frozen=True)
class MapCurve:
    """What `explore_map` shows. place: column and row of the chosen cell, from 1; cell: what is known of it, None if not run.

    difference, sign: of the measure in each cell, [rows, columns]; sign is 0 where it is not certain, NaN where fewer than half
    of the replicas could be measured. sentence: what the map teaches, where it is a shipped one.
    """

    map: RegimeMap
    measure: str
    place: tuple[int, int]
    sentence: str

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

    @property
    def title(self) -> str:
        mine, other = self.map.names
        return f"{mine} − {other}: {self.words.title.format(level=self.map.settings.level)}"


@checked
def map_curve(
    which: str | Path = FIRST,
    *,
    measure: Literal["its own", "accuracy", "entropy", "rollouts", "dead"] = "its own",
    column: int = COLUMN,
    row: int = 1,
) -> MapCurve:
    """Return a regime map, and the runs of one of its cells: nothing is trained, all is read from the map's file.

    which: a map that comes with rlviz, or the path of one that `rlviz map` made, which ends in .jsonl. measure: "its own"
    (what the map was made for), "accuracy", "entropy", "rollouts" or "dead". column, row: the cell, from 1; unless told, column
    5 of row 1, or of fewer columns the last. A cell shows the mean over replicas of the first algorithm's measure minus the
    other's; it is hatched where |mean| ≤ 2 standard errors of the replicas' paired differences, by which one of twenty cells
    without a difference passes for certain. Raises ValueError for a map that there is not, and for a cell that it lacks.
    """
    found = find_map(str(which))
    own, (rows, columns) = measure == ITS_OWN, found.shape
    place = in_map("column", column, columns), in_map("row", row, rows)
    sentence = f"{SHIPPED[str(which)].sentence} {carried(str(which))}" if own and str(which) in SHIPPED else ""
    return MapCurve(found, found.plan["measure"] if own else measure, place, sentence)


def in_map(name: str, value: int, count: int) -> int:
    """Return the place, or the last one for a column that was left out. Raises ValueError unless it is from 1 to `count`."""
    if name == "column" and value == COLUMN > count:
        return count
    if not 1 <= value <= count:
        raise ValueError(f"{name} must be from 1 to {count} in this map; got {value}")
    return value


def find_map(which: str) -> RegimeMap:
    """Return a shipped map by its name, or the one in a file. Raises ValueError where there is neither."""
    if which in SHIPPED:
        return _read(SHIPPED[which].file, 0)
    path = Path(which)
    if path.suffix == ".jsonl" and path.is_file():
        return _read(path, path.stat().st_mtime_ns)
    raise ValueError(
        f"which must be one of {', '.join(SHIPPED)}, or a file ending in .jsonl that `rlviz map` made; "
        f"{nearest(which[:100], list(SHIPPED))}got {shown(which)}"
    )


@lru_cache(maxsize=16)
def _read(path: Path, changed: int) -> RegimeMap:
    return read_map(path)


class Lines:
    """Two algorithms' means over replicas, each in a band of one standard error."""

    def __init__(self, ax: Axes, names: tuple[str, str]) -> None:
        styles = (BLUE, "-", LINE + 0.5), (VERMILION, "--", LINE)
        self.lines = [
            ax.plot([], [], color=c, linestyle=s, linewidth=w, label=plain(name))[0]
            for (c, s, w), name in zip(styles, names, strict=True)
        ]
        self.bands = [PolyCollection([], facecolor=c, alpha=0.25, linewidth=0) for c, _, _ in styles]
        for band in self.bands:
            ax.add_collection(band, autolim=False)

    def show(self, cell: Cell | None, values: Array | None) -> None:
        """Show the curves [2, 2, N] of a cell, or none."""
        for place, (line, band) in enumerate(zip(self.lines, self.bands, strict=True)):
            if cell is None or values is None:
                line.set_data([], [])
                band.set_verts([])
                continue
            steps, (mean, error) = cell.rollouts, values[place]
            line.set_data(steps, mean)
            low, high = mean - error, mean + error
            band.set_verts([np.column_stack([np.r_[steps, steps[::-1]], np.r_[low, high[::-1]]])])


class MapPicture(Picture[MapCurve]):
    """A map of differences on the left; on the right accuracy and entropy of both algorithms in the chosen cell."""

    size = (10, 5.2)
    alt = (
        "A map of coloured cells over two settings, hatched where the sign is not certain, and two graphs of the chosen "
        "cell's runs: accuracy and entropy against the rollout."
    )

    def draw(self, curve: MapCurve) -> list[Artist]:
        parts = self.figure.subplot_mosaic([["map", "accuracy"], ["map", "entropy"]], width_ratios=(1.45, 1))
        self.ax = parts["map"]
        self.bar = self.ax.inset_axes((1.02, 0, 0.04, 1))  # of the map's panel on a narrow screen, too
        self.right = parts["accuracy"], parts["entropy"]
        dress(self.right[0], title=" ", x="", y="accuracy")
        dress(self.right[1], title="", x="rollout", y="entropy (nats)")
        self.right[0].set_ylim(0, 1.02)
        self.squares = PolyCollection([], edgecolor="white", linewidth=1)
        self.hatched = PolyCollection([], facecolor="none", edgecolor="#7f7f7f", linewidth=0, hatch="//")
        for cells in (self.squares, self.hatched):
            self.ax.add_collection(cells, autolim=False)
        self.numbers = Marks(self.ax, size=12, colour=INK)
        self.numbers.set_zorder(3)
        self.shades = PolyCollection([], linewidth=0)
        self.bar.add_collection(self.shades, autolim=False)
        self.bar.set(xticks=[], xlim=(0, 1))
        self.bar.yaxis.tick_right()
        self.bar.tick_params(labelsize=TEXT - 1)
        (self.chosen,) = self.ax.plot([], [], color="black", linewidth=3.5, label="_chosen", clip_on=False)
        self.accuracy, self.entropy = (Lines(ax, curve.map.names) for ax in self.right)
        self.legend = self.right[1].legend(loc="upper right", fontsize=TEXT - 2, framealpha=0.9, handlelength=1.8)
        every = (*self.accuracy.bands, *self.entropy.bands, *self.accuracy.lines, *self.entropy.lines)
        return [self.chosen, *every]

    def show(self, curve: MapCurve) -> None:
        self._show_map(curve)
        cell, (column, row) = curve.cell, curve.place
        self.chosen.set_data(*zip(*square(column, row), square(column, row)[0], strict=True))
        self.accuracy.show(cell, None if cell is None else cell.accuracy)
        self.entropy.show(cell, None if cell is None else cell.entropy)
        names = tuple(map(plain, curve.map.names))
        for lines in (self.accuracy, self.entropy):
            for line, name in zip(lines.lines, names, strict=True):
                line.set_label(name)
        for text, name in zip(self.legend.get_texts(), names, strict=True):
            text.set_text(name)
        last = 1.0 if cell is None else max(1.0, cell.rollouts[-1])
        most = max((float(one.entropy[:, 0].max()) for one in curve.map.cells.values()), default=1.0)
        for ax in self.right:
            ax.set_xlim(0, last)
        self.right[1].set_ylim(0, 1.08 * most)
        self.right[0].set_title("The chosen cell, ± standard error", fontsize=TEXT)

    def _show_map(self, curve: MapCurve) -> None:
        difference, sign = curve.difference, curve.sign
        rows, columns = difference.shape
        scale = scale_of(curve)
        places = [(c + 1, r + 1) for r in range(rows) for c in range(columns)]
        self.squares.set_verts([square(*place) for place in places])
        known = np.where(np.isnan(sign), 0.0, np.nan_to_num(difference)).ravel()
        self.squares.set_facecolor(colours(0.5 + 0.5 * known / scale))
        unsure = [place for place, one in zip(places, sign.ravel(), strict=True) if one == 0]
        self.hatched.set_verts([square(*place) for place in unsure])
        self.numbers.write(
            (written(value, one, curve), *place)
            for place, value, one in zip(places, difference.ravel(), sign.ravel(), strict=True)
        )
        dress(self.ax, title=finding(curve), x=AXES[curve.map.x[0]].label, y=AXES[curve.map.y[0]].label)
        self.ax.set(xlim=(0.5, columns + 0.5), ylim=(0.5, rows + 0.5))
        for axis, (_, values) in ((self.ax.xaxis, curve.map.x), (self.ax.yaxis, curve.map.y)):
            every = range(0, len(values), 1 if len(values) <= MOST_WRITTEN else 2)
            axis.set_ticks([place + 1 for place in every], [f"{values[place]:g}" for place in every])
        edges = np.linspace(-scale, scale, SHADES + 1)
        self.shades.set_verts([[(0, a), (1, a), (1, b), (0, b)] for a, b in pairwise(edges)])
        self.shades.set_facecolor(colours(np.linspace(0, 1, SHADES)))
        self.bar.set_ylim(-scale, scale)
        self.bar.set_title(curve.words.unit, fontsize=TEXT - 1)
        self.figure.suptitle(plain(curve.title), fontsize=TEXT + 2)
        self.figure.supxlabel(plain(rule(curve)), fontsize=TEXT - 2)

    def still(self, curve: MapCurve) -> Hashable:
        return id(curve.map), len(curve.map.cells), curve.measure, 0 if curve.cell is None else curve.cell.rollouts[-1]

    def handles(self, curve: MapCurve) -> list[Handle]:
        column, row = curve.place
        return [Handle(self.ax, "x", column, "column", click=True), Handle(self.ax, "y", row, "row", click=True)]

    def conclusion(self, curve: MapCurve) -> str:
        return f"{conclusion(curve)}."

    def words(self, curve: MapCurve) -> str:
        sentence = f"{curve.sentence} " if curve.sentence else ""
        return f"{sentence}{say_cell(curve)} {rule(curve)[0].upper()}{rule(curve)[1:]}."


def scale_of(curve: MapCurve) -> float:
    """Return the difference at the ends of the colours: the largest among cells that could be measured, or one worth seeing."""
    sizes = np.abs(curve.difference[~np.isnan(curve.sign)])
    return float(max(curve.words.least, sizes.max(initial=0.0)))


def written(value: float, sign: float, curve: MapCurve) -> str:
    """Return what stands in a cell: its difference, in a large map only the sign that is certain, ? where it is not known."""
    if math.isnan(sign):
        return "?"
    if max(curve.map.shape) <= MOST_WRITTEN:
        return number(value, curve.measure)
    return {1.0: "+", -1.0: "−"}.get(sign, "")


def number(value: float, measure: str) -> str:
    """Return a difference as it is written in a cell."""
    if measure != "rollouts":
        return signed(value)
    return f"{value:+.1f}".replace("-", "−") if abs(value) >= 0.05 else "0.0"


def counts(curve: MapCurve) -> tuple[int, int, int]:
    """Return in how many cells there is certainly more, certainly less, and in how many the sign is not certain."""
    return tuple(int((curve.sign == one).sum()) for one in (1, -1, 0))  # type: ignore[return-value]


def negligible(curve: MapCurve) -> bool:
    """Return whether no cell that could be measured differs by as much as is worth speaking of."""
    return bool(np.all(np.abs(curve.difference[~np.isnan(curve.sign)]) < curve.words.least))


def finding(curve: MapCurve) -> str:
    """Return what the map shows, in a title."""
    more, less, unsure = counts(curve)
    if not more and not less:
        return f"No certain difference in any of {unsure} cells"
    if negligible(curve):
        return f"Nowhere {curve.words.least:g} {curve.words.unit} apart"
    return f"Of {curve.sign.size} cells more in {more}, less in {less}"


def conclusion(curve: MapCurve) -> str:
    """Return the same as a clause, with names."""
    (mine, other), (more, less, unsure) = curve.map.names, counts(curve)
    missing = int(np.isnan(curve.sign).sum())
    rest = f", and {missing} cannot be judged" if missing else ""
    if not more and not less:
        return f"In none of {unsure} cells do {mine} and {other} certainly differ{rest}"
    uncertain = f"in {unsure} the sign is not certain"
    rest += f"; nowhere by {curve.words.least:g}" if negligible(curve) else ""
    return f"{mine} has {curve.words.more} than {other} in {more} of {curve.sign.size} cells, less in {less}; {uncertain}{rest}"


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


def say_cell(curve: MapCurve) -> str:
    """Return the numbers of the chosen cell in a sentence."""
    (x, columns), (y, rows), (column, row) = curve.map.x, curve.map.y, curve.place
    here = f"At {AXES[x].label} {columns[column - 1]:g} and {AXES[y].label} {rows[row - 1]:g}"
    if curve.cell is None:
        return f"{here} nothing was run yet."
    found, (mine, other) = curve.cell.measured[curve.measure], curve.map.names
    if math.isnan(found.sign):
        return f"{here} only {found.counted:.0%} of the replicas could be measured under both.".replace("%", " %")
    one, two = curve.cell.rates
    rates = f"; learning rates {one:g} and {two:g}" if curve.map.settings.rates == "tuned" else ""
    return f"{here}: {mine} {found.mine:.3g}, {other} {found.other:.3g}, difference {said(found)} {curve.words.unit}{rates}."


def said(found: Measured) -> str:
    """Return a difference with its standard error, and whether its sign is certain."""
    sure = "certain" if found.sign else "not certain"
    return f"{found.difference:+.3g} ± {found.error:.2g} ({sure})".replace("-", "−")


@dataclass(frozen=True, kw_only=True)
class Maps(Spec):
    """One of the shipped maps; a map of one's own is alone, for its cells are others."""

    @property
    def words(self) -> str:
        return f"one of: {'; '.join(SHIPPED)}"

    def control(self, name: str, values: Values) -> Choice:
        given = values[name]
        find_map(str(given))
        shipped = [(each.title, key) for key, each in SHIPPED.items()]
        return Choice(name, given, shipped if str(given) in SHIPPED else [(Path(given).name, given)], "map")


@dataclass(frozen=True, kw_only=True)
class Along(Spec):
    """A column or a row of the map: a whole number from 1 to as many as the map has."""

    label: str
    axis: int

    @property
    def words(self) -> str:
        return f"{self.label} of the chosen cell; its slider goes from 1 to the last"

    def control(self, name: str, values: Values) -> Whole:
        most = find_map(str(values["which"])).shape[1 - self.axis]
        check_whole(name, values[name])
        return Whole(name, in_map(name, values[name], most), 1, most, self.label)


explore_map = explorer(
    "map",
    map_curve,
    MapPicture,
    controls={
        "which": Maps(shown=lambda values: str(values["which"]) in SHIPPED),
        "measure": Menu(
            {
                "its own": ITS_OWN,
                "accuracy": "accuracy",
                "entropy at equal accuracy": "entropy",
                "rollouts to an accuracy": "rollouts",
                "share of dead groups": "dead",
            },
            "measure",
        ),
        "column": Along(label="column", axis=0),
        "row": Along(label="row", axis=1),
    },
    twin={each.title: {"which": name} for name, each in list(SHIPPED.items())[:2]},
    grid={"which": tuple(SHIPPED), "row": (1, 2, 3, 4, 5, 6), "column": (1, 2, 3, 4, 5, 6)},
)
