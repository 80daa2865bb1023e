"""Checks with a diagnosis for the lessons' exercises, the mistakes that they recognise, and predictions."""

from rlviz.exercises import check, mistakes
from rlviz.exercises.judge import Verdict
from rlviz.exercises.predictions import Predictions, room
