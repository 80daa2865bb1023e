"""explore_dpo: losses and pulls by hand, the run against closed forms and a scalar recursion."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from rlviz.algorithms import DAPO, DCPO, DPO, DPO_LINEAR, DR_GRPO, GRPO, GRPO_PROCESS, GSPO, PPO
from rlviz.pictures.dpo import DpoPicture, PairCurve, dpo_curve, explore_dpo, learns_from_a_pair
from rlviz.pieces.kl import KLInReward
from rlviz.pieces.preference import ImplicitReward, SigmoidPreference
from rlviz.pieces.surrogate import unclipped


@pytest.mark.parametrize("beta", [0.1, 0.5])
def test_sigmoid_and_linear_by_hand(beta):
    # L = ln(1 + e^−βm): ∂L/∂m = −β σ(−βm), at m = 0 −β/2; less ln 2 and over β/2. Linear: −βm over β
    curve = dpo_curve(replace(DPO, reward=ImplicitReward(beta=beta)))
    m = curve.own.margin
    assert curve.own.slope == pytest.approx(beta / 2)
    np.testing.assert_allclose(curve.own.loss, (np.log1p(np.exp(-beta * m)) - math.log(2)) / (beta / 2), atol=1e-12)
    np.testing.assert_allclose(curve.own.pull, 2 / (1 + np.exp(beta * m)), rtol=1e-9)
    for name in ("loss", "pull", "margin"):
        np.testing.assert_array_equal(getattr(curve.sigmoid, name), getattr(curve.own, name))
    np.testing.assert_allclose(curve.linear.loss, -m, atol=1e-12)
    np.testing.assert_allclose(curve.linear.pull, 1.0)
    assert curve.linear.slope == pytest.approx(beta)
    assert curve.beta == beta


def test_the_margins_reach_to_where_the_pull_has_faded():
    # 2 σ(−x) ≤ .05 from x = ln 39 = 3.66 on: margins 36.6 and 3.66 for β .1 and 1, the next round ones are 50 and 5
    reach = {beta: dpo_curve(replace(DPO, reward=ImplicitReward(beta))).own.margin[-1] for beta in (0.1, 1.0, 0.001)}
    assert reach == pytest.approx({0.1: 50.0, 1.0: 5.0, 0.001: 500.0})
    assert dpo_curve(DPO_LINEAR).own.margin[-1] == pytest.approx(50)  # never lets go: as far as the sigmoid
    assert dpo_curve(GRPO).own.margin[-1] == pytest.approx(0.5)
    assert dpo_curve(GSPO).own.margin[-1] == pytest.approx(0.001)


@pytest.mark.parametrize("algorithm", [GRPO, DR_GRPO, replace(GRPO, kl=KLInReward())])
def test_a_clip_by_hand(algorithm):
    # J ∝ A e^(m/2) − A e^(−m/2), slope ∝ cosh(m/2); the chosen one is cut above 2 ln 1.2 = .365, the rejected one above
    # −2 ln .8 = .446; between the two half of e^(−m/2) is left
    curve = dpo_curve(algorithm)
    m, pull = curve.own.margin, curve.own.pull
    first, last = 2 * math.log(1.2), -2 * math.log(0.8)
    np.testing.assert_allclose(pull[m < first], np.cosh(m / 2)[m < first], rtol=1e-9)
    between = (m > first) & (m < last)
    np.testing.assert_allclose(pull[between], np.exp(-m / 2)[between] / 2, rtol=1e-9)
    assert between.any() and not pull[m > last].any()
    flat = curve.own.loss[m > last]
    # over the slope A/2: J stops at ½ A (1.2 − .8), which is .4
    np.testing.assert_allclose(flat, -0.4, rtol=1e-6)


def test_slopes_of_groups_by_hand():
    # rewards 1 and 0: A = ±½ / std = ±.7071 (unbiased std), undivided ±½; the loss weighs tokens ½ or, for L = 16, 1/32
    assert dpo_curve(GRPO).own.slope == pytest.approx(0.5**0.5 / 2, rel=1e-5)
    assert dpo_curve(DR_GRPO).own.slope == pytest.approx(0.5 / 32)
    assert math.isnan(dpo_curve(GRPO).beta)
    assert dpo_curve(GRPO).sigmoid.slope == pytest.approx(0.05)  # of DPO, β = .1
    # DCPO at q = .2 and .3: upper ½ + ½ √5 = 1.618, lower ½: nothing is left above 2 ln 2 = 1.386
    dcpo = dpo_curve(DCPO, chosen_prob=0.2, rejected_prob=0.3).own
    assert dcpo.pull[dcpo.margin < 2 * math.log(1.618)].min() > 0.9
    assert not dcpo.pull[dcpo.margin > 2 * math.log(2)].any()
    assert dcpo.pull[(dcpo.margin > 0.97) & (dcpo.margin < 1.38)].min() > 0.2


@pytest.mark.parametrize("shared", [0.0, 0.5, 0.7, 0.95])
def test_the_linear_run_in_closed_form(shared):
    # the gradient of −βm by θ is −β d with d = φ_chosen − φ_rejected = (1 − s)(1, −1), always: after n steps
    # θ = n · lr · β d, lr = pace / 2β, so logits move by n · pace/2 · φ·d: (1 − s)(1 − 2s) and −(1 − s)
    pace, n = 0.8, np.arange(41)
    curve = dpo_curve(DPO_LINEAR, shared=shared, pace=pace)
    moved = np.stack([(1 - shared) * (1 - 2 * shared) * n, -(1 - shared) * n, 0 * n]) * pace / 2
    weights = np.array([[0.2], [0.3], [0.5]]) * np.exp(moved)
    np.testing.assert_allclose(curve.log_probs, np.log(weights / weights.sum(0)), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(curve.run_margin, 2 * (1 - shared) ** 2 * n * pace / 2, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("beta", "shared", "pace"), [(0.1, 0.7, 1.5), (0.5, 0.0, 1.0), (0.02, 0.3, 3.0)])
def test_the_sigmoid_run_as_a_recursion(beta, shared, pace):
    # m ← m + lr · β σ(−βm) · |d|² with lr = pace / β and |d|² = 2 (1 − s)²
    curve = dpo_curve(replace(DPO, reward=ImplicitReward(beta)), shared=shared, pace=pace, chosen_prob=0.1)
    margins = [0.0]
    for _ in range(40):
        margins.append(margins[-1] + 2 * pace * (1 - shared) ** 2 / (1 + math.exp(beta * margins[-1])))
    np.testing.assert_allclose(curve.run_margin, margins, rtol=1e-9, atol=1e-12)
    assert np.exp(curve.log_probs[:, 0]) == pytest.approx([0.1, 0.3, 0.6])
    np.testing.assert_allclose(np.exp(curve.log_probs).sum(0), 1.0)


def test_the_chosen_response_falls_when_enough_is_shared():
    falls = dpo_curve(DPO, shared=0.7)
    rises = dpo_curve(DPO, shared=0.3)
    for curve in (falls, rises):
        assert (np.diff(curve.run_margin) > 0).all()
        assert curve.log_probs[1, -1] < curve.log_probs[1, 0]
    assert falls.log_probs[0, -1] < falls.log_probs[0, 0] - 1 and falls.log_probs[2, -1] > math.log(0.9)
    assert rises.log_probs[0, -1] > rises.log_probs[0, 0] + 1
    one_and_the_same = dpo_curve(DPO, shared=1.0)
    np.testing.assert_allclose(one_and_the_same.run_margin, 0.0, atol=1e-12)


def test_a_run_under_the_clip_ends_once_both_are_past_their_limits():
    curve = dpo_curve(GRPO, shared=0.0, pace=0.05)
    ratios = np.exp(curve.log_probs[:2] - curve.log_probs[:2, :1])
    past = (ratios[0] > 1.2) & (ratios[1] < 0.8)
    first = int(past.argmax())
    assert 0 < first < 40
    assert (curve.log_probs[:, first:] == curve.log_probs[:, first : first + 1]).all()
    assert (np.diff(curve.run_margin[: first + 1]) > 0).all()
    assert curve.log_probs.shape == (3, 41)


def test_who_has_a_loss_on_a_pair():
    mine = replace(DPO, name="Mine", pair_loss=SigmoidPreference(label_smoothing=0.2))
    assert [learns_from_a_pair(a) for a in (DPO, mine, GRPO, DAPO, GSPO, PPO, GRPO_PROCESS)] == [True] * 5 + [False] * 2
    # with labels flipped at .2 the pull crosses 0 at βm = ln 4: margin 13.86
    own = dpo_curve(mine).own
    np.testing.assert_array_equal(np.sign(own.pull), np.sign(10 * math.log(4) - own.margin))
    assert own.margin[-1] == pytest.approx(20)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"chosen_prob": 0.0}, "chosen_prob must be above 0 and below 1; got 0"),
        ({"rejected_prob": 1.0}, "rejected_prob must be above 0 and below 1; got 1"),
        ({"chosen_prob": 0.5, "rejected_prob": 0.5}, "must add up to less than 1; got 0.5 and 0.5"),
        ({"shared": -0.1}, "shared must be from 0 to 1; got -0.1"),
        ({"pace": 0.0}, "pace must be above 0 nats and finite; got 0"),
        ({"pace": math.inf}, "pace must be above 0 nats and finite; got inf"),
        ({"algorithm": PPO}, "algorithm: PPO has no loss on the margin of a pair"),
    ],
)
def test_what_is_out_of_range_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        dpo_curve(**{"algorithm": DPO, **wrong})


def test_the_picture_is_the_curve():
    curve = dpo_curve(DPO, shared=0.2)
    picture = DpoPicture(curve)
    for pair, loss, pull in zip((curve.own, curve.sigmoid, curve.linear), picture.losses, picture.pulls, strict=True):
        np.testing.assert_array_equal(loss.get_xdata(), pair.margin)
        np.testing.assert_array_equal(loss.get_ydata(), pair.loss)
        np.testing.assert_array_equal(pull.get_ydata(), pair.pull)
    for line, values in zip(picture.run, curve.log_probs, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), values)
    assert [line.get_label() for line in picture.run] == ["chosen", "rejected", "all others together"]
    (end,) = picture.end.get_xydata()
    m = curve.run_margin[-1]
    assert end == pytest.approx([m, 2 / (1 + math.exp(0.1 * m))], rel=1e-3)
    assert picture.pull_axes.get_xlim() == (-50, 50)
    assert len(DpoPicture.alone(curve).axes) == 3
    # sigmoid, linear, the algorithm's: each over the one before and narrower, so that all are seen where they agree
    for own, sigmoid, linear in (picture.losses, picture.pulls):
        assert [line.get_label() for line in (own, sigmoid, linear)] == ["the algorithm's", "sigmoid", "linear"]
        assert (
            own.get_linewidth() + 2 <= linear.get_linewidth() and linear.get_linewidth() + 2 <= sigmoid.get_linewidth()
        )
        assert sigmoid.get_zorder() < linear.get_zorder() < own.get_zorder()
        assert [artist for artist in picture.moving if artist in (own, sigmoid, linear)] == [sigmoid, linear, own]


CORNERS = [
    (algorithm, {"chosen_prob": chosen, "rejected_prob": rejected, "shared": shared, "pace": pace})
    for algorithm in (DPO, replace(DPO, reward=ImplicitReward(0.074)), replace(DPO, reward=ImplicitReward(0.18)), DPO_LINEAR,
                      GRPO, GSPO, DCPO, replace(DPO, pair_loss=SigmoidPreference(label_smoothing=0.2)))
    for chosen, rejected, shared, pace in itertools.product((0.02, 0.48), (0.02, 0.48), (0.0, 0.7), (0.1, 3.0))
]  # fmt: skip


def test_all_lines_lie_inside_the_frame_wherever_the_sliders_were():
    """The linear run goes down by 40 · 3/2 nats a logit, and by as many again as the chosen one takes all: past −119."""
    curves = [dpo_curve(algorithm, **setting) for algorithm, setting in CORNERS]
    picture, seen = DpoPicture(curves[0]), []
    for curve in curves:
        picture.show(curve)
        for lines in (picture.losses, picture.pulls, picture.run):
            low, high = lines[0].axes.get_ylim()
            values = np.concatenate([line.get_ydata() for line in lines])
            assert low < values.min() and values.max() < high, (curve.name, lines[0].axes.get_title())
        seen.append([ax.get_ylim() for ax in picture.figure.axes])
    lowest = [run[0] for _, _, run in seen]
    assert min(lowest) < -119 and max(lowest) == -12
    for curve, limits in zip(curves[::-1], seen[::-1], strict=True):
        picture.show(curve)
        assert [ax.get_ylim() for ax in picture.figure.axes] == limits


def test_a_pull_without_limits_leaves_the_frame():
    """cosh(m/2) at 50 nats is 3.6 · 10¹⁰; drawn is up to 8.8, so that the others can be seen."""
    picture = DpoPicture(dpo_curve(replace(GRPO, name="Mine", surrogate=unclipped)))
    assert picture.pulls[0].get_ydata().max() > 1e10
    assert picture.pull_axes.get_ylim() == (-0.15, 8.8)


def test_a_run_that_ends_beyond_the_margins_drawn_is_said_to():
    # 40 steps of 1.5 nats against 50 drawn; with a pace of 1 it is 40
    assert (
        "the margin is 60 nats, more than is drawn on the left: "
        in explore_dpo(DPO_LINEAR, shared=0.0, pace=1.5).caption
    )
    assert "the margin is 40 nats: " in explore_dpo(DPO_LINEAR, shared=0.0, pace=1.0).caption


def test_labels_are_words():
    explorer = explore_dpo()
    assert [explorer.controls[name].label for name in ("shared", "pace")] == [
        "how alike, 0 to 1",
        "first step, nats",
    ]
    assert explorer.picture.loss_axes.get_ylabel() == "loss, slope −1 at 0"


@pytest.mark.parametrize(
    ("arguments", "begins", "ends"),
    [
        # 2 σ(−βm) = ½ at βm = ln 3: 10.99 and 1.099 nats
        ({}, "DPO, β = 0.1: its pull fades, half of it is left at a margin of 11 nats. ",
         "less likely than before: the two are alike, and it went down with the other."),
        ({"beta": 1.0, "shared": 1.0}, "DPO, β = 1: its pull fades, half of it is left at a margin of 1.1 nats. ",
         "To this policy the two responses are one and the same, so 40 steps leave the margin at 0."),
        ({"algorithm": DPO_LINEAR, "shared": 0.5, "pace": 0.8},
         # logits move by 0 and −.5 · 40 · .4 = −8: margin 8, others .5 / (.7 + .3 e^−8) = .71
         "DPO (linear), β = 0.1: its pull never lets go of a pair, here up to a margin of 50 nats. After 40 steps the margin "
         "is 8 nats: the chosen log-probability went up from −1.61 to −1.25, the rejected one's down from −1.20 to −8.85, all "
         "others together went from probability 0.50 to 0.71.", ""),
        ({"algorithm": GRPO, "shared": 0.0},
         "GRPO, rewards 1 and 0 for two sampled responses: its pull stops dead at a margin of 0.45 nats. ", ""),
    ],
)  # fmt: skip
def test_words_by_hand(arguments, begins, ends):
    explorer = explore_dpo(**arguments)
    assert explorer.details.startswith(begins)
    assert explorer.caption.endswith(ends)


def test_words_of_what_does_not_pull():
    still = replace(GRPO, name="Mine", surrogate=lambda ratio, advantages, lower, upper: 0 * ratio)
    caption = explore_dpo(still).caption
    assert (
        "it does not pull at margin 0. After 40 steps the margin is 0 nats: the chosen log-probability went nowhere"
        in caption
    )
    assert "never lets go" in explore_dpo(replace(GRPO, name="Mine", surrogate=unclipped)).caption


def test_a_probability_of_almost_one_has_no_minus_sign():
    # linear, shared .3: logits move by 40 · .75 · .7 · (.4, −1) = 8.4 and −21, log .2 e^8.4 / (.2 e^8.4 + .5) = −.0006
    assert "went up from −1.61 to 0.00, the" in explore_dpo(DPO_LINEAR, shared=0.3).caption


def test_half_of_the_pull_is_looked_for_at_margins_above_0():
    own = PairCurve(np.array([-1.0, 0.0, 100.0, 220.0]), np.zeros(4), np.array([0.0, 1.0, 0.6, 0.4]), slope=1.0)
    words = DpoPicture(dpo_curve(DPO)).words(replace(dpo_curve(DPO), own=own))
    assert "its pull fades, half of it is left at a margin of 220 nats." in words


def test_beta_belongs_to_the_algorithm_and_hides_where_there_is_none():
    explorer = explore_dpo()
    beta = explorer.controls["beta"]
    beta.value = 0.5
    assert (explorer.curve.beta, explorer.call) == (0.5, "explore_dpo(beta=0.5)")
    explorer.controls["algorithm"].value = DPO_LINEAR
    assert (explorer.curve.beta, explorer.call) == (0.1, "explore_dpo(DPO_LINEAR)")
    explorer.controls["algorithm"].value = GRPO
    assert beta.hidden and explorer.call == "explore_dpo(GRPO)"
    strict = replace(DPO, name="Mine", reward=ImplicitReward(beta=0.3))
    mine = explore_dpo(strict)
    assert (mine.curve.beta, mine.call) == (0.3, "explore_dpo(mine)")
    labels = [label for label, _ in explorer.controls["algorithm"].options]
    assert labels[:5] == ["DPO", "DPO (linear)", "IPO", "SimPO", "GRPO"] and len(set(labels)) == len(labels)
    with pytest.raises(ValueError, match="beta: GRPO has no such parameter in this picture"):
        explore_dpo(GRPO, beta=0.1)
    with pytest.raises(ValueError, match="beta must be above 0 and finite; got 0"):
        explore_dpo(beta=0.0)
    with pytest.raises(ValueError, match="PPO has nothing that this picture shows"):
        explore_dpo(PPO)


def test_the_probabilities_are_dragged_by_their_logarithms():
    explorer = explore_dpo()
    chosen, rejected, _ = explorer.picture.handles(explorer.curve)
    assert (chosen.at, rejected.at) == (pytest.approx(math.log(0.2)), pytest.approx(math.log(0.3)))
    explorer.asked = {"turn": 1, "handle": 0, "place": math.log(0.085)}  # to the slider's step, .02
    explorer.asked = {"turn": 2, "handle": 1, "place": math.log(0.417)}
    assert [explorer.controls[name].value for name in ("chosen_prob", "rejected_prob")] == [0.08, 0.42]
    for line, at in zip(explorer.picture.starts, (0.08, 0.42), strict=True):
        assert list(line.get_ydata()) == pytest.approx([math.log(at)] * 2)


def test_beta_is_dragged_by_the_margin_at_which_half_of_the_pull_is_left():
    # of DPO's pull, 2 σ(−βm) of that at 0, half is left at m = ln 3 / β; other losses never let go, or have no β
    explorer = explore_dpo()
    assert explorer.handles[2]["at"] == pytest.approx(math.log(3) / 0.1, rel=1e-3)
    assert explorer.handles[2]["sign"] == -1  # a larger β lets go sooner
    for turn, beta in enumerate((0.25, 0.015), 1):
        explorer.asked = {"turn": turn, "handle": 2, "place": math.log(3) / beta}
        assert explorer.controls["beta"].value == beta
        assert explorer.picture.half.get_xdata()[0] == pytest.approx(math.log(3) / beta, rel=1e-3)
    explorer.asked = {"turn": 3, "handle": 2, "place": -4.0}  # on the other side of 0: as soon as can be
    assert explorer.controls["beta"].value == 1.0
    for algorithm in (DPO_LINEAR, GRPO):
        explorer.controls["algorithm"].value = algorithm
        assert explorer.handles[2]["hidden"] and not len(explorer.picture.half.get_xdata())


def test_the_conclusion_is_where_both_responses_end():
    # linear, shared ½, pace .8: logits 0 and −8, others 0: .2 / (.7 + .3 e^−8) = .2857 and .3 e^−8 / .7001 = .000144
    explorer = explore_dpo(DPO_LINEAR, shared=0.5, pace=0.8)
    assert explorer.conclusion == (
        "40 steps of DPO (linear) take the chosen response from probability 0.20 to 0.29, the rejected one from 0.30 to "
        "0.00014."
    )
    explorer.controls["shared"].value = 1.0  # one and the same: neither moves
    assert explorer.conclusion.endswith("from probability 0.20 to 0.2, the rejected one from 0.30 to 0.3.")
