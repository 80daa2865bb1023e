"""What the pictures show, as arrays: computed by the pieces and algorithms themselves, drawn elsewhere."""

from rlviz.curves.advantages import AdvantagesCurve, advantages_curve
from rlviz.curves.aggregation import AggregationCurve, aggregation_curve
from rlviz.curves.bounds import BoundsCurve, bounds_curve
from rlviz.curves.clip import ClipComparison, ClipCurve, clip_comparison, clip_curve
from rlviz.curves.dpo import DpoCurve, dpo_curve
from rlviz.curves.entropy import EntropyCurve, entropy_curve
from rlviz.curves.gae import GAECurve, gae_curve
from rlviz.curves.importance import ImportanceCurve, importance_curve
from rlviz.curves.kl import KLCurve, kl_curve
from rlviz.curves.overlong import OverlongCurve, overlong_curve
from rlviz.curves.process import ProcessCurve, process_curve
from rlviz.curves.ratio import RatioCurve, ratio_curve
from rlviz.curves.sampling import SamplingCurve, sampling_curve
from rlviz.curves.weights import DifficultyCurve, difficulty_curve, token_weights

__all__ = [
    "AdvantagesCurve",
    "AggregationCurve",
    "BoundsCurve",
    "ClipComparison",
    "ClipCurve",
    "DifficultyCurve",
    "DpoCurve",
    "EntropyCurve",
    "GAECurve",
    "ImportanceCurve",
    "KLCurve",
    "OverlongCurve",
    "ProcessCurve",
    "RatioCurve",
    "SamplingCurve",
    "advantages_curve",
    "aggregation_curve",
    "bounds_curve",
    "clip_comparison",
    "clip_curve",
    "difficulty_curve",
    "dpo_curve",
    "entropy_curve",
    "gae_curve",
    "importance_curve",
    "kl_curve",
    "overlong_curve",
    "process_curve",
    "ratio_curve",
    "sampling_curve",
    "token_weights",
]
