"""Predictions are asked for once, kept whole, shown beside the result, and gathered from a room."""

import json
import sys
from pathlib import Path

import pytest

from rlviz.lessons import Predictions, room

QUESTIONS = {"dead": "Which share is dead?", "faster": ("Which is faster?", "steps", "outcome")}


@pytest.fixture(autouse=True)
def beside_a_notebook(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RLVIZ_ASK", raising=False)


@pytest.fixture
def says(monkeypatch):
    """Return what a person was asked; they give these answers in turn."""

    def answering(*answers):
        asked, left = [], list(answers)
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        monkeypatch.setattr("builtins.input", lambda prompt: (asked.append(prompt), left.pop(0))[1])
        return asked

    return answering


def test_a_guess_is_asked_for_once_and_stands_beside_the_result(says, capsys):
    asked = says("a half", "25 %", "2")
    predict = Predictions("03_grpo", **QUESTIONS)
    predict("dead")
    predict("faster")
    predict("dead")
    assert len(asked) == 3
    assert asked[1].startswith("a half is not a number") and "1 steps, 2 outcome" in asked[2]
    predict.result("dead", 0.24)
    again = Predictions("03_grpo", **QUESTIONS)  # the kernel was restarted
    again("dead")
    again.result("faster", "steps")
    assert len(asked) == 3
    assert capsys.readouterr().out.splitlines() == [
        "Which share is dead? you said 0.25; the run says 0.24.",
        "Which is faster? you said outcome; the run says steps.",
    ]
    table = again.table()._repr_html_()
    assert "<td" in table and "0.25" in table and "0.24" in table and "outcome" in table
    kept = json.loads(Path("predictions/03_grpo.json").read_text(encoding="utf-8"))["predictions"]
    assert (kept["dead"]["guess"], kept["dead"]["result"], kept["faster"]["guess"]) == (0.25, 0.24, "outcome")


def test_the_fields_keep_what_is_typed_and_refuse_what_is_out_of_range():
    questions = {
        "share": "Accuracy after 60 steps (0 to 1)?",
        "change": "By how much?",
        "faster": ("Which?", "a", "b <i>"),
    }
    predict = Predictions("03_grpo", **questions)
    (words, field, said), (_, other, _), (_, choice, chosen) = (row.children for row in predict.form().children)
    assert words.value == "<span>Accuracy after 60 steps (0 to 1)?</span>" and field.value == "" and not field.disabled
    for typed, wrong in (
        ("88", "88 is not a number from 0 to 1."),
        ("-0.1", "0 to 1"),
        ("<b>", "&lt;b&gt; is not a number"),
    ):
        field.value = typed
        assert wrong in said.value and predict._kept["share"].guess is None
    for end in ("1", "0"):
        field.value = end
        assert said.value == "kept" and predict._kept["share"].guess == float(end)
    field.value = "88 %"
    assert said.value == "kept" and predict._kept["share"].guess == 0.88
    field.value = ""  # what was kept stays until another answer comes
    other.value, choice.value = "-3", "b <i>"
    assert chosen.value == "kept" and predict._kept["change"].guess == -3 and predict._kept["faster"].guess == "b <i>"
    assert json.loads(Path("predictions/03_grpo.json").read_text("utf-8"))["predictions"]["faster"]["guess"] == "b <i>"
    predict.result("share", 0.9)
    field.value = "0.9"
    assert said.value == "<span>The result is shown already.</span>" and predict._kept["share"].guess == 0.88
    again = Predictions("03_grpo", **questions).form()
    assert [row.children[1].value for row in again.children] == ["0.88", "-3", "b <i>"]
    assert [row.children[1].disabled for row in again.children] == [True, False, False]


def test_where_nobody_answers_nothing_is_asked(monkeypatch, capsys):
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("asked"))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    predict = Predictions("03_grpo", **QUESTIONS)
    predict("dead")
    predict.result("dead", 0.24)
    assert "you made no prediction; the run says 0.24" in capsys.readouterr().out
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("RLVIZ_ASK", "0")
    predict("faster")


@pytest.mark.parametrize("typed", ["-3", "−3", " –3. ", "1"])
def test_a_choice_is_its_number_or_its_words_however_they_are_typed(typed):
    predict = Predictions("03_grpo", change=("Which?", "−3", "more than 3"))
    assert predict.take("change", typed) == "" and predict._kept["change"].guess == "−3"
    assert predict.take("change", "MORE  than 3") == "" and predict._kept["change"].guess == "more than 3"
    assert "is not one of" in predict.take("change", "3")


@pytest.mark.parametrize(("question", "guess"), [("Share of dead groups?", 0.75), ("Per cent of the tokens?", 75.0)])
def test_a_sign_of_per_cent_means_what_the_question_asks_for(says, question, guess):
    says("75 %")
    predict = Predictions("09_x", asked=question)
    predict("asked")
    predict.result("asked", guess)
    kept = json.loads(Path("predictions/09_x.json").read_text(encoding="utf-8"))["predictions"]
    assert kept["asked"]["guess"] == guess


def test_a_damaged_file_is_set_aside():
    Path("predictions").mkdir()
    Path("predictions/03_grpo.json").write_text("{", encoding="utf-8")
    with pytest.warns(UserWarning, match="it is now predictions/03_grpo.damaged.json"):
        predict = Predictions("03_grpo", **QUESTIONS)
    assert Path("predictions/03_grpo.damaged.json").read_text(encoding="utf-8") == "{"
    predict.result("dead", 1)


def hand_in(folder, lesson, *rows):
    """Write a student's file for each of these (guess, result)."""
    for student, (guess, result) in enumerate(rows):
        told = {"question": "Which?", "guess": guess, "result": result, "at": ""}
        file = folder / f"student{student}" / "predictions" / f"{lesson}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"lesson": lesson, "predictions": {"which": told}}), encoding="utf-8")


@pytest.mark.parametrize("stray", range(3))
def test_the_room_is_a_histogram_with_the_result_that_most_runs_have(tmp_path, stray):
    """One run of three says something else, wherever it comes among the files; one student made no guess."""
    numbers, words = [(0.5, 0.25), (None, 0.25), (0.5, 0.25)], [("steps", "steps")] * 3
    numbers[stray], words[stray] = (numbers[stray][0], 9.0), ("outcome", "outcome")
    hand_in(tmp_path, "03_grpo", *numbers)
    hand_in(tmp_path, "11_kl", *words)
    broken = tmp_path / "broken" / "03_grpo.json"
    broken.parent.mkdir()
    broken.write_text("[", encoding="utf-8")
    with pytest.warns(UserWarning, match=f"left out: {broken}"):
        (ax,) = room(tmp_path, "03_grpo").axes
    assert ax.lines[0].get_xdata()[0] == 0.25 and sum(bar.get_height() for bar in ax.patches) == 2
    outcome, steps = room(tmp_path, "11_kl").axes[0].patches
    assert (outcome.get_height(), steps.get_height()) == (1, 2)
    assert (steps.get_label(), steps.get_linewidth(), outcome.get_linewidth() < 4) == ("the result", 4, True)


def test_a_result_that_is_no_number_is_a_bar_beside_the_numbers(tmp_path):
    hand_in(tmp_path, "03_grpo", (0.5, "never"), (None, "never"))
    assert [bar.get_height() for bar in room(tmp_path, "03_grpo").axes[0].patches] == [1, 0]  # 0.5, never
