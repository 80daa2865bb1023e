import math

import pytest
import torch

from rlviz.pieces.ratios import sequence_ratio, sequence_token_ratio, token_ratio
from tests.pieces import slow
from tests.pieces.tensors import close, double, rollout, seeds, slope

# One group. First response: .4 .2 – .6 from .1 .2 – .3, token ratios 4 1 2, a hole in its mask; second: .3 from .6, then padding.
NEW = double([[[0.4, 0.2, 1e-300, 0.6], [0.3, 1.0, 1.0, 1.0]]]).log()
OLD = double([[[0.1, 0.2, 1e300, 0.3], [0.6, 1e9, 1e9, 1e9]]]).log()
MASK = double([[[1, 1, 0, 1], [1, 0, 0, 0]]]).bool()
PLACES = double([1, 10, 100, 1000])  # the gradient is of Σ PLACES · ratio, so that each digit tells where it came from


def check(ratio, first, first_slope):
    expected = double([[first, [0.5, 0, 0, 0]]])
    close(ratio(NEW, OLD, MASK).masked_fill(~MASK, 0.0), expected)
    close(slope(lambda logp: ratio(logp, OLD, MASK) * PLACES, NEW), [[first_slope, [0.5, 0, 0, 0]]])


def test_token_ratio_by_hand():
    """Assert r = π/π_old of the token; d r/d logp = r, in its own place."""
    check(token_ratio, [4, 1, 0, 2], [4, 10, 0, 2000])


def test_sequence_ratio_by_hand():
    """Assert s = ∛(4 · 1 · 2) = 2 on every token; d s/d logp = s/3 for each of the three: (1 + 10 + 1000) · 2/3 = 674."""
    check(sequence_ratio, [2, 2, 0, 2], [674, 674, 0, 674])


def test_sequence_token_ratio_by_hand():
    """Assert the value of the sequence ratio, 2, and d s_t/d logp_t = s = 2, in its own place."""
    check(sequence_token_ratio, [2, 2, 0, 2], [2, 20, 0, 2000])


@pytest.mark.parametrize(
    ("ratio", "slowly"),
    [
        (token_ratio, slow.token_ratio),
        (sequence_ratio, slow.sequence_ratio),
        (sequence_token_ratio, slow.sequence_ratio),
    ],
)
@seeds()
def test_ratios_are_the_slow_ones(ratio, slowly, seed):
    r = rollout(seed)
    logp, old_logp = (torch.where(r.mask, x, 300.0 * i) for i, x in enumerate((r.logp, r.old_logp), start=1))
    rows = zip(*(x.flatten(0, 1).tolist() for x in (logp, old_logp, r.mask)), strict=True)
    close(ratio(logp, old_logp, r.mask).flatten(0, 1), [slowly(*row) for row in rows], rtol=1e-10)


def test_the_root_keeps_a_long_response_s_ratio_near_one():
    # 400 tokens, each 1.05 times as likely: the plain product would be 1.05^400 = 3e8
    logp, mask = torch.full((1, 1, 400), math.log(1.05), dtype=torch.double), torch.ones(1, 1, 400, dtype=torch.bool)
    close(sequence_ratio(logp, torch.zeros_like(logp), mask), torch.full_like(logp, 1.05))
