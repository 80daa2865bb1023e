"""What the checks and tools of the lessons refuse."""

from __future__ import annotations

from typing import Any

from rlviz.algorithms import DPO, GRPO_PROCESS, PPO
from rlviz.lessons import Predictions, check, keep, room, show_bug, unlabelled
from rlviz.pieces.surrogate import pessimistic
from tests.refusals.row import of


def free(x: Any) -> Any:
    return pessimistic(x, x, x, x)


def predict(**questions: Any) -> Any:
    return Predictions("04", **questions)


def predicted(name: str) -> Any:
    return Predictions("04_grpo", dead="Which share is dead?", faster="Which is faster?").result(name, 1)


def asked(name: str) -> Any:
    return Predictions("04_grpo", dead="Which share is dead?", faster="Which is faster?")(name)


def bug(lesson: str) -> Any:
    return check.bug(lesson, line=1, does="")


def assembled(algorithm: Any) -> Any:
    return check.assembly(lambda logp, old_logp, ref_logp, rewards, mask: logp.sum(), algorithm)


NO_LESSON = (("99",), "lesson must be one of …02…; got '99'")
NO_NAME = (("dea",), "name must be one of dead, faster; got 'dea'")
ROWS = [
    *of(assembled, *(((algorithm,), "algorithm must …") for algorithm in (PPO, DPO, GRPO_PROCESS))),
    *of(
        keep,
        (("../x", free), "name must be a Python name, such as 'pessimistic'; got '../x'"),
        (("x", lambda: 0), "function must be made with def, so that its source can be kept; got <function …"),
        (("x", 3), "function must be made with def, so that its source can be kept; got 3"),
    ),
    *of(Predictions, (("../04",), "lesson must be made of letters, digits, - and _, such as '04_grpo'; got '../04'")),
    *of(
        predict,
        ({"a": 3}, "a must be a question, or (question, choice, choice, …); got 3"),
        ({"a": ()}, "a must be a question, or (question, choice, choice, …); got ()"),
        ({"a": ("one?", "one")}, "a must be a question, or (question, choice, choice, …); got ('one?', 'one')"),
    ),
    *of(asked, NO_NAME),
    *of(predicted, NO_NAME),
    *of(room, ((".", "06_means"), "folder must hold predictions of lesson '06_means', such as …; . holds none")),
    *of(show_bug, NO_LESSON),
    *of(unlabelled, NO_LESSON),
    *of(bug, NO_LESSON),
]
