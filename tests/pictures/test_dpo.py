"""explore_dpo: pulls by hand, the run against closed forms and a scalar recursion."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rlviz.algorithms import DAPO, DPO, DPO_LINEAR, GRPO, GRPO_PROCESS, GSPO, PASS_AT_K, PPO
from rlviz.pictures.dpo import explore_dpo, learns_from_a_pair
from rlviz.pieces.preference import SigmoidPreference

pytestmark = pytest.mark.usefixtures("untraced")
MINE = replace(DPO, name="Mine", pair_loss=SigmoidPreference(label_smoothing=0.2))


def outputs(*arguments, **setting):
    """Return a function of names: an array of the picture, or its number."""
    names = explore_dpo(*arguments, **setting).names()
    return lambda name: names.array(name) if len(names.array(name)) > 1 else names.one(name)


@pytest.mark.parametrize("beta", [0.1, 0.5])
def test_sigmoid_and_linear_by_hand(beta):
    # L = ln(1 + e^−βm): ∂L/∂m = −β σ(−βm), at m = 0 −β/2
    curve = outputs(beta=beta)
    np.testing.assert_allclose(curve("pull"), 2 / (1 + np.exp(beta * curve("margin"))), rtol=1e-9)
    np.testing.assert_array_equal(curve("sigmoid_pull"), curve("pull"))
    np.testing.assert_allclose(curve("linear_pull"), 1.0)
    assert curve("half") == pytest.approx(math.log(3) / beta, rel=1e-3)  # 2 σ(−βm) = ½ at βm = ln 3


def test_the_margins_reach_to_where_the_pull_has_faded():
    # 2 σ(−x) ≤ .05 from x = ln 39 = 3.66 on: at β .1, .7 and .005 from 36.6, 5.23 and 733 nats on; the next of 1, 2, 5, 10, …
    # nats, 500 at most
    reaches = [outputs(beta=beta)("reach") for beta in (0.1, 0.7, 0.005)]
    assert [*reaches, outputs(DPO_LINEAR)("reach")] == [50, 10, 500, 50]  # linear never lets go: as far as the sigmoid
    # with labels flipped at .2 the pull crosses 0 at βm = ln 4: margin 13.86
    curve = outputs(MINE)
    assert curve("margin")[curve("pull") > 0].max() == pytest.approx(10 * math.log(4), abs=0.2) and curve("reach") == 20


def test_a_clip_by_hand():
    # J ∝ A e^(m/2) − A e^(−m/2), slope ∝ cosh(m/2); the chosen one is cut above 2 ln 1.2 = .365, the rejected one above
    # −2 ln .8 = .446; between the two half of e^(−m/2) is left
    curve = outputs(GRPO)
    m, pull = curve("margin"), curve("pull")
    first, last = 2 * math.log(1.2), -2 * math.log(0.8)
    np.testing.assert_allclose(pull[m < first], np.cosh(m / 2)[m < first], rtol=1e-9)
    between = (m > first) & (m < last)
    np.testing.assert_allclose(pull[between], np.exp(-m / 2)[between] / 2, rtol=1e-9)
    assert between.any() and not pull[m > last].any() and curve("reach") == pytest.approx(0.5)


@pytest.mark.parametrize(("shared", "step"), [(0.0, 40), (0.7, 5)])
def test_the_linear_run_in_closed_form(shared, step):
    # the gradient of −βm by θ is −β d with d = φ_chosen − φ_rejected = (1 − s)(1, −1), always: after n steps
    # θ = n · lr · β d, lr = pace / 2β, so logits move by n · pace/2 · φ·d: (1 − s)(1 − 2s) and −(1 − s)
    pace, n = 0.8, np.arange(41)
    moved = np.stack([(1 - shared) * (1 - 2 * shared) * n, -(1 - shared) * n, 0 * n]) * pace / 2
    weights = np.array([[0.2], [0.3], [0.5]]) * np.exp(moved)
    logp = np.log(weights / weights.sum(0))
    curve = outputs(DPO_LINEAR, shared=shared, pace=pace, step=step)
    for expected, name in zip(logp, ("chosen", "rejected", "others"), strict=True):
        drawn = np.where(n <= step, expected, np.nan)  # what comes after the step chosen is not drawn
        np.testing.assert_allclose(curve(f"{name}_logp"), drawn, rtol=1e-9, atol=1e-12)
        assert curve(f"{name}_now") == pytest.approx(expected[step], rel=1e-9)
    probs = curve("chosen_prob_now"), curve("rejected_prob_now")
    assert probs == pytest.approx(np.exp(logp[:2, step])) and curve("chosen_from") == pytest.approx(math.log(0.2))
    assert curve("margin_now") == pytest.approx((1 - shared) ** 2 * step * pace)


def test_which_algorithms_have_a_loss_on_a_pair():
    # a critic, rewards of steps: no pair; Pass@k with k > 1 gives groups of two no advantage
    members = (DPO, MINE, GRPO, DAPO, GSPO, PPO, GRPO_PROCESS, PASS_AT_K)
    assert [learns_from_a_pair(a) for a in members] == [True] * 5 + [False] * 3


def test_the_conclusion_is_true():
    # logits move by 0 and −.5 · 40 · .4 = −8: margin 8; all others weigh .5, so .2 / (.7 + .3 e^−8) and .3 e^−8 / (…)
    assert explore_dpo(DPO_LINEAR, shared=0.5, pace=0.8).conclusion == (
        "The chosen response goes from probability 0.2 to 0.29 by step 40 of DPO (linear), the rejected one from 0.3 to "
        "0.00014; their margin is 8 nats."
    )
    # alike by ¾, after n steps logits move by −n/80 and −n/40 at pace .2: .2 e^−x / (.5 + .2 e^−x + .3 e^−2x) = .1978 at n = 4
    falls = explore_dpo(DPO_LINEAR, shared=0.75, pace=0.2, step=4).conclusion
    assert falls.startswith("No: the chosen response falls from probability 0.2 to 0.198 by step 4")
