"""explore_kl's numbers against closed forms and enumeration in numpy: fits, estimators, which way a term pulls."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rlviz.algorithms import GRPO, PPO, PPO_PENALTY, UNBIASED_KL
from rlviz.pictures.kl import explore_kl
from rlviz.pictures.kl_estimates import policy_logits, pull_direction
from rlviz.pieces.kl import KLInLoss, KLInReward, KLToOld, k1, k2, k3

pytestmark = pytest.mark.usefixtures("untraced")


def fit(way, **setting):
    names = explore_kl(**setting).names()
    return [names.one(f"{way}_{what}") for what in ("mean", "width", "least")]


def test_the_forward_fit_matches_moments():
    """min KL(target‖policy) over Gaussians: mean w(−a/2) + (1−w)(a/2), variance 1 + w(1−w)a² of two humps of width 1."""
    apart, weight = 6.0, 0.6
    mean, width, _ = fit("forward", apart=apart, weight=weight)
    assert mean == pytest.approx((1 - 2 * weight) * apart / 2, abs=0.001)
    assert width == pytest.approx(math.sqrt(1 + weight * (1 - weight) * apart**2), rel=0.001)


def test_no_hump_is_nearer_than_the_reverse_fit():
    """KL(N(m, s²)‖t) on another line, for means 0.1 and widths 1.5% apart; at (4.7, 0.65) two valleys differ by 0.001 nats."""
    x, apart, weight = np.linspace(-20, 20, 201), 4.7, 0.65
    m, s = np.meshgrid(np.linspace(-4, 4, 81), np.geomspace(0.7, 4, 117), indexing="ij")
    p = np.exp(-((x - m[..., None]) ** 2) / 2 / s[..., None] ** 2)
    p /= p.sum(-1, keepdims=True)
    t = weight * np.exp(-((x + apart / 2) ** 2) / 2) + (1 - weight) * np.exp(-((x - apart / 2) ** 2) / 2)
    t /= t.sum()
    divergence = (p * np.log(np.maximum(p, 1e-300) / t)).sum(-1)
    best = np.unravel_index(divergence.argmin(), divergence.shape)
    mean, width, least = fit("reverse", apart=apart, weight=weight)
    assert (mean, width) == (pytest.approx(m[best], abs=0.06), pytest.approx(s[best], rel=0.015))
    assert divergence.min() - 0.002 < least < divergence.min() + 1e-6


def policies(distance):
    """Return the probabilities of the policy that moves and of the one that stands still, and log still / moving."""
    start, shift = ((row - row.mean()) / row.std(ddof=1) for row in policy_logits().numpy())
    moved, still = np.exp(start + distance * shift), np.exp(start)
    policy, still = moved / moved.sum(), still / still.sum()
    return policy, still, np.log(still / policy)


def mean_slope(probs, slopes, policy):
    """Return Σ_a probs_a slope_a ∇log π_a by the logits, whose ∇log π_a is e_a − π."""
    return ((probs * slopes)[:, None] * (np.eye(len(policy)) - policy)).sum(0)


@pytest.mark.parametrize("algorithm", [GRPO, PPO, PPO_PENALTY], ids=lambda a: a.name)
def test_estimators_by_enumeration(algorithm):
    """Mean and std of ln(π/ref), its square / 2, and ref/π − 1 + ln(π/ref); k3+ has the value of k3 and the slope of k2.

    Loss: slopes of k by log π. Reward: values, which weigh ∇log π. Old: tokens from the old policy; the KL is KL(old‖π).
    """
    names, (policy, still, x) = explore_kl(algorithm, distance=1.7).names(), policies(1.7)
    sampled, kl_slope = policy, mean_slope(policy, -x, policy)  # Σ π ln(π/ref) ∇ln π
    k3_ = np.exp(x) - 1 - x
    values = [-x, x**2 / 2, k3_, k3_]
    slopes = [np.ones(20), -x, 1 - np.exp(x), -x]
    if algorithm is PPO:
        slopes = values
    elif algorithm is PPO_PENALTY:
        sampled, kl_slope = still, policy - still  # −Σ old ∇ln π
        k3_ = np.exp(-x) - 1 + x
        values = [x, x**2 / 2, k3_, k3_]
        slopes = [-np.ones(20), -x, policy / still - 1, -x]
    exact, length = (sampled * values[0]).sum(), np.linalg.norm(kl_slope)  # k1's mean is the KL
    assert names.one("kl_at") == pytest.approx(exact)
    for i, (value, slope) in enumerate(zip(values, slopes, strict=True)):
        mean, gradient = (sampled * value).sum(), mean_slope(sampled, slope, policy)
        one_token = slope[:, None] * (np.eye(20) - policy)
        spread = math.sqrt((sampled * ((one_token - gradient) ** 2).sum(1)).sum())
        expected = {
            "value": mean / exact,
            "value_noise": math.sqrt((sampled * (value - mean) ** 2).sum()) / exact,
            "gradient_error": np.linalg.norm(gradient - kl_slope) / length,
            "gradient_noise": spread / length,
        }
        for measure, number in expected.items():
            assert names.one(f"{measure}{i}_at") == pytest.approx(number, rel=1e-6, abs=1e-9), (measure, i)


def absolute(logp, ref_logp):
    return (logp - ref_logp).abs()


def a_number(logp, ref_logp):
    return k3(logp, ref_logp).detach()


@pytest.mark.parametrize(
    ("kl", "pull"),
    [
        # tokens from π: E[∇k1] = 0, E[∇k2] = Σ π ln(π/ref) ∇ln π = ∇KL(π‖ref), E[∇k3] = −Σ ref ∇ln π = ∇KL(ref‖π)
        (KLInLoss(0.3, k1), "nowhere"),
        (KLInLoss(0.3, k2), "reverse"),
        (KLInLoss(0.3, k3), "forward"),
        # E[k ∇ln π]: Σ π ln(π/ref) ∇ln π for k1; for k3 what is left of it when ∇KL(ref‖π) is taken off
        (KLInReward(0.3, k1), "reverse"),
        (KLInReward(0.3, k3), "neither"),
        # tokens from the old policy: the slope of k1 is −1, of k3 π/old − 1, so both give −Σ old ∇ln π = ∇KL(old‖π)
        (KLToOld(0.3, k3), "forward"),
        (KLToOld(0.3, k2), "neither"),
        # one's own: sign(x) is no logarithm; a number has no gradient; Σ π (∇k3 + k3 ∇ln π) = ∇ Σ π k3, all of the gradient
        (KLInLoss(0.3, absolute), "neither"),
        (a_number, "nowhere"),
        (UNBIASED_KL.kl, "reverse"),
        (None, None),
    ],
)
def test_a_term_pulls_the_way_of_its_gradient(kl, pull):
    algorithm = replace(PPO if isinstance(kl, KLInReward) else GRPO, name="Mine", kl=kl)
    assert pull_direction(algorithm) == pull
