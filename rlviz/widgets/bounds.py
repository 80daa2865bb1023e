"""explore_bounds: how far the gradient pushes a token, against how probable it was."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Literal

from rlviz.algorithms import DAPO, DCPO, Algorithm, PolicyGradient
from rlviz.curves.bounds import BoundsCurve, bounds_curve, check_limits_tokens
from rlviz.curves.clip import is_per_token
from rlviz.plots.bounds import BoundsPicture
from rlviz.plots.clip import BESIDE
from rlviz.training import RunFolder, TrainSettings
from rlviz.types import ResponseRecord, StepRecord
from rlviz.widgets.explorer import AlgorithmControl, Explorer, algorithms_beside
from rlviz.widgets.live import Pick, choice_control
from small_models.checks import checked

PROBS = (1e-4, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


def limits_tokens(algorithm: Algorithm) -> bool:
    """Return whether the algorithm limits the ratio of each token by itself."""
    return isinstance(algorithm, PolicyGradient) and is_per_token(algorithm)


@checked
def explore_bounds(
    algorithm: PolicyGradient = DCPO,
    *,
    eps_low: float | None = None,
    eps_high: float | None = None,
    max_ratio: float | None = None,
    old_prob: float = 0.1,
    scale: Literal["linear", "log"] = "linear",
    beside: Sequence[PolicyGradient] = (DAPO,),
    run: str | os.PathLike[str] | Sequence[StepRecord] | None = None,
) -> Explorer[BoundsCurve]:
    """Return a picture of how far the gradient pushes a token before it is cut, against the token's old probability.

    eps_low, eps_high, max_ratio: of the bounds; None: the algorithm's own. old_prob: the one whose numbers are said in words.
    scale: "linear" or "log". beside: up to three algorithms whose limits are drawn as lines. run: a run folder, or the records
    of a run, whose recorded tokens lie over the picture; which of them are clipped follows the sliders.
    Raises ValueError for a value out of range, an algorithm without a ratio or with one of a whole response, bounds that are no
    limits, and a run that recorded no tokens.
    """
    check_limits_tokens(algorithm)
    chosen = AlgorithmControl(
        algorithm,
        ("eps_low", "eps_high", "max_ratio"),
        fits=limits_tokens,
        starting={"eps_low": eps_low, "eps_high": eps_high, "max_ratio": max_ratio},
    )
    return Explorer(
        explore_bounds,
        BoundsPicture,
        bounds_curve if run is None else partial(bounds_curve, responses=responses_of(run)),
        [
            choice_control("old_prob", old_prob, PROBS, "old probability"),
            Pick("scale", scale, [("linear", "linear"), ("log", "log")], "axes"),
            algorithms_beside(beside, limits_tokens, most=len(BESIDE)),
        ],
        chosen,
        given={} if run is None else {"run": repr(os.fspath(run)) if isinstance(run, str | os.PathLike) else "run"},
    )


def responses_of(run: str | os.PathLike[str] | Sequence[StepRecord]) -> tuple[ResponseRecord, ...]:
    """Return the responses of a run whose tokens were recorded. Raises ValueError when there are none."""
    records = RunFolder.open(run).records() if isinstance(run, str | os.PathLike) else run
    found = tuple(r for record in records for group in record.groups for r in group.responses if r.tokens)
    if not found:
        every = TrainSettings().details_every
        raise ValueError(
            f"run: none of its {len(records)} steps recorded tokens, as every {every}th does unless details_every says "
            f"otherwise; train for {every} steps or more, or with TrainSettings(details_every=1)"
        )
    return found
