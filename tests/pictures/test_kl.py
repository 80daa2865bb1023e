"""explore_kl's numbers against closed forms and enumeration in numpy: fits, estimators, which way a term pulls."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rlviz.algorithms import DAPO, GRPO, PPO, PPO_PENALTY
from rlviz.pictures.kl import explore_kl, kl_curve, logits
from rlviz.pieces.kl import KLInLoss, KLInReward, KLToOld, k1, k2, k3, k3_plus

pytestmark = pytest.mark.usefixtures("untraced")


def at(way, **setting):
    names = kl_curve(GRPO, **setting).names
    return [names.one(f"{way}_{what}") for what in ("mean", "width", "least")]


@pytest.mark.parametrize(("apart", "weight"), [(6.0, 0.6), (4.0, 0.3), (2.0, 0.5)])
def test_the_forward_fit_matches_moments(apart, weight):
    """min KL(target‖policy) over Gaussians: mean w(−a/2) + (1−w)(a/2), variance 1 + w(1−w)a² of two humps of width 1."""
    mean, width, _ = at("forward", apart=apart, weight=weight)
    assert mean == pytest.approx((1 - 2 * weight) * apart / 2, abs=0.001)
    assert width == pytest.approx(math.sqrt(1 + weight * (1 - weight) * apart**2), rel=0.001)


@pytest.mark.parametrize(("apart", "weight"), [(6.0, 0.6), (4.7, 0.65), (5.3, 0.45), (3.0, 0.8)])
def test_no_hump_is_nearer_than_the_reverse_fit(apart, weight):
    """KL(N(m, s²)‖t) on another line, for means 0.1 and widths 1.5% apart; at (4.7, 0.65) two valleys differ by 0.001 nats."""
    x = np.linspace(-20, 20, 201)
    m, s = np.meshgrid(np.linspace(-4, 4, 81), np.geomspace(0.7, 4, 117), indexing="ij")
    p = np.exp(-((x - m[..., None]) ** 2) / 2 / s[..., None] ** 2)
    p /= p.sum(-1, keepdims=True)
    t = weight * np.exp(-((x + apart / 2) ** 2) / 2) + (1 - weight) * np.exp(-((x - apart / 2) ** 2) / 2)
    t /= t.sum()
    divergence = (p * np.log(np.maximum(p, 1e-300) / t)).sum(-1)
    best = np.unravel_index(divergence.argmin(), divergence.shape)
    mean, width, found = at("reverse", apart=apart, weight=weight)
    assert (mean, width) == (pytest.approx(m[best], abs=0.06), pytest.approx(s[best], rel=0.015))
    assert divergence.min() - 0.002 < found < divergence.min() + 1e-6


@pytest.mark.parametrize(("weight", "place"), [(0.6, -4.0), (0.5, -4.0), (0.3, 4.0)])
def test_the_reverse_fit_of_far_humps_is_the_heavier_one_of_equal_ones_the_left(weight, place):
    """On one hump of weight w the target is w times the policy, so KL(policy‖target) = ln(1/w)."""
    mean, width, kl = at("reverse", apart=8.0, weight=weight)
    assert (mean, width) == (pytest.approx(place, abs=0.005), pytest.approx(1.0, abs=0.005))
    assert kl == pytest.approx(-math.log(max(weight, 1 - weight)), abs=1e-3)


def policies(distance):
    """Return the probabilities of the policy that moves and of the one that stands still, and the former's logits."""
    start, shift = ((row - row.mean()) / row.std(ddof=1) for row in logits().numpy())
    moved, still = np.exp(start + distance * shift), np.exp(start)
    return moved / moved.sum(), still / still.sum()


def kl(p, q):
    return (p * np.log(p / q)).sum()


def mean_slope(probs, slopes, policy):
    """Return Σ_a probs_a slope_a ∇log π_a by the logits, whose ∇log π_a is e_a − π."""
    return ((probs * slopes)[:, None] * (np.eye(len(policy)) - policy)).sum(0)


def last(algorithm, measure, distance):
    estimates = kl_curve(algorithm, distance=distance).estimates
    return dict(zip(estimates.names, getattr(estimates, measure)[:, -1], strict=True)), estimates.kl[-1]


@pytest.mark.parametrize("distance", [0.2, 1.7])
def test_values_by_enumeration(distance):
    """Mean and std under the policy of ln(π/ref), its square / 2, and ref/π − 1 + ln(π/ref)."""
    policy, still = policies(distance)
    x = np.log(still / policy)
    value, exact = last(GRPO, "value", distance)
    noise, _ = last(GRPO, "value_noise", distance)
    assert exact == pytest.approx(kl(policy, still))
    for name, values in (("k1", -x), ("k2", x**2 / 2), ("k3", np.exp(x) - 1 - x), ("k3+", np.exp(x) - 1 - x)):
        mean = (policy * values).sum()
        assert value[name] == pytest.approx(mean / exact)
        assert noise[name] == pytest.approx(math.sqrt((policy * (values - mean) ** 2).sum()) / exact)


@pytest.mark.parametrize("distance", [0.2, 1.7])
@pytest.mark.parametrize("algorithm", [GRPO, PPO, PPO_PENALTY], ids=lambda a: a.name)
def test_gradients_by_enumeration(algorithm, distance):
    """Loss: slopes of k by log π. Reward: values, which weigh ∇log π. Old: tokens from the old policy; the KL is KL(old‖π)."""
    policy, still = policies(distance)
    x = np.log(still / policy)  # of KL(π‖still); of KL(old‖π) it is log π − log old, the other sign
    kl_slope = mean_slope(policy, -x, policy)  # Σ π ln(π/ref) ∇ln π
    sampled = policy
    if algorithm is PPO_PENALTY:
        sampled, kl_slope = still, policy - still  # −Σ old ∇ln π
        slopes = {"k1": -np.ones(20), "k2": -x, "k3": policy / still - 1, "k3+": -x}
    elif algorithm is PPO:
        k3_ = np.exp(x) - 1 - x
        slopes = {"k1": -x, "k2": x**2 / 2, "k3": k3_, "k3+": k3_}
    else:
        slopes = {"k1": np.ones(20), "k2": -x, "k3": 1 - np.exp(x), "k3+": -x}
    error, _ = last(algorithm, "gradient_error", distance)
    noise, _ = last(algorithm, "gradient_noise", distance)
    length = np.linalg.norm(kl_slope)
    for name, slope in slopes.items():
        mean = mean_slope(sampled, slope, policy)
        each = slope[:, None] * (np.eye(20) - policy)  # one token a row
        assert error[name] == pytest.approx(np.linalg.norm(mean - kl_slope) / length, rel=1e-6, abs=1e-9)
        spread = math.sqrt((sampled * ((each - mean) ** 2).sum(1)).sum())
        assert noise[name] == pytest.approx(spread / length, rel=1e-6)


def absolute(logp, ref_logp):
    return (logp - ref_logp).abs()


def a_number(logp, ref_logp):
    return k3(logp, ref_logp).detach()


def k3_by_ratio(logp, ref_logp, ratio):
    return 0.1 * ratio * k3(logp, ref_logp)


@pytest.mark.parametrize(
    ("kl", "pull"),
    [
        # tokens from π: E[∇k1] = 0, E[∇k2] = Σ π ln(π/ref) ∇ln π = ∇KL(π‖ref), E[∇k3] = −Σ ref ∇ln π = ∇KL(ref‖π)
        (KLInLoss(0.3, k1), "nowhere"),
        (KLInLoss(0.3, k2), "reverse"),
        (KLInLoss(0.3, k3), "forward"),
        (KLInLoss(0.3, k3_plus), "reverse"),
        # E[k ∇ln π]: Σ π ln(π/ref) ∇ln π for k1; for k3 what is left of it when ∇KL(ref‖π) is taken off
        (KLInReward(0.3, k1), "reverse"),
        (KLInReward(0.3, k3), "neither"),
        # tokens from the old policy: the slope of k1 is −1, of k3 π/old − 1, so both give −Σ old ∇ln π = ∇KL(old‖π)
        (KLToOld(0.3, k3), "forward"),
        (KLToOld(0.3, k2), "neither"),
        # one's own: sign(x) is no logarithm; a number has no gradient; Σ π (∇k3 + k3 ∇ln π) = ∇ Σ π k3, all of the gradient
        (KLInLoss(0.3, absolute), "neither"),
        (a_number, "nowhere"),
        (k3_by_ratio, "reverse"),
    ],
)
def test_a_term_pulls_the_way_of_its_gradient(kl, pull):
    curve = kl_curve(replace(PPO, kl=kl) if isinstance(kl, KLInReward) else replace(GRPO, kl=kl))
    names = curve.names
    assert curve.pull == pull
    ring = [names.one("ring_mean"), names.one("ring_kl")]
    place = (
        [names.one(f"{pull}_mean"), names.one(f"{pull}_least")] if pull in ("forward", "reverse") else [math.nan] * 2
    )
    np.testing.assert_array_equal(ring, place)
    words = names.fill("{pull} {direction}")
    assert ("pulls nowhere" in words) == (pull == "nowhere") and ("neither direction" in words) == (pull == "neither")
    assert all((f"pulls towards the {way} fit" in words) == (pull == way) for way in ("forward", "reverse"))


def test_an_estimator_of_one_s_own_is_the_fifth_and_a_term_of_none_is_none():
    curve = kl_curve(replace(GRPO, name="Mine", kl=KLInLoss(beta=0.3, estimator=absolute)))
    policy, still = policies(1.0)
    mean = (policy * np.abs(np.log(policy / still))).sum()
    assert (curve.estimates.names[-1], curve.estimator, curve.beta) == ("its own", 4, 0.3)
    assert curve.estimates.value[4, -1] == pytest.approx(mean / kl(policy, still))  # beta aside
    assert curve.names.one("own_mean") == pytest.approx(0.3 * mean)
    assert (kl_curve(DAPO).pull, kl_curve(DAPO).estimator) == (None, None)


def test_the_words_are_the_numbers():
    policy, still = policies(1.0)
    exact, x = kl(policy, still), np.log(policy / still)
    k2_share = (policy * x**2 / 2).sum() / exact
    explorer = explore_kl(show="value")
    assert f"KL(policy‖reference) = {exact:.2g} nats, the average of k1, k3 and k3+ is exact" in explorer.conclusion
    assert explorer.conclusion.endswith(f"that of k2 is {k2_share - 1:.1%} too high.")
    assert f"{math.sqrt((policy * (x - exact) ** 2).sum()):.2g} (k1)" in explorer.caption
    assert f"0.04 · k3 to reference, in the loss: {0.04 * exact:.2g} per token on average" in explorer.caption
    explorer.set(show="gradient")
    off = np.linalg.norm(policy - still - mean_slope(policy, x, policy)) / np.linalg.norm(mean_slope(policy, x, policy))
    said = f"k2 and k3+ have its gradient on average; the error is 100% for k1 and {off:.0%} for k3."
    assert explorer.conclusion.endswith(said)
    explorer.set(algorithm=PPO)
    assert "k1 has its gradient on average" in explorer.conclusion
    explorer.set(algorithm=PPO_PENALTY)
    assert f"KL(old‖policy) = {kl(still, policy):.2g} nats, k1 and k3 have its gradient" in explorer.conclusion
