"""What the teacher has for each lesson is true: plans fill their minutes, calls draw."""

import re
from pathlib import Path

import nbformat
import pytest

import rlviz

COURSE = Path(__file__).parent.parent / "notebooks"
PLANS = sorted((COURSE / "teaching").glob("[0-9]*.md"))
LESSONS = sorted(COURSE.glob("[0-9][0-9]_*.ipynb"))


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


DONE_IN_CLASS = re.compile(r"\b(exercises?|assembled?|assembly|write|bugs?|unlabelled|transfer|design)\b", re.I)


def minutes_short(text, lesson):
    """Return the rows of a plan that leave an exercise less time than its lesson states, or do not name its section.

    Of alternatives, joined by `, or`, the longest counts.
    """
    found = []
    for minutes, row in re.findall(r"^\| (\d+) \| (.+) \|$", text, re.M):
        needs = [
            sum(
                lesson.get(number, 0)
                for numbers in re.findall(r"sections? (\d+(?:(?:, | and )\d+)*)", part)
                for number in re.findall(r"\d+", numbers)
            )
            for part in row.split(", or ")
        ]
        if max(needs) > int(minutes):
            found.append(f"{row}: {minutes} minutes, {max(needs)} in the lesson")
        elif DONE_IN_CLASS.search(row) and not max(needs):
            found.append(f"{row}: which section?")
    return found


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)
def test_a_plan_gives_an_exercise_the_minutes_of_its_lesson(plan):
    cells = nbformat.read(COURSE / f"{plan.stem}.ipynb", 4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    _, *parts = re.split(r"^## (\d+) · ", text, flags=re.M)
    exercises = (re.findall(r"[●○]{3} +(\d+) minutes?", part) for part in parts[1::2])
    lesson = {number: sum(map(int, said)) for number, said in zip(parts[::2], exercises, strict=True)}
    assert sum(lesson.values()) == int(re.search(r"(\d+) of exercises", text)[1])
    assert minutes_short(plan.read_text(encoding="utf-8"), lesson) == []


def test_an_exercise_without_its_minutes_is_found():
    lesson = {"5": 10, "6": 20, "9": 4}
    assert minutes_short("| 15 | The loss and the loop (sections 5 and 6). |", lesson) == [
        "The loss and the loop (sections 5 and 6).: 15 minutes, 30 in the lesson"
    ]
    assert minutes_short("| 20 | The loss (section 5), or the loop (section 6). |", lesson) == []
    assert minutes_short("| 30 | Spot the bug. |", lesson) == ["Spot the bug.: which section?"]
    assert minutes_short("| 15 | The picture (section 3). |\n| 4 | The unlabelled run (section 9). |", lesson) == []


def test_the_arguments_of_a_call_are_those_of_the_explorer():
    """Each is drawn: a call that is shown to a room must not fail there."""
    calls = {found for plan in PLANS for found in re.findall(r"`explore_(\w+)\((.*?)\)`", plan.read_text())}
    assert len(calls) >= 4
    for name, arguments in calls:
        explorer = getattr(rlviz, f"explore_{name}")(**dict(pair(one) for one in filter(None, arguments.split(", "))))
        assert explorer.alt


def pair(text):
    name, value = text.split("=")
    return name, value.strip('"') if '"' in value else float(value) if "." in value else int(value)
