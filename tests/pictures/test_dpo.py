"""explore_dpo: losses and pulls by hand, the run against closed forms and a scalar recursion."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rlviz.algorithms import DAPO, DCPO, DPO, DPO_LINEAR, DR_GRPO, GRPO, GRPO_PROCESS, GSPO, PPO
from rlviz.pictures.dpo import explore_dpo, learns_from_a_pair
from rlviz.pieces.kl import KLInReward
from rlviz.pieces.preference import SigmoidPreference
from rlviz.pieces.surrogate import unclipped

pytestmark = pytest.mark.usefixtures("untraced")


def shown(*arguments, **named):
    """Return what the picture shows: a name's array, or its number."""
    names = explore_dpo(*arguments, **named).names()
    return lambda name: names.array(name) if len(names.array(name)) > 1 else names.one(name)


@pytest.mark.parametrize("beta", [0.1, 0.5])
def test_sigmoid_and_linear_by_hand(beta):
    # L = ln(1 + e^−βm): ∂L/∂m = −β σ(−βm), at m = 0 −β/2; less ln 2 and over β/2. Linear: −βm over β
    curve = shown(beta=beta)
    m = curve("margin")
    assert curve("own_slope") == pytest.approx(beta / 2) and curve("linear_slope") == pytest.approx(beta)
    np.testing.assert_allclose(curve("own_loss"), (np.log1p(np.exp(-beta * m)) - math.log(2)) / (beta / 2), atol=1e-12)
    np.testing.assert_allclose(curve("own_pull"), 2 / (1 + np.exp(beta * m)), rtol=1e-9)
    np.testing.assert_array_equal(curve("sigmoid_pull"), curve("own_pull"))
    np.testing.assert_allclose(curve("linear_loss"), -m, atol=1e-12)
    np.testing.assert_allclose(curve("linear_pull"), 1.0)
    assert curve("half") == pytest.approx(math.log(3) / beta, rel=1e-3)  # 2 σ(−βm) = ½ at βm = ln 3


def test_the_margins_reach_to_where_the_pull_has_faded():
    # 2 σ(−x) ≤ .05 from x = ln 39 = 3.66 on: at β .1, .7, .75 and .005 from 36.6, 5.23, 4.88 and 733 nats on; the next of 1, 2,
    # 5, 10, … nats, 500 at most
    reach = {beta: shown(beta=beta)("reach") for beta in (0.1, 0.7, 0.75, 0.005)}
    assert reach == pytest.approx({0.1: 50.0, 0.7: 10.0, 0.75: 5.0, 0.005: 500.0})
    assert shown(DPO_LINEAR)("reach") == 50  # never lets go: as far as the sigmoid
    assert (shown(GRPO)("reach"), shown(GSPO)("reach")) == pytest.approx((0.5, 0.001))


@pytest.mark.parametrize("algorithm", [GRPO, DR_GRPO, replace(GRPO, name="Mine", kl=KLInReward())])
def test_a_clip_by_hand(algorithm):
    # J ∝ A e^(m/2) − A e^(−m/2), slope ∝ cosh(m/2); the chosen one is cut above 2 ln 1.2 = .365, the rejected one above
    # −2 ln .8 = .446; between the two half of e^(−m/2) is left; over the slope A/2 J stops at ½ A (1.2 − .8), which is .4
    curve = shown(algorithm)
    m, pull = curve("margin"), curve("own_pull")
    first, last = 2 * math.log(1.2), -2 * math.log(0.8)
    np.testing.assert_allclose(pull[m < first], np.cosh(m / 2)[m < first], rtol=1e-9)
    between = (m > first) & (m < last)
    np.testing.assert_allclose(pull[between], np.exp(-m / 2)[between] / 2, rtol=1e-9)
    assert between.any() and not pull[m > last].any() and curve("stops_dead")
    np.testing.assert_allclose(curve("own_loss")[m > last], -0.4, rtol=1e-6)
    # rewards 1 and 0: A = ±½ / std = ±.7071 (unbiased std), undivided ±½; the loss weighs tokens ½ or, for L = 16, 1/32
    assert curve("own_slope") == pytest.approx(0.5 / 32 if algorithm is DR_GRPO else 0.5**0.5 / 2, rel=1e-5)


def test_limits_that_follow_the_old_probability():
    # DCPO at q = .2 and .3: upper ½ + ½ √5 = 1.618, lower ½: nothing is left above 2 ln 2 = 1.386
    curve = shown(DCPO)
    m, pull = curve("margin"), curve("own_pull")
    assert pull[m < 2 * math.log(1.618)].min() > 0.9 and pull[(m > 0.97) & (m < 1.38)].min() > 0.2
    assert not pull[m > 2 * math.log(2)].any()


@pytest.mark.parametrize("shared", [0.0, 0.5, 0.7, 0.95])
def test_the_linear_run_in_closed_form(shared):
    # the gradient of −βm by θ is −β d with d = φ_chosen − φ_rejected = (1 − s)(1, −1), always: after n steps
    # θ = n · lr · β d, lr = pace / 2β, so logits move by n · pace/2 · φ·d: (1 − s)(1 − 2s) and −(1 − s)
    pace, n = 0.8, np.arange(41)
    curve = shown(DPO_LINEAR, shared=shared, pace=pace)
    moved = np.stack([(1 - shared) * (1 - 2 * shared) * n, -(1 - shared) * n, 0 * n]) * pace / 2
    weights = np.array([[0.2], [0.3], [0.5]]) * np.exp(moved)
    logp = np.stack([curve(f"{name}_logp") for name in ("chosen", "rejected", "others")])
    np.testing.assert_allclose(logp, np.log(weights / weights.sum(0)), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(curve("run_margin"), 2 * (1 - shared) ** 2 * n * pace / 2, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("beta", "shared", "pace"), [(0.1, 0.7, 1.5), (0.5, 0.0, 1.0), (0.02, 0.3, 3.0)])
def test_the_sigmoid_run_as_a_recursion(beta, shared, pace):
    # m ← m + lr · β σ(−βm) · |d|² with lr = pace / β and |d|² = 2 (1 − s)²
    margins = [0.0]
    for _ in range(40):
        margins.append(margins[-1] + 2 * pace * (1 - shared) ** 2 / (1 + math.exp(beta * margins[-1])))
    got = shown(beta=beta, shared=shared, pace=pace, chosen_prob=0.1)("run_margin")
    np.testing.assert_allclose(got, margins, rtol=1e-9, atol=1e-12)


def test_a_run_under_the_clip_ends_once_both_are_past_their_limits():
    curve = shown(GRPO, shared=0.0, pace=0.1)
    ratios = np.exp(np.stack([curve(name) - curve(name)[0] for name in ("chosen_logp", "rejected_logp")]))
    first = int(((ratios[0] > 1.2) & (ratios[1] < 0.8)).argmax())
    assert 0 < first < 40 and (ratios[:, first:] == ratios[:, first : first + 1]).all()
    assert (np.diff(curve("run_margin")[: first + 1]) > 0).all()


def test_the_run_stands_at_the_step_chosen():
    # linear, nothing shared: each step moves the logits by ±pace/2 = ±.4, so the margin after 5 steps is 4 nats
    curve = shown(DPO_LINEAR, shared=0.0, pace=0.8, step=5)
    assert curve("margin_now") == pytest.approx(4.0, rel=1e-9) and curve("pull_now") == pytest.approx(1.0)
    for name in ("chosen", "rejected", "others"):
        walked, whole = curve(f"{name}_walked"), curve(f"{name}_logp")
        np.testing.assert_array_equal(walked[:6], whole[:6])
        assert np.isnan(walked[6:]).all() and curve(f"{name}_to") == whole[5]
    start, sinking = shown(step=0), [shown(step=step) for step in (1, 5, 20, 40)]
    assert start("margin_now") == 0 and start("chosen_to") == start("chosen_from")
    for before, after in zip([start, *sinking], sinking, strict=False):  # both fall, and their margin grows
        assert after("chosen_to") < before("chosen_to") and after("rejected_to") < before("rejected_to")
        assert after("margin_now") > before("margin_now")


def test_who_has_a_loss_on_a_pair():
    mine = replace(DPO, name="Mine", pair_loss=SigmoidPreference(label_smoothing=0.2))
    assert [learns_from_a_pair(a) for a in (DPO, mine, GRPO, DAPO, GSPO, PPO, GRPO_PROCESS)] == [True] * 5 + [False] * 2
    # with labels flipped at .2 the pull crosses 0 at βm = ln 4: margin 13.86
    assert shown(mine)("goal") == pytest.approx(10 * math.log(4), rel=1e-3) and shown(mine)("reach") == 20


@pytest.mark.parametrize("algorithm", [DPO, DPO_LINEAR, GRPO, GSPO, DCPO], ids=lambda a: a.name)
def test_all_lines_lie_inside_the_frame(algorithm):
    """The linear run goes down by 40 · 3/2 nats a logit, and by as many again as the chosen one takes all: past −119."""
    for setting in (
        {"chosen_prob": p, "rejected_prob": 0.02, "shared": s, "pace": 3.0} for p in (0.02, 0.48) for s in (0, 0.7)
    ):
        curve = shown(algorithm, **setting)
        for lines, low, high in (
            ([f"{r}_logp" for r in ("chosen", "rejected", "others")], "lowest", "highest"),
            *(
                ([f"{loss}_{w}" for loss in ("own", "sigmoid", "linear")], f"{w}_low", f"{w}_high")
                for w in ("loss", "pull")
            ),
        ):
            values = np.concatenate([curve(line) for line in lines])
            assert curve(low) <= values.min() and values.max() <= curve(high), (lines[0], setting)
    mine = shown(replace(GRPO, name="Mine", surrogate=unclipped))  # cosh(m/2) at 50 nats is 3.6 · 10¹⁰
    assert mine("own_pull").max() > 1e10 and mine("pull_high") == 8.8


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "DPO learns the right order, and yet by step 40 the chosen response went down from probability 0.2 to 0.017"),
        ({}, "half of it is left at a margin of 11 nats. "),
        ({"beta": 1.0, "shared": 1.0}, "the two responses are one and the same, so 40 steps leave the margin at 0."),
        # logits move by 0 and −.5 · 40 · .4 = −8: margin 8, others .5 / (.7 + .3 e^−8) = .71
        ({"algorithm": DPO_LINEAR, "shared": 0.5, "pace": 0.8},
         "Its pull never lets go of a pair, here up to a margin of 50 nats. At step 40 the margin is 8 nats. The chosen "
         "log-probability went from −1.61 to −1.25, the rejected one's from −1.20 to −8.85; all others together went from "
         "probability 0.50 to 0.71."),
        # 40 steps of 1.5 nats against 50 drawn
        ({"algorithm": DPO_LINEAR, "shared": 0.0}, "At step 40 the margin is 60 nats, more than is drawn."),
        # logits move by 40 · .75 · .7 · (.4, −1) = 8.4 and −21, log .2 e^8.4 / (.2 e^8.4 + .5) = −.0006
        ({"algorithm": DPO_LINEAR, "shared": 0.3}, "went from −1.61 to 0.00, the"),
        ({"algorithm": GRPO, "shared": 0.0},
         "GRPO: rewards 1 and 0 for two sampled responses. Its pull stops dead at a margin of 0.45 nats."),
        ({"algorithm": replace(GRPO, name="Mine", surrogate=lambda r, A, low, high: 0 * r)}, "It does not pull at margin 0."),
    ],
)  # fmt: skip
def test_words_by_hand(arguments, said):
    assert said in explore_dpo(**arguments).caption
