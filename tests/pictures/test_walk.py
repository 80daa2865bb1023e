"""One token over eight updates: its path by hand, and where each clip ends it."""

import math

import pytest

from rlviz.algorithms import DAPO, GRPO, GSPO, RLOO, SAPO
from rlviz.pictures import explore_walk


def by_hand(q, A, pace, low, high):
    """Return ratios and gradients of the clipped objective: r A, and 0 where the ratio is past the limit on A's side."""
    z, ratios, pushes = math.log(q / (1 - q)), [], []
    for _ in range(9):
        p = 1 / (1 + math.exp(-z))
        r = p / q
        push = 0.0 if (A > 0 and r > high) or (A < 0 and r < low) else r * A
        ratios.append(r)
        pushes.append(push)
        z += pace * push * (1 - p)
    return ratios, pushes


@pytest.mark.parametrize(("q", "A", "pace"), [(0.3, 1.0, 0.12), (0.01, 2.0, 0.25), (0.7, -1.0, 0.5), (0.5, -2.0, 0.03)])
@pytest.mark.parametrize(("algorithm", "low", "high"), [(GRPO, 0.8, 1.2), (DAPO, 0.8, 1.28), (RLOO, 0.0, math.inf)])
def test_the_path_by_hand(q, A, pace, algorithm, low, high):
    names = explore_walk(algorithm, old_prob=q, advantage=A, pace=pace, beside=()).names().array
    ratios, pushes = by_hand(q, A, pace, low, high)
    assert names("ratio").tolist() == pytest.approx(ratios, rel=1e-9)
    assert names("push").tolist() == pytest.approx(pushes, rel=1e-9, abs=1e-12)
    assert names("moves").item() == sum(push != 0 for push in pushes[:-1])
    assert names("without").tolist() == pytest.approx(by_hand(q, A, pace, 0, math.inf)[0], rel=1e-9)


def test_what_is_walked_ends_at_the_update_chosen():
    names = explore_walk(updates=3).names().array
    walked = names("walked").tolist()
    assert walked[:4] == names("ratio").tolist()[:4] and all(math.isnan(value) for value in walked[4:])
    assert names("here_ratio").item() == walked[3]


def test_it_says_who_is_stopped():
    assert explore_walk().caption.startswith("GRPO: 4 of 8 updates move the token. Then its ratio is past 1.20")
    assert "all 8 updates move the token" in explore_walk(SAPO).caption
    with pytest.raises(ValueError, match="limits the ratio of a whole response"):
        explore_walk(GSPO)
