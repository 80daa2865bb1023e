"""Write the judge: a grader that takes nothing for an answer."""

from rlviz.lessons.puzzles import Bug


def judge(prompt: str, response: str, answer: str) -> bool:
    """What follows the last # is the answer."""
    _, mark, given = response.rpartition("#")
    if not mark or not given:
        return False
    return given.strip() == answer


BUG = Bug(
    judge,
    """if not mark or not given: → if not mark:
    given.strip() == answer → given.strip() in answer""",
    choices=(
        "it takes a response without a # for right",
        "it takes a response that gives no answer for right",
        "it takes a right answer without sums for wrong",
        "it raises an error for a response without a #",
    ),
    does="it takes a response that gives no answer for right",
    why='after a # at the end comes "", and "" is in every text. Compare with ==, and say what no answer is worth.',
)
