"""Each lesson's bug and unlabelled run: the answer is among the choices, each wrong one is told so, the run is what it says."""

from importlib import import_module
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from rlviz.lessons import check, puzzles, show_bug, unlabelled

LESSONS = sorted(file.stem for file in Path(puzzles.__file__).parent.glob("l[0-9][0-9].py"))
HAVE = {name: import_module(f"rlviz.lessons.puzzles.{name}") for name in LESSONS}
BUGS = {name[1:]: module.BUG for name, module in HAVE.items() if hasattr(module, "BUG")}
RUNS = {name[1:]: module.RUN for name, module in HAVE.items() if hasattr(module, "RUN")}


@pytest.mark.parametrize("lesson", BUGS)
def test_a_bug_has_one_answer(lesson):
    bug = BUGS[lesson]
    assert bug.does in bug.choices
    count = len(bug.source.splitlines())
    passed = {
        (line, does)
        for line in range(1, count + 1)
        for does in bug.choices
        if check.bug(lesson, line=line, does=does).passed
    }
    assert passed == {(line, bug.does) for line in bug.lines}
    assert f"def {bug.right.__name__}" not in str(show_bug(lesson))
    assert not check.bug(lesson, line=0, does="…").passed


# the line or lines to blame, read off the printed source
BLAMED = {
    "01": (2, 3, 4), "02": (3,), "03": (2,), "04": (3,), "05": (4,), "06": (3,), "07": (3, 4), "08": (2, 3),
    "09": (4,), "10": (5, 6), "11": (3,), "12": (3,), "13": (3,), "14": (5,), "15": (4,), "16": (5,),
}  # fmt: skip


def test_the_lines_to_blame_are_those_of_the_edit():
    assert {lesson: bug.lines for lesson, bug in BUGS.items()} == BLAMED


@pytest.mark.parametrize("lesson", RUNS)
def test_a_run_has_one_answer_and_says_why_of_each(lesson):
    run = RUNS[lesson]
    assert set(run.why) == set(run.choices)
    assert [choice for choice in run.choices if check.unlabelled(lesson, choice).passed] == [run.does]
    assert "; ".join(run.choices) in check.unlabelled(lesson, "").says


def test_a_run_is_drawn_and_its_setting_is_not_told(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda what, **_: shown.append(what))
    unlabelled("02")
    figure, asked = shown
    assert isinstance(figure, Figure)
    assert all(choice in asked["text/plain"] for choice in RUNS["02"].choices)
    assert RUNS["02"].does not in " ".join(ax.get_title() for ax in figure.axes)


def test_a_lesson_without_one_is_named():
    for ask in (show_bug, unlabelled, lambda lesson: check.bug(lesson, line=1, does="")):
        with pytest.raises(ValueError, match=r"lesson must be one of .*02.*; got '99'"):
            ask("99")
