"""The range of each parameter of a piece, written down by hand; that what is outside is refused, tests/refusals tries."""

from rlviz.ranges import ranges
from tests.refusals.test_declared import pieces

WIDTH, POSITIVE, SHARE = "above 0 and below 1", "above 0 and finite", "above 0 and at most 1"
NOT_NEGATIVE, UNIT, COUNT = "at least 0 and finite", "at least 0 and at most 1", "at least 1"
RANGES = {
    "AdaptivePenalty": {"target": POSITIVE},
    "BestOfK": {"k": COUNT},
    "ChangeBounds": {"delta": WIDTH},
    "ClippedValueLoss": {"eps_value": "above 0"},
    "Constant": {"max_length": COUNT},
    "CovariancePenalty": {"beta": POSITIVE, "share": SHARE},
    "DualClip": {"c": "above 1"},
    "DynamicBounds": {"eps_low": WIDTH, "eps_high": POSITIVE, "max_ratio": "above 1"},
    "DynamicSampling": {"max_rounds": COUNT},
    "EntropyBonus": {"entropy_weight": POSITIVE},
    "FixedBounds": {"eps_low": WIDTH, "eps_high": POSITIVE},
    "ForkingTokens": {"share": SHARE, "eps": NOT_NEGATIVE},
    "FullWeight": {},
    "GAE": {"gamma": UNIT, "lam": UNIT},
    "GammaWeight": dict.fromkeys(("k_positive", "lambda_positive", "k_negative", "lambda_negative"), POSITIVE),
    "GroupAdvantage": {"eps": NOT_NEGATIVE},
    "ImplicitReward": {"beta": POSITIVE},
    "KLInLoss": {"beta": POSITIVE},
    "KLInReward": {"beta": POSITIVE},
    "KLToOld": {"beta": POSITIVE},
    "KLToTeacher": {"beta": POSITIVE},
    "LengthCost": {"per_token": POSITIVE},
    "LengthNormalized": {"beta": POSITIVE},
    "MarginPreference": {"gamma": NOT_NEGATIVE},
    "MaskedWeight": {},  # of its two limits together, as of a cache and its length: tests/refusals/test_arguments.py
    "ObservationCrossEntropy": {"observation_weight": POSITIVE},
    "OddsRatioPreference": {"weight": POSITIVE},
    "ProcessAdvantage": {"eps": NOT_NEGATIVE},
    "ProportionalController": {"target": POSITIVE, "horizon": "above 0"},
    "SequenceMask": {"delta": POSITIVE},
    "SigmoidPreference": {"label_smoothing": "at least 0 and below 0.5"},
    "SmoothStandardization": {},
    "SoftGate": {"positive": POSITIVE, "negative": POSITIVE},
    "SoftOverlongPunishment": {"factor": POSITIVE, "floor": "below 0"},
    "SquaredPreference": {"beta": POSITIVE},
    "StandardizedApart": {"answer": NOT_NEGATIVE, "format": NOT_NEGATIVE, "eps": NOT_NEGATIVE},
    "TruncatedWeight": {"cap": POSITIVE},
    "UnbiasedKL": {"beta": POSITIVE},
    "UpperBound": {"max_ratio": "above 1 and finite"},
    "WeightedRules": {"answer": NOT_NEGATIVE, "format": NOT_NEGATIVE},
    "WhitenedReturn": {"beta": NOT_NEGATIVE},
}


def test_the_declared_ranges_are_these():
    declared = {kind.__name__: {name: limits.range for name, limits in ranges(kind).items()} for kind in pieces()}
    assert declared == RANGES
