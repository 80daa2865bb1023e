"""One token over eight updates: its path by hand, and where each clip ends it."""

import math

import pytest

from rlviz.algorithms import DAPO, GRPO, RLOO
from rlviz.pictures import explore_walk


def by_hand(q, A, pace, low, high):
    """Return ratios and gradients of the clipped objective: r A, and 0 where the ratio is past the limit on A's side."""
    z, ratios, pushes = math.log(q / (1 - q)), [], []
    for _ in range(9):
        p = 1 / (1 + math.exp(-z))
        ratios.append(p / q)
        pushes.append(0.0 if (A > 0 and p / q > high) or (A < 0 and p / q < low) else p / q * A)
        z += pace * pushes[-1] * (1 - p)
    return ratios, pushes


@pytest.mark.parametrize(("q", "A", "pace"), [(0.3, 1.0, 0.12), (0.7, -1.0, 0.5)])
@pytest.mark.parametrize(("algorithm", "low", "high"), [(GRPO, 0.8, 1.2), (DAPO, 0.8, 1.28), (RLOO, 0.0, math.inf)])
def test_the_path_by_hand(q, A, pace, algorithm, low, high):
    names = explore_walk(algorithm, old_prob=q, advantage=A, pace=pace, updates=3, beside=()).names()
    (ratios, pushes), (free, _) = by_hand(q, A, pace, low, high), by_hand(q, A, pace, 0, math.inf)
    expected = {"ratio": ratios, "push": pushes, "without": free, "walked": ratios[:4] + [math.nan] * 5}
    expected |= {
        "moves": [sum(push != 0 for push in pushes[:-1])],
        "limit": [(high if A > 0 else low) if algorithm is not RLOO else math.nan],
    }
    expected |= {"here_ratio": ratios[3:4], "here_push": pushes[3:4], "end_ratio": ratios[-1:], "free_ratio": free[-1:]}
    for name, values in expected.items():
        assert names.array(name).tolist() == pytest.approx(values, rel=1e-9, abs=1e-12, nan_ok=True), name
