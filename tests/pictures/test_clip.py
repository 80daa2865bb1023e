"""Where a token has no gradient, its push, whose ratio it is, and bounds that are no limits."""

from dataclasses import replace

import numpy as np
import pytest

from rlviz.algorithms import DCPO, GRPO, GSPO
from rlviz.pictures.clip import explore_clip
from rlviz.pieces.surrogate import DualClip

pytestmark = pytest.mark.usefixtures("untraced")

INF = float("inf")
DUAL = replace(GRPO, surrogate=DualClip(c=2.34))
CLAMPED = replace(GRPO, surrogate=lambda r, A, lower, upper: r.clamp(lower, upper) * A)
FREE = replace(GRPO, name="Free", surrogate=lambda r, A, lower, upper: r * A)
# |new − old probability| ≤ .2
NEAR = replace(GRPO, name="Mine", bounds=lambda old_logp: (1 - 0.2 / old_logp.exp(), 1 + 0.2 / old_logp.exp()))


# by the formulas of `pessimistic` and `DualClip`: A > 0 above upper; A < 0 below lower, and above c
@pytest.mark.parametrize(
    ("algorithm", "side", "expected"),
    [
        (GRPO, "good", [(1.2, INF)]),
        (DUAL, "bad", [(0.0, 0.8), (2.34, INF)]),
        (GSPO, "bad", [(0.0, 0.9997)]),
        (CLAMPED, "good", [(0.0, 0.8), (1.2, INF)]),
        (FREE, "good", []),
    ],
)
def test_what_is_cut_is_what_the_formula_cuts(algorithm, side, expected):
    names = explore_clip(algorithm, up_to=4.0).names()
    ratio, push = names.array("ratio"), names.array(f"push_{side}")
    dead = sum(((ratio > start) & (ratio < end) for start, end in expected), np.zeros(400, dtype=bool))
    assert ((names.array(f"cut_{side}") != 0) == dead).all()
    A = 1 if side == "good" else -1  # J = r A where nothing is cut: d(r A)/d log r = r A
    np.testing.assert_allclose(push, np.where(dead, 0.0, A * ratio), rtol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "GRPO stops a good token above ratio 1.20, and a bad one below ratio 0.80."),
        ({"algorithm": DUAL, "up_to": 4.0}, "and a bad one below ratio 0.80."),  # not above 2.34, the wrong way
        ({"algorithm": GSPO}, "GSPO stops a good token above ratio 1.0004, and a bad one below ratio 0.9997."),
        # ½ + ½ √(1 + .8 / .1) = 2 and ½; from 2.02 on the axis no ratio is next to the limit any more
        ({"algorithm": DCPO, "old_prob": 0.1, "up_to": 4.0}, "above ratio 2.00, and a bad one below ratio 0.50."),
        ({"algorithm": FREE}, "Free stops no token: however far the push has moved it, it keeps its gradient."),
        # limits that are out of sight, at the edge of the axis, nearer to 0 than its first ratio, and below 0, so none
        ({"algorithm": DCPO, "old_prob": 0.01}, "above ratio 5.00, and a bad one below ratio 0.50."),
        ({"eps_low": 0.99, "up_to": 12.0}, "above ratio 1.20, and a bad one below ratio 0.01."),
        ({"algorithm": NEAR, "old_prob": 0.1, "up_to": 4.0}, "above ratio 3.00, and a bad one below ratio 0.00."),
    ],
)
def test_the_conclusion_says_where_a_token_is_stopped(arguments, sentence):
    assert sentence in explore_clip(**arguments).conclusion
