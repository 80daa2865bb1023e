"""A lesson's questions in its page: choices answered at once with the words of their check, and guesses beside their results."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from string import ascii_lowercase
from typing import Any

from rlviz.lessons.editions import exercises_of, syntax_tree
from rlviz.lessons.predictions import UNPREDICTED
from rlviz.lessons.puzzles import (
    BUG_QUESTION,
    LINE_QUESTION,
    RUN_QUESTION,
    Bug,
    find_puzzle,
    judge_bug,
    judge_unlabelled,
)
from rlviz.lessons.verdict import Verdict
from rlviz.markup import Markup, element, joined

BLAMED, INNOCENT = "1", "0"  # the value of a line's button; a choice's is its letter
SHOWN_BY = {"show_bug": "bug", "unlabelled": "unlabelled"}  # function that shows a puzzle → its check
Questions = Mapping[str, tuple[str, ...]]  # name → question, and its choices if it has any


def is_answer(cell: Any) -> bool:
    """Return True for a cell that does nothing but check the answer to a puzzle."""
    calls = [ast.unparse(call.func) for call in exercises_of(cell)]
    return bool(calls) and set(calls) <= {"check.bug", "check.unlabelled"} and len(syntax_tree(cell.source).body) == 1


def find_puzzles(source: str) -> Iterator[tuple[str, str]]:
    """Yield the check and the lesson's name of each puzzle that a cell shows."""
    if not any(function in source for function in SHOWN_BY):
        return
    for call in ast.walk(syntax_tree(source)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in SHOWN_BY:
            yield SHOWN_BY[call.func.id], str(ast.literal_eval(call.args[0]))


def lists_choices(text: str, check: str, lesson: str) -> bool:
    """Return True for a printed output that the puzzle's buttons replace."""
    return f"a) {find_puzzle(check, lesson).choices[0]}" in text


def puzzle_form(check: str, lesson: str) -> Markup:
    """Return a puzzle's choices as radio buttons, for a bug also its lines, and each verdict that they can lead to."""
    puzzle = find_puzzle(check, lesson)
    letters = dict(zip(ascii_lowercase, puzzle.choices, strict=False))
    choices = list(letters.items())
    if check == "unlabelled":
        groups = [_radios(f"{lesson}-run", RUN_QUESTION, choices)]
        verdicts = {letter: judge_unlabelled(lesson, letter) for letter in letters}
        hint = "Choose one: the answer stands here."
    else:
        numbered = list(enumerate(puzzle.source.splitlines(), 1))
        lines = [(BLAMED if n in puzzle.lines else INNOCENT, element("code", f"{n:2}  {line}")) for n, line in numbered]
        groups = [
            _radios(f"{lesson}-line", LINE_QUESTION, lines),
            _radios(f"{lesson}-does", BUG_QUESTION, choices),
        ]
        verdicts = _bug_verdicts(lesson, puzzle, [number for number, _ in numbered], letters)
        hint = "Choose a line and what it does: the answer stands here."
    answers = [element("template", one.markup, data_choice=key) for key, one in verdicts.items()]
    return element("div", *groups, element("div", hint, aria_live="polite"), *answers, class_="quiz", data_quiz=check)


def _bug_verdicts(lesson: str, bug: Bug, numbers: list[int], letters: Mapping[str, str]) -> dict[str, Verdict]:
    """Return the verdicts by the values of the two buttons; all lines that are not to blame have the same."""
    examples = {BLAMED if number in bug.lines else INNOCENT: number for number in numbers}
    return {
        value + letter: judge_bug(lesson, line=line, does=letter)
        for value, line in examples.items()
        for letter in letters
    }


def _radios(name: str, question: str, options: list[tuple[str, Any]]) -> Markup:
    rows = [
        element("label", element("input", type="radio", name=name, value=value), " ", element("span", words))
        for value, words in options
    ]
    return element("fieldset", element("legend", question), *rows)


def read_questions(source: str) -> dict[str, tuple[str, ...]]:
    """Return the questions of a cell's Predictions(…); none where it has no such call, or one that must be run to be read."""
    questions: dict[str, tuple[str, ...]] = {}
    for call in ast.walk(syntax_tree(source)) if "Predictions(" in source else ():
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("Predictions"):
            for word in call.keywords:
                with suppress(ValueError):
                    value = ast.literal_eval(word.value)
                    questions[str(word.arg)] = (value,) if isinstance(value, str) else value
    return questions


def prediction_form(questions: Questions) -> Markup:
    """Return a field for the guess of each question; what is written there stays in the page."""
    rows = []
    for name, (question, *choices) in questions.items():
        options = [element("option", "choose …", value=""), *(element("option", choice) for choice in choices)]
        field = element("select", *options, name=name) if choices else _text_field(name)
        rows.append(element("label", element("span", question), " ", field))
    legend = element("legend", "Your predictions: each stands beside its result, further down.")
    return element("fieldset", legend, *rows, class_="quiz guesses", data_guesses="")


def _text_field(name: str) -> Markup:
    return element("input", type="text", name=name, placeholder="your guess", autocomplete="off", size="10")


def result_text(text: str, questions: Questions) -> Markup:
    """Return what a saved lesson printed, with a place for the guess before each result of a question."""
    parts: list[Markup] = []
    for has_result, group in groupby(text.splitlines(), lambda line: UNPREDICTED in line):
        lines = list(group)
        parts += [_result_line(line, questions) for line in lines] if has_result else [element("pre", "\n".join(lines))]
    return joined(*parts)


def _result_line(line: str, questions: Questions) -> Markup:
    asks, _, result = line.partition(UNPREDICTED)
    name = next((name for name, (question, *_) in questions.items() if asks == f"{question} "), "")
    return element("p", asks, element("span", "The run says", data_guess=name), result)
