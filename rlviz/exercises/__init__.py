"""Checks with a diagnosis for the lessons' exercises, the mistakes that they recognise, predictions, and what a student keeps."""

from rlviz.exercises import check, mistakes
from rlviz.exercises.judge import Verdict
from rlviz.exercises.own import keep, kept
from rlviz.exercises.predictions import Predictions, room
from rlviz.exercises.puzzles import show_bug, unlabelled
