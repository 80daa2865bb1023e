"""Predictions are typed into fields, saved whole, shown beside the result, and gathered from a room."""

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


def read(lesson="03_grpo"):
    saved = json.loads(Path(f"predictions/{lesson}.json").read_text(encoding="utf-8"))
    return {name: (one["guess"], one["result"]) for name, one in saved["predictions"].items()}


def test_a_guess_stands_beside_the_result_also_after_a_restart_of_the_kernel(capsys):
    predict = Predictions("03_grpo", **QUESTIONS)
    assert "a half is not a number" in predict.take("dead", "a half") and predict.take("dead", "25 %") == ""
    predict.take("faster", "2")
    predict.result("dead", 0.24)
    again = Predictions("03_grpo", **QUESTIONS)
    again.result("faster", "steps")
    assert capsys.readouterr().out.splitlines() == [
        "Which share is dead? you said 0.25; the run says 0.24.",
        "Which is faster? you said outcome; the run says steps.",
    ]
    table = again.table()._repr_html_()
    assert "<td" in table and "0.25" in table and "0.24" in table and "outcome" in table
    assert read() == {"dead": (0.25, 0.24), "faster": ("outcome", "steps")}
    Predictions("04", dead="Which?").result("dead", 0.24)
    assert "you made no prediction; the run says 0.24" in capsys.readouterr().out


def test_a_call_asks_until_there_is_an_answer_and_only_where_somebody_can_answer(monkeypatch):
    questions, answers = [], ["a half", "50 %"]
    monkeypatch.setattr("builtins.input", lambda question: questions.append(question) or answers.pop(0))
    predict = Predictions("03_grpo", **QUESTIONS)
    predict("dead")
    assert not questions
    monkeypatch.setattr("rlviz.lessons.predictions.is_answered", lambda: True)
    predict("dead")
    predict("dead")
    assert len(questions) == 2 and questions[1].startswith("a half is not a number")
    assert read()["dead"] == (0.5, None)


def test_the_fields_save_what_is_typed_and_refuse_what_is_out_of_range(monkeypatch):
    questions = {
        "share": "Accuracy after 60 steps (0 to 1)?",
        "change": "By how much?",
        "faster": ("Which?", "a", "b <i>"),
    }
    predict, displayed = Predictions("03_grpo", **questions), []
    monkeypatch.setattr("IPython.display.display", displayed.append)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    predict._ipython_display_()
    monkeypatch.setenv("RLVIZ_ASK", "0")  # where nobody answers, there is no form
    predict._ipython_display_()
    ((form,),) = (displayed,)
    (words, field, note), (_, other, _), (_, choice, chosen) = (row.children for row in form.children)
    assert words.value == "<span>Accuracy after 60 steps (0 to 1)?</span>" and field.value == "" and not field.disabled
    for typed, wrong in (("88", "88 is not a number from 0 to 1."), ("-0.1", "0 to 1"), ("<b>", "&lt;b&gt; is not")):
        field.value = typed
        assert wrong in note.value and predict.predictions["share"].guess is None
    for typed, guess in (("1", 1.0), ("0", 0.0), ("88 %", 0.88)):
        field.value = typed
        assert note.value == "kept" and predict.predictions["share"].guess == guess
    field.value = ""  # what was saved stays until another answer comes
    other.value, choice.value = "-3", "b <i>"
    assert chosen.value == "kept" and read() == {"share": (0.88, None), "change": (-3, None), "faster": ("b <i>", None)}
    predict.result("share", 0.9)
    field.value = "0.9"
    assert note.value == "<span>The result is shown already.</span>" and read()["share"] == (0.88, 0.9)
    again = Predictions("03_grpo", **questions).form()
    assert [row.children[1].value for row in again.children] == ["0.88", "-3", "b <i>"]
    assert [row.children[1].disabled for row in again.children] == [True, False, False]


@pytest.mark.parametrize(
    ("question", "typed", "guess"),
    [
        *((("Which?", "−3", "more than 3"), typed, "−3") for typed in ("-3", "−3", " –3. ", "1")),
        (("Which?", "−3", "more than 3"), "MORE  than 3", "more than 3"),
        (("Which?", "−3", "more than 3"), "3", None),
        (("How many?", "2", "4"), "2", "2"),  # not the second one
        ("Share of dead groups?", "75 %", 0.75),
        ("Per cent of the tokens?", "75 %", 75.0),
        ("Share of dead groups?", "0,5", 0.5),
    ],
)
def test_an_answer_counts_however_it_is_typed(question, typed, guess):
    predict = Predictions("09_x", name=question)
    assert (predict.take("name", typed) == "") == (guess is not None) and predict.predictions["name"].guess == guess


def test_of_a_damaged_file_is_said_what_to_do():
    Path("predictions").mkdir()
    Path("predictions/03_grpo.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="move it away, and the predictions begin anew"):
        Predictions("03_grpo", **QUESTIONS)


def hand_in(folder, lesson, *rows):
    """Write a student's file for each of these (guess, result)."""
    for student, (guess, result) in enumerate(rows):
        prediction = {"question": "Which?", "guess": guess, "result": result}
        file = folder / f"student{student}" / "predictions" / f"{lesson}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"lesson": lesson, "predictions": {"which": prediction}}), encoding="utf-8")


def test_the_room_is_a_histogram_with_the_result_that_most_runs_have(tmp_path):
    """One run of three says something else, the first among the files; one student made no guess."""
    hand_in(tmp_path, "03_grpo", (0.5, 9.0), (None, 0.25), (0.5, 0.25))
    hand_in(tmp_path, "11_kl", ("outcome", "outcome"), ("steps", "steps"), ("steps", "steps"))
    hand_in(tmp_path, "12_x", (0.5, "never"), (None, "never"))  # a result that is no number is a bar beside the numbers
    broken = tmp_path / "broken" / "03_grpo.json"
    broken.parent.mkdir()
    broken.write_text("[", encoding="utf-8")
    with pytest.warns(UserWarning, match=f"left out: {broken}"):
        (ax,) = room(tmp_path, "03_grpo").axes
    assert ax.lines[0].get_xdata()[0] == 0.25 and sum(bar.get_height() for bar in ax.patches) == 2
    outcome, steps = room(tmp_path, "11_kl").axes[0].patches
    assert (outcome.get_height(), steps.get_height()) == (1, 2)
    assert (steps.get_label(), steps.get_linewidth(), outcome.get_linewidth() < 4) == ("the result", 4, True)
    assert [bar.get_height() for bar in room(tmp_path, "12_x").axes[0].patches] == [1, 0]  # 0.5, never
