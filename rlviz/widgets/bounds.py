"""explore_bounds: how far a token may move, against how probable it was."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from rlviz.algorithms import ALGORITHMS, DAPO, DCPO, PolicyGradient
from rlviz.curves.bounds import BoundsCurve, bounds_curve, responses_of
from rlviz.plots.bounds import BoundsPicture
from rlviz.plots.clip import BESIDE
from rlviz.training import RunFolder
from rlviz.types import StepRecord
from rlviz.widgets.clip import has_a_ratio
from rlviz.widgets.explorer import AlgorithmControl, Explorer
from rlviz.widgets.live import Pick, Several, choice_control

PROBS = (1e-4, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


def explore_bounds(
    algorithm: PolicyGradient = DCPO,
    *,
    eps_low: float | None = None,
    eps_high: float | None = None,
    max_ratio: float | None = None,
    old_prob: float = 0.1,
    scale: str = "linear",
    beside: Sequence[PolicyGradient] = (DAPO,),
    run: str | os.PathLike[str] | Sequence[StepRecord] | None = None,
) -> Explorer[BoundsCurve]:
    """Return a picture of how far a token may move before its gradient is cut, against its old probability.

    eps_low, eps_high, max_ratio: of the bounds; None: the algorithm's own. old_prob: the one whose numbers are said in words.
    scale: "linear" or "log". beside: up to three algorithms whose limits are drawn as lines. run: a run folder, or the records
    of a run, whose recorded tokens lie over the picture; which of them are clipped follows the sliders.
    Raises ValueError for a value out of range, an algorithm without a ratio, a run that recorded no tokens.
    """
    if len(beside) > len(BESIDE):
        raise ValueError(f"beside must be at most {len(BESIDE)} algorithms; got {len(beside)}")
    chosen = AlgorithmControl(
        algorithm,
        ("eps_low", "eps_high", "max_ratio"),
        fits=has_a_ratio,
        starting={"eps_low": eps_low, "eps_high": eps_high, "max_ratio": max_ratio},
    )
    every = [*beside, *(member for member in ALGORITHMS if has_a_ratio(member) and member not in beside)]
    return Explorer(
        explore_bounds,
        BoundsPicture,
        bounds_curve if run is None else partial(bounds_curve, responses=responses_of(_records(run))),
        [
            choice_control("old_prob", old_prob, PROBS, "old probability"),
            Pick("scale", scale, [("linear", "linear"), ("log", "log")], "axes"),
            Several("beside", beside, [(member.name, member) for member in every], "beside it", most=len(BESIDE)),
        ],
        chosen,
        given={} if run is None else {"run": repr(os.fspath(run)) if isinstance(run, str | os.PathLike) else "run"},
    )


def _records(run: str | os.PathLike[str] | Sequence[StepRecord]) -> Sequence[StepRecord]:
    return RunFolder.open(run).records() if isinstance(run, str | os.PathLike) else run
