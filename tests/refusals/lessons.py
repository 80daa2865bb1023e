"""What the checks and tools of the lessons refuse."""

from __future__ import annotations

from typing import Any

from rlviz.algorithms import DPO, GRPO_PROCESS, PPO
from rlviz.lessons import Predictions, check, keep, room, show_bug, unlabelled
from rlviz.lessons.exercise import edited, source_of
from rlviz.pieces.surrogate import pessimistic
from tests.refusals.row import table


def free(x: Any) -> Any:
    return pessimistic(x, x, x, x)


PREDICT = Predictions("03_grpo", dead="Which share is dead?", faster="Which is faster?")


def assembled(algorithm: Any) -> Any:
    return check.assembly(lambda logp, old_logp, ref_logp, rewards, mask: logp.sum(), algorithm)


ROWS = table(
    globals(),
    r"""
keep('../x', free) → name must be a Python name, such as 'pessimistic'; got '../x'
keep('x', ⟨lambda: 0 | 3⟩) → function must be made with def, so that its source can be kept; got …
Predictions('../04') → lesson must be made of letters, digits, - and _, such as '03_grpo'; got '../04'
Predictions('04', a=3) → a must be a question, or (question, choice, choice, …); got 3
Predictions('04', a=()) → a must be a question, or (question, choice, choice, …); got ()
Predictions('04', a=('one?', 'one'))
    → a must be a question, or (question, choice, choice, …); got ('one?', 'one')
room('.', '06_means') → folder must hold predictions of lesson '06_means', such as …; . holds none
assembled(⟨PPO | DPO | GRPO_PROCESS⟩) → algorithm must …
PREDICT('dea') → name must be one of dead, faster; got 'dea'
PREDICT.result('dea', 1) → name must be one of dead, faster; got 'dea'
⟨show_bug | unlabelled⟩('99') → lesson must be one of …the_ratio…; got '99'
check.bug('99', line=1, does='') → lesson must be one of …the_ratio…; got '99'
edited(source_of(free), [('x - 2', 'x')]) → 'x - 2' is not in the answer
edited(source_of(free), [('pessimistic(x', 'y'), ('(x, x, x, x)', '')]) → two edits touch the same words
""",
)
