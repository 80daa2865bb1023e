"""Maps: where two algorithms differ over two settings, one heat map over the frame of a map."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from rlviz.page.picture import Axis, Cells, Choice, Panel, Picture, Say, Slider
from rlviz.page.style import signed
from rlviz.page.tracing import Curve
from rlviz.pictures.idea import Idea, explorer
from rlviz.study.map_settings import AXES
from rlviz.study.maps import NUMBERS, SHIPPED, read_map

if TYPE_CHECKING:
    import pandas as pd

FIRST = next(iter(SHIPPED))
ITS_OWN = "its own"
SIZE = 6  # columns and rows of a shipped map
COLUMN = 5  # to begin with
MOST_WRITTEN = 8  # columns or rows up to which each cell has its number, and not its sign alone


class Words(NamedTuple):
    """What a measure is called, and the unit of a difference. least: one of interest; a map's colours reach at least so far."""

    title: str
    unit: str
    least: float


WORDS = {
    "accuracy": Words("accuracy at the end", "of accuracy", 0.05),
    "entropy": Words("entropy at equal accuracy", "nats", 0.1),
    "rollouts": Words("rollouts to an accuracy", "rollouts", 2.0),
    "dead": Words("share of dead groups", "of the groups", 0.05),
}
HERE = "At {x_name} {x_at:g} and {y_name} {y_at:g}"
GAP = "{title}: {mine_name} − {other_name} = {difference:+.2g} ± {error:.1g} {unit}"


def cell(**_: Any) -> Curve:
    """Return the curve, the same for every map: the colours of its cells, and the chosen cell's numbers."""
    return _cell


def _cell(
    column: Tensor, row: Tensor, x_values: Tensor, y_values: Tensor, numbers: Tensor, least: Tensor
) -> dict[str, Tensor]:
    """numbers: those of `NUMBERS` in each cell, [rows, columns, 6], NaN where it was not run."""
    x, y = (column - 1).long(), (row - 1).long()
    difference, sign = numbers[:, :, 2].flatten(), numbers[:, :, 5].flatten()
    cells = torch.where(sign.isnan(), 0.0, difference)
    here = dict(zip(NUMBERS, numbers[y][x], strict=True))
    return {
        "cells": cells,
        "unsure": (sign == 0).double(),
        "scale": torch.maximum(least, cells.abs().amax()),
        "x_at": x_values[x],
        "y_at": y_values[y],
        **here,
        "is_unsure": here["sign"] == 0,
        "is_unknown": here["sign"].isnan(),
    }


shipped_map = cache(read_map)


def map_data(which: str | pd.DataFrame, measure: str) -> dict[str, Any]:
    """Return a measure of a map as names of data: numbers of its cells, NaN where there are none, and words."""
    frame = shipped_map(which) if isinstance(which, str) else which
    known = SHIPPED.get(which, {}) if isinstance(which, str) else {}
    name = known.get("measure", "accuracy") if measure == ITS_OWN else measure
    x, y = frame.columns[:2]
    columns, rows = sorted(frame[x].unique()), sorted(frame[y].unique())
    cells = frame[frame["measure"] == name].set_index([y, x])[[*NUMBERS]]
    cells = cells.reindex(list(product(rows, columns)))
    plan, words, is_small = frame.iloc[0], WORDS[name], max(len(columns), len(rows)) <= MOST_WRITTEN
    more, less, unsure = ((cells["sign"] == sign).sum() for sign in (1, -1, 0))
    rate = "" if "lr" in (x, y) else f" {plan['lr']:g}"
    return {
        "numbers": torch.tensor(cells.to_numpy()).view(len(rows), len(columns), len(NUMBERS)),
        "x_values": torch.tensor(columns, dtype=torch.double),
        "y_values": torch.tensor(rows, dtype=torch.double),
        "cell_x": torch.arange(1.0, len(columns) + 1).double().repeat(len(rows)),
        "cell_y": torch.arange(1.0, len(rows) + 1).double().repeat_interleave(len(columns)),
        "right": len(columns) + 0.5,
        "top": len(rows) + 0.5,
        "x_name": AXES[x].label,
        "y_name": AXES[y].label,
        "x_ticks": [f"{value:g}" for value in columns],
        "y_ticks": [f"{value:g}" for value in rows],
        "mine_name": plan["algorithm"],
        "other_name": plan["against"],
        **words._asdict(),
        "written": [
            "?" if math.isnan(sign) else signed(size) if is_small else {1: "+", -1: "−"}.get(sign, "")
            for size, sign in zip(cells["difference"], cells["sign"], strict=True)
        ],
        "sentence": known.get("sentence", ""),
        "counts": f"More of it in {more} of {len(cells)} cells, less in {less}; in {unsure} the sign is not certain.",
        "rule": f"Hatched: |mean| ≤ 2 standard errors ({plan['replicas']} replicas). Learning rate{rate} for both, "
        f"{known.get('rate', 'tuned for neither')}. Entropy and rollouts are those at accuracy {plan['level']:g}.",
    }


MAP = Picture(
    title="Where do {mine_name} and {other_name} differ?",
    look="Choose a cell: blue where the first has more, orange where it has less, hatched where that is not certain.",
    notice="Each cell trains two algorithms on tables of logits with the settings of its column and row. Cells are hatched where "
    "chance could have made the sign: do not read those, and trust regions rather than single cells.",
    alt="A map of coloured cells over two settings, hatched where the sign is not certain.",
    panels=(
        Panel(
            "{mine_name} − {other_name}: {title}",
            Axis("{x_name}", 0.5, "right", names="x_ticks"),
            Axis("{y_name}", 0.5, "top", names="y_ticks"),
            (Cells("cell_x", "cell_y", "cells", "scale", "written", "unsure", chosen=("column", "row")),),
            tall=1.2,
        ),
    ),
    controls={
        "which": Choice(
            {each["title"]: name for name, each in SHIPPED.items()}, SHIPPED[FIRST]["title"], "map", picks=True
        ),
        "measure": Choice(
            {ITS_OWN: ITS_OWN, **{words.title: name for name, words in WORDS.items()}}, ITS_OWN, "measure", picks=True
        ),
        "column": Slider(1, SIZE, 1, COLUMN, "column"),
        "row": Slider(1, SIZE, 1, 1, "row"),
    },
    conclusion=(
        Say(
            f"{HERE} there is nothing to compare: not run yet, or measured in less than half of the replicas.",
            "is_unknown",
        ),
        Say(f"{HERE}, {GAP}, whose sign is not certain.", "is_unsure"),
        Say(f"{HERE}, {GAP} ({{mine:.3g}} against {{other:.3g}})."),
    ),
    says=(
        Say("{sentence}", "sentence"),
        Say("{counts} The strongest colours are ±{scale:.2g} {unit}."),
        Say("{rule}"),
    ),
)


def _of_one_s_own(idea: Idea, arguments: Mapping[str, Any]) -> Idea:
    """Return the idea of a map that is none of the shipped ones: it is alone, for its cells are others."""
    which = arguments.get("which", FIRST)
    if isinstance(which, str) and which in (*SHIPPED, *(each["title"] for each in SHIPPED.values())):
        return idea
    frame = read_map(which)
    if frame.empty:
        raise ValueError("which: of this map no cell was run yet")
    columns, rows = (frame[name].nunique() for name in frame.columns[:2])
    sliders = {"column": Slider(1, columns, 1, min(COLUMN, columns), "column"), "row": Slider(1, rows, 1, 1, "row")}
    picture = replace(idea.picture, controls={"measure": idea.controls["measure"], **sliders})
    fixed: dict[str, Any] = {"which": lambda _: {}}
    return replace(idea, picture=picture, data=partial(map_data, frame), fixed=fixed, named={}, adapted=None)


explore_map = explorer(
    "map",
    MAP,
    cell,
    data=map_data,
    adapted=_of_one_s_own,
    free=True,
    example={"numbers": torch.zeros(5, 7, 6), "x_values": torch.zeros(7), "y_values": torch.zeros(5)},
    named={
        "DCPO's limits": {},
        "repeats": {"which": "dupo-repeats", "column": 1},
        "a response's ratio": {"which": "gspo-ratio", "column": 6, "row": 6},
        "no std": {"which": "std-division", "column": 1},
    },
)
