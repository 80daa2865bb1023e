"""The tests of the pieces tell every wrong variant of the bug zoo from the right piece."""

import pytest

from rlviz.exercises import mistakes
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.aggregation import Constant, sequence_mean, sequence_sum, token_mean
from rlviz.pieces.kl import k1, k3
from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.pieces.shaping import SoftOverlongPunishment
from rlviz.pieces.surrogate import pessimistic
from tests.pieces.test_advantages import check_group_std
from tests.pieces.test_aggregation import check_constant, check_sequence_mean, check_sequence_sum, check_token_mean
from tests.pieces.test_kl import check_k1, check_k3
from tests.pieces.test_ratios import check_sequence_ratio, check_token_ratio
from tests.pieces.test_shaping import check_soft_overlong_punishment
from tests.pieces.test_surrogate import check_pessimistic

# the check of a piece's tests → the right piece, its wrong variants
ZOO = {
    check_pessimistic: (pessimistic, mistakes.clipping.SURROGATE),
    check_token_ratio: (token_ratio, mistakes.ratios.TOKEN_RATIO),
    check_sequence_ratio: (sequence_ratio, mistakes.ratios.SEQUENCE_RATIO),
    check_group_std: (GroupAdvantage(), mistakes.advantages.GROUP_ADVANTAGE),
    check_sequence_mean: (sequence_mean, mistakes.aggregation.SEQUENCE_MEAN),
    check_token_mean: (token_mean, mistakes.aggregation.TOKEN_MEAN),
    check_constant: (Constant(8), mistakes.aggregation.constant(8)),
    check_sequence_sum: (sequence_sum, mistakes.aggregation.SEQUENCE_SUM),
    check_k1: (k1, mistakes.kl.K1),
    check_k3: (k3, mistakes.kl.K3),
    check_soft_overlong_punishment: (SoftOverlongPunishment(max_length=16, cache=4), mistakes.overlong(16, 4)),
}


@pytest.mark.parametrize("check", ZOO, ids=lambda check: check.__name__)
def test_the_right_piece_is_let_through(check):
    check(ZOO[check][0])


@pytest.mark.parametrize(
    ("check", "mistake"),
    [pytest.param(c, m, id=f"{c.__name__}: {m.name}") for c, (_, family) in ZOO.items() for m in family],
)
def test_the_wrong_variant_is_caught(check, mistake):
    with pytest.raises(AssertionError):
        check(mistake.wrong)
