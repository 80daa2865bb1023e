"""explore_kl's curve against closed forms and enumeration in numpy, and its picture against the curve."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rlviz.algorithms import DAPO, GRPO, PPO, PPO_PENALTY
from rlviz.pictures.kl import DISTANCES, KLPicture, _logits, explore_kl, kl_curve
from rlviz.pieces.kl import KLInLoss, KLInReward, KLToOld, k1, k2, k3, k3_plus


@pytest.mark.parametrize(("apart", "weight"), [(6.0, 0.6), (4.0, 0.3), (2.0, 0.5)])
def test_the_forward_fit_matches_moments(apart, weight):
    """min KL(target‖policy) over Gaussians: mean w(−a/2) + (1−w)(a/2), variance 1 + w(1−w)a² of two humps of width 1."""
    mean, width, _ = kl_curve(GRPO, apart=apart, weight=weight).fits.forward_at
    assert mean == pytest.approx((1 - 2 * weight) * apart / 2, abs=0.001)
    assert width == pytest.approx(math.sqrt(1 + weight * (1 - weight) * apart**2), rel=0.001)


def entropy_and_cross(apart, weight, mean):
    """Return −∫ t ln t by a fine sum, and the least −∫ t ln N(mean, s²) over s: s² = E_t[(x − mean)²], so ½ ln(2πe s²)."""
    x = np.linspace(-40, 40, 16001)
    t = sum(w * np.exp(-((x - at) ** 2) / 2) for w, at in ((weight, -apart / 2), (1 - weight, apart / 2))) / math.sqrt(
        2 * math.pi
    )
    entropy = -(t[t > 0] * np.log(t[t > 0])).sum() * (x[1] - x[0])
    middle = (1 - 2 * weight) * apart / 2
    square = 1 + weight * (1 - weight) * apart**2 + (middle - mean) ** 2
    return entropy, np.log(2 * math.pi * math.e * square) / 2


@pytest.mark.parametrize(("apart", "weight"), [(6.0, 0.6), (8.0, 0.9), (4.0, 0.3)])
def test_the_least_forward_kl_at_each_place_is_the_one_on_an_endless_line(apart, weight):
    """No policy in sight is cut off by the last position; the steps between widths cost 0.001 nats at most: ln²2 / 24²."""
    fits = kl_curve(GRPO, apart=apart, weight=weight).fits
    entropy, cross = entropy_and_cross(apart, weight, fits.mean)
    beyond = fits.forward_kl - (cross - entropy)
    in_sight = cross - entropy < 1.6
    assert in_sight.sum() > 20
    assert beyond[in_sight].min() > -1e-4 and beyond[in_sight].max() < 0.001


@pytest.mark.parametrize(
    ("apart", "weight"), [(6.0, 0.6), (4.7, 0.65), (5.3, 0.45), (5.0, 0.6), (5.1, 0.6), (3.0, 0.8)]
)
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
    mean, width, found = kl_curve(GRPO, apart=apart, weight=weight).fits.reverse_at
    assert (mean, width) == (pytest.approx(m[best], abs=0.06), pytest.approx(s[best], rel=0.015))
    assert divergence.min() - 0.002 < found < divergence.min() + 1e-6


@pytest.mark.parametrize(("weight", "place"), [(0.6, -4.0), (0.3, 4.0)])
def test_the_reverse_fit_of_far_humps_is_the_heavier_one(weight, place):
    """On one hump of weight w the target is w times the policy, so KL(policy‖target) = ln(1/w)."""
    mean, width, kl = kl_curve(GRPO, apart=8.0, weight=weight).fits.reverse_at
    assert (mean, width) == (pytest.approx(place, abs=0.005), pytest.approx(1.0, abs=0.005))
    assert kl == pytest.approx(-math.log(max(weight, 1 - weight)), abs=1e-3)


def test_of_two_equal_humps_the_reverse_fit_takes_the_left_one():
    fits = kl_curve(GRPO, apart=8.0, weight=0.5).fits
    assert fits.reverse_at[0] == pytest.approx(-4.0, abs=0.005)
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
    # the grid misses mean and width of the fit by 1/16 and 2^(1/24) at most; to a hump of width 1: 1/16²/2 + ln²2/24² nats
    for least, fit in ((fits.forward_kl.min(), forward), (fits.reverse_kl.min(), reverse)):
        assert fit <= least < fit + 0.004


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


def a_number(logp, ref_logp):
    return k3(logp, ref_logp).detach()


def k3_of_the_ratio(logp, ratio):
    return 0.5 * (ratio - 1 - ratio.log())


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
        (KLToOld(0.3, k1), "forward"),
        (KLToOld(0.3, k2), "neither"),
        (KLToOld(0.3, k3), "forward"),
        # one's own: sign(x) is no logarithm; a number has no gradient; k3 of π/old, weight and all, is KLToOld's
        (KLInLoss(0.3, absolute), "neither"),
        (a_number, "nowhere"),
        (k3_of_the_ratio, "forward"),
        # Σ π (∇k3 + k3 ∇ln π) = ∇ Σ π k3, all of the gradient
        (k3_by_ratio, "reverse"),
    ],
)
def test_a_term_pulls_the_way_of_its_gradient(kl, pull):
    curve = kl_curve(replace(PPO, kl=kl) if isinstance(kl, KLInReward) else replace(GRPO, kl=kl))
    assert curve.pull == pull
    ring = KLPicture(curve).fits.ring
    at = {"forward": curve.fits.forward_at, "reverse": curve.fits.reverse_at}.get(pull)
    expected = ([], []) if at is None else ([at[0]], [at[2]])
    assert (list(ring.get_xdata()), list(ring.get_ydata())) == expected
    picture = KLPicture(curve)
    words = f"{picture.conclusion(curve)} {picture.words(curve)}"
    assert ("pulls nowhere" in words) == (pull == "nowhere")
    assert ("neither direction" in words) == (pull == "neither")
    for way in ("forward", "reverse"):
        assert (f"pulls towards the {way} fit" in words) == (pull == way)


def test_without_a_term_there_is_no_pull():
    assert kl_curve(DAPO).pull is None


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
    seen = np.abs(curve.fits.position) <= 8.25
    for line, x, y in (
        (forward, curve.fits.position[seen], curve.fits.forward[seen]),
        (reverse, curve.fits.position[seen], curve.fits.reverse[seen]),
        (forward_kl, curve.fits.mean, curve.fits.forward_kl),
        (reverse_kl, curve.fits.mean, curve.fits.reverse_kl),
    ):
        np.testing.assert_array_equal(line.get_xdata(), x)
        np.testing.assert_array_equal(line.get_ydata(), y)
    values, edges, _ = view.target.get_data()
    np.testing.assert_array_equal(values, curve.fits.target[seen])
    np.testing.assert_allclose((edges[1:] + edges[:-1]) / 2, curve.fits.position[seen])
    # in the loss E[∇k3] = ∇KL(reference‖policy), and KL(old‖policy) is forward as well; k1 in the reward is reverse
    for algorithm, place in ((GRPO, -0.6), (PPO_PENALTY, -0.6), (PPO, -2.99)):
        assert KLPicture(kl_curve(algorithm)).fits.ring.get_xdata()[0] == pytest.approx(place, abs=0.005)
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
    # ln(1/0.6) = 0.51; a forward width of √(1 + 0.24 · 64) = 4.04
    assert explorer.conclusion == (
        "GRPO's KL term pulls towards the forward fit: the forward fit covers both humps (width 4.0), the reverse fit takes one "
        "(width 1.0)."
    )
    assert "avoids what the target avoids (mode seeking): middle −4.0, KL 0.51 nats" in explorer.details
    assert (
        "GRPO's term (0.04 · k3 to reference, in the loss), averaged over the policy's own tokens, has the gradient of "
        "KL(reference‖policy), though its value estimates KL(policy‖reference), the reverse direction."
    ) in explorer.details
    explorer.controls["apart"].value = 6.0
    # −0.2 · 3 = −0.6, √(1 + 0.24 · 36) = 3.105
    assert "the forward fit covers both humps (width 3.1)" in explorer.conclusion
    assert "(mode covering): middle −0.6, KL" in explorer.details
    explorer.controls["weight"].value = 0.5
    explorer.controls["apart"].value = 2.3  # √(1 + 1.15²) = 1.52; the reverse width is below it, in the middle of both
    assert "both fits cover both humps (widths 1.5 forward and 1." in explorer.conclusion
    explorer.controls["apart"].value = 4.0
    assert "both fits cover both humps" in explorer.conclusion and "(the valley is still shallow)" in explorer.details
    explorer.controls["apart"].value = 0.0
    assert explorer.conclusion.endswith("the target has one hump, and both fits lie on it (widths 1.0 and 1.0).")
    assert explorer.details.startswith("Forward: middle 0.0, KL 0.00 nats. Reverse: middle 0.0, KL 0.00 nats.")
    explorer.controls["algorithm"].value = DAPO
    assert explorer.conclusion.startswith("DAPO has no KL term: the target")
    explorer.controls["algorithm"].value = PPO_PENALTY
    assert "averaged over the old policy's tokens, has the gradient of KL(old‖policy)." in explorer.caption
    assert "though" not in explorer.caption  # value and gradient agree
    explorer.controls["algorithm"].value = PPO
    assert explorer.conclusion.startswith("PPO's KL term pulls towards the reverse fit: ")
    assert "has the gradient of KL(policy‖reference)." in explorer.caption


@pytest.mark.parametrize("algorithm", [GRPO, PPO, DAPO, PPO_PENALTY], ids=lambda a: a.name)
@pytest.mark.parametrize("setting", [{}, {"weight": 0.5, "apart": 4.0}, {"show": "value"}, {"show": "gradient"}])
def test_what_is_to_be_seen_fits_in_a_sentence(algorithm, setting):
    curve = kl_curve(algorithm, **setting)
    picture = KLPicture(curve)
    said = picture.conclusion(curve)
    assert 40 < len(said) <= 160 and said.endswith(".")
    assert len(said) + len(picture.words(curve)) < 900 and algorithm.name in said + picture.words(curve)


def test_words_of_the_estimators():
    explorer = explore_kl(show="value", distance=1.0)
    policy, still = policies(1.0)
    exact = kl(policy, still)
    said = f"At KL(policy‖reference) = {exact:.2g} nats per token the average of k1, k3 and k3+ is exact; that of k2 is"
    assert explorer.conclusion.startswith(said)
    spread = math.sqrt((policy * (np.log(policy / still) - exact) ** 2).sum())
    assert f"One token's estimate has a standard deviation of {spread:.2g} (k1)" in explorer.caption
    assert f"0.04 · k3 to reference, in the loss: {0.04 * exact:.2g} per token on average" in explorer.caption
    explorer.controls["show"].value = "gradient"
    assert "on average k2 and k3+ have its gradient; the error is 100% for k1 and 41% for k3." in explorer.caption
    explorer.controls["algorithm"].value = PPO
    assert "on average k1 has its gradient" in explorer.caption
    explorer.controls["algorithm"].value = PPO_PENALTY
    assert f"At KL(old‖policy) = {kl(still, policy):.2g} nats per token" in explorer.caption
    assert "on average k1 and k3 have its gradient" in explorer.caption
    assert "k3+ has its gradient from k2" in explorer.caption  # its value is right on average, its gradient is not


def test_only_the_sliders_of_the_view_are_in_sight():
    explorer = explore_kl()
    hidden = {name: control.hidden for name, control in explorer.controls.items()}
    assert hidden == {"algorithm": False, "show": False, "apart": False, "weight": False, "distance": True}
    explorer.controls["show"].value = "value"
    assert explorer.controls["apart"].hidden and not explorer.controls["distance"].hidden


def asked(explorer, handle, place):
    """Return the values of the controls after this handle was dragged to a place."""
    explorer.asked = {"turn": explorer.answered + 1, "handle": handle, "place": place}
    return {name: control.value for name, control in explorer.controls.items()}


def test_humps_are_dragged_apart_and_up():
    explorer = explore_kl()
    assert [handle["at"] for handle in explorer.handles[:2]] == [-3.0, 3.0]
    assert asked(explorer, 1, 2.0)["apart"] == 4.0  # it stands at half of the distance
    assert asked(explorer, 0, -2.5)["apart"] == 5.0
    assert asked(explorer, 0, 1.0)["apart"] == 0.0  # past the other hump
    assert explorer.handles[4]["hidden"]  # one hump: its height says nothing of a weight
    assert asked(explorer, 1, 0.5)["apart"] == 1.0 and not explorer.handles[4]["hidden"]
    assert asked(explorer, 1, 0.45)["apart"] == 0.9 and explorer.handles[4]["hidden"]
    asked(explorer, 1, 2.5)
    # positions are a quarter apart; the left hump's own height is w φ(0) / 4, and the right one's tail there (1 − w) φ(5) / 4
    for place in (0.03, 0.06):
        weight = (4 * place * math.sqrt(2 * math.pi) - math.exp(-12.5)) / (1 - math.exp(-12.5))
        assert asked(explorer, 4, place)["weight"] == pytest.approx(weight, abs=0.0251)
        assert explorer.handles[4]["at"] == pytest.approx(place, abs=0.025 * 0.1)
    assert asked(explorer, 4, 1.0)["weight"] == 0.9
    view = explorer.picture.fits
    assert [line.get_xdata()[0] for line in view.middles] == [-2.5, 2.5]
    np.testing.assert_allclose(view.middles[0].get_ydata()[1], view.height.get_ydata()[0])


@pytest.mark.parametrize("algorithm", [GRPO, PPO_PENALTY], ids=lambda a: a.name)
def test_the_distance_is_dragged_by_the_exact_kl(algorithm):
    explorer = explore_kl(algorithm, show="gradient")
    assert [handle["hidden"] for handle in explorer.handles] == [True, True, False, False, True]
    for handle, distance in ((2, 0.3), (3, 1.45)):
        pair = policies(distance)
        exact = kl(*pair) if algorithm is GRPO else kl(*pair[::-1])
        assert asked(explorer, handle, exact)["distance"] == pytest.approx(distance)
        assert explorer.handles[handle]["at"] == pytest.approx(exact)
