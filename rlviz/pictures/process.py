"""Credit for the tokens of worked answers: from the outcome alone, or from a reward for every step."""

from __future__ import annotations

from itertools import accumulate, product
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import DR_GRPO, GRPO, GRPO_PROCESS, Algorithm, GroupPolicyGradient
from rlviz.page.picture import Axis, Bars, Cells, Line, Panel, Picture, Rule, Say, Slider, Span, Text
from rlviz.page.tracing import Curve
from rlviz.pictures.groups import learns_from_a_group
from rlviz.pictures.spec import OFFERED, Algorithms, explorer
from rlviz.pieces.advantages import ProcessAdvantage

DIGITS = "61651778"
STEPS = len(DIGITS)
SUMS = tuple(total % 10 for total in accumulate(map(int, DIGITS)))
TOKENS = STEPS + 3  # the sums, #, the answer, the end: the last three are one step
# of the answers: right running sums before the first wrong one (the first's is a control), and by how much all are wrong after it
RIGHT_SUMS = (6.0, 2.0, 5.0, 0.0, 6.0, 3.0, 7.0, 1.0)
SHIFTS = (7.0, 4.0, 1.0, 9.0, 3.0, 8.0, 5.0, 2.0)
ANSWERS = len(SHIFTS)
ALIKE = 1e-9  # of credit: rounding
UNITS = (2.0, 5.0, 10.0)  # of credit, so that the axis goes from −3 of them to 3


def process_curve(algorithm: GroupPolicyGradient) -> Curve:
    """Return the curve: the credit of each token of a worked answer, from the outcome alone, and from a reward for each step.

    The task is to write the running sums of 8 digits modulo 10, then # and the last of them; 8 answers make a group. Every
    running sum is a step, which earns 1 if it is right, and so are the last three tokens, which earn the outcome. Outcome credit
    is the algorithm's own. Process credit takes its place: the sum of the steps to come, or the algorithm's own rule if it has
    one, as GRPO (process) has. The last of the other answers become right first.
    """
    bare = algorithm.without_kl()
    judges_steps = algorithm.asks_for("advantage", "step_ends")

    def curve(right_steps: Tensor, right_others: Tensor, answer: Tensor) -> dict[str, Tensor]:
        # What the eight answers write, and which tokens of it are right.
        number = torch.arange(ANSWERS, dtype=torch.double)
        before = torch.tensor(RIGHT_SUMS, dtype=torch.double)
        wrong_from = torch.where(number >= ANSWERS - right_others, float(STEPS), before)
        wrong_from = torch.where(number == 0, right_steps, wrong_from).unsqueeze(1)
        right_sums = torch.arange(STEPS, dtype=torch.double) < wrong_from
        is_right = right_sums.all(1, keepdim=True)
        right = torch.cat([right_sums, is_right.expand(ANSWERS, TOKENS - STEPS)], 1).double()
        shifts = torch.tensor(SHIFTS, dtype=torch.double).unsqueeze(1) * ~right_sums
        digits = (torch.tensor(SUMS, dtype=torch.double) + shifts).remainder(10)

        # Their credit.
        mask = torch.ones(1, ANSWERS, TOKENS, dtype=torch.bool)
        last = torch.arange(TOKENS) == TOKENS - 1
        ends = (torch.arange(TOKENS) < STEPS) | last
        rewards, step_ends, one_end = right.unsqueeze(0), ends.expand(mask.shape), last.expand(mask.shape)
        steps, means = (ProcessAdvantage(combine=rule)(rewards, step_ends)[0] for rule in ("sum", "mean"))
        if judges_steps:
            steps = bare.advantages(rewards, mask, step_ends=step_ends)[0][0]
            outcome = bare.advantages(is_right.double().unsqueeze(0) * last, mask, step_ends=one_end)[0][0]
        else:
            outcome = bare.advantages(is_right.double().T, mask)[0][0]

        chosen = (answer - 1).long().reshape(1)
        credits = torch.cat([values[chosen] for values in (steps, means, outcome)])
        small, middle = ((credits.amin() > -3.1 * unit) & (credits.amax() < 2.1 * unit) for unit in UNITS[:2])
        unit = torch.where(small, UNITS[0], torch.where(middle, UNITS[1], torch.full_like(answer, UNITS[2])))
        blamed = credits[0].argmin().reshape(1)
        first_wrong = wrong_from[chosen][0, 0]
        return {
            "process": credits[0],
            "mean": credits[1],
            "outcome": credits[2],
            "blamed": blamed[0] + 1.0,
            "lowest": credits[0].amin(),
            "alike": credits[0].amax() - credits[0].amin() < ALIKE,
            "outcome_there": credits[2][blamed][0],
            "sums": digits[chosen][0],
            "answer_says": digits[chosen][0, -1],
            "marks_right": right[chosen][0] * ends,
            "marks_wrong": (1 - right[chosen][0]) * ends,
            "is_wrong": first_wrong < STEPS,
            "wrong_at": first_wrong + 0.5,
            "is_first": answer == 1,
            "low": -3.1 * unit,
            "high": 2.9 * unit,
            "tokens_at": 2.7 * unit,
            "ticks_at": 2.35 * unit,
            "group_digits": digits.flatten(),
            "group_says": digits[:, -1],
            "group_credit": steps.flatten(),
            "group_wrong": 1 - right.flatten(),
            "reach": steps.abs().amax().clamp(min=1.0),
            "rewards": is_right.double().flatten(),
            **{f"A_{i}": outcome[i - 1, 0] for i in range(1, ANSWERS + 1)},
            "row": ANSWERS + 1 - answer,
            "row_low": ANSWERS + 0.52 - answer,
            "row_high": ANSWERS + 1.48 - answer,
            "first_right": right_others + 0.5,
        }

    return curve


def texts(algorithm: GroupPolicyGradient) -> dict[str, str]:
    """Return by which rule process credit is given."""
    return {"rule": "its own rule" if algorithm.asks_for("advantage", "step_ends") else "sum of the steps to come"}


POSITIONS = tuple(float(position) for position in range(1, TOKENS + 1))
# cells of the group: answers from above, under the prompt and the right answer, tokens from left to right
ROWS, COLUMNS = (list(numbers) for numbers in zip(*product(range(ANSWERS, 0, -1), POSITIONS), strict=True))
DATA: dict[str, Any] = {
    "token": POSITIONS,
    "step": POSITIONS[:STEPS],
    "adds": [*(f"+{digit}" for digit in DIGITS), "#", "", "end"],
    "rows": [*(f"answer {i}" for i in range(ANSWERS, 0, -1)), "right answer", "prompt"],
    "column_at": COLUMNS,
    "row_at": ROWS,
    "digit_at": [x for x in COLUMNS if x <= STEPS],
    "digit_row": [y for x, y in zip(COLUMNS, ROWS, strict=True) if x <= STEPS],
    "answers_at": list(range(ANSWERS, 0, -1)),
    "prompt": [*DIGITS, "="],
    "prompt_at": POSITIONS[: STEPS + 1],
    "gold": [*map(str, SUMS), "#", str(SUMS[-1]), "R", "A"],
    "gold_at": [*POSITIONS[: TOKENS - 1], TOKENS + 1.2, TOKENS + 3.2],
}
CREDIT = Panel(
    "Answer {answer}: the credit of each token",
    Axis("the digit that each step adds to the sum so far", 0.4, TOKENS + 0.6, names="adds"),
    Axis("advantage A", "low", "high"),
    (
        Span("wrong_at", TOKENS + 0.5, label="wrong", direct=True, when="is_wrong"),
        Rule(0, axis="y", dash="", width=1),
        Bars("token", "process", 0.72, label="steps rewarded: {rule}"),
        Line("token", "mean", "1 3", 2.5, "D", colour="green", label="mean", direct=True),
        Line("token", "outcome", "6 4", 2.5, "^", colour="vermilion", label="outcome", direct=True),
        Rule("wrong_at", dash="", width=1.5, colour="ink", drag="right_steps", when="is_first"),
        Text("sums", "step", "tokens_at"),
        Text("#", STEPS + 1, "tokens_at"),
        Text("{answer_says}", STEPS + 2, "tokens_at"),
        Text("✓", "token", "ticks_at", where="marks_right", colour="green"),
        Text("✗", "token", "ticks_at", where="marks_wrong", colour="vermilion"),
    ),
)
GROUP = Panel(
    "Process credit; hatched: wrong",
    Axis("R: outcome reward, A: its advantage", 0.4, TOKENS + 7.2, ticks=None),
    Axis("", 0.4, ANSWERS + 2.6, names="rows"),
    (
        Cells("column_at", "row_at", "group_credit", "reach", hatch="group_wrong"),
        Text("prompt", "prompt_at", ANSWERS + 2),
        Text("gold", "gold_at", ANSWERS + 1),
        Text("group_digits", "digit_at", "digit_row"),
        Text("#", STEPS + 1, "answers_at"),
        Text("group_says", STEPS + 2, "answers_at"),
        Text("rewards", TOKENS + 1.2, "answers_at"),
        *(Text(f"{{A_{i}:+.2f}}", TOKENS + 3.2, ANSWERS + 1 - i) for i in range(1, ANSWERS + 1)),
        Rule("first_right", axis="y", when="right_others"),
        *(Rule(edge, axis="y", dash="", colour="ink") for edge in ("row_low", "row_high")),
        Rule("row", axis="y", width=0, colour="ink", drag="answer"),
    ),
)
PROCESS = Picture(
    title="Which token of a wrong answer is to blame?",
    look="Drag the line: where answer 1 goes wrong. Click an answer of the group to see its credit.",
    notice="The outcome blames all tokens alike. With rewards for steps, a token answers for all steps to come.",
    alt="Left the advantage of each token of one worked answer, bars from rewards of steps, a dashed line from the outcome; "
    "right a table of the prompt, the right answer and the group's 8 answers with their rewards.",
    panels=(CREDIT, GROUP),
    controls={
        "right_steps": Slider(0, STEPS, 1, 6, "right steps of answer 1", plays=True),
        "right_others": Slider(0, ANSWERS - 1, 1, 3, "others right"),
        "answer": Slider(1, ANSWERS, 1, 1, "answer shown"),
    },
    conclusion=(
        Say(
            "{name}: rewards for steps give all tokens of answer {answer} the same credit, {lowest:+.2f}; the outcome gives "
            "{outcome_there:+.2f}.",
            "alike",
        ),
        Say(
            "{name}: rewards for steps give token {blamed:d} of answer {answer} the least credit, {lowest:+.2f}, where the "
            "outcome gives {outcome_there:+.2f}."
        ),
    ),
    data=DATA,
)


def compares_a_group(algorithm: Algorithm) -> bool:
    """Return whether the algorithm makes advantages by comparing a group's rewards."""
    return learns_from_a_group(algorithm, "step_ends")


explore_process = explorer(
    "process",
    PROCESS,
    process_curve,
    algorithms=Algorithms(
        compares_a_group, GRPO, among=(GRPO, GRPO_PROCESS, *(member for member in OFFERED if member is not GRPO))
    ),
    texts=texts,
    named={
        "one wrong step": {},
        "no answer is right": {"right_others": 0},
        "answer 1 alone is right": {"right_steps": 8, "right_others": 0},
        "Dr.GRPO, a right answer": {"algorithm": DR_GRPO, "answer": 8},
    },
)
