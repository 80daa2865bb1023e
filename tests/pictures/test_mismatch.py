"""explore_mismatch: its tokens are what two engines say, and what a correction makes of each is what the loss does."""

import math

import numpy as np
import pytest
import torch

from rlviz.algorithms import DECOUPLED_PPO, DR_GRPO, GRPO, GRPO_PROCESS, ICE_POP, PPO, SEQUENCE_MASK, TIS
from rlviz.pictures import explore_mismatch
from rlviz.pictures.mismatch import MismatchPicture, mismatch_curve
from rlviz.pictures.mismatch_tokens import BITS, LAGS, drawn


def test_a_weight_is_what_the_piece_says_token_by_token():
    w = mismatch_curve(GRPO, bits=3, lag=8).weight
    assert (w > 5).any() and (w < 0.5).any()
    for algorithm, expected in (
        (GRPO, np.ones_like(w)),
        (TIS, np.minimum(w, 2.0)),
        (ICE_POP, np.where((w >= 0.5) & (w <= 5), w, 0.0)),
        (DECOUPLED_PPO, w),
    ):
        curve = mismatch_curve(algorithm, bits=3, lag=8)
        np.testing.assert_allclose(curve.weight, curve.trainer_prob / curve.sampler_prob, rtol=1e-9)
        np.testing.assert_allclose(curve.used, expected, rtol=1e-9)
        assert curve.share("left out") == (expected == 0).mean()
        assert curve.share("changed") == ((expected != 0) & (expected != w) & (expected != 1)).mean()


def test_the_sequence_mask_leaves_whole_bad_responses_out():
    curve, tokens = mismatch_curve(SEQUENCE_MASK, delta=0.2, bits=3, lag=8), drawn(3, 8)
    left = torch.zeros_like(tokens.mask)
    for p in range(16):
        for g in range(4):
            own = tokens.mask[p, g]
            away = float((tokens.sampler_logp - tokens.old_logp)[p, g][own].mean())
            left[p, g] = own & (float(tokens.rewards[p, g]) == 0) & (away > 0.2)
    assert curve.used.tolist() == (~left[tokens.mask]).double().tolist() and 0 < curve.share("left out") < 0.5


def test_what_is_stored_was_sampled():
    """Nearly the same weights give nearly the same probabilities, and E[w] is 1 whoever samples."""
    same = drawn(16, 0)
    assert float((same.old_logp - same.sampler_logp)[same.mask].abs().max()) < 1e-3
    assert all(0 < int(right) < 4 for right in same.rewards.sum(1))
    for bits in BITS:
        for lag in LAGS:
            tokens = drawn(bits, lag)
            assert float(tokens.sampler_logp[tokens.mask].max()) <= 1e-6 and 400 < int(tokens.mask.sum()) < 600
            w = (tokens.old_logp - tokens.sampler_logp)[tokens.mask].exp()
            assert float(w.mean()) == pytest.approx(1, abs=4 * float(w.std()) / math.sqrt(len(w)) + 0.01), (bits, lag)


def test_the_picture_draws_each_token_once_and_its_limits():
    curve = mismatch_curve(ICE_POP, bits=3, lag=8)
    picture = MismatchPicture(curve)
    drawn_dots = [len(dots.get_xdata()) for dots in picture.dots.values()]
    assert sum(drawn_dots) == len(curve.weight) and drawn_dots[2] == (curve.used == 0).sum() and drawn_dots[1] == 0
    assert [line.get_xdata()[0] for _, line in picture.lines] == [0.5, 5.0]
    for diagonal, upright in picture.lines:
        np.testing.assert_allclose(np.divide(diagonal.get_ydata(), diagonal.get_xdata()), upright.get_xdata()[0])
    heights = sum(path.vertices[:, 1].max() for bars in picture.bars.values() for path in bars.get_paths())
    assert heights == pytest.approx(len(curve.weight))


@pytest.mark.parametrize(
    ("algorithm", "limits"),
    [
        (TIS.with_parameters(cap=3.0), {"cap": 3.0}),
        (ICE_POP, {"lowest": 0.5, "highest": 5.0}),
        (SEQUENCE_MASK.with_parameters(delta=0.2), {"delta": 0.2}),
        (DECOUPLED_PPO, {}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_limits_of_each_correction_are_its_own(algorithm, limits):
    assert mismatch_curve(algorithm).limits == limits


def test_numbers_in_words():
    assert mismatch_curve(GRPO).effective(np.array([1.0, 1.0, 1.0, 1.0])) == 1
    assert mismatch_curve(GRPO).effective(np.array([2.0, 0.0, 0.0, 0.0])) == 0.25
    assert mismatch_curve(GRPO).effective(np.zeros(3)) == 0
    assert "takes every token with weight 1" in explore_mismatch(GRPO).caption
    assert "weighs every token with its w" in explore_mismatch(DECOUPLED_PPO).caption
    assert "takes every token with weight 1" in explore_mismatch(DR_GRPO, bits=8).caption
    assert "weights of 16 bits, as old as the trainer" in explore_mismatch(bits=16, lag=0).caption


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bits": 7}, "bits must be one of 3, 4, 5, 6, 8, 16; got 7"),
        ({"lag": 3}, "lag must be one of 0, 1, 2, 4, 8, 16; got 3"),
        ({"lag": -1}, "lag must be one of"),
        ({"cap": 0.0}, "cap must be above 0 and finite; got 0"),
        ({"lowest": 0.1}, "TIS has no such parameter"),
        ({"algorithm": ICE_POP, "lowest": 1.5}, "0 ≤ lowest ≤ 1 ≤ highest; got 1.5 and 5"),
        ({"algorithm": SEQUENCE_MASK, "delta": -1.0}, "delta must be above 0"),
        ({"algorithm": PPO}, "algorithm"),
        ({"algorithm": GRPO_PROCESS}, "algorithm: GRPO .process. has nothing that this picture shows"),
        ({"bits": "4"}, "bits must be"),
    ],
)
def test_what_cannot_be_shown(arguments, message):
    with pytest.raises(ValueError, match=message):
        explore_mismatch(**arguments)
