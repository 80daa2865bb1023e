"""explore_ratio: distances against the normal distribution, clip shares against areas under it."""

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
import torch

from rlviz.algorithms import DCPO, GRPO, GSPO
from rlviz.pictures.ratio import explore_ratio
from rlviz.pieces.surrogate import DualClip

pytestmark = pytest.mark.usefixtures("untraced")


def outputs(algorithm=GRPO, **setting):
    """Return what the curve computes for the picture, as arrays."""
    explorer = explore_ratio(algorithm, **setting)
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


@pytest.mark.parametrize(("noise", "drift"), [(0.06, 0.0), (0.3, 0.05)])
def test_distances_are_those_of_normal_log_ratios(noise, drift):
    # a token's log-ratio is N(μ, σ²) with μ = drift − σ²/2; the mean of T of them N(μ, σ²/T), their sum N(Tμ, Tσ²)
    got, mean = outputs(noise=noise, drift=drift, length=32), drift - noise**2 / 2
    lengths = got["lengths"]
    np.testing.assert_allclose(got["token_line"], nine_in_ten(mean, noise), rtol=1e-9)
    sequence = [nine_in_ten(mean, noise / math.sqrt(n)) for n in lengths]
    product = [nine_in_ten(n * mean, noise * math.sqrt(n)) for n in lengths]
    np.testing.assert_allclose([got["sequence_line"], got["product_line"]], [sequence, product], rtol=1e-9)
    assert lengths[7] == 32 and got["own_far"] == pytest.approx(got["token_line"][7], rel=1e-12)
    assert 100 * (got["product_to"] - 1) == pytest.approx(got["product_line"][7], rel=1e-12)


@pytest.mark.parametrize(
    ("algorithm", "noise", "length", "below_upper", "below_lower"),
    [
        # half of the tokens have A > 0 and are cut above 1.2, half are cut below .8: areas under N(−.045, .3²)
        (GRPO, 0.3, 100, 0.7757, 0.2763),
        # under N(−.0018, .06²), beyond (ln 1.2 + .0018) / .06 = 3.0687 and (ln .8 + .0018) / .06 = −3.6891 σ, at any length
        (GRPO, 0.06, 200, 1 - 0.0010750, 0.0001125),
        # under N(−.0018, .006²), beyond ln 1.0004 and ln .9997; GSPO's own ratio is the geometric mean
        (GSPO, 0.06, 100, 0.6431, 0.5987),
        # A < 0 is cut above 1.5, too: 1 − Φ((ln 1.5 + .045) / .3) = .0665
        (replace(GRPO, name="Dual", surrogate=DualClip(c=1.5)), 0.3, 100, 0.7757, 0.2763 + 0.0665),
    ],
)
def test_the_share_that_is_clipped(algorithm, noise, length, below_upper, below_lower):
    got = outputs(algorithm, noise=noise, length=length)
    tolerance = 6e-3 if algorithm.name == "Dual" else 3e-4  # c lies within a cell
    assert got["cut_percent"] == pytest.approx(50 * (1 - below_upper + below_lower), rel=tolerance)
    spread = noise / math.sqrt(length) if "GSPO" in algorithm.name else noise
    assert got["own_far"] == pytest.approx(nine_in_ten(-(noise**2) / 2, spread), rel=1e-9)


def by_sign(old_logp, advantages):
    return torch.where(advantages > 0, 0.1, 0.7), torch.where(advantages > 0, 1.3, 9.0)


@pytest.mark.parametrize(
    ("algorithm", "setting", "limits"),
    [
        (replace(GRPO, bounds=by_sign), {}, (0.7, 1.3)),  # the lower limit holds bad tokens, the upper one good tokens
        (DCPO, {"old_prob": 0.1}, (0.5, 2.0)),  # lower ½ as .1 ≤ 4 · .16; upper ½ + ½ √(1 + 4 · .2 / .1) = 2
    ],
)
def test_limits_may_depend_on_the_sign_and_on_the_probability(algorithm, setting, limits):
    got = outputs(algorithm, **setting)
    assert (got["lower"], got["upper"]) == pytest.approx(limits)
    assert explore_ratio(algorithm, **setting).names().holds("by_probability") == (algorithm is DCPO)


def test_the_bars_are_as_high_as_the_normal_distribution_and_half_is_cut_beyond_the_limits():
    got = outputs(noise=0.1, length=50)
    normal, edges = NormalDist(-0.005, 0.1), np.append(got["middle"] - got["width"] / 2, got["high"])
    assert all(np.isclose(edges, limit, rtol=1e-12).any() for limit in (0.8, 1.2))
    density = np.diff([normal.cdf(math.log(edge)) for edge in edges]) / got["width"]
    np.testing.assert_allclose(got["height"], density / density.max(), atol=1e-9)
    beyond = (got["middle"] < 0.8) | (got["middle"] > 1.2)  # of the tokens there, those that A moves outwards are cut
    np.testing.assert_allclose(got["height_cut"], np.where(beyond, got["height"] / 2, 0.0))
