"""A value out of range is refused where the piece is built, by name and value, and the ends of the range are not."""

import math

import pytest

from rlviz.pieces.advantages import (
    ForkingTokens,
    GroupAdvantage,
    ProcessAdvantage,
    SmoothStandardization,
    StandardizedApart,
)
from rlviz.pieces.aggregation import Constant
from rlviz.pieces.bounds import ChangeBounds, DynamicBounds, FixedBounds
from rlviz.pieces.gae import GAE
from rlviz.pieces.kl import AdaptivePenalty, KLInLoss, KLInReward, KLToOld, ProportionalController, UnbiasedKL
from rlviz.pieces.preference import (
    ImplicitReward,
    LengthNormalized,
    MarginPreference,
    OddsRatioPreference,
    SigmoidPreference,
    SquaredPreference,
)
from rlviz.pieces.shaping import SoftOverlongPunishment, WeightedRules
from rlviz.pieces.surrogate import CovariancePenalty, DualClip, EntropyBonus, GammaWeight
from rlviz.pieces.values import ClippedValueLoss

INF, NAN = math.inf, math.nan
WIDTHS = {"eps_low": (0.0, -0.1, 1.0, 1.5, NAN), "eps_high": (0.0, -0.1, INF, NAN)}
REFUSED = {
    FixedBounds: WIDTHS,
    DynamicBounds: WIDTHS | {"max_ratio": (1.0, 0.5, NAN)},
    LengthNormalized: {"beta": (0.0, -1.0, INF, NAN)},
    SquaredPreference: {"beta": (0.0, -1.0, INF, NAN)},
    MarginPreference: {"gamma": (-0.1, INF, NAN)},
    OddsRatioPreference: {"weight": (0.0, INF, NAN)},
    EntropyBonus: {"entropy_weight": (0.0, -0.1, INF, NAN)},
    CovariancePenalty: {"beta": (0.0, INF, NAN), "share": (0.0, 1.1, NAN)},
    ForkingTokens: {"share": (0.0, 1.1, NAN), "eps": (-1e-6,)},
    StandardizedApart: {"answer": (-0.1, INF, NAN), "format": (-0.1, INF, NAN), "eps": (-1e-6,)},
    ChangeBounds: {"delta": (0.0, -0.1, 1.0, NAN)},
    GammaWeight: dict.fromkeys(
        ("k_positive", "lambda_positive", "k_negative", "lambda_negative"), (0.0, -1.0, INF, NAN)
    ),
    DualClip: {"c": (1.0, 0.5, NAN)},
    GroupAdvantage: {"eps": (-1e-6,), "scale": ("std",)},
    ProcessAdvantage: {"eps": (-1e-6,), "combine": ("max",)},
    SmoothStandardization: {"ddof": (2, -1), "scale": ("group_std",)},
    Constant: {"max_length": (0, -1)},
    GAE: {"gamma": (-0.1, 1.01, NAN), "lam": (-0.1, 1.01, NAN)},
    KLInLoss: {"beta": (0.0, -0.04, INF, NAN)},
    UnbiasedKL: {"beta": (0.0, -0.04, INF, NAN)},
    KLInReward: {"beta": (0.0, -0.04, INF, NAN)},
    KLToOld: {"beta": (0.0, -0.04, INF, NAN)},
    AdaptivePenalty: {"target": (0.0, -1.0, INF, NAN)},
    ProportionalController: {"target": (0.0, -1.0, INF, NAN), "horizon": (0.0, -1.0, NAN)},
    ImplicitReward: {"beta": (0.0, -0.1, INF, NAN)},
    SigmoidPreference: {"label_smoothing": (-0.1, 0.5, NAN)},
    SoftOverlongPunishment: {"cache": (0, -1, 21), "factor": (0.0, -1.0, INF, NAN), "floor": (0.0, 1.0, NAN)},
    WeightedRules: {"answer": (-0.1, INF, NAN), "format": (-0.1, INF, NAN)},
    ClippedValueLoss: {"eps_value": (0.0, -0.2, NAN)},
}
ALLOWED = [
    lambda: FixedBounds(eps_low=0.999, eps_high=50.0),
    lambda: DynamicBounds(max_ratio=INF),
    lambda: GroupAdvantage(eps=0.0),
    lambda: ProcessAdvantage(eps=0.0),
    lambda: Constant(1),
    lambda: GAE(gamma=0.0, lam=0.0),
    lambda: GAE(gamma=1.0, lam=1.0),
    lambda: SigmoidPreference(label_smoothing=0.0),
    lambda: SoftOverlongPunishment(max_length=20, cache=20, floor=-INF),
    lambda: WeightedRules(answer=0.0, format=0.0),
    lambda: ClippedValueLoss(eps_value=INF),
]


@pytest.mark.parametrize(
    ("piece", "name", "value"),
    [(piece, name, value) for piece, wrong in REFUSED.items() for name, values in wrong.items() for value in values],
)
def test_out_of_range_is_refused_by_name_and_value(piece, name, value):
    # not by piece(name=value): there the tests' type checker refuses some words before the piece can
    parameters = {"max_length": 20, "cache": 8} if piece is SoftOverlongPunishment else {}
    built = object.__new__(piece)
    for each in ({**parameters, name: value}).items():
        object.__setattr__(built, *each)
    with pytest.raises(ValueError, match=rf"\b{name} must") as refused:
        built.__post_init__()
    assert str(refused.value).endswith(f"got {value!r}")


@pytest.mark.parametrize("build", ALLOWED)
def test_the_ends_of_the_ranges_are_allowed(build):
    build()
