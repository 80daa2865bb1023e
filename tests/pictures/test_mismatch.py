"""explore_mismatch: its tokens are what two engines say, and what a correction makes of each is what the loss does."""

import math

import numpy as np
import pytest
import torch

from rlviz.algorithms import DECOUPLED_PPO, DR_GRPO, GRPO, ICE_POP, SEQUENCE_MASK, TIS
from rlviz.pictures import explore_mismatch
from rlviz.pictures.mismatch import KINDS
from rlviz.pictures.mismatch_tokens import STEPS, stored


def shown(*arguments, **keywords):
    """Return the picture's numbers, and which tokens are on show."""
    names = explore_mismatch(*arguments, **keywords).names()
    return names, names.array("there") != 0


def test_a_weight_is_what_the_piece_says_token_by_token():
    names, there = shown(GRPO, bits=3, lag=8)
    w = names.array("weight")[there]
    assert (w > 5).any() and (w < 0.5).any()
    for algorithm, expected in (
        (GRPO, np.ones_like(w)),
        (TIS, np.minimum(w, 2.0)),
        (ICE_POP, np.where((w >= 0.5) & (w <= 5), w, 0.0)),
        (DECOUPLED_PPO, w),
    ):
        names, there = shown(algorithm, bits=3, lag=8)
        np.testing.assert_allclose(names.array("used")[there], expected, rtol=1e-9)
        assert names.one("share_left_out") == pytest.approx((expected == 0).mean())
        changed = (expected != 0) & (expected != w) & (expected != 1)
        assert names.one("share_changed") == pytest.approx(changed.mean())


def test_the_sequence_mask_leaves_whole_bad_responses_out():
    names, there = shown(SEQUENCE_MASK, delta=0.2, bits=3, lag=8)
    at = 4  # of 36: 3 bits are the first of the bits, 8 steps the fifth of the lags
    data = {name: values[at] for name, values in stored().items()}
    mask, left = torch.arange(9) < data["lengths"].unsqueeze(-1), torch.zeros(16, 4, 9, dtype=torch.bool)
    for p in range(16):
        for g in range(4):
            away = -float(data["log_weight"][p, g][mask[p, g]].mean()) * STEPS["log_weight"]
            left[p, g] = mask[p, g] & (float(data["right"][p, g]) == 0) & (away > 0.2)
    assert names.array("used")[there].tolist() == (~left[mask]).double().tolist()
    assert 0 < names.one("share_left_out") < 0.5


def test_what_is_stored_was_sampled():
    """Nearly the same weights give nearly the same probabilities, and E[w] is 1 whoever samples."""
    data = stored()
    trainer, log_w = (data[name] * STEPS[name] for name in ("trainer_logp", "log_weight"))
    mask = torch.arange(9) < data["lengths"].unsqueeze(-1)
    assert float(log_w[30][mask[30]].abs().max()) <= STEPS["log_weight"]  # 16 bits, no lag
    assert set(data["right"].sum(2).flatten().tolist()) <= {1, 2, 3}
    for at in range(36):
        assert float((trainer - log_w)[at][mask[at]].max()) <= 1e-6 and 400 < int(mask[at].sum()) < 600
        w = log_w[at][mask[at]].exp()
        assert float(w.mean()) == pytest.approx(1, abs=4 * float(w.std()) / math.sqrt(len(w)) + 0.01), at


def test_each_token_is_drawn_once_in_both_graphs():
    names, there = shown(ICE_POP, bits=3, lag=8)
    assert sum(names.array(f"is_{kind}") for kind in KINDS).tolist() == there.tolist()
    assert sum(np.nansum(names.array(f"count_{kind}")) for kind in KINDS) == there.sum()
    w, middle, width = (names.array(name) for name in ("weight", "middle", "width"))
    edges = np.r_[middle - width / 2, middle[-1] + width[-1] / 2]
    assert edges[0] == pytest.approx(0.1) and edges[-1] == pytest.approx(10)
    left_out = names.array("is_left_out") != 0
    expected = np.histogram(np.clip(w[left_out], 0.1001, 9.999), edges)[0]
    np.testing.assert_array_equal(np.nan_to_num(names.array("count_left_out")), expected)
    # the limits stand in the other graph as trainer = limit · sampler
    for name, limit in (("lowest", 0.5), ("highest", 5.0)):
        np.testing.assert_allclose(names.array(f"{name}_line"), limit * names.array("diagonal"))


def test_numbers_in_words():
    # weights 1, …, 1 are worth all tokens; half of them 0 and half 1 would be worth half: (Σ w)² / (N Σ w²)
    assert shown(GRPO)[0].one("worth_used") == 1
    names, there = shown(SEQUENCE_MASK, bits=3)
    used = names.array("used")[there]
    assert shown(GRPO, bits=16, lag=0)[0].one("w_spread") < STEPS["log_weight"] < shown(GRPO)[0].one("w_spread")
    assert set(used) == {0.0, 1.0} and names.one("worth_used") == pytest.approx(used.mean())
    assert "takes every token with weight 1" in explore_mismatch(GRPO).caption
    assert "weighs every token with its w" in explore_mismatch(DECOUPLED_PPO).caption
    assert "takes every token with weight 1" in explore_mismatch(DR_GRPO, bits=8).caption
    assert "weights of 16 bits, as old as the trainer" in explore_mismatch(bits=16, lag=0).caption


@pytest.mark.parametrize(("bits", "lag", "length", "limit"), [(6, 1, 3000, 3.0), (4, 8, 30, 2.0), (5, 0, 1000, 10.0)])
def test_what_is_left_of_a_response_is_the_integral_over_its_weight(bits, lag, length, limit):
    """By quadrature: W = exp(s z − s²/2) with z normal, s² = T times the variance of log w; E[W] is 1 before anything is lost."""
    names, there = shown(GRPO, bits=bits, lag=lag, length=length, limit=limit)
    s = math.sqrt(length) * np.log(names.array("weight")[there]).std()
    z = np.linspace(-12, 24, 400_001)
    ratio, density = np.exp(s * z - s**2 / 2), np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    assert (ratio * density).sum() == pytest.approx(1, abs=1e-6)
    kept = ratio <= limit
    for name, value in (("masked", ratio * kept), ("cut", np.minimum(ratio, limit)), ("beyond", ~kept)):
        assert names.one(f"{name}_here") == pytest.approx((value * density).sum(), abs=1e-3), name


def test_half_of_the_weight_of_long_responses_is_lost_although_the_engines_are_nearly_equal():
    names, there = shown(GRPO, bits=6, lag=1, length=3000)
    assert np.abs(np.log(names.array("weight")[there])).mean() < 0.01 and 0.4 < names.one("masked_here") < 0.6
    lengths, masked, cut = (names.array(name) for name in ("lengths", "masked", "cut"))
    assert lengths[0] == 1 and lengths[-1] == pytest.approx(10_000)
    assert (
        masked[0] > 0.999
        and (np.diff(masked) <= 1e-12).all()
        and (masked <= cut + 1e-12).all()
        and cut.max() <= 1 + 1e-12
    )
