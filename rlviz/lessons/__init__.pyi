# What the lessons import, each name once; rlviz/lessons/__init__.py reads this and imports a name when it is first used.
from . import check as check
from .own import load_solution as load_solution, save_solution as save_solution
from .predictions import Predictions as Predictions, room as room
from .puzzles import show_bug as show_bug, unlabelled as unlabelled
from .verdict import Verdict as Verdict
