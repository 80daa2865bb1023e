"""Maps: where two algorithms differ over two settings, one heat map over the frame of a map."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlviz.page.picture import Axis, Cells, Choice, Panel, Picture, Say, Slider
from rlviz.page.style import signed
from rlviz.page.tracing import Curve
from rlviz.pictures.spec import ExplorerSpec, explorer
from rlviz.study.map_settings import AXES
from rlviz.study.maps import NUMBERS, SHIPPED, read_map

if TYPE_CHECKING:
    import pandas as pd

FIRST = next(iter(SHIPPED))
ITS_OWN = "its own"
SIZE = 6  # columns and rows of a shipped map
COLUMN = 5  # to begin with
MEASURES = {  # measure → its name, the unit of a difference, and the least difference of interest, which colours reach
    "accuracy": ("accuracy at the end", "of accuracy", 0.05),
    "entropy": ("entropy at equal accuracy", "nats", 0.1),
    "rollouts": ("rollouts to an accuracy", "rollouts", 2.0),
    "dead": ("share of dead groups", "of the groups", 0.05),
}


def map_curve(**_: Any) -> Curve:
    """Return the curve, the same for every map: the colours of its cells, and the chosen cell's numbers."""
    return _curve


def _curve(column: Tensor, row: Tensor, numbers: Tensor, least: Tensor) -> dict[str, Tensor]:
    """numbers: those of `NUMBERS` in each cell, [rows, columns, 6], NaN where it was not run."""
    difference, sign = numbers[:, :, 2].flatten(), numbers[:, :, 5].flatten()
    cells = torch.where(sign.isnan(), 0.0, difference)
    here = dict(zip(NUMBERS, numbers[(row - 1).long()][(column - 1).long()], strict=True))
    return {
        "cells": cells,
        "unsure": (sign == 0).double(),
        "scale": torch.maximum(least, cells.abs().amax()),
        **{name: here[name] for name in ("mine", "other", "difference", "error")},
        "is_unknown": here["sign"].isnan(),
    }


shipped_map = cache(read_map)


def map_data(which: str | pd.DataFrame, measure: str) -> dict[str, Any]:
    """Return a measure of a map as names of data: numbers of its cells, NaN where there are none, and words."""
    frame = shipped_map(which) if isinstance(which, str) else which
    known = SHIPPED.get(which, {}) if isinstance(which, str) else {}
    name = known.get("measure", "accuracy") if measure == ITS_OWN else measure
    title, unit, least = MEASURES[name]
    x, y = frame.columns[:2]
    columns, rows = sorted(frame[x].unique()), sorted(frame[y].unique())
    cells = frame[frame["measure"] == name].set_index([y, x])[[*NUMBERS]]
    cells = cells.reindex(list(product(rows, columns)))
    plan = frame.iloc[0]
    difference = f"{plan['algorithm']} − {plan['against']}: {title}"
    return {
        "numbers": torch.tensor(cells.to_numpy()).view(len(rows), len(columns), len(NUMBERS)),
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
        "heading": difference,
        "unit": unit,
        "least": least,
        "written": [
            "?" if math.isnan(sign) else signed(size)
            for size, sign in zip(cells["difference"], cells["sign"], strict=True)
        ],
        "answer": known["sentence"] if name == known.get("measure") else f"{difference}.",
    }


MAP = Picture(
    title="Where do {mine_name} and {other_name} differ?",
    look="Choose a cell: blue where the first has more, orange where it has less, hatched where that is not certain.",
    notice="Each cell trains both on tables of logits. In hatched cells chance could have made the sign (|mean| ≤ 2 standard "
    "errors): trust regions rather than single cells.",
    alt="A map of coloured cells over two settings, hatched where the sign is not certain.",
    panels=(
        Panel(
            "{heading}",
            Axis("{x_name}", 0.5, "right", names="x_ticks"),
            Axis("{y_name}", 0.5, "top", names="y_ticks"),
            (Cells("cell_x", "cell_y", "cells", "scale", "written", "unsure", chosen=("column", "row")),),
            tall=1.2,
        ),
    ),
    controls={
        "which": Choice(
            {known["title"]: name for name, known in SHIPPED.items()}, SHIPPED[FIRST]["title"], "map", picks=True
        ),
        "measure": Choice(
            {ITS_OWN: ITS_OWN, **{title: name for name, (title, *_) in MEASURES.items()}},
            ITS_OWN,
            "measure",
            picks=True,
        ),
        "column": Slider(1, SIZE, 1, COLUMN, "column"),
        "row": Slider(1, SIZE, 1, 1, "row"),
    },
    conclusion=(
        Say(
            "In the chosen cell nothing can be compared: it was not run yet, or measured in less than half of the replicas.",
            "is_unknown",
        ),
        Say("{answer} In the chosen cell: {difference:+.2g} ± {error:.1g} {unit} ({mine:.3g} against {other:.3g})."),
    ),
)


def adapt_to_map(spec: ExplorerSpec, arguments: Mapping[str, Any]) -> ExplorerSpec:
    """Return the definition for a map that is none of the shipped ones: it is alone, for its cells are others."""
    which = arguments.get("which", FIRST)
    if isinstance(which, str) and which in (*SHIPPED, *(known["title"] for known in SHIPPED.values())):
        return spec
    frame = read_map(which)
    if frame.empty:
        raise ValueError("which: of this map no cell was run yet")
    columns, rows = (frame[name].nunique() for name in frame.columns[:2])
    sliders = {"column": Slider(1, columns, 1, min(COLUMN, columns), "column"), "row": Slider(1, rows, 1, 1, "row")}
    picture = replace(spec.picture, controls={"measure": spec.controls["measure"], **sliders})
    fixed: dict[str, Any] = {"which": lambda _: {}}
    return replace(spec, picture=picture, data=partial(map_data, frame), fixed=fixed, named={}, adapt=None)


explore_map = explorer(
    "map",
    MAP,
    map_curve,
    data=map_data,
    adapt=adapt_to_map,
    free=True,
    example={"numbers": torch.zeros(5, 7, 6)},
    named={
        "DCPO's limits": {},
        "repeats": {"which": "dupo-repeats", "column": 1},
        "a response's ratio": {"which": "gspo-ratio", "column": 6, "row": 6},
        "no std": {"which": "std-division", "column": 1},
    },
)
