"""explore_kl's curve against closed forms and enumeration in numpy, and its picture against the curve."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rlviz.algorithms import DAPO, GRPO, PPO, PPO_PENALTY
from rlviz.curves import kl_curve
from rlviz.curves.kl import DISTANCES, _logits
from rlviz.pieces.kl import KLInLoss
from rlviz.plots.kl import KLPicture
from rlviz.widgets import explore_kl


@pytest.mark.parametrize(("apart", "weight"), [(6.0, 0.6), (4.0, 0.3), (2.0, 0.5)])
def test_the_forward_fit_matches_moments(apart, weight):
    """min KL(target‖policy) over Gaussians: mean w(−a/2) + (1−w)(a/2), variance 1 + w(1−w)a² of two humps of width 1."""
    mean, width, _ = kl_curve(GRPO, apart=apart, weight=weight).fits.forward_at
    assert mean == pytest.approx((1 - 2 * weight) * apart / 2, abs=0.051)  # half a step of the grid of means
    assert width == pytest.approx(math.sqrt(1 + weight * (1 - weight) * apart**2), rel=0.036)  # steps of 2^0.1


@pytest.mark.parametrize(("weight", "place"), [(0.6, -4.0), (0.3, 4.0)])
def test_the_reverse_fit_of_far_humps_is_the_heavier_one(weight, place):
    """On one hump of weight w the target is w times the policy, so KL(policy‖target) = ln(1/w)."""
    mean, width, kl = kl_curve(GRPO, apart=8.0, weight=weight).fits.reverse_at
    assert (mean, width) == (pytest.approx(place), pytest.approx(1.0))
    assert kl == pytest.approx(-math.log(max(weight, 1 - weight)), abs=1e-3)


def test_of_two_equal_humps_the_reverse_fit_takes_the_left_one():
    fits = kl_curve(GRPO, apart=8.0, weight=0.5).fits
    assert fits.reverse_at[0] == pytest.approx(-4.0)
    assert fits.reverse_at[2] == pytest.approx(math.log(2), abs=1e-3)


def test_one_hump_is_fitted_exactly():
    fits = kl_curve(GRPO, apart=0.0).fits
    assert fits.humps == 1
    for probs, at in ((fits.forward, fits.forward_at), (fits.reverse, fits.reverse_at)):
        np.testing.assert_allclose(probs, fits.target, rtol=1e-12)
        assert at == (pytest.approx(0.0), pytest.approx(1.0), pytest.approx(0.0, abs=1e-12))


def test_the_divergences_are_those_of_the_drawn_policies():
    fits = kl_curve(GRPO, apart=5.0, weight=0.7).fits
    assert fits.humps == 2
    for probs in (fits.target, fits.forward, fits.reverse):
        assert probs.sum() == pytest.approx(1.0)
    forward = sum(t * math.log(t / p) for t, p in zip(fits.target, fits.forward, strict=True))
    reverse = sum(p * math.log(p / t) for t, p in zip(fits.target, fits.reverse, strict=True))
    assert (fits.forward_at[2], fits.reverse_at[2]) == (pytest.approx(forward), pytest.approx(reverse))
    assert (fits.forward_kl.min(), fits.reverse_kl.min()) == (pytest.approx(forward), pytest.approx(reverse))


def policies(distance):
    """Return the probabilities of the policy that moves and of the one that stands still."""
    start, shift = (row.numpy() for row in _logits())
    moved = np.exp(start + distance * shift)
    still = np.exp(start)
    return moved / moved.sum(), still / still.sum()


def kl_slope(value, distance):
    """Return value(policy, still) of the enumerated distributions, and its gradient by the logits from central differences."""
    start, shift = (row.numpy() for row in _logits())
    still = policies(distance)[1]

    def at(logits):
        policy = np.exp(logits)
        return value(policy / policy.sum(), still)

    logits, step = start + distance * shift, 1e-5
    return at(logits), np.array(
        [(at(logits + step * e) - at(logits - step * e)) / (2 * step) for e in np.eye(len(start))]
    )


def kl(p, q):
    return (p * np.log(p / q)).sum()


def last(algorithm, distance):
    """Return name → (value, value_noise, gradient_error, gradient_noise) at the distance picked out, and the exact KL."""
    estimates = kl_curve(algorithm, distance=distance).estimates
    rows = (estimates.value, estimates.value_noise, estimates.gradient_error, estimates.gradient_noise)
    return {name: [row[i, -1] for row in rows] for i, name in enumerate(estimates.names)}, estimates.kl[-1]


@pytest.mark.parametrize("distance", [0.2, 1.0, 1.7])
def test_values_by_enumeration(distance):
    """Mean and std under the policy of ln(π/ref), its square / 2, and ref/π − 1 + ln(π/ref)."""
    policy, still = policies(distance)
    x = np.log(still / policy)
    found, exact = last(GRPO, distance)
    assert exact == pytest.approx(kl(policy, still))
    for name, values in (("k1", -x), ("k2", x**2 / 2), ("k3", np.exp(x) - 1 - x), ("k3+", np.exp(x) - 1 - x)):
        mean = (policy * values).sum()
        assert found[name][0] == pytest.approx(mean / exact)
        assert found[name][1] == pytest.approx(math.sqrt((policy * (values - mean) ** 2).sum()) / exact)
    assert found["k1"][0] == pytest.approx(1.0) and found["k3"][0] == pytest.approx(1.0)
    assert abs(found["k2"][0] - 1) > 1e-3


@pytest.mark.parametrize("distance", [0.2, 1.0, 1.7])
def test_gradients_in_the_loss(distance):
    """E_π[∇k1] = 0. E_π[∇k2] = Σ π ln(π/ref) ∇ln π = ∇KL. E_π[∇k3] = π − ref, the gradient of KL(ref‖π)."""
    policy, still = policies(distance)
    _, gradient = kl_slope(kl, distance)
    length = np.linalg.norm(gradient)
    found, _ = last(GRPO, distance)
    assert [found[name][2] for name in ("k1", "k2", "k3+")] == [
        pytest.approx(1.0),
        pytest.approx(0.0, abs=1e-9),
        pytest.approx(0.0, abs=1e-9),
    ]
    _, forward = kl_slope(lambda p, q: kl(q, p), distance)
    np.testing.assert_allclose(forward, policy - still, atol=1e-9)
    assert found["k3"][2] == pytest.approx(np.linalg.norm(forward - gradient) / length, rel=1e-6)
    # one token of k1 gives e_a − π, whose mean is 0 and whose mean square is Σ π_a (1 − 2 π_a + Σ π²) = 1 − Σ π²
    assert found["k1"][3] == pytest.approx(math.sqrt(1 - (policy**2).sum()) / length, rel=1e-6)
    vectors = -np.log(still / policy)[:, None] * (np.eye(len(policy)) - policy)  # of k2, one token a row
    noise = math.sqrt((policy * ((vectors - gradient) ** 2).sum(1)).sum())
    assert found["k2"][3] == pytest.approx(noise / length, rel=1e-6)


@pytest.mark.parametrize("distance", [0.2, 1.0, 1.7])
def test_gradients_in_the_reward(distance):
    """E_π[k ∇ln π] = ∇E_π[k] − E_π[∇k]: of k1 all of ∇KL; of k3 and k3+ what π − ref leaves of it."""
    policy, still = policies(distance)
    _, gradient = kl_slope(kl, distance)
    found, _ = last(PPO, distance)
    assert found["k1"][2] == pytest.approx(0.0, abs=1e-9)
    expected = np.linalg.norm(policy - still) / np.linalg.norm(gradient)
    assert (found["k3"][2], found["k3+"][2]) == (pytest.approx(expected, rel=1e-6), pytest.approx(expected, rel=1e-6))
    half = (policy * np.log(policy / still) ** 2 / 2)[:, None] * (np.eye(len(policy)) - policy)
    assert found["k2"][2] == pytest.approx(np.linalg.norm(half.sum(0) - gradient) / np.linalg.norm(gradient), rel=1e-6)


@pytest.mark.parametrize("distance", [0.2, 1.0, 1.7])
def test_gradients_towards_the_old_policy(distance):
    """Tokens from a policy that stands still: the mean of a right value has the right gradient, so k1 and k3; k2's is not."""
    policy, old = policies(distance)
    exact, gradient = kl_slope(lambda p, q: kl(q, p), distance)
    found, shown = last(PPO_PENALTY, distance)
    assert shown == pytest.approx(exact)
    assert (found["k1"][2], found["k3"][2]) == (pytest.approx(0.0, abs=1e-9), pytest.approx(0.0, abs=1e-9))
    k2 = (old * np.log(policy / old))[:, None] * (np.eye(len(policy)) - policy)
    expected = np.linalg.norm(k2.sum(0) - gradient) / np.linalg.norm(gradient)
    assert (found["k2"][2], found["k3+"][2]) == (pytest.approx(expected, rel=1e-6), pytest.approx(expected, rel=1e-6))


def test_the_last_column_is_the_distance_picked_out():
    estimates = kl_curve(GRPO, distance=float(DISTANCES[10])).estimates
    for rows in (estimates.value, estimates.value_noise, estimates.gradient_error, estimates.gradient_noise):
        np.testing.assert_allclose(rows[:, 10], rows[:, -1], rtol=1e-9, atol=1e-12)
    assert estimates.kl[10] == pytest.approx(estimates.kl[-1])


def test_each_algorithm_has_its_estimator_ringed():
    found = [(c.estimator, c.enters, c.beta) for c in map(kl_curve, (GRPO, PPO, PPO_PENALTY, DAPO))]
    assert found == [(2, "loss", 0.04), (0, "reward", 0.02), (2, "old", 0.01), (None, "loss", None)]


def absolute(logp, ref_logp):
    return (logp - ref_logp).abs()


def a_tenth(logp, ref_logp):
    return (logp - ref_logp).abs() / 10


def test_an_estimator_of_one_s_own_is_the_fifth():
    curve = kl_curve(replace(GRPO, name="Mine", kl=KLInLoss(beta=0.3, estimator=absolute)))
    policy, still = policies(1.0)
    mean = (policy * np.abs(np.log(policy / still))).sum()
    assert (curve.estimates.names[-1], curve.estimator) == ("its own", 4)
    assert curve.estimates.value[4, -1] == pytest.approx(mean / kl(policy, still))  # beta aside
    bare = kl_curve(replace(GRPO, kl=a_tenth))  # a rule without a beta counts as it is
    assert bare.estimates.value[4, -1] == pytest.approx(mean / 10 / kl(policy, still))
    assert "a tenth" in KLPicture(replace(bare, show="value")).words(replace(bare, show="value"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"show": "all"},
        {"apart": -1.0},
        {"apart": 10.5},
        {"weight": 1.1},
        {"weight": -0.1},
        {"distance": 0.0},
        {"distance": float("inf")},
    ],
)
def test_refusals_name_the_parameter(wrong):
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))} must be"):
        kl_curve(GRPO, **wrong)


def test_the_picture_of_the_fits_is_the_curve():
    curve = kl_curve(GRPO, apart=5.0, weight=0.3)
    view = KLPicture(curve).fits
    (forward, forward_kl), (reverse, reverse_kl) = view.lines
    for line, x, y in (
        (forward, curve.fits.position, curve.fits.forward),
        (reverse, curve.fits.position, curve.fits.reverse),
        (forward_kl, curve.fits.mean, curve.fits.forward_kl),
        (reverse_kl, curve.fits.mean, curve.fits.reverse_kl),
    ):
        np.testing.assert_array_equal(line.get_xdata(), x)
        np.testing.assert_array_equal(line.get_ydata(), y)
    np.testing.assert_array_equal(view.target.get_data().values, curve.fits.target)
    assert (view.ring.get_xdata()[0], view.ring.get_ydata()[0]) == (curve.fits.reverse_at[0], curve.fits.reverse_at[2])
    to_old = KLPicture(kl_curve(PPO_PENALTY)).fits.ring
    assert to_old.get_xdata()[0] == pytest.approx(-0.6)  # KL(old‖policy) is the forward one
    assert len(KLPicture(kl_curve(DAPO)).fits.ring.get_xdata()) == 0


@pytest.mark.parametrize("show", ["value", "gradient"])
def test_the_picture_of_the_estimators_is_the_curve(show):
    curve = kl_curve(GRPO, show=show, distance=0.7)
    view, e = KLPicture(curve).estimates, curve.estimates
    sides = (e.value, e.value_noise) if show == "value" else (e.gradient_error, e.gradient_noise)
    for lines, marks, ring, rows in zip(view.lines, view.marks, view.rings, sides, strict=True):
        for line, mark, row in zip(lines, marks, rows, strict=False):
            np.testing.assert_array_equal(line.get_ydata(), row[:-1])
            assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (e.kl[-1], row[-1])
        assert ring.get_ydata()[0] == rows[2, -1]  # k3's
        assert len(lines[4].get_xdata()) == 0


def test_words_of_the_fits():
    explorer = explore_kl(apart=8.0)
    # ln(1/0.6) = 0.51; mean of the target −0.8, which the grid meets, or its neighbour
    assert (
        "takes one hump and leaves the other (mode seeking): middle −4.0, width 1.0, KL 0.51 nats" in explorer.caption
    )
    assert "GRPO takes KL(policy‖reference), the reverse direction" in explorer.caption
    explorer.controls["apart"].slider.value = 4.0
    assert "The reverse fit still covers both humps" in explorer.caption
    explorer.controls["apart"].slider.value = 0.0
    assert (
        "one hump, and the two fits hardly differ: forward at 0.0, 1.0 wide, reverse at 0.0, 1.0 wide"
        in explorer.caption
    )
    explorer.controls["algorithm"].box.value = DAPO
    assert "DAPO has no KL term" in explorer.caption
    explorer.controls["algorithm"].box.value = PPO_PENALTY
    assert "PPO-Penalty takes KL(old‖policy), the forward direction" in explorer.caption


def test_words_of_the_estimators():
    explorer = explore_kl(show="value", distance=1.0)
    policy, still = policies(1.0)
    exact = kl(policy, still)
    assert f"At an exact KL of {exact:.2g} nats the average of k1, k3 and k3+ is exact; k2's is" in explorer.caption
    assert f"0.04 · k3 to reference, in the loss: {0.04 * exact:.2g} on average" in explorer.caption
    explorer.controls["show"].box.value = "gradient"
    assert (
        "k2 and k3+ on average have the gradient of the KL; k1 misses it by 100% and k3 misses it by 41%"
        in explorer.caption
    )
    explorer.controls["algorithm"].box.value = PPO
    assert "k1 on average has the gradient of the KL" in explorer.caption
    explorer.controls["algorithm"].box.value = PPO_PENALTY
    assert "k1 and k3 on average have the gradient of the KL" in explorer.caption


def test_only_the_sliders_of_the_view_are_in_sight():
    explorer = explore_kl()
    hidden = {name: control.hidden for name, control in explorer.controls.items()}
    assert hidden == {"algorithm": False, "show": False, "apart": False, "weight": False, "distance": True}
    explorer.controls["show"].box.value = "value"
    assert explorer.controls["apart"].hidden and not explorer.controls["distance"].hidden
