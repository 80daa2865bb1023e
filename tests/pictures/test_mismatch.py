"""explore_mismatch: its tokens are what two engines say, and what a correction makes of each is what the loss does."""

import numpy as np
import pytest
import torch

from rlviz.algorithms import DECOUPLED_PPO, GRPO, ICE_POP, SEQUENCE_MASK, TIS
from rlviz.pictures import explore_mismatch
from rlviz.pictures.mismatch import LOOKS
from rlviz.pictures.mismatch_tokens import STEPS, load_tokens

AT = 4  # of 36: 3 bits are the first of the bits, 8 steps the fifth of the lags


def tokens(*arguments, **keywords):
    """Return the picture's numbers at 3 bits and 8 steps, and what becomes of each token that counts."""
    names = explore_mismatch(*arguments, bits=3, lag=8, **keywords).names()
    kinds = {kind: names.array(f"is_{kind}") != 0 for kind in LOOKS}
    return names, kinds, np.sum(list(kinds.values()), 0)


def weights():
    return np.exp(load_tokens()["log_weight"][AT].numpy().ravel() * STEPS["log_weight"])


@pytest.mark.parametrize(
    ("algorithm", "correction"),
    [
        (GRPO, np.ones_like),
        (TIS, lambda w: np.minimum(w, 2.0)),
        (ICE_POP, lambda w: np.where((w >= 0.5) & (w <= 5), w, 0.0)),
        (DECOUPLED_PPO, lambda w: w),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_weight_is_what_the_piece_says_token_by_token(algorithm, correction):
    names, kinds, counts = tokens(algorithm)
    assert set(counts) == {0, 1}  # no token is of two kinds
    w = weights()[counts == 1]
    used = correction(w)
    assert (w > 5).any() and (w < 0.5).any()
    expected = {"left_out": used == 0, "changed": (used != 0) & (used != w) & (used != 1)}
    for kind, tokens_of_kind in expected.items():
        np.testing.assert_array_equal(kinds[kind][counts == 1], tokens_of_kind)
        assert names.one(f"share_{kind}") == pytest.approx(tokens_of_kind.mean())
    assert names.one("outside") == pytest.approx(((w < 0.8) | (w > 1.2)).mean())
    # so many equal weights as these are worth, of all: (Σ used)² / (N Σ used²)
    assert names.one("effective") == pytest.approx(used.sum() ** 2 / len(used) / (used**2).sum())


def test_the_sequence_mask_leaves_whole_bad_responses_out():
    names, kinds, counts = tokens(SEQUENCE_MASK, delta=0.2)
    data = {name: values[AT] for name, values in load_tokens().items()}
    mask, left = torch.arange(9) < data["lengths"].unsqueeze(-1), torch.zeros(16, 4, 9, dtype=torch.bool)
    for p in range(16):
        for g in range(4):
            away = -float(data["log_weight"][p, g][mask[p, g]].mean()) * STEPS["log_weight"]
            left[p, g] = mask[p, g] & (float(data["right"][p, g]) == 0) & (away > 0.2)
    assert counts.tolist() == mask.flatten().tolist()
    assert kinds["left_out"].tolist() == left.flatten().tolist()
    assert 0 < names.one("share_left_out") < 0.5


def test_each_token_is_drawn_once_in_both_graphs():
    names, kinds, _ = tokens(ICE_POP)
    middle, width = names.array("middle"), names.array("width")
    edges = np.r_[middle - width / 2, middle[-1] + width[-1] / 2]
    assert edges[0] == pytest.approx(0.1) and edges[-1] == pytest.approx(10)
    for kind, tokens_of_kind in kinds.items():
        expected = np.histogram(np.clip(weights()[tokens_of_kind], 0.1001, 9.999), edges)[0]
        np.testing.assert_array_equal(np.nan_to_num(names.array(f"count_{kind}")), expected)
    # the limits stand in the other graph as trainer = limit · sampler
    for name, limit in (("lowest", 0.5), ("highest", 5.0)):
        np.testing.assert_allclose(names.array(f"{name}_line"), limit * names.array("diagonal"))
