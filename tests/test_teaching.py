"""What the teacher has for each lesson is true: plans fill their minutes, calls draw, links and terms lead somewhere."""

import re
from pathlib import Path

import nbformat
import pytest

import rlviz

COURSE = Path(__file__).parent.parent / "notebooks"
PLANS = sorted((COURSE / "teaching").glob("[0-9]*.md"))
LESSONS = sorted(COURSE.glob("[0-9][0-9]_*.ipynb"))
TERMS = {
    title.replace(" ", "-")
    for title in re.findall(r"^### (.+)$", (COURSE / "glossary.md").read_text(encoding="utf-8"), re.M)
}


def test_there_is_a_plan_for_every_lesson():
    assert [plan.stem for plan in PLANS] == [lesson.stem for lesson in LESSONS]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)
def test_a_plan_fills_its_minutes_and_has_what_a_teacher_needs(plan):
    text = plan.read_text(encoding="utf-8")
    for minutes, part in re.findall(r"^## (50|90) minutes$(.*?)(?=^## )", text, re.M | re.S):
        assert sum(map(int, re.findall(r"^\| (\d+) \|", part, re.M))) == int(minutes)
    parts = dict(re.findall(r"^## (.+?)$(.*?)(?=^## |\Z)", text, re.M | re.S))
    counted = {title: len(re.findall(r"^\d\. ", part, re.M)) for title, part in parts.items()}
    assert list(counted.values()) == [0, 0, 3, 2, 0]


@pytest.mark.parametrize(
    "call", sorted({call for plan in PLANS for call in re.findall(r"`(explore_\w+)\(", plan.read_text())})
)
def test_the_explorers_named_there_are(call):
    assert callable(getattr(rlviz, call))


def test_the_arguments_of_a_call_are_those_of_the_explorer():
    """Each is drawn: a call that is shown to a room must not fail there."""
    calls = {found for plan in PLANS for found in re.findall(r"`explore_(\w+)\((\w.*?)\)`", plan.read_text())}
    assert len(calls) >= 4
    for name, arguments in calls:
        explorer = getattr(rlviz, f"explore_{name}")(**dict(pair(one) for one in arguments.split(", ")))
        assert explorer.alt


def pair(text):
    name, value = text.split("=")
    return name, value.strip('"') if '"' in value else float(value) if "." in value else int(value)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_a_term_that_is_linked_is_in_the_glossary(lesson):
    text = "\n".join(cell.source for cell in nbformat.read(lesson, 4).cells if cell.cell_type == "markdown")
    assert set(re.findall(r"glossary\.md#([\w-]+)", text)) <= TERMS
