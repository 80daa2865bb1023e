"""Where a token has no gradient, its push, whose ratio it is, and bounds that are no limits."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rlviz.algorithms import ALGORITHMS, DAPO, DCPO, GRPO, GSPO, GSPO_TOKEN, PolicyGradient
from rlviz.pictures.bounds import explore_bounds
from rlviz.pictures.clip import clip_curve, explore_clip, is_per_token, plot_clip_small_multiples
from rlviz.pieces.surrogate import DualClip

pytestmark = pytest.mark.usefixtures("untraced")

DUAL = replace(GRPO, surrogate=DualClip(c=2.34))


def clamped(ratio, advantages, lower, upper):
    return ratio.clamp(lower, upper) * advantages


def hole(ratio, advantages, lower, upper):
    return torch.where((ratio > 0.333) & (ratio < 0.777), 0.0, ratio) * advantages


# by the formulas of `pessimistic` and `DualClip`: A > 0 above upper; A < 0 below lower, and above c
STRETCHES = [
    (GRPO, 1.0, [(1.2, np.inf)]),
    (GRPO, -1.0, [(0.0, 0.8)]),
    (DUAL, -1.0, [(0.0, 0.8), (2.34, np.inf)]),
    (DUAL, 1.0, [(1.2, np.inf)]),
    (GSPO, 1.0, [(1.0004, np.inf)]),
    (GSPO, -1.0, [(0.0, 0.9997)]),
    (replace(GRPO, surrogate=clamped), 1.0, [(0.0, 0.8), (1.2, np.inf)]),
    (replace(GRPO, surrogate=hole), 1.0, [(0.333, 0.777)]),
    (replace(GRPO, surrogate=lambda r, a, lower, upper: r * a), 1.0, []),
]


@pytest.mark.parametrize(("algorithm", "advantage", "expected"), STRETCHES)
def test_what_is_cut_is_what_the_formula_cuts(algorithm, advantage, expected):
    curve = clip_curve(algorithm, advantage=advantage, max_ratio=4.0)
    dead = np.zeros(len(curve.ratio), dtype=bool)
    for start, end in expected:
        dead |= (curve.ratio > start) & (curve.ratio < end)
    assert (curve.clipped == dead).all() and len(dead) == 400
    if algorithm.surrogate in (GRPO.surrogate, DUAL.surrogate):  # J = r A where nothing is cut: d(r A)/d log r = r A
        np.testing.assert_allclose(curve.push, np.where(dead, 0.0, advantage * curve.ratio), rtol=1e-9)


def test_the_push_is_the_derivative_of_any_surrogate_by_the_log_probability():
    mine = replace(GRPO, surrogate=lambda r, a, lower, upper: a * torch.sin(r))
    curve = clip_curve(mine, advantage=1.0)
    np.testing.assert_allclose(curve.push, curve.ratio * np.cos(curve.ratio), rtol=1e-9)


def test_the_push_under_a_surrogate_with_log_r_is_its_frozen_weight():
    """CISPO's J = sg[clip(r, .8, 1.28)] · log r pushes log π by the weight: .8 at ratio .1, 1.28 at ratio 1.6, and not by
    its slope over the ratio, which is 8 and .8, the other way round."""

    def frozen_weight(ratio, advantages, lower, upper):
        return ratio.clamp(lower, upper).detach() * advantages * ratio.log()

    curve = clip_curve(replace(DAPO, surrogate=frozen_weight), advantage=1.0)
    seldom, often = (np.interp(ratio, curve.ratio, curve.push) for ratio in (0.1, 1.6))
    assert (seldom, often) == (pytest.approx(0.8, rel=1e-9), pytest.approx(1.28, rel=1e-9))


def test_which_ratios_are_of_one_token():
    whole = [a.name for a in ALGORITHMS if isinstance(a, PolicyGradient) and not is_per_token(a)]
    assert whole == [GSPO.name, GSPO_TOKEN.name]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "GRPO pushes a good token up until its ratio is 1.20, and a bad one down until it is 0.80."),
        ({"algorithm": GSPO}, "up until its sequence ratio is 1.0004, and a bad one down until it is 0.9997."),
        # the upper limit at q = .9 is ratio 1.187, beyond probability 1 at ratio 1.111
        ({"algorithm": DCPO, "old_prob": 0.9}, "DCPO pushes a good token up as far as it goes"),
        # ½ + ½ √(1 + .8 / .1) = 2 and ½
        (
            {"algorithm": DCPO, "old_prob": 0.1, "up_to": 4.0},
            "until its ratio is 2.00, and a bad one down until it is 0.50.",
        ),
        (
            {"algorithm": replace(GRPO, name="Free", surrogate=lambda r, a, lower, upper: r * a)},
            "down at any ratio shown.",
        ),
    ],
)
def test_the_conclusion_says_how_far_a_token_is_pushed(arguments, says):
    assert says in explore_clip(**arguments).conclusion


def test_a_dual_clip_is_said_and_widens_the_picture():
    explorer = explore_clip(dual_clip=3.0, old_prob=0.1)
    assert "the gradient is cut from ratio 3.0" in explorer.caption  # c = 3, half a step on
    assert explorer.names().one("reach") == 3.75  # 1.25 c


def test_a_lower_limit_below_0_is_none():
    def as_far_as_it_may_move(old_logp):  # |new − old probability| ≤ .2
        room = 0.2 / old_logp.exp()
        return 1 - room, 1 + room

    curve = clip_curve(replace(GRPO, name="Mine", bounds=as_far_as_it_may_move), advantage=-1.0, old_prob=0.1)
    assert (curve.lower, curve.upper) == (0.0, pytest.approx(3.0)) and not curve.clipped.any()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_legend_of_small_multiples_fits_the_figure(count):
    curves = [(clip_curve(GRPO, advantage=1.0), clip_curve(GRPO, advantage=-1.0))] * count
    figure = plot_clip_small_multiples(curves, [f"setting {i}" for i in range(count)])
    figure.canvas.draw()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.x1
    assert {text.get_text() for text in legend.get_texts()} >= {"no gradient", "push on log π", "objective J"}


def test_one_key_names_each_kind_of_mark_once():
    figure = explore_clip(GRPO).figure()
    said = [text.get_text() for ax in figure.axes for text in ax.get_legend().get_texts()]
    assert said.count("limits") == said.count("no gradient") == said.count("probability 1") == 1


def test_an_algorithm_stands_beside_itself_with_its_own_limits():
    names = explore_clip(GRPO, eps_high=0.4, beside=(GRPO, DAPO)).names()
    assert [names.words(f"b{i}_name") for i in (1, 2)] == [["GRPO, own ε"], ["DAPO"]]
    assert (names.one("upper"), names.one("b1_upper")) == (1.4, 1.2)


@pytest.mark.parametrize("explore", [explore_clip, explore_bounds])
def test_an_array_of_algorithms_may_stand_beside_it(explore):
    assert explore(beside=np.array([DAPO, DCPO], dtype=object)).values["beside"] == ["DAPO", "DCPO"]
