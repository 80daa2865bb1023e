"""Checks with a diagnosis for the lessons' exercises, and the mistakes that they recognise."""

from rlviz.exercises import check, mistakes
from rlviz.exercises.judge import Verdict
