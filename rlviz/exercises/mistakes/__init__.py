"""The bug zoo: wrong variants of pieces that were published or are made again and again, each with a name.

Spot-the-bug exercises show them, the checks recognise them in a student's answer, and the tests must tell each from the
right piece. None is ever trained on.
"""

from rlviz.exercises.mistakes import (
    advantages,
    aggregation,
    bounds,
    clipping,
    entropy,
    family,
    gae,
    gspo,
    kl,
    observations,
    overlong,
    preferences,
    ratios,
    reward_model,
    selection,
)
from rlviz.exercises.mistakes.mistake import Mistake

__all__ = [
    "Mistake",
    "advantages",
    "aggregation",
    "bounds",
    "clipping",
    "entropy",
    "family",
    "gae",
    "gspo",
    "kl",
    "observations",
    "overlong",
    "preferences",
    "ratios",
    "reward_model",
    "selection",
]
