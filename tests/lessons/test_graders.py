"""Graders of one's own: right ones pass, each hole is named with a response that shows it, and what fools a judge does."""

import re

import pytest
import torch

from rlviz.lessons import check
from rlviz.lessons.graders import HOLES, PROMPTS, RIGHT, RULE, WRONG, fill_texts
from small_models.tasks import Chain, GradedBy, Sort


def by_pattern(prompt, response, answer):
    match = re.fullmatch(r"[0-9]*#([0-9])", response)
    return match is not None and match[1] == answer


def by_parts(prompt, response, answer):
    sums, mark, last = response.rpartition("#")
    return bool(mark) and last == answer and (not sums or (sums.isascii() and sums.isdigit()))


@pytest.mark.parametrize("grader", [by_pattern, by_parts])
def test_right_graders_pass_however_they_are_written(grader):
    assert check.grader(grader).passed


def test_the_table_is_what_the_task_s_own_rule_says():
    """Of three prompts each right form is right and each wrong one wrong, but for texts that happen to be another case's."""
    assert "#" in RULE
    for prompt in PROMPTS:
        for cases, right in ((RIGHT, True), (WRONG, False)):
            for form in cases:
                assert Chain().grade(prompt, form.format(**fill_texts(prompt))).correct == right, (prompt, form)


@pytest.mark.parametrize(
    ("grader", "words"),
    [
        (HOLES["contains"], "'38078#1', '8') is True, and should be False. This is a wrong answer after the right sums."),
        (HOLES["doubt"], "'', '8') is True, and should be False. This is an empty response."),
        (lambda p, r, a: r.rpartition("#")[2] == a, "This is two answers, of which the last is right."),
        (lambda p, r, a: r.split("#")[1] == a, "raises IndexError (list index out of range). A policy writes anything"),
        (lambda p, r, a: by_pattern(p, r, "8"), "my_judge('00000=', '00000#0', '0') is False, and should be True"),
        (lambda p, r, a: torch.tensor([r == a, True]), "raises RuntimeError (Boolean value of Tensor with more than one"),
        (lambda p, r, a: None, "returns None: return True or False."),
        (lambda p, r: True, "a judge takes three arguments: prompt, response, answer."),
        ("38078#8", "give a function of prompt, response and answer; got '38078#8'."),
        (lambda p, r, a: re.fullmatch(r"\d*#" + a, r) is not None, "a full-width 3 before the #"),
        (lambda p, r, a: len(r) <= 7 and by_pattern(p, r, a), "the rule does not count them"),
    ],
)  # fmt: skip
def test_a_hole_is_named_with_a_response_that_shows_it(grader, words):
    verdict = check.grader(grader)
    assert not verdict.passed and words in verdict.says


FOOLS = {"contains": "0123456789", "doubt": "?", "any answer": "#1#8", "begins": "#81"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"contains": "38078#8"}, "contains: '38078#8' is right; find one that is wrong and passes."),
        ({"begins": "#1"}, "begins: it rejects '#1'"),
        ({"doubt": None}, "doubt: a response is a text; got None."),
        ({"else": "x"}, "give a response for each of contains, doubt, any answer, begins."),
    ],
)
def test_what_does_not_fool_a_judge(change, words):
    assert check.fools(FOOLS).passed
    verdict = check.fools(FOOLS | change)
    assert not verdict.passed and words in verdict.says


def test_a_task_with_a_rule_of_one_s_own_is_the_task_but_for_what_is_right():
    task, calls = Sort(), []

    def never(prompt, response, answer):
        calls.append((prompt, response, answer))
        return 0

    graded, prompt = GradedBy(task, never), task.train_prompts[0]
    assert graded.train_prompts == task.train_prompts and graded.held_out_prompts == task.held_out_prompts
    right = task.gold(prompt)
    assert graded.gold(prompt) == right and graded.name == "sort, graded by never"
    grade = graded.grade(prompt, right)
    assert grade.correct is False and grade.format == task.grade(prompt, right).format
    assert calls == [(prompt, right, right)]
