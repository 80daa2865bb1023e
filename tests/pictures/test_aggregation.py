"""explore_aggregation: weights by hand, and what a cut makes of them."""

import numpy as np
import pytest

from rlviz.algorithms import DAPO, DCPO, DR_GRPO, GRPO
from rlviz.pictures.aggregation import explore_aggregation

LENGTHS = np.array([2, 4, 8, 16])


# 4 responses, 30 tokens: 1/|o|, 1/(4 · 5), 1/30, 1/(4 |o|), a row each
@pytest.mark.parametrize(("algorithm", "row"), [(DCPO, 0), (DR_GRPO, 4), (DAPO, 2), (GRPO, 3)])
def test_weights_by_hand(algorithm, row):
    names = explore_aggregation(algorithm, max_length=5).names()
    weights = {0: 1 / LENGTHS, 1: [1 / 20] * 4, 2: [1 / 30] * 4, 3: 1 / (4 * LENGTHS)}
    weights |= {4: [1 / 64] * 4} if row == 4 else {}  # Dr.GRPO's constant is 16, so it is none of the four
    chosen, others = (names.array(f"weight_{which}").reshape(5, 5)[:, :4] for which in ("chosen", "others"))
    for i, expected in weights.items():
        np.testing.assert_allclose((chosen if i == row else others)[i], expected, rtol=1e-12)
    assert np.isfinite(chosen).any(1).sum() == 1 and names.one("rows_end") == (5.6 if row == 4 else 4.6)


@pytest.mark.parametrize(
    ("algorithm", "cut", "batch", "parts"),
    [
        # parts of 6 and 24 tokens: a token of the first weighs ½ · 1/6, of the second ½ · 1/24
        (DAPO, 2, LENGTHS / 30, [1 / 6, 1 / 3, 1 / 6, 1 / 3]),
        # one response alone in its part: ½ · 1; three in theirs: ½ · 1/3
        (GRPO, 1, [1 / 4] * 4, [1 / 2, 1 / 6, 1 / 6, 1 / 6]),
        (DCPO, 2, [1] * 4, [1 / 2] * 4),
    ],
)
def test_the_trap_by_hand(algorithm, cut, batch, parts):
    explorer = explore_aggregation(algorithm, cut=cut)
    for name, expected in {"whole": batch, "parts": parts}.items():
        np.testing.assert_allclose(explorer.names().array(name), expected, rtol=1e-12)
    times = np.divide(parts, batch)
    is_alike, limits = np.ptp(times) < 1e-9, f"between {times.min():.3g} and {times.max():.3g} times"
    assert (f"every token {times[0]:.0%} of" if is_alike else limits) in explorer.conclusion
