# What the lessons import, each name once; rlviz/lessons/__init__.py reads this and imports a name when it is first used.
from . import check as check
from .own import keep as keep, kept as kept
from .predictions import Predictions as Predictions, room as room
from .puzzles import show_bug as show_bug, unlabelled as unlabelled
from .verdict import Verdict as Verdict
