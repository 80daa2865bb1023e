"""Limits against old probability, the numbers worked by hand, and a run's tokens over them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rlviz.algorithms import DAPO, DCPO, DPO, GRPO, GSPO, GSPO_TOKEN, PPO_PENALTY
from rlviz.pictures.bounds import BoundsPicture, bounds_curve, explore_bounds, responses_of
from rlviz.training import TrainSettings, train
from rlviz.types import GroupRecord, ResponseRecord, StepRecord, TokenRecord
from small_models.policies import load_policy
from small_models.tasks import Chain


def token(old_prob, new_prob, advantage):
    rest = dict.fromkeys(TokenRecord.__dataclass_fields__, 0.0)
    return TokenRecord(**{**rest, "token": "1", "old_prob": old_prob, "new_prob": new_prob, "advantage": advantage})


def response(*tokens):
    return ResponseRecord("1", 1.0, 1.0, len(tokens), True, True, False, tokens)


def a_run(*responses):
    """Return the records of a run of one step; its other numbers have no part in this picture."""
    rest = dict.fromkeys(StepRecord.__dataclass_fields__, 0.0)
    return [StepRecord(**{**rest, "groups": (GroupRecord("1+1=", "2", responses),)})]


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
    curve = bounds_curve(algorithm, old_prob=q, beside=())
    (limits,) = curve.limits
    np.testing.assert_allclose([limits.lower_at * q, limits.upper_at * q], [low, high], atol=5e-4 * high)
    near = np.abs(curve.old_prob - q).argmin()
    np.testing.assert_allclose(limits.lower[near], limits.lower_at, rtol=0.03)
    words = explore_bounds(algorithm, old_prob=q, beside=()).caption
    assert f"{low:.3g}" in words and (f"{high:.3g}" in words or high > 1)
    assert ("up as far as it goes" in words) == (high > 1)


def test_the_picture_is_the_curve():
    curve = bounds_curve(DCPO, old_prob=0.01, beside=(DAPO,), scale="log")
    picture = BoundsPicture(curve)
    probabilities, ratios = picture.sides
    dcpo, dapo = curve.limits
    np.testing.assert_array_equal(ratios.edges[1].get_ydata(), dcpo.upper)
    np.testing.assert_array_equal(probabilities.edges[0].get_ydata(), dcpo.lower * curve.old_prob)
    np.testing.assert_array_equal(ratios.beside[0][0].get_ydata(), dapo.lower)
    assert len(ratios.beside[1][0].get_xdata()) == 0
    for line in (probabilities.at, probabilities.ends):
        np.testing.assert_allclose(line.get_ydata(), [0.005, 0.05])
    assert picture.figure.axes[0].get_xscale() == "log"
    assert BoundsPicture.alone(bounds_curve(GRPO)).axes[1].get_xscale() == "linear"


def test_a_rule_that_looks_at_the_sign_gives_the_limit_that_cuts():
    def by_sign(old_logp, advantages):
        wide = (advantages > 0) * 0.5 + 0.1  # .6 for good tokens, .1 for bad ones
        return 1 - wide, 1 + wide

    (limits,) = bounds_curve(replace(GRPO, bounds=by_sign), beside=()).limits
    np.testing.assert_allclose([limits.lower_at, limits.upper_at], [0.9, 1.6])


def test_no_upper_limit_is_said():
    def none_above(old_logp):
        return 0.5, math.inf

    words = explore_bounds(replace(GRPO, name="Mine", bounds=none_above), old_prob=0.1).caption
    assert words.startswith(
        "Mine: a token of old probability 0.1 is pushed down to 0.05 and up as far as it goes: there is no upper limit (ratio "
        "0.5 to ∞). Beyond that its gradient is cut"
    )
    without = explore_bounds(PPO_PENALTY, beside=()).caption
    assert without.endswith("is pushed down to 0 and up as far as it goes: there is no upper limit (ratio 0 to ∞).")


def test_the_caption_says_that_only_the_gradient_stops():
    words = explore_bounds(GRPO).caption
    assert words == (
        "GRPO: a token of old probability 0.1 is pushed down to 0.08 and up to 0.12 (ratio 0.8 to 1.2). Beyond that its "
        "gradient is cut; a large step, or other tokens' gradients, may still carry it there. Under DAPO it is pushed down "
        "to 0.08 and up to 0.128 (ratio 0.8 to 1.28)."
    )


def test_ratios_near_1_keep_what_they_differ_by():
    # widths of GSPO's size: 1 − .0003 and 1 + .0004; at .1 the probabilities differ in the fifth decimal
    words = explore_bounds(GRPO, eps_low=0.0003, eps_high=0.0004, old_prob=0.1, beside=()).caption
    assert "(ratio 0.9997 to 1.0004)" in words
    # 1 ± .01 and beyond need no more than three digits
    assert "(ratio 0.98 to 1.05)" in explore_bounds(GRPO, eps_low=0.02, eps_high=0.05, beside=()).caption


@pytest.mark.parametrize("algorithm", [GSPO, GSPO_TOKEN])
def test_limits_on_a_whole_response_are_no_interval_of_a_token(algorithm):
    said = f"{algorithm.name} limits the ratio of a whole response; that gives no interval for one token's probability"
    for refused in (
        lambda: explore_bounds(algorithm),
        lambda: explore_bounds(beside=(algorithm,)),
        lambda: bounds_curve(GRPO, beside=(algorithm,)),
    ):
        with pytest.raises(ValueError, match=said):
            refused()
    controls = explore_bounds().controls
    for control in ("algorithm", "beside"):
        assert algorithm not in [value for _, value in controls[control].options]


def test_an_algorithm_is_not_beside_itself():
    assert [limits.name for limits in bounds_curve(DAPO, beside=(GRPO, DAPO)).limits] == ["DAPO", "GRPO"]
    assert explore_bounds(DAPO).caption.count("DAPO") == 1
    explorer = explore_bounds(DAPO, eps_high=0.5)
    assert "Under the other DAPO it is pushed down to 0.08 and up to 0.128 " in explorer.caption
    assert [limits.upper_at for limits in explorer.curve.limits] == [1.5, 1.28]


def test_what_lies_outside_the_axes_is_marked_on_their_edge():
    # DCPO at .003: ½ + ½ √(1 + .8 / .003) = 8.68, beyond the 3 that straight axes show, not beyond the 13 of logarithmic ones
    explorer = explore_bounds(old_prob=0.003)
    legend = explorer.picture.figure.legends[0]

    def shown():
        probabilities, ratios = explorer.picture.sides
        assert not any(len(line.get_xdata()) for line in probabilities.outside)
        above, below, left = ratios.outside
        assert len(below.get_xdata()) == len(left.get_xdata()) == 0
        return above.get_xydata().tolist(), ratios.ends.get_ydata(), [t.get_text() for t in legend.get_texts()]

    above, ends, labels = shown()
    assert above == [[0.003, 3.0]] and ends.tolist() == [0.5] and "further out" in labels
    explorer.controls["scale"].value = "log"
    above, ends, labels = shown()
    assert above == [] and "further out" not in labels
    np.testing.assert_allclose(ends, [0.5, 8.68], atol=0.005)
    moved = explore_bounds()
    moved.controls["old_prob"].value = 0.003
    assert moved.png == explore_bounds(old_prob=0.003).png  # the legend, too


def test_tokens_outside_the_axes_are_marked_on_their_edge():
    # ratios 25 and .02, a token rarer than the axis begins, and one on its last point; axes: 1e-4 to 1, 5e-5 to 2, .3 to 13
    tokens = [token(0.02, 0.5, 1.0), token(0.5, 0.01, -1.0), token(2e-5, 6e-5, 1.0), token(1.0, 0.5, -1.0)]
    curve = bounds_curve(GRPO, scale="log", run=a_run(response(*tokens)))
    probabilities, ratios = BoundsPicture(curve).sides
    assert [line.get_xydata().tolist() for line in ratios.outside] == [
        [[0.02, 13.0]],
        [[0.5, 0.3]],
        [[1e-4, pytest.approx(3)]],
    ]
    assert [line.get_xydata().tolist() for line in probabilities.outside] == [[], [], [[1e-4, 6e-5]]]
    assert ratios.cut.get_xydata().tolist() == [[1.0, 0.5]] and not ratios.cut.get_clip_on()
    assert sorted(probabilities.cut.get_xdata()) == [0.02, 0.5, 1.0]


def test_tokens_are_clipped_by_the_algorithm_on_show():
    # ratios 1.5 (A > 0), .6 (A < 0), 1.5 (A < 0), 1.1 (A > 0)
    tokens = [token(0.1, 0.15, 1.0), token(0.2, 0.12, -1.0), token(0.1, 0.15, -1.0), token(0.5, 0.55, 1.0)]
    cloud = bounds_curve(GRPO, run=a_run(response(*tokens))).tokens
    np.testing.assert_allclose(cloud.ratio, [1.5, 0.6, 1.5, 1.1])
    assert cloud.high.tolist() == [True, False, False, False]
    assert cloud.low.tolist() == [False, True, False, False]
    # under DCPO a token of .1 may double and a token of .2 may halve: ½ + ½ √(1 + .8 / .1) = 2, and ½
    assert bounds_curve(DCPO, run=a_run(response(*tokens))).tokens.clipped.sum() == 0
    # responses of different length do not leak into each other
    uneven = bounds_curve(GRPO, run=a_run(response(*tokens[:1]), response(*tokens))).tokens
    np.testing.assert_allclose(uneven.ratio, [1.5, 1.5, 0.6, 1.5, 1.1])
    # of three under .1 the first two are clipped: 2 · .05, A > 0, and .5 · .08, A < 0; 1.1 and .9 · .2 are inside
    tokens = [token(0.05, 0.1, 1.0), token(0.08, 0.04, -1.0), token(0.09, 0.099, 1.0), token(0.2, 0.18, -1.0)]
    words = BoundsPicture(curve := bounds_curve(GRPO, run=a_run(response(*tokens)))).words(curve)
    assert (
        "Of the run's 4 recorded tokens GRPO clips 1 below and 1 above; of the 3 with old probability under 0.1"
        in words
    )
    assert words.endswith("under 0.1 it clips 2.")


def test_a_real_run_lies_over_the_picture():
    settings = TrainSettings(
        steps=2, num_prompts=4, group_size=4, updates_per_rollout=8, details_every=1, evaluate_every=0
    )
    records = list(train(load_policy("chain"), Chain(), replace(GRPO, kl=None), settings))
    explorer = explore_bounds(run=records)
    recorded = [t for r in records for g in r.groups for response in g.responses for t in response.tokens]
    assert f"Of the run's {len(recorded):,} recorded tokens DCPO clips" in explorer.caption
    assert explorer.call == "explore_bounds(run=run)"
    explorer.controls["algorithm"].value = GRPO
    cloud = explorer.curve.tokens
    assert [t.clipped for t in recorded] == cloud.clipped.tolist()  # as the loss that trained recorded it
    np.testing.assert_allclose(cloud.ratio, [t.ratio for t in recorded], rtol=1e-5)


def test_refusals():
    with pytest.raises(ValueError, match=r"old_prob must be from 0\.0001 to 1; got 0"):
        bounds_curve(GRPO, old_prob=0.0)
    with pytest.raises(ValueError, match="scale must be one of linear, log; got 'cubic'"):
        bounds_curve(GRPO, scale="cubic")
    with pytest.raises(ValueError, match="DPO has no ratio"):
        bounds_curve(GRPO, beside=(DPO,))
    said = r"of its 3 steps recorded tokens, as every 10th does .* 10 steps or more, or with TrainSettings\(details_every=1\)"
    with pytest.raises(ValueError, match=said):
        responses_of([type("Record", (), {"groups": ()})()] * 3)
    with pytest.raises(ValueError, match="beside must be at most 3 algorithms; got 4"):
        explore_bounds(beside=(GRPO,) * 4)


def test_groups_are_read():
    group = GroupRecord("1=", "1", (response(token(0.1, 0.1, 1.0)), response()))
    assert len(responses_of([type("Record", (), {"groups": (group,)})()])) == 1


def test_words_of_a_surrogate_that_cuts_nothing_do_not_speak_of_a_cut():
    mine = replace(GRPO, surrogate=lambda ratio, advantages, lower, upper: ratio * advantages)
    caption = explore_bounds(mine).caption
    assert "cuts no gradient" in caption
    assert "gradient is cut" not in caption


@pytest.mark.parametrize("only", [-1.0, 1.0])
def test_a_surrogate_that_cuts_on_one_side_cuts(only):
    def one_sided(ratio, advantages, lower, upper):
        free, held = ratio * advantages, ratio.clamp(lower, upper) * advantages
        return free.where(advantages.sign() != only, free.minimum(held))

    assert bounds_curve(replace(GRPO, surrogate=one_sided)).limits[0].cuts


@pytest.mark.parametrize("handle", [0, 1])
def test_the_old_probability_is_dragged_to_the_nearest_stop(handle):
    explorer = explore_bounds()
    for place, stop in ((0.44, 0.4), (0.46, 0.5), (-0.2, 0.0001), (0.0021, 0.003)):
        explorer.asked = {"turn": 1, "handle": handle, "place": place}
        assert explorer.controls["old_prob"].value == explorer.curve.at == stop
        assert explorer.picture.handles(explorer.curve)[handle].at == stop
        assert explorer.conclusion.startswith(f"DCPO: a token of old probability {stop:g} is pushed ")


def test_the_widths_are_dragged_by_the_limits_of_a_certain_token():
    # fixed widths: 1 − ε and 1 + ε at every old probability
    explorer = explore_bounds(GRPO)
    for handle, name, place, width in ((2, "eps_low", 0.63, 0.37), (3, "eps_high", 1.42, 0.42)):
        explorer.asked = {"turn": handle, "handle": handle, "place": place}
        assert explorer.controls[name].value == width
        assert explorer.picture.handles(explorer.curve)[handle].at == pytest.approx(place)
    assert explorer.conclusion.endswith("is pushed down to 0.063 and up to 0.142 (ratio 0.63 to 1.42).")
    # DCPO at q = 1: r² − r = ε, so ε = .24 at r = 1.2, and r − r² = .21 at r = .7
    explorer = explore_bounds()
    assert explorer.handles[3]["at"] == pytest.approx((1 + math.sqrt(1 + 4 * 0.2)) / 2)
    explorer.asked = {"turn": 1, "handle": 3, "place": 1.2}
    explorer.asked = {"turn": 2, "handle": 2, "place": 0.7}
    assert (explorer.controls["eps_high"].value, explorer.controls["eps_low"].value) == (0.24, 0.21)


def test_a_width_that_an_algorithm_lacks_is_not_dragged():
    explorer = explore_bounds(PPO_PENALTY, beside=())
    assert [handle["hidden"] for handle in explorer.handles] == [False, False, True, True]
    assert len(explorer.conclusion) <= 160
