import math

import pytest
import torch

from rlviz.pieces.ratios import sequence_ratio, sequence_token_ratio, token_ratio
from tests.pieces.tensors import close, double, slope

# One group. First response: .4 .2 – .6 from .1 .2 – .3, token ratios 4 1 2, a hole in its mask; second: .3 from .6, then padding.
NEW = double([[[0.4, 0.2, 1e-300, 0.6], [0.3, 1.0, 1.0, 1.0]]]).log()
OLD = double([[[0.1, 0.2, 1e300, 0.3], [0.6, 1e9, 1e9, 1e9]]]).log()
MASK = double([[[1, 1, 0, 1], [1, 0, 0, 0]]]).bool()
PLACES = double([1, 10, 100, 1000])  # the gradient is of Σ PLACES · ratio, so that each digit tells where it came from


@pytest.mark.parametrize(
    ("ratio", "first", "first_slope"),
    [
        # r = π/π_old of the token; d r/d logp = r, in its own place
        (token_ratio, [4, 1, 0, 2], [4, 10, 0, 2000]),
        # s = ∛(4 · 1 · 2) = 2 on every token; d s/d logp = s/3 for each of the three: (1 + 10 + 1000) · 2/3 = 674
        (sequence_ratio, [2, 2, 0, 2], [674, 674, 0, 674]),
        # the value of the sequence ratio, and d s_t/d logp_t = s = 2, in its own place
        (sequence_token_ratio, [2, 2, 0, 2], [2, 20, 0, 2000]),
    ],
)
def test_ratios_by_hand(ratio, first, first_slope):
    values = ratio(NEW, OLD, MASK)
    close(values.masked_fill(~MASK, 0.0), double([[first, [0.5, 0, 0, 0]]]))
    assert (values[~MASK] == 1).all()
    close(slope(lambda logp: ratio(logp, OLD, MASK) * PLACES, NEW), [[first_slope, [0.5, 0, 0, 0]]])


def test_the_root_keeps_a_long_response_s_ratio_near_one():
    # 400 tokens, each 1.05 times as likely: the plain product would be 1.05^400 = 3e8
    logp, mask = torch.full((1, 1, 400), math.log(1.05), dtype=torch.double), torch.ones(1, 1, 400, dtype=torch.bool)
    close(sequence_ratio(logp, torch.zeros_like(logp), mask), torch.full_like(logp, 1.05))
