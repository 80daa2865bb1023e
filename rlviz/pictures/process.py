"""Credit for the tokens of worked answers: from the outcome alone, or from a reward for every step."""

from __future__ import annotations

from itertools import accumulate, product
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import DR_GRPO, GRPO, GRPO_PROCESS, Algorithm, GroupPolicyGradient
from rlviz.page.picture import Axis, Bars, Cells, Choice, Line, Panel, Picture, Rule, Say, Slider, Span, Text
from rlviz.page.tracing import Curve
from rlviz.pictures.groups import learns_from_a_group, without_kl
from rlviz.pictures.idea import OFFERED, Algorithms, explorer
from rlviz.pieces.advantages import ProcessAdvantage

DIGITS = "61651778"
STEPS = len(DIGITS)
SUMS = tuple(total % 10 for total in accumulate(map(int, DIGITS)))
TOKENS = STEPS + 3  # the sums, #, the answer, the end: the last three are one step
# of each answer: right running sums before the first wrong one (the first's is a control), and by how much all are wrong after it
STARTS = (6.0, 2.0, 5.0, 0.0, 6.0, 3.0, 7.0, 1.0)
SHIFTS = (7.0, 4.0, 1.0, 9.0, 3.0, 8.0, 5.0, 2.0)
ANSWERS = len(STARTS)
UNITS = (2.0, 5.0, 10.0)  # of credit, so that the axis goes from −3 of them to 2
FLAT = 0.005  # a difference in credit that two decimals show
PLACES = tuple(float(place) for place in range(1, TOKENS + 1))
# places of the group's cells: answers from above, under the prompt and the right answer, tokens from left to right
ROWS, COLUMNS = (list(places) for places in zip(*product(range(ANSWERS, 0, -1), PLACES), strict=True))


def process(algorithm: GroupPolicyGradient) -> Curve:
    """Return the curve: the credit of each token of a worked answer, from the outcome alone, and from a reward for each step.

    The task is to write the running sums of 8 digits modulo 10, then # and the last of them; 8 answers make a group. Every
    running sum is a step, which earns 1 if it is right, and so are the last three tokens, which earn the outcome. Outcome credit
    is the algorithm's own. Process credit takes its place: that of the algorithm with process supervision in its advantage slot,
    or its own rule if it has one, as GRPO (process) has. The last of the other answers become right first.
    """
    bare = without_kl(algorithm, "step_ends")
    has_a_rule = algorithm.asks_for("advantage", "step_ends")

    def curve(right_steps: Tensor, right_others: Tensor, answer: Tensor, supervision: Tensor) -> dict[str, Tensor]:
        place = torch.arange(ANSWERS, dtype=torch.double)
        wrong_from = torch.where(
            place >= ANSWERS - right_others, float(STEPS), torch.tensor(STARTS, dtype=torch.double)
        )
        wrong_from = torch.where(place == 0, right_steps, wrong_from).unsqueeze(1)
        right_sums = torch.arange(STEPS, dtype=torch.double) < wrong_from
        is_right = right_sums.all(1, keepdim=True)
        right = torch.cat([right_sums, is_right.expand(ANSWERS, TOKENS - STEPS)], 1)
        shifts = torch.tensor(SHIFTS, dtype=torch.double).unsqueeze(1) * ~right_sums
        written = (torch.tensor(SUMS, dtype=torch.double) + shifts).remainder(10)

        mask = torch.ones(1, ANSWERS, TOKENS, dtype=torch.bool)
        ends = (torch.arange(TOKENS) < STEPS) | (torch.arange(TOKENS) == TOKENS - 1)
        rewards, step_ends = right.double().unsqueeze(0), ends.expand(mask.shape)
        sums, means = (ProcessAdvantage(combine=rule)(rewards, step_ends)[0] for rule in ("sum", "mean"))
        picked, other = torch.where(supervision > 0, means, sums), torch.where(supervision > 0, sums, means)
        if has_a_rule:
            last = (torch.arange(TOKENS) == TOKENS - 1).expand(mask.shape)
            steps, beside = bare.advantages(rewards, mask, step_ends=step_ends)[0][0], picked
            outcome = bare.advantages(is_right.double().unsqueeze(0) * last, mask, step_ends=last)[0][0]
        else:
            steps, beside = picked, other
            outcome = bare.advantages(is_right.double().T, mask)[0][0]

        chosen = (answer - 1).long().reshape(1)
        of_shown = {"process": steps, "beside": beside, "outcome": outcome, "right": right.double()}
        shown = {name: values[chosen][0] for name, values in of_shown.items()}
        credit = torch.stack([shown["process"], shown["beside"], shown["outcome"]])
        count = is_right.double().sum()
        small, middle = ((credit.amin() > -3.1 * unit) & (credit.amax() < 2.1 * unit) for unit in UNITS[:2])
        unit = torch.where(small, UNITS[0], torch.where(middle, UNITS[1], torch.full_like(count, UNITS[2])))
        first_wrong = wrong_from[chosen][0, 0]
        highest, lowest = shown["process"].amax(), shown["process"].amin()
        first, last_one = shown["process"][0], shown["process"][-1]
        below = torch.where(shown["process"] < 0, torch.arange(1.0, TOKENS + 1, dtype=torch.double), torch.inf).amin()
        said = {
            "none": (shown["process"].abs().amax() == 0),
            "flat": (highest - lowest < FLAT) & (shown["process"].abs().amax() > 0),
            "runs": (highest - lowest >= FLAT) & (lowest >= torch.minimum(first, last_one) - FLAT),
            "dips": (highest - lowest >= FLAT) & (lowest < torch.minimum(first, last_one) - FLAT),
        }
        learns = outcome.abs().amax() > 0
        flags = {
            **{f"dead_{name}": flag & ~learns for name, flag in said.items()},
            **{f"live_{name}": flag & learns for name, flag in said.items()},
            "one_right": count == 1,
            "is_wrong": first_wrong < STEPS,
            "early": (below > 1) & (below <= first_wrong) & (first_wrong < STEPS),
            "is_first": answer == 1,
        }
        return {
            **shown,
            **{f"digit_{i}": written[chosen][0, i] for i in range(STEPS)},
            "sums": written[chosen][0],
            "answer_says": written[chosen][0, -1],
            "marks_right": shown["right"] * ends,
            "marks_wrong": (1 - shown["right"]) * ends,
            "wrong_at": first_wrong + 0.5,
            "wrong_step": first_wrong + 1,
            "low": -3.1 * unit,
            "high": 2.9 * unit,
            "tokens_at": 2.7 * unit,
            "ticks_at": 2.35 * unit,
            "first": first,
            "last": last_one,
            "lowest": lowest,
            "below": below,
            "beside_first": shown["beside"][0],
            "count": count,
            "group_digits": written.flatten(),
            "group_says": written[:, -1],
            "group_credit": steps.flatten(),
            "group_wrong": (1 - right.double()).flatten(),
            "reach": steps.abs().amax().clamp(min=1.0),
            "rewards": is_right.double().flatten(),
            **{f"A_{i}": outcome[i - 1, 0] for i in range(1, ANSWERS + 1)},
            "row": ANSWERS + 1 - answer,
            "row_low": ANSWERS + 0.52 - answer,
            "row_high": ANSWERS + 1.48 - answer,
            "first_right": right_others + 0.5,
            **flags,
        }

    return curve


def texts(algorithm: GroupPolicyGradient) -> dict[str, str]:
    """Return what the algorithm fixes of the words: by which rule it gives process credit, and which one stands beside it."""
    if algorithm.asks_for("advantage", "step_ends"):
        return {"by_sum": "its own rule", "by_mean": "its own rule", "beside_sum": "sum", "beside_mean": "mean"}
    by_sum, by_mean = (f"{rule} of the steps to come" for rule in ("sum", "mean"))
    return {"by_sum": by_sum, "by_mean": by_mean, "beside_sum": "mean", "beside_mean": "sum"}


SUPERVISIONS = {"sum of steps to come": "sum", "mean of them": "mean"}
_WHEN = {rule: f"supervision={words}" for words, rule in SUPERVISIONS.items()}
_LEARNS = {
    "dead": "{name} gives no token of any answer any credit",
    "live": "{name} gives every token of answer {answer} the same {outcome:+.2f}",
}
_STEPS = {
    "none": "is 0 on every token",
    "flat": "is {first:+.2f} on every token",
    "runs": "runs from {first:+.2f} on the first token to {last:+.2f} on the last",
    "dips": "runs from {first:+.2f} on the first token to {last:+.2f} on the last, {lowest:+.2f} at its lowest",
}
_SAYS = "".join(f"{{digit_{i}}}" for i in range(STEPS)) + "#{answer_says}"
_DATA: dict[str, Any] = {
    "token": PLACES,
    "step": PLACES[:STEPS],
    "adds": [*(f"+{digit}" for digit in DIGITS), "#", "ans.", "end"],
    "rows": [*(f"answer {i}" for i in range(ANSWERS, 0, -1)), "right answer", "prompt"],
    "column_at": COLUMNS,
    "row_at": ROWS,
    "digit_at": [x for x in COLUMNS if x <= STEPS],
    "digit_row": [y for x, y in zip(COLUMNS, ROWS, strict=True) if x <= STEPS],
    "answers_at": list(range(ANSWERS, 0, -1)),
    "prompt": [*DIGITS, "="],
    "prompt_at": PLACES[: STEPS + 1],
    "gold": [*map(str, SUMS), "#", str(SUMS[-1]), "R", "A"],
    "gold_at": [*PLACES[: TOKENS - 1], TOKENS + 1.2, TOKENS + 3.2],
}
_CREDIT = Panel(
    "Answer {answer}: the credit of each token",
    Axis("the digit that each step adds to the sum so far", 0.4, TOKENS + 0.6, names="adds"),
    Axis("advantage A", "low", "high"),
    (
        Span("wrong_at", TOKENS + 0.5, label="wrong", direct=True, when="is_wrong"),
        Rule(0, axis="y", dash="", width=1),
        *(
            mark
            for rule, when in _WHEN.items()
            for mark in (
                Bars("token", "process", 0.72, label=f"process: {{by_{rule}}}", when=when),
                Line(
                    "token",
                    "beside",
                    "1 3",
                    2.5,
                    "D",
                    colour="green",
                    label=f"{{beside_{rule}}}",
                    direct=True,
                    when=when,
                ),
            )
        ),
        Line("token", "outcome", "6 4", 2.5, "^", colour="vermilion", label="outcome", direct=True),
        Rule("wrong_at", dash="", width=1.5, colour="ink", drag="right_steps", when="is_first"),
        Text("sums", "step", "tokens_at"),
        Text("#", STEPS + 1, "tokens_at"),
        Text("{answer_says}", STEPS + 2, "tokens_at"),
        Text("✓", "token", "ticks_at", where="marks_right", colour="green"),
        Text("✗", "token", "ticks_at", where="marks_wrong", colour="vermilion"),
    ),
)
_GROUP = Panel(
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
    notice=(
        "The outcome gives every token of an answer the same credit. With rewards of steps the credit changes along the "
        "answer; see on which token it falls below 0."
    ),
    alt="Left the advantage of each token of one worked answer, bars from rewards of steps, a dashed line from the outcome; "
    "right a table of the prompt, the right answer and the group's 8 answers with their rewards.",
    panels=(_CREDIT, _GROUP),
    controls={
        "right_steps": Slider(0, STEPS, 1, 6, "right steps of answer 1", plays=True),
        "right_others": Slider(0, ANSWERS - 1, 1, 3, "others right"),
        "answer": Slider(1, ANSWERS, 1, 1, "answer shown"),
        "supervision": Choice(SUPERVISIONS, "sum of steps to come", "process credit"),
    },
    conclusion=tuple(
        Say(f"{learns}; process credit {steps}.", f"{kind}_{flag}")
        for (kind, learns), (flag, steps) in product(_LEARNS.items(), _STEPS.items())
    ),
    says=(
        Say(
            f"{{name}}: each step adds a digit of {'+'.join(DIGITS)} and writes the last digit of the sum so far; #, the answer "
            "and the end are the last step."
        ),
        Say(f"1 of {ANSWERS} answers is right.", "one_right"),
        Say(f"{{count:d}} of {ANSWERS} answers are right.", "!one_right"),
        Say(f"Answer {{answer}}, {_SAYS}, is wrong from step {{wrong_step:d}} of {STEPS + 1} on.", "is_wrong"),
        Say(f"Answer {{answer}}, {_SAYS}, is right throughout.", "!is_wrong"),
        *(
            Say(f"Process credit, {{by_{rule}}}, is put in the outcome's place, not added to it.", when)
            for rule, when in _WHEN.items()
        ),
        Say(
            "It is below 0 from token {below:d}, before the first wrong step: a token answers for all steps to come.",
            "early",
        ),
        *(
            Say(f"On the first token the {{beside_{rule}}} of the steps to come is {{beside_first:+.2f}}.", when)
            for rule, when in _WHEN.items()
        ),
    ),
    data=_DATA,
)


def compares_a_group(algorithm: Algorithm) -> bool:
    """Return whether the algorithm makes advantages by comparing a group's rewards."""
    return learns_from_a_group(algorithm, "step_ends")


explore_process = explorer(
    "process",
    PROCESS,
    process,
    algorithms=Algorithms(
        compares_a_group, GRPO, among=(GRPO, GRPO_PROCESS, *(each for each in OFFERED if each is not GRPO))
    ),
    texts=texts,
    named={
        "one wrong step": {},
        "no answer is right": {"right_others": 0},
        "answer 1 alone is right": {"right_steps": 8, "right_others": 0},
        "Dr.GRPO, a right answer": {"algorithm": DR_GRPO, "answer": 8},
    },
)
