"""Limits against old probability, the numbers worked by hand, and a run's tokens over them."""

import numpy as np
import pytest

from rlviz.algorithms import DAPO, DCPO, GRPO
from rlviz.pictures.bounds import explore_bounds
from rlviz.types import GroupRecord, ResponseRecord, StepRecord, TokenRecord

pytestmark = pytest.mark.usefixtures("untraced")


# (algorithm, q, new probabilities allowed): |(r − 1) r q| ≤ ε at q = .9: r = ½ + ½ √(1 ± 4 ε / q) gives .7690 and 1.1867;
# at .01: ½ (all of 4 · .16 / .01 > 1) and ½ + ½ √81 = 5. Fixed widths: q (1 ± ε). No probability is above 1.
@pytest.mark.parametrize(
    ("algorithm", "q", "low", "high"), [(GRPO, 0.9, 0.72, 1.08), (DCPO, 0.9, 0.692, 1.068), (DCPO, 0.01, 0.005, 0.05)]
)
def test_worked_numbers_can_be_read_off(algorithm, q, low, high):
    explorer = explore_bounds(algorithm, old_prob=q, beside=())
    names = explorer.names()
    np.testing.assert_allclose(names.array("ends_prob"), [low, high], atol=5e-4 * high)
    near = np.abs(names.array("q") - q).argmin()
    read_off = (
        names.array("lower")[near],
        names.array("upper")[near],
        names.array("high_prob")[near] / names.array("q")[near],
    )
    np.testing.assert_allclose(read_off, [low / q, high / q, high / q], rtol=0.03)
    assert explorer.conclusion.endswith(f"fall to {low:.3g} and rise to {min(high, 1):.3g}.")


def response(*tokens):
    """Return a response whose tokens have these old and new probabilities and advantages."""
    empty = dict.fromkeys(TokenRecord.__dataclass_fields__, 0.0)
    numbers = [dict(zip(("old_prob", "new_prob", "advantage"), token, strict=True)) for token in tokens]
    records = tuple(TokenRecord(**{**empty, "token": "1", **values}) for values in numbers)
    return ResponseRecord("1", 1.0, 1.0, len(tokens), True, True, False, records)


def test_tokens_are_clipped_by_the_algorithm_in_the_picture():
    tokens = [(0.1, 0.15, 1.0), (0.2, 0.12, -1.0), (0.1, 0.15, -1.0), (0.5, 0.55, 1.0)]
    groups = (GroupRecord("1+1=", "2", (response(*tokens[:1]), response(), response(*tokens))),)
    run = [StepRecord(**{**dict.fromkeys(StepRecord.__dataclass_fields__, 0.0), "groups": groups})]
    names = explore_bounds(GRPO, run=run).names()
    ratio, cut = names.array("tokens_ratio"), names.array("tokens_cut")
    exists = ~np.isnan(ratio)  # padding is none
    np.testing.assert_allclose(ratio[exists], [1.5, 1.5, 0.6, 1.5, 1.1])
    assert cut[exists].tolist() == [1, 1, 1, 0, 0]  # a bad token may rise, and 1.1 is inside
    np.testing.assert_array_equal(names.array("tokens_free"), exists & (cut == 0))
    # under DCPO a token of .1 may double and a token of .2 may halve: ½ + ½ √(1 + .8 / .1) = 2, and ½
    assert explore_bounds(DCPO, run=run).names().array("tokens_cut").sum() == 0


# A good token of .01 that has risen to .03, ratio 3: limits 5, 1.28 and 1.2. A bad one of .5 at .3, ratio .6: ½, .8 and .8.
@pytest.mark.parametrize(
    ("old", "new", "cut"),
    [(0.01, 0.03, [0, 1, 1]), (0.5, 0.3, [0, 1, 1]), (0.1, 0.001, [1, 1, 1]), (0.9, 1.0, [0, 0, 0])],
)
def test_who_has_cut_the_token_at_hand(old, new, cut):
    names = explore_bounds(DCPO, beside=(DAPO, GRPO), old_prob=old, new_prob=new).names()
    assert [names.one(f"{beside}token_cut") for beside in ("", "b1_", "b2_")] == cut
    assert names.one("token_pushed") == 1 - cut[0] and names.one("ratio") == pytest.approx(new / old)
