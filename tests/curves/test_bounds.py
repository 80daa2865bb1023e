"""Limits against old probability, the numbers worked by hand, and a run's tokens over them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rlviz.algorithms import DAPO, DCPO, DPO, GRPO, GSPO
from rlviz.curves import bounds_curve
from rlviz.curves.bounds import responses_of
from rlviz.plots import plot_bounds
from rlviz.plots.bounds import BoundsPicture
from rlviz.training import TrainSettings, train
from rlviz.types import GroupRecord, ResponseRecord, StepRecord, TokenRecord
from rlviz.widgets import explore_bounds
from small_models.policies import load_policy
from small_models.tasks import Chain


def token(old_prob, new_prob, advantage):
    names = StepRecord.__dataclass_fields__  # other numbers of the record have no part in this picture
    assert "groups" in names
    rest = dict.fromkeys(TokenRecord.__dataclass_fields__, 0.0)
    return TokenRecord(**{**rest, "token": "1", "old_prob": old_prob, "new_prob": new_prob, "advantage": advantage})


def response(*tokens):
    return ResponseRecord("1", 1.0, 1.0, len(tokens), True, True, False, tokens)


# (algorithm, q, new probabilities allowed): |(r − 1) r q| ≤ ε at q = .9: r = ½ + ½ √(1 ± 4 ε / q) gives .7690 and 1.1867;
# at .01: ½ (all of 4 · .16 / .01 > 1) and ½ + ½ √81 = 5. Fixed widths: q (1 ± ε).
WORKED = [
    (GRPO, 0.9, 0.72, 1.08),
    (GRPO, 0.01, 0.008, 0.012),
    (DAPO, 0.9, 0.72, 1.152),
    (DAPO, 0.01, 0.008, 0.0128),
    (DCPO, 0.9, 0.692, 1.068),
    (DCPO, 0.01, 0.005, 0.05),
]


@pytest.mark.parametrize(("algorithm", "q", "low", "high"), WORKED)
def test_worked_numbers_can_be_read_off(algorithm, q, low, high):
    curve = bounds_curve(algorithm, old_prob=q)
    (limits,) = curve.limits
    np.testing.assert_allclose([limits.lower_at * q, limits.upper_at * q], [low, high], atol=5e-4 * high)
    near = np.abs(curve.old_prob - q).argmin()
    np.testing.assert_allclose(limits.lower[near], limits.lower_at, rtol=0.03)
    words = explore_bounds(algorithm, old_prob=q, beside=()).caption
    assert f"{low:.3g}" in words and (f"{high:.3g}" in words or high > 1)
    assert ("as far as it likes" in words) == (high > 1)


def test_the_picture_is_the_curve():
    curve = bounds_curve(DCPO, old_prob=0.01, beside=(DAPO,), scale="log")
    picture = BoundsPicture(curve)
    probabilities, ratios = picture.sides
    dcpo, dapo = curve.limits
    np.testing.assert_array_equal(ratios.edges[1].get_ydata(), dcpo.upper)
    np.testing.assert_array_equal(probabilities.edges[0].get_ydata(), dcpo.lower * curve.old_prob)
    np.testing.assert_array_equal(ratios.beside[0][0].get_ydata(), dapo.lower)
    assert len(ratios.beside[1][0].get_xdata()) == 0
    np.testing.assert_allclose(probabilities.at.get_ydata(), [0.005, 0.05])
    assert picture.figure.axes[0].get_xscale() == "log"
    assert plot_bounds(bounds_curve(GRPO)).axes[1].get_xscale() == "linear"


def test_a_rule_that_looks_at_the_sign_gives_the_limit_that_cuts():
    def by_sign(old_logp, advantages):
        wide = (advantages > 0) * 0.5 + 0.1  # .6 for good tokens, .1 for bad ones
        return 1 - wide, 1 + wide

    (limits,) = bounds_curve(replace(GRPO, bounds=by_sign)).limits
    np.testing.assert_allclose([limits.lower_at, limits.upper_at], [0.9, 1.6])


def test_no_upper_limit_is_said():
    def none_above(old_logp):
        return 0.5, math.inf

    words = explore_bounds(replace(GRPO, name="Mine", bounds=none_above), old_prob=0.1).caption
    assert (
        "Mine: a token of old probability 0.1 may fall to 0.05 and grow as far as it likes: there is no upper limit"
        in words
    )


def test_tokens_are_clipped_by_the_algorithm_on_show():
    # ratios 1.5 (A > 0), .6 (A < 0), 1.5 (A < 0), 1.1 (A > 0)
    tokens = [token(0.1, 0.15, 1.0), token(0.2, 0.12, -1.0), token(0.1, 0.15, -1.0), token(0.5, 0.55, 1.0)]
    cloud = bounds_curve(GRPO, responses=[response(*tokens)]).tokens
    np.testing.assert_allclose(cloud.ratio, [1.5, 0.6, 1.5, 1.1])
    assert cloud.high.tolist() == [True, False, False, False]
    assert cloud.low.tolist() == [False, True, False, False]
    # under DCPO a token of .1 may double and a token of .2 may halve: ½ + ½ √(1 + .8 / .1) = 2, and ½
    assert bounds_curve(DCPO, responses=[response(*tokens)]).tokens.clipped.sum() == 0
    # one sequence ratio for all: the fourth root of the product of the four
    sequence = bounds_curve(GSPO, responses=[response(*tokens)]).tokens.ratio
    np.testing.assert_allclose(sequence, (1.5 * 0.6 * 1.5 * 1.1) ** 0.25)
    # responses of different length do not leak into each other
    uneven = bounds_curve(GSPO, responses=[response(*tokens[:1]), response(*tokens)]).tokens.ratio
    np.testing.assert_allclose(uneven, [1.5, *sequence])


def test_a_real_run_lies_over_the_picture():
    settings = TrainSettings(
        steps=2, num_prompts=4, group_size=4, updates_per_rollout=8, details_every=1, evaluate_every=0
    )
    records = list(train(load_policy("chain"), Chain(), replace(GRPO, kl=None), settings))
    explorer = explore_bounds(run=records)
    recorded = [t for r in records for g in r.groups for response in g.responses for t in response.tokens]
    assert f"Of the run's {len(recorded):,} recorded tokens DCPO clips" in explorer.caption
    assert explorer.call == "explore_bounds(run=run)"
    explorer.controls["algorithm"].box.value = GRPO
    cloud = explorer.curve.tokens
    assert [t.clipped for t in recorded] == cloud.clipped.tolist()  # as the loss that trained recorded it
    np.testing.assert_allclose(cloud.ratio, [t.ratio for t in recorded], rtol=1e-5)


def test_refusals():
    with pytest.raises(ValueError, match=r"old_prob must be from 0\.0001 to 1; got 0"):
        bounds_curve(GRPO, old_prob=0.0)
    with pytest.raises(ValueError, match="scale must be linear or log; got 'cubic'"):
        bounds_curve(GRPO, scale="cubic")
    with pytest.raises(ValueError, match="DPO has no ratio"):
        bounds_curve(GRPO, beside=(DPO,))
    with pytest.raises(ValueError, match="none of its 0 steps recorded tokens"):
        responses_of([])
    with pytest.raises(ValueError, match="beside must be at most 3 algorithms; got 4"):
        explore_bounds(beside=(GRPO,) * 4)


def test_groups_are_read():
    group = GroupRecord("1=", "1", (response(token(0.1, 0.1, 1.0)), response()))
    assert len(responses_of([type("Record", (), {"groups": (group,)})()])) == 1
