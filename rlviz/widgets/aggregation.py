"""explore_aggregation: what one token weighs in responses of different lengths, and the trap of micro-batches."""

from __future__ import annotations

from collections.abc import Sequence

from rlviz.algorithms import DAPO, Algorithm, PolicyGradient
from rlviz.curves import AggregationCurve, aggregation_curve
from rlviz.plots.aggregation import AggregationPicture
from rlviz.widgets.explorer import AlgorithmControl, Explorer
from rlviz.widgets.live import Control, Counts, int_control
from small_models.checks import checked


def _aggregates(algorithm: Algorithm) -> bool:
    return isinstance(algorithm, PolicyGradient)


class _Cut(Control):
    """How many responses the first part has. Its value is None at half of them, which a call need not say."""

    def __init__(self, cut: int | None, responses: int) -> None:
        self._half = responses // 2
        made = int_control("cut", self._half if cut is None else cut, 1, responses - 1)
        super().__init__("cut", made.slider, made.box, "first part, responses")

    @property
    def value(self) -> int | None:
        return None if self.slider.value == self._half else self.slider.value


@checked
def explore_aggregation(
    algorithm: PolicyGradient = DAPO,
    *,
    lengths: Sequence[int] = (2, 4, 8, 16),
    max_length: int = 16,
    cut: int | None = None,
) -> Explorer[AggregationCurve]:
    """Return a picture of a token's weight under the four aggregations, and of what cutting the batch makes of it.

    Left, the digit of each response stands at the weight of one of its tokens: level where all tokens weigh the same. Right,
    under the algorithm's own aggregation, what all tokens of a response weigh together: in the whole batch, and in the mean
    of the means of two parts, as when gradients of micro-batches are averaged. They agree only when every part stands
    for as much of the batch: as many responses where these are averaged, as many tokens where those are.

    lengths: of the responses, 1 to 16 tokens. max_length: of the constant aggregation, tokens; an algorithm that has one
    keeps its own. cut: responses in the first part; None: half of them. Raises ValueError for a value out of range, or an
    algorithm without an aggregation.
    """
    chosen = AlgorithmControl(algorithm, fits=_aggregates)
    return Explorer(
        explore_aggregation,
        AggregationPicture,
        aggregation_curve,
        [
            Counts("lengths", lengths, 1, 16, "length"),
            int_control("max_length", max_length, 1, 64, "constant's length"),
            _Cut(cut, len(lengths)),
        ],
        chosen,
    )
