"""explore_ratio: distances against the normal distribution, clip shares against areas under it."""

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
import torch

from rlviz.algorithms import CISPO, DCPO, GRPO, GSPO, GSPO_TOKEN, PPO_PENALTY
from rlviz.pictures.ratio import explore_ratio
from rlviz.pieces.surrogate import DualClip, unclipped
from tests.page.programs import needs_node, run


def outputs(algorithm=GRPO, **how):
    """Return what the curve computes for the picture, as arrays."""
    explorer = explore_ratio(algorithm, **how)
    return {name: value.numpy() for name, value in explorer._outputs(explorer.key(), explorer.values).items()}


def nine_in_ten(mean, std):
    """Return by how many percent e^x is above 1, where P(|X| < x) = .9 for a normal X, by bisection."""
    normal = NormalDist(mean, std)
    low, high = 0.0, abs(mean) + 5 * std
    for _ in range(60):
        middle = (low + high) / 2
        inside = normal.cdf(middle) - normal.cdf(-middle)
        low, high = (middle, high) if inside < 0.9 else (low, middle)
    return 100 * math.expm1(low)


@pytest.mark.parametrize(("noise", "drift"), [(0.06, 0.0), (0.3, 0.05), (0.02, -0.05)])
def test_distances_are_those_of_normal_log_ratios(noise, drift):
    # a token's log-ratio is N(μ, σ²) with μ = drift − σ²/2; the mean of T of them N(μ, σ²/T), their sum N(Tμ, Tσ²)
    got, mean = outputs(noise=noise, drift=drift, length=32), drift - noise**2 / 2
    assert got["lengths"][[0, -1]].tolist() == [1, 200]
    np.testing.assert_allclose(got["token_line"], nine_in_ten(mean, noise), rtol=1e-9)
    for n, sequence, product in zip(got["lengths"], got["sequence_line"], got["product_line"], strict=True):
        assert sequence == pytest.approx(nine_in_ten(mean, noise / math.sqrt(n)), rel=1e-9)
        assert product == pytest.approx(nine_in_ten(n * mean, noise * math.sqrt(n)), rel=1e-9)
    assert [got[f"{kind}_far"] for kind in ("own", "token", "sequence", "product")] == pytest.approx(
        [got[f"{kind}_line"][7] for kind in ("token", "token", "sequence", "product")], rel=1e-12
    )
    assert got["own_from"] * got["own_to"] == pytest.approx(1)


def test_the_arithmetic_mean_goes_to_one_where_the_geometric_one_does_not():
    # drift 0, σ = .5, T = 200: the arithmetic mean has mean 1 and std √((e^σ² − 1) / T) = .0377; geometric: see above
    got = outputs(noise=0.5)
    assert got["arithmetic_line"][-1] == pytest.approx(nine_in_ten(0.0, math.sqrt(math.expm1(0.25) / 200)), rel=0.1)
    assert got["sequence_line"][-1] == pytest.approx(nine_in_ten(-0.125, 0.5 / math.sqrt(200)), rel=1e-9)
    assert got["arithmetic_line"][0] == pytest.approx(got["sequence_line"][0], rel=0.15)  # one token's mean is itself


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
    got = outputs(algorithm, noise=noise, length=length)
    assert got["clipped"] == pytest.approx((1 - below_upper + below_lower) / 2, rel=3e-4)
    assert got["simulated"] == 0
    own = got["token_far"] if algorithm is GRPO else got["sequence_far"]  # GSPO's through its own piece, and by √length
    assert got["own_far"] == pytest.approx(own, rel=1e-12)


@pytest.mark.usefixtures("untraced")
def test_the_share_that_a_dual_clip_cuts():
    # A > 0 above 1.2, A < 0 below .8 and above 1.5, under N(−.045, .3²)
    normal = NormalDist(-0.045, 0.3)
    above, below, far = 1 - normal.cdf(math.log(1.2)), normal.cdf(math.log(0.8)), 1 - normal.cdf(math.log(1.5))
    got = outputs(replace(GRPO, surrogate=DualClip(c=1.5)), noise=0.3)
    assert got["clipped"] == pytest.approx((above + below + far) / 2, abs=0.002)  # c lies within a cell
    assert outputs(replace(GRPO, surrogate=unclipped), noise=0.5)["clipped"] == 0


def own_mean(logp, old_logp, mask):
    return (logp - old_logp).exp().mean(-1, keepdim=True).expand_as(logp)


def own_product(logp, old_logp, mask):
    return (logp - old_logp).sum(-1, keepdim=True).exp() + 0 * logp


@pytest.mark.usefixtures("untraced")
def test_a_ratio_of_one_s_own_is_exact_where_its_log_is_a_sum_and_simulated_elsewhere():
    got = outputs(replace(GRPO, ratio=own_product), length=9, noise=0.1)
    assert got["simulated"] == 0
    assert got["own_far"] == pytest.approx(nine_in_ten(-9 * 0.005, 0.3), rel=1e-9)
    assert got["clipped"] == pytest.approx((1 - 0.7757 + 0.2763) / 2, rel=3e-4)  # N(−.045, .3²) as above
    # the mean of nine: about N(1, (e^.04 − 1) / 9 = .0673²), of 200 responses of nine tokens each, 4 in 1000 of them cut
    mine = replace(GRPO, name="mine", ratio=own_mean)
    got = outputs(mine, length=9, noise=0.2)
    assert got["simulated"] == 1800
    assert got["own_far"] == pytest.approx(nine_in_ten(0.0, 0.0673), rel=0.15)
    assert got["clipped"] == pytest.approx(NormalDist(1, 0.0673).cdf(0.8), abs=0.005)
    assert got["share"].sum() == pytest.approx(1, abs=1e-9)
    assert "1800 simulated tokens" in explore_ratio(mine, length=9).caption
    # a mean over the tokens so far is another sum on each token
    so_far = replace(GRPO, ratio=lambda logp, old_logp, mask: (logp - old_logp).cumsum(-1).exp())
    assert outputs(so_far, length=9)["simulated"] == 1800


@needs_node
def test_a_page_simulates_a_ratio_of_one_s_own_at_any_length():
    for length in (1, 9, 31):
        explorer = explore_ratio(replace(GRPO, name="mine", ratio=own_mean), length=length, noise=0.2)
        idea, given = explorer.idea, explorer.given()
        data = {**idea.picture.data, **idea.data(explorer.algorithm)}
        variant = given["variants"]["mine"]
        assert variant["program"] == "mine", variant
        program = given["programs"]["mine"]
        names = {row[1] for row in program["rows"] if row[0] == "input"}
        (got,) = run({"mine": program}, [("mine", {n: idea.number(n, explorer.values, data) for n in names})])
        for name, value in explorer._outputs("mine", explorer.values).items():
            np.testing.assert_allclose(got[name], np.broadcast_to(value.numpy(), got[name].shape), rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("untraced")
def test_limits_that_look_at_the_mask_are_told_the_length_and_those_for_each_sign_hold_back_it():
    by_length = replace(GRPO, bounds=lambda old_logp, mask: (1 - 2 / mask.sum(-1, keepdim=True), 1.5))
    assert outputs(by_length, length=8)["lower"] == 0.75

    def by_sign(old_logp, advantages):
        return torch.where(advantages > 0, 0.1, 0.7), torch.where(advantages > 0, 1.3, 9.0)

    got = outputs(replace(GRPO, bounds=by_sign))
    assert (got["lower"], got["upper"]) == pytest.approx((0.7, 1.3))
    dcpo = outputs(DCPO, old_prob=0.1)  # lower ½ as .1 ≤ 4 · .16; upper ½ + ½ √(1 + 4 · .2 / .1) = 2
    assert (dcpo["lower"], dcpo["upper"]) == pytest.approx((0.5, 2.0))
    by_probability = [explore_ratio(a).names().holds("by_probability") for a in (GRPO, DCPO, PPO_PENALTY)]
    assert by_probability == [False, True, False]


def edges_of(got):
    return np.append(got["middle"] - got["width"] / 2, got["high"])


def test_the_histogram_holds_every_token_and_what_is_cut_of_them():
    got = outputs(noise=0.1, length=50)
    normal, edges = NormalDist(-0.005, 0.1), edges_of(got)
    np.testing.assert_allclose(got["share"], np.diff([normal.cdf(math.log(edge)) for edge in edges]), atol=1e-12)
    assert got["share_cut"].sum() == pytest.approx(got["clipped"], abs=1e-4)
    within = (got["middle"] > 0.8) & (got["middle"] < 1.2)
    assert all(np.isclose(edges, limit, rtol=1e-12).any() for limit in (0.8, 1.2))
    assert not got["share_cut"][within].any()  # to the very limits, beyond which half is cut: what A moves outwards
    np.testing.assert_allclose(got["share_cut"][~within], got["share"][~within] / 2)
    assert got["share"] @ got["middle"] == pytest.approx(1, abs=0.005)  # E r = 1 under the policy that sampled
    np.testing.assert_allclose(
        got["height"] * got["width"], got["share"] * got["height"].max() / (got["share"] / got["width"]).max()
    )  # areas are shares


def test_the_window_shows_the_limits_and_the_ratios():
    for algorithm, noise in ((GRPO, 0.005), (GRPO, 0.06), (GSPO, 0.005), (GSPO, 0.06), (DCPO, 0.06)):
        low, lower, upper, high = (outputs(algorithm, noise=noise)[n] for n in ("low", "lower", "upper", "high"))
        assert low < lower < upper < high
        assert upper - lower > (high - low) / 70, "the limits must not run into one line"
    wide = outputs(
        GSPO, noise=0.5, length=1
    )  # bins a tenth wide, limits 0.0007 apart: within one bin they divide it twice
    assert wide["share"].sum() > 0.9 and wide["low"] >= 0
    between = np.isclose(wide["width"], 0.0007, rtol=1e-6)
    assert between.sum() == 1 and wide["share"][between] > 0 and wide["share_cut"][between] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"noise": 0.3},
            "Nine in ten of GRPO's ratios lie between 0.61 and 1.65; its limits, 0.80 and 1.20, cut 25 % of",
        ),
        ({"algorithm": GSPO}, "its limits, 0.9997 and 1.0004, cut 47.8 % of the tokens."),
        # 40 standard deviations away: no float is that small, but no tail is empty
        ({"noise": 0.005}, "its limits, 0.80 and 1.20, cut less than 0.01 % of the tokens."),
        ({"algorithm": CISPO}, "its limit, 5.00, cuts no gradient."),
        ({"algorithm": PPO_PENALTY}, "it has no limits, and cuts no gradient."),
    ],
)
def test_the_conclusion_tells_the_ratios_and_what_is_cut(arguments, says):
    assert says in explore_ratio(**arguments).conclusion


def test_the_details_tell_when_limits_are_narrow_and_products_run_away():
    assert "most of what moved as its advantage asks is cut" in explore_ratio(GSPO).caption
    assert "their products within a factor e^34." in explore_ratio(noise=0.5, length=200).caption


def test_paper_has_bars_as_wide_as_their_bins():
    explorer = explore_ratio(GSPO, noise=0.5, length=1)
    got = outputs(GSPO, noise=0.5, length=1)
    bars = explorer.figure().axes[1].containers[0]
    np.testing.assert_allclose([bar.get_x() for bar in bars], edges_of(got)[:-1], atol=1e-12)
    np.testing.assert_allclose([bar.get_width() for bar in bars], got["width"], atol=1e-12)
