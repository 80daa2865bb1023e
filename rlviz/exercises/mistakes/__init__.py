"""The bug zoo: wrong variants of pieces that were published or are made again and again, each a row with its name.

Spot-the-bug exercises show them, the checks recognise them in a student's answer, and the tests must tell each from the
right piece. None is ever trained on. Most rows are lambdas; what a lesson prints or trains with is a function of its own.
"""

from rlviz.exercises.mistakes.bounds import bounds
from rlviz.exercises.mistakes.clipping import clipping
from rlviz.exercises.mistakes.credit import advantages, aggregation, gae, observations
from rlviz.exercises.mistakes.estimates import entropy, kl
from rlviz.exercises.mistakes.losses import losses
from rlviz.exercises.mistakes.ratios import gspo, mismatch, ratios
from rlviz.exercises.mistakes.rewards import overlong, preferences, reward_model, selection
