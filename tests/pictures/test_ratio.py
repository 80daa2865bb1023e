"""explore_ratio: distances against the normal distribution, clip shares against areas under it."""

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
import torch

from rlviz.algorithms import DCPO, DPO, GRPO, GSPO, GSPO_TOKEN, PPO_PENALTY
from rlviz.pictures.ratio import RatioPicture, explore_ratio, limits_follow_probability, ratio_curve
from rlviz.pieces.surrogate import DualClip, unclipped


def nine_in_ten(mean, std):
    """Return x with P(|X| < x) = .9 for a normal X, by bisection."""
    normal = NormalDist(mean, std)
    low, high = 0.0, abs(mean) + 5 * std
    for _ in range(60):
        middle = (low + high) / 2
        inside = normal.cdf(middle) - normal.cdf(-middle)
        low, high = (middle, high) if inside < 0.9 else (low, middle)
    return low


@pytest.mark.parametrize(("noise", "drift"), [(0.06, 0.0), (0.3, 0.05), (0.02, -0.05)])
def test_distances_are_those_of_normal_log_ratios(noise, drift):
    # a token's log-ratio is N(μ, σ²) with μ = drift − σ²/2; the mean of T of them N(μ, σ²/T), their sum N(Tμ, Tσ²)
    spread = ratio_curve(GRPO, noise=noise, drift=drift).spread
    mean = drift - noise**2 / 2
    assert spread.lengths[[0, -1]].tolist() == [1, 200]
    np.testing.assert_allclose(spread.token, nine_in_ten(mean, noise), rtol=1e-9)
    for n, sequence, product in zip(spread.lengths, spread.sequence, spread.product, strict=True):
        assert sequence == pytest.approx(nine_in_ten(mean, noise / math.sqrt(n)), rel=1e-9)
        assert product == pytest.approx(n * sequence, rel=1e-12)


def test_the_arithmetic_mean_goes_to_one_where_the_geometric_one_does_not():
    # drift 0, σ = .5, T = 200: the arithmetic mean has mean 1 and std √((e^σ² − 1) / T) = .0377; geometric: see above
    spread = ratio_curve(GRPO, noise=0.5).spread
    assert spread.arithmetic[-1] == pytest.approx(nine_in_ten(0.0, math.sqrt(math.expm1(0.25) / 200)), rel=0.1)
    assert spread.sequence[-1] == pytest.approx(nine_in_ten(-0.125, 0.5 / math.sqrt(200)), rel=1e-9)
    assert spread.arithmetic[0] == pytest.approx(spread.sequence[0], rel=0.1)  # of one token they are the same


@pytest.mark.parametrize(
    ("algorithm", "noise", "length", "expected"),
    [
        # half of the tokens have A > 0 and are cut above 1.2, half are cut below .8: areas under N(−.045, .3²)
        (GRPO, 0.3, 100, (0.7757, 0.2763)),
        # under N(−.0018, .06²), beyond (ln 1.2 + .0018) / .06 = 3.0687 and (ln .8 + .0018) / .06 = −3.6891 σ, at any length
        (GRPO, 0.06, 1, (1 - 0.0010750, 0.0001125)),
        (GRPO, 0.06, 200, (1 - 0.0010750, 0.0001125)),
        # under N(−.0018, .006²), beyond ln 1.0004 and ln .9997
        (GSPO, 0.06, 100, (0.6431, 0.5987)),
        (GSPO_TOKEN, 0.06, 100, (0.6431, 0.5987)),
    ],
)
def test_the_share_that_is_clipped(algorithm, noise, length, expected):
    below_upper, below_lower = expected
    curve = ratio_curve(algorithm, noise=noise, length=length)
    assert curve.clipped == pytest.approx((1 - below_upper + below_lower) / 2, rel=3e-4)
    assert curve.simulated == 0


def test_the_share_that_a_dual_clip_cuts():
    # A > 0 above 1.2, A < 0 below .8 and above 1.5, under N(−.045, .3²)
    normal = NormalDist(-0.045, 0.3)
    above, below, far = 1 - normal.cdf(math.log(1.2)), normal.cdf(math.log(0.8)), 1 - normal.cdf(math.log(1.5))
    curve = ratio_curve(replace(GRPO, surrogate=DualClip(c=1.5)), noise=0.3)
    assert curve.clipped == pytest.approx((above + below + far) / 2, abs=0.001)  # c lies within a cell


def own_mean(logp, old_logp, mask):
    return (logp - old_logp).exp().mean(-1, keepdim=True).expand_as(logp)


def test_a_ratio_of_one_s_own_is_exact_where_its_log_is_a_sum_and_simulated_elsewhere():
    product = replace(GRPO, ratio=lambda logp, old_logp, mask: (logp - old_logp).sum(-1, keepdim=True).exp() + 0 * logp)
    curve = ratio_curve(product, length=9, noise=0.1)
    assert curve.simulated == 0
    assert curve.own == pytest.approx(nine_in_ten(-9 * 0.005, 0.3), rel=1e-9)
    assert curve.clipped == pytest.approx((1 - 0.7757 + 0.2763) / 2, rel=3e-4)  # N(−.045, .3²) as above
    # the mean of nine: about N(1, (e^.04 − 1) / 9 = .0673²), of 500 responses of nine tokens each
    curve = ratio_curve(replace(GRPO, ratio=own_mean), length=9, noise=0.2)
    assert curve.simulated == 4500
    assert curve.own == pytest.approx(nine_in_ten(0.0, 0.0673), rel=0.1)
    assert curve.clipped == pytest.approx(NormalDist(1, 0.0673).cdf(0.8), abs=0.003)
    assert curve.share.sum() == pytest.approx(1, abs=1e-3)
    assert " % of the 4,500 simulated tokens; " in RatioPicture(curve).conclusion(curve)
    # a mean over the tokens so far is another sum on each token
    so_far = replace(GRPO, ratio=lambda logp, old_logp, mask: (logp - old_logp).cumsum(-1).exp())
    assert ratio_curve(so_far, length=9).simulated == 4500


def test_limits_that_look_at_the_mask_are_told_the_length():
    by_length = replace(GRPO, bounds=lambda old_logp, mask: (1 - 2 / mask.sum(-1, keepdim=True), 1.5))
    assert ratio_curve(by_length, length=8).lower == 0.75


def test_the_histogram_holds_every_token_and_what_is_cut_of_them():
    curve = ratio_curve(GRPO, noise=0.1, length=50)
    normal = NormalDist(-0.005, 0.1)
    below = [normal.cdf(math.log(edge)) for edge in curve.edges]
    np.testing.assert_allclose(curve.share, np.diff(below), atol=1e-12)
    assert curve.share_cut.sum() == pytest.approx(curve.clipped, abs=1e-4)
    middles = (curve.edges[1:] + curve.edges[:-1]) / 2
    within = (middles > 0.8) & (middles < 1.2)
    assert {0.8, 1.2} <= set(curve.edges) and (np.diff(curve.edges) > 0).all()
    assert not curve.share_cut[
        within
    ].any()  # to the very limits, beyond which half is cut: that which A moves outwards
    np.testing.assert_allclose(curve.share_cut[~within], curve.share[~within] / 2)
    assert (curve.share_cut <= curve.share).all()
    assert curve.share @ middles == pytest.approx(1, abs=0.005)  # E r = 1 under the policy that sampled
    assert ratio_curve(replace(GRPO, surrogate=unclipped), noise=0.5).clipped == 0


def test_limits_within_one_bin_divide_it_twice():
    curve = ratio_curve(GSPO, noise=0.5, length=1)  # bins a tenth wide, limits 0.0007 apart
    assert {0.9997, 1.0004} <= set(curve.edges) and (np.diff(curve.edges) > 0).all()
    between = curve.edges[:-1] == 0.9997
    assert between.sum() == 1 and curve.share[between] > 0 and curve.share_cut[between] == 0


def test_the_algorithm_s_own_ratio_and_limits():
    token, sequence = ratio_curve(GRPO, length=32), ratio_curve(GSPO, length=32)
    assert token.own == pytest.approx(token.token, rel=1e-12)
    assert sequence.own == pytest.approx(sequence.sequence, rel=1e-12)
    assert sequence.sequence == pytest.approx(sequence.spread.sequence[7], rel=1e-12)
    assert sequence.product == pytest.approx(32 * sequence.sequence, rel=1e-12)
    assert (sequence.lower, sequence.upper) == (0.9997, 1.0004)
    dcpo = ratio_curve(DCPO, old_prob=0.1)  # lower ½ as .1 ≤ 4 · .16; upper ½ + ½ √(1 + 4 · .2 / .1) = 2
    assert (dcpo.lower, dcpo.upper) == pytest.approx((0.5, 2.0))
    assert [limits_follow_probability(a) for a in (GRPO, DCPO, PPO_PENALTY)] == [False, True, False]


def test_limits_for_each_sign_come_from_the_responses_that_they_hold_back():
    def by_sign(old_logp, advantages):
        return torch.where(advantages > 0, 0.1, 0.7), torch.where(advantages > 0, 1.3, 9.0)

    curve = ratio_curve(replace(GRPO, bounds=by_sign))
    assert (curve.lower, curve.upper) == pytest.approx((0.7, 1.3))


def test_the_window_shows_the_limits_and_the_ratios():
    for algorithm, noise in ((GRPO, 0.005), (GRPO, 0.06), (GSPO, 0.005), (GSPO, 0.06), (DCPO, 0.06)):
        curve = ratio_curve(algorithm, noise=noise)
        low, high = curve.edges[[0, -1]]
        assert low < curve.lower < curve.upper < high
        assert curve.upper - curve.lower > (high - low) / 70, "the limits must not run into one line"
    wide = ratio_curve(GSPO, noise=0.5, length=1)
    assert wide.share.sum() > 0.9
    assert wide.edges[0] >= 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"length": 0}, "length must be from 1 to 200 tokens; got 0"),
        ({"length": 201}, "length must be from 1 to 200 tokens; got 201"),
        ({"noise": 0.0}, "noise must be above 0 and at most 2 nats; got 0"),
        ({"noise": 2.5}, "noise must be above 0 and at most 2 nats; got 2.5"),
        ({"drift": math.nan}, "drift must be from −1 to 1 nats; got nan"),
        ({"old_prob": 0.0}, "old_prob must be above 0 and at most 1; got 0"),
        ({"algorithm": DPO}, "algorithm: DPO has no ratio"),
    ],
)
def test_what_is_out_of_range_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        ratio_curve(**{"algorithm": GRPO, **wrong})


def test_the_picture_is_the_curve():
    curve = ratio_curve(GSPO, noise=0.1, length=20)
    picture = RatioPicture(curve)
    left, right = picture.figure.axes
    lines = {line.get_label(): line for line in left.get_lines()}
    for label, values in (
        ("one token's ratio", curve.spread.token),
        ("their geometric mean (sequence)", curve.spread.sequence),
        ("their arithmetic mean, simulated", curve.spread.arithmetic),
        ("product of the token ratios", curve.spread.product),
    ):
        np.testing.assert_array_equal(lines[label].get_xdata(), curve.spread.lengths)
        np.testing.assert_array_equal(lines[label].get_ydata(), values)
    assert lines["the algorithm's own ratio"].get_xydata().tolist() == [[20, curve.own]]
    assert [line.get_ydata()[0] for line in picture.distances] == pytest.approx([-math.log(0.9997), math.log(1.0004)])
    assert [line.get_xdata()[0] for line in picture.limits] == [0.9997, 1.0004]
    density, cut = curve.share / np.diff(curve.edges), curve.share_cut / np.diff(curve.edges)
    np.testing.assert_allclose(picture.all.get_data().values, density / density.max())
    np.testing.assert_allclose(picture.cut.get_data().values, cut / density.max())
    assert right.get_xlim() == (curve.edges[0], curve.edges[-1])
    assert len(RatioPicture.alone(curve).axes) == 2


def test_words_by_hand():
    picture = RatioPicture(ratio_curve(GRPO, length=1))
    curve = replace(
        picture_curve := ratio_curve(GRPO, length=1),
        token=math.log(1.1),
        sequence=math.log(1.02),
        product=12.0,
        own=math.log(1.5),
        clipped=0.5,
        share=picture_curve.share / picture_curve.share.sum() * 0.9,
    )
    assert picture.conclusion(curve) == (
        "GRPO's limits 0.8 and 1.2 cut 50 % of the tokens; nine in ten of its ratios lie within a factor 1.5 of 1."
    )
    assert picture.words(curve) == (
        "In responses of 1 token nine in ten token ratios lie within 10 % of 1, sequence ratios within 2 %, plain products "
        "within a factor e^12. The limits are narrow beside the spread: most of what moved as its advantage asks is cut. "
        "10 % of the ratios lie outside the right picture."
    )
    small = replace(picture_curve, clipped=3e-5, share=np.array([1.0]))
    assert "cut below 0.01 % of the tokens;" in picture.conclusion(small)
    assert "GSPO's limits 0.9997 and 1.0004 cut 48 %" in picture.conclusion(ratio_curve(GSPO))
    near = replace(picture_curve, lower=0.99969999, upper=2.30278)
    assert "limits 0.9997 and 2.3 cut" in picture.conclusion(near)
    # 40 standard deviations away: no float is that small, but no tail is empty
    assert "limits 0.8 and 1.2 cut below 0.01 % of the tokens;" in picture.conclusion(ratio_curve(GRPO, noise=0.005))
    penalty = ratio_curve(PPO_PENALTY)
    assert picture.conclusion(penalty).startswith("PPO-Penalty has no limits and cuts 0 % of the tokens; nine in ten")


def test_length_noise_and_limits_are_dragged():
    explorer = explore_ratio()

    def drag(handle, place):
        explorer.asked = {"turn": explorer.answered + 1, "handle": handle, "place": place}
        return {name: control.value for name, control in explorer.controls.items()}

    assert drag(0, 31.7)["length"] == 32
    assert drag(1, nine_in_ten(-(0.2**2) / 2, 0.2))["noise"] == 0.2
    assert drag(1, 1e-4)["noise"] == 0.005 and drag(1, 50.0)["noise"] == 0.5
    assert drag(2, 1.33)["eps_high"] == pytest.approx(0.33)
    assert drag(3, 0.62)["eps_low"] == pytest.approx(0.38)
    assert [handle["at"] for handle in explorer.handles[2:]] == pytest.approx([1.33, 0.62])
    explorer.controls["algorithm"].value = DCPO  # upper ½ + ½ √(1 + 4 ε / q): 1.5 at q = .1 needs ε = .075
    assert drag(2, 1.5)["eps_high"] == pytest.approx(0.075, abs=0.0051)
    explorer.controls["algorithm"].value = PPO_PENALTY
    assert [handle["hidden"] for handle in explorer.handles] == [False, False, True, True]


def test_the_old_probability_is_in_sight_where_limits_depend_on_it():
    explorer = explore_ratio()
    assert explorer.controls["old_prob"].hidden
    explorer.controls["algorithm"].value = DCPO
    assert not explorer.controls["old_prob"].hidden
    explorer.controls["old_prob"].value = 0.5
    assert explorer.call == "explore_ratio(DCPO, old_prob=0.5)"
    explorer.controls["algorithm"].value = GRPO
    assert explorer.call == "explore_ratio()"
