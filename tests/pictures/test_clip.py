"""Where the objective has no gradient, to the exact ratio; whose ratio it is; and bounds that are no limits."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from rlviz.algorithms import ALGORITHMS, DAPO, DCPO, GRPO, GSPO, GSPO_TOKEN, PPO, PolicyGradient
from rlviz.pictures.bounds import bounds_curve, explore_bounds
from rlviz.pictures.clip import (
    ClipPicture,
    clip_comparison,
    clip_curve,
    explore_clip,
    is_per_token,
    limits_of,
    plot_clip,
    plot_clip_small_multiples,
)
from rlviz.pieces.bounds import DynamicBounds
from rlviz.pieces.surrogate import DualClip, unclipped

DUAL = replace(GRPO, surrogate=DualClip(c=2.345))


def clamped(ratio, advantages, lower, upper):
    return ratio.clamp(lower, upper) * advantages


def hole(ratio, advantages, lower, upper):
    return torch.where((ratio > 0.333) & (ratio < 0.777), 0.0, ratio) * advantages


# by the formulas of `pessimistic` and `DualClip`: A > 0 above upper; A < 0 below lower, and above c
STRETCHES = [
    (GRPO, 1.0, [(1.2, None)]),
    (GRPO, -1.0, [(0.0, 0.8)]),
    (DUAL, -1.0, [(0.0, 0.8), (2.345, None)]),
    (DUAL, 1.0, [(1.2, None)]),
    (GSPO, 1.0, [(1.0004, None)]),
    (GSPO, -1.0, [(0.0, 0.9997)]),
    (replace(GRPO, surrogate=clamped), 1.0, [(0.0, 0.8), (1.2, None)]),
    (replace(GRPO, surrogate=lambda r, a, lower, upper: (r - 1).clamp(0.31, 0.77) * a), 1.0, [(0.0, 1.31), (1.77, None)]),
    (replace(GRPO, surrogate=hole), 1.0, [(0.333, 0.777)]),
    (replace(GRPO, surrogate=lambda r, a, lower, upper: r * a), 1.0, []),
]  # fmt: skip


@pytest.mark.parametrize(("algorithm", "advantage", "expected"), STRETCHES)
@pytest.mark.parametrize("up_to", [3.0, 4.0, 12.0])  # steps of the grid: .0075, .01, .03
def test_stretches_without_gradient_are_exact(algorithm, advantage, expected, up_to):
    curve = clip_curve(algorithm, advantage=advantage, max_ratio=up_to)
    ends = [(start, up_to if end is None else end) for start, end in expected]
    np.testing.assert_allclose(np.reshape(curve.dead, (-1, 2)), np.reshape(ends, (-1, 2)), rtol=0, atol=1e-6)


def test_a_stretch_is_in_the_algorithm_s_own_ratio():
    def root(logp, old_logp, mask):
        return ((logp - old_logp) / 2).exp()

    ((start, end),) = clip_curve(replace(GRPO, ratio=root), advantage=1.0, max_ratio=4.0).dead  # √4 = 2
    assert (start, end) == (1.2, pytest.approx(2.0))


@pytest.mark.parametrize("up_to", [2.0, 3.0, 4.0, 12.0])
def test_the_caption_gives_the_limits_whatever_the_grid(up_to):
    words = explore_clip(up_to=up_to, old_prob=0.05).caption
    assert "A > 0: no gradient above ratio 1.20, once its probability has grown to 0.06; below 1" in words
    assert "A < 0: no gradient below ratio 0.80, once its probability has fallen to 0.04; above 1" in words


def test_the_caption_names_c_and_not_the_edge_of_the_picture():
    # .05 · 3 = .15: within reach; at .6 ratio 3 would be a probability of 1.8
    words = explore_clip(dual_clip=3.0, old_prob=0.05).caption
    assert "A < 0: no gradient below ratio 0.80 and above ratio 3.00." in words
    words = explore_clip(dual_clip=10.0, up_to=12.0).caption
    assert "above 1 the gradient stays (what is cut above ratio 10.00 lies beyond probability 1, ratio 1.67)." in words


def test_the_caption_of_a_stretch_in_the_middle_and_of_all():
    middle, everywhere = STRETCHES[-2][0], replace(GRPO, surrogate=lambda r, a, lower, upper: 0.0 * r * a)
    assert "A > 0: no gradient from ratio 0.33 to 0.78." in explore_clip(middle).caption
    assert "A < 0: no gradient at any ratio shown." in explore_clip(everywhere).caption


def test_which_ratios_are_of_one_token():
    of_responses = [a for a in ALGORITHMS if isinstance(a, PolicyGradient) and not is_per_token(a)]
    assert of_responses == [GSPO, GSPO_TOKEN]

    def so_far(logp, old_logp, mask):  # a token's ratio times those before it: the first token never notices
        return (logp - old_logp).cumsum(-1).exp()

    def off_by_two(logp, old_logp, mask):
        return 2 * (logp - old_logp).exp()

    assert not is_per_token(replace(GRPO, ratio=so_far))
    assert not is_per_token(
        replace(GRPO, ratio=lambda logp, old_logp, mask: so_far(logp.flip(-1), old_logp.flip(-1), mask).flip(-1))
    )
    assert is_per_token(replace(GRPO, ratio=off_by_two))


@pytest.mark.parametrize("algorithm", [GSPO, GSPO_TOKEN, replace(GSPO, name="Mine", bounds=DynamicBounds())])
def test_a_sequence_ratio_has_no_probability(algorithm):
    explorer = explore_clip(algorithm)
    assert explorer.details.startswith(f"{algorithm.name}: the ratio is the whole response's, not one token's.")
    assert "probability" not in explorer.caption
    assert "no gradient above sequence ratio " in explorer.caption
    for side in explorer.picture.sides:
        assert side.ax.get_xlabel() == "sequence ratio: of the whole response"
        assert not side.certain.get_visible() and not side.impossible.get_visible()
    shown = [text.get_text() for text in explorer.picture.figure.legends[0].get_texts()]
    assert "new probability = 1" not in shown
    explorer.controls["algorithm"].value = GRPO
    assert [side.ax.get_xlabel() for side in explorer.picture.sides] == ["ratio: new probability / old probability"] * 2
    assert all(side.certain.get_visible() for side in explorer.picture.sides)
    shown = [text.get_text() for text in explorer.picture.figure.legends[0].get_texts()]
    assert "new probability = 1" in shown
    labels = [text.get_text() for text in plot_clip(clip_curve(algorithm, advantage=1.0)).get_legend().get_texts()]
    assert labels == ["no gradient", "limits", "objective", "push on log π"]


def test_limits_beside_say_which_ratio_they_are_on():
    # GSPO's widths: 3e-4 and 4e-4
    words = explore_clip(beside=(DAPO, GSPO)).caption
    assert "Limits of DAPO: 0.80 and 1.28. Limits of GSPO on the sequence ratio: 0.9997 and 1.0004." in words
    assert "Limits of GRPO on a token's ratio: 0.80 and 1.20." in explore_clip(GSPO, beside=(GRPO,)).caption


def test_an_algorithm_is_not_drawn_beside_itself():
    assert clip_comparison(DAPO, beside=(GRPO, DAPO)).names == ("DAPO", "GRPO")
    wider = DAPO.with_parameters(eps_high=0.5)
    curve = clip_comparison(wider, beside=(DAPO,))
    assert curve.names == ("DAPO", "the other DAPO")
    assert [side.upper for side in curve.better] == [1.5, 1.28]
    assert "Limits of the other DAPO: 0.80 and 1.28." in ClipPicture(curve).words(curve)
    # with its own surrogate replaced it differs from itself
    assert clip_comparison(GRPO, dual_clip=3.0, beside=(GRPO,)).names == ("GRPO", "the other GRPO")


def test_better_than_what_is_expected_which_a_critic_may_say():
    for algorithm in (PPO, GRPO):
        titles = [ax.get_title() for ax in ClipPicture.alone(clip_comparison(algorithm)).axes]
        assert titles == ["A = +1: better than expected", "A = −1: worse than expected"]


def test_a_slider_seldom_changes_the_axes():
    explorer, layouts = explore_clip(DCPO, up_to=4.0, old_prob=0.1), set()
    for old_prob in (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0):  # upper limits from 3.7 to 1.2
        explorer.controls["old_prob"].value = old_prob
        layouts.add(explorer.picture.still(explorer.curve))
        for side, curves in zip(explorer.picture.sides, (explorer.curve.better, explorer.curve.worse), strict=True):
            low, high = side.ax.get_ylim()
            assert low <= curves[0].objective.min() and curves[0].objective.max() <= high
    assert len(layouts) == 2  # up to 2.4, and up to twice that


def weighted_log(ratio, advantages, lower, upper):
    """CISPO's: log r has no end at 0."""
    return ratio.clamp(lower, upper).detach() * advantages * ratio.log()


def test_an_objective_without_end_at_0_leaves_the_frame_and_the_rest_can_be_read():
    explorer = explore_clip(replace(GRPO, kl=None, surrogate=weighted_log))
    better, worse = (side.ax.get_ylim() for side in explorer.picture.sides)
    # at an eighth of the axis, 0.25, the objective is .8 · log .25 = −1.11; the push is between .8 and 1.2 everywhere
    assert 1.2 <= better[1] <= 2.4 and -2.22 <= better[0] <= -1.11
    assert -2.4 <= worse[0] <= -1.2 and 1.11 <= worse[1] <= 2.22
    assert "Dashed is the push on log π" in explorer.caption and "push on log π" in explorer.picture.alt


def one_number(old_logp):
    return 0.8


def three_limits(old_logp):
    return 0.8, 1.0, 1.2


def one_tensor(old_logp):
    return torch.ones_like(old_logp)


def wrong_shape(old_logp):
    return torch.full((7,), 0.8), torch.full((7,), 1.2)


def nothing(old_logp):
    return None


def words(old_logp):
    return "low", "high"


def upside_down(old_logp):
    return 1.2, 0.8


def not_a_number(old_logp):
    return 0 * old_logp + 0.8, (1 - old_logp.exp() - 2).sqrt()


NO_PAIR = {
    one_number: "0.8",
    three_limits: "0.8 and 1.0 and 1.2",
    one_tensor: r"a tensor \[2, 1, 5\]",
    wrong_shape: r"a tensor \[7\] and a tensor \[7\]",
    nothing: "None",
    words: "'low' and 'high'",
}
NO_LIMITS = {upside_down: "1.2 and 0.8", not_a_number: "0.8 and nan"}


@pytest.mark.parametrize("explore", [explore_clip, explore_bounds])
@pytest.mark.parametrize("rule", [*NO_PAIR, *NO_LIMITS], ids=lambda rule: rule.__name__)
def test_bounds_that_are_no_limits_are_refused_in_one_sentence(rule, explore):
    said = rf"^Mine's bounds, {rule.__name__.replace('_', ' ')}, must "
    said += (
        r"return two limits, lower and upper, each a number or" if rule in NO_PAIR else "give limits with lower ≤ upper"
    )

    def explored(**named):
        mine = replace(GRPO, name="Mine", bounds=rule)  # refused here already, but for a shape that one batch may have
        return explore(**{name: value(mine) for name, value in named.items()})

    with pytest.raises(ValueError, match=said) as caught:
        explored(algorithm=lambda mine: mine)
    assert "\n" not in str(caught.value)
    assert re.search(f"got {({**NO_PAIR, **NO_LIMITS})[rule]}$", str(caught.value))
    with pytest.raises(ValueError, match="must"):
        explored(beside=lambda mine: (mine,))


def test_a_lower_limit_below_0_is_none():
    def as_far_as_it_may_move(old_logp):  # |new − old probability| ≤ .2
        room = 0.2 / old_logp.exp()
        return 1 - room, 1 + room

    mine = replace(GRPO, name="Mine", bounds=as_far_as_it_may_move)
    lower, upper = limits_of(mine, [0.1, 0.4], 1.0)
    assert lower.tolist() == [0.0, pytest.approx(0.5)] and upper.tolist() == pytest.approx([3.0, 1.5])
    assert clip_curve(mine, advantage=-1.0, old_prob=0.1).dead == ()


def test_bounds_may_be_numbers_tensors_or_look_at_the_sign():
    def by_sign(old_logp, advantages, mask):
        assert mask.all()
        return 0.5, 1 + (advantages > 0) * 0.5

    lower, upper = limits_of(replace(GRPO, bounds=by_sign), [0.1, 0.2], 1.0)
    assert (lower.tolist(), upper.tolist()) == ([0.5, 0.5], [1.5, 1.5])
    assert limits_of(replace(GRPO, bounds=by_sign), [0.1, 0.2], -1.0)[1].tolist() == [1.0, 1.0]
    # r = ½ + ½ √(1 + .8 / q): 2 at .1, 5 at .01
    np.testing.assert_allclose(limits_of(DCPO, [0.1, 0.01], 1.0)[1], [2.0, 5.0])
    assert limits_of(replace(GRPO, bounds=lambda old_logp: (0, math.inf)), 0.3, 1.0)[1].tolist() == [math.inf]


def test_a_rule_that_is_wrong_for_some_tokens_only_is_told_where():
    def at_a_fifth(old_logp):
        return torch.where((old_logp.exp() - 0.2).abs() < 0.02, 2.0, 0.8), 1.2

    mine = replace(GRPO, name="Mine", bounds=at_a_fifth)
    explorer = explore_clip(mine)
    assert explorer.caption.startswith("Mine")
    with pytest.raises(ValueError, match=r"for old probability 0\.18\d? got 2 and 1\.2"):
        bounds_curve(mine)
    explorer.controls["old_prob"].value = 0.2
    assert explorer.caption.startswith("Not possible: Mine's bounds, at a fifth, must give limits with lower ≤ upper")


def test_a_wrong_view_is_refused():
    with pytest.raises(ValueError, match="up_to must be a number; got 'far'"):
        explore_clip(up_to="far")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_legend_of_small_multiples_fits_the_figure(count):
    pair = (clip_curve(GSPO, advantage=1.0), clip_curve(GSPO, advantage=-1.0))
    last = (clip_curve(GRPO, advantage=1.0), clip_curve(GRPO, advantage=-1.0))
    figure = plot_clip_small_multiples([pair] * (count - 1) + [last], ["a"] * count)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert figure.bbox.x0 <= legend.get_window_extent().x0 and legend.get_window_extent().x1 <= figure.bbox.x1
    assert "new probability = 1" in [text.get_text() for text in legend.get_texts()]  # of the last one only


def dragged(explorer, handle, place):
    explorer.asked = {"turn": explorer.answered + 1, "handle": handle, "place": place}
    return {name: control.value for name, control in explorer.controls.items()}


def test_limits_and_the_old_probability_are_dragged():
    """1 + ε_high, 1 − ε_low and 1/q: at 1.2, .8 and 1.667, then at 1.37, .55 and 4."""
    explorer = explore_clip(up_to=4.0)
    assert [handle["at"] for handle in explorer.handles] == pytest.approx([1.2, 0.8, 1 / 0.6])
    assert [handle["sign"] for handle in explorer.handles] == [1, -1, -1]  # left of 1 a wider ε is further left
    assert [handle["axes"] for handle in explorer.handles] == [0, 1, 0]  # of a bad token the second graph
    assert dragged(explorer, 0, 1.37)["eps_high"] == 0.37
    assert dragged(explorer, 1, 0.55)["eps_low"] == 0.45
    assert dragged(explorer, 2, 4.0)["old_prob"] == 0.25
    assert dragged(explorer, 2, 0.2)["old_prob"] == 1.0  # left of ratio 1 no token is certain
    assert [handle["at"] for handle in explorer.handles] == pytest.approx([1.37, 0.55, 1.0])
    # DCPO: the upper limit r has (r − 1) · r · q = ε, so that 2.2 at q = .1 asks for .264
    explorer = explore_clip(DCPO, old_prob=0.1, up_to=4.0)
    assert explorer.handles[0]["at"] == pytest.approx(2.0)
    assert dragged(explorer, 0, 2.2)["eps_high"] == 0.26
    explorer = explore_clip(GSPO)
    assert [handle["hidden"] for handle in explorer.handles] == [
        False,
        False,
        True,
    ]  # a response has no old probability


def test_the_conclusion_says_how_far_a_token_is_pushed():
    explorer = explore_clip(eps_high=0.3)
    assert explorer.conclusion == (
        "GRPO pushes a good token up until its ratio is 1.30, and a bad one down until its ratio is 0.80."
    )
    explorer.controls["old_prob"].value = 0.9  # certain at 1.11, before the limit
    assert explorer.conclusion.startswith("GRPO pushes a good token up as far as it goes, and a bad one down until")
    explorer.controls["old_prob"].value = 0.7  # certain at 1.43
    explorer.controls["dual_clip"].value = 1.5  # cuts a bad token above 1.5, too
    assert explorer.conclusion == (
        "GRPO pushes a good token up until its ratio is 1.30, and a bad one down until its ratio is 0.80."
    )
    assert explore_clip(replace(GRPO, name="Mine", surrogate=unclipped)).conclusion == (
        "Mine pushes a good token up as far as it goes, and a bad one down at any ratio shown."
    )


@pytest.mark.parametrize(("c", "shown"), [(3.0, 3.75), (1.5, 2.0)])
def test_a_dual_clip_further_out_than_is_shown_widens_the_picture_by_a_quarter(c, shown):
    assert clip_comparison(GRPO, dual_clip=c, up_to=2.0).worse[0].ratio[-1] == pytest.approx(shown)


def test_a_surrogate_without_a_gradient_is_refused_by_name():
    still = replace(GRPO, name="Mine", surrogate=lambda ratio, advantages, lower, upper: (ratio * advantages).detach())
    with pytest.raises(ValueError, match=r"Mine's surrogate, .*, must have a gradient by the ratio"):
        explore_clip(algorithm=still)


@pytest.mark.parametrize("explore", [explore_clip, explore_bounds])
@pytest.mark.parametrize("beside", [np.array([1, 2]), np.array(3), np.array(["DAPO"])], ids=str)
def test_an_array_of_no_algorithms_beside_it_is_refused(explore, beside):
    with pytest.raises(ValueError, match="beside must be a list of algorithms, such as GRPO; got"):
        explore(beside=beside)
    assert explore(beside=np.array([DAPO, DCPO], dtype=object)).controls["beside"].value == (DAPO, DCPO)
