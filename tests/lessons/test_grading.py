"""`rlviz grade` on one class: honest grades stay, whatever others hand in who attack the grader or hand in no notebook at all."""

import csv
import io
import json
import os
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner

from rlviz.cli import app
from rlviz.lessons import check
from rlviz.lessons.gradebook import NO_WALL, Grade, page, table
from rlviz.lessons.grading import LARGEST_HANDED_IN
from rlviz.lessons.submission import _judge
from rlviz.lessons.verdict import Verdict

KEY = "check.group_advantage(my_group_advantage)"
RIGHT = "(rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-6)"
WRONG = "rewards - rewards.mean(1, keepdim=True) + 1"
IMPORTS = "%matplotlib inline\nimport torch\nfrom rlviz.lessons import check"  # as a lesson begins
PREDICTS = """
from pathlib import Path
from rlviz.lessons import Predictions
predict = Predictions("tiny", dead="Which share is dead?")
predict.result("dead", 0.24)
assert "seen" in Path("experiments/verdicts.md").read_text()
"""


def answer(expression: str) -> str:
    return f"def my_group_advantage(rewards):\n    return {expression}\n\n\n{KEY}"


def write(path: Path, *sources: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)


# --- cells that do something else than to answer ---

VANDAL = """
for path in Path("ROOT").rglob("*"):
    if path.is_file() and "vandal" not in path.parent.name:
        path.write_text("spoilt")
check.group_advantage = lambda student: 1 / 0
"""
RIGHT_VERDICT = {"passed": True, "says": "forged", "mistake": ""}
FORGES_A_GRADE = f"""
import json, os, struct
grade = dict(student="", lesson="", exercises=1, verdicts={{{KEY!r}: {RIGHT_VERDICT}}}, stage="ended")
packed = json.dumps(grade).encode()
for file in range(3, 64):
    try:
        os.set_blocking(file, False)
        os.write(file, struct.pack("!i", len(packed)) + packed)
    except OSError:
        pass
"""
PATCHES_THE_CHECKS = f"""
from rlviz.lessons.verdict import Verdict
check.group_advantage = eval = lambda *answers: Verdict(**{RIGHT_VERDICT})
class check:
    group_advantage = staticmethod(eval)
get_ipython().events.register("post_run_cell", lambda *_: display({RIGHT_VERDICT}))
print({RIGHT_VERDICT})
"""
PIPES = "for name in ('../kernel.json', 'predictions/tiny.json'):\n    os.remove(name)\n    os.mkfifo(name)"
HINDSIGHT = 'file = Path("predictions/tiny.json")\nfile.write_text(file.read_text().replace("0.5", "0.24"))'

GUESSED, NO_GUESS, ENDED = (
    "dead: you said 0.5; the run says 0.24",
    "predictions not handed in",
    "the process ended by itself",
)
ANY = None  # words or none
SUBMISSIONS = {  # cells → what its row says
    "over_the_batch": (
        [answer("(rewards - rewards.mean()) / (rewards.std() + 1e-6)")],
        {"mistakes": f"{KEY}: over the batch"},
    ),
    "loops": ([answer(RIGHT), "while True:\n    pass"], {"passed": "1", "error": "stopped after 4 seconds"}),
    "hogs_memory": (["hog = bytearray(20_000_000_000)", answer(RIGHT)], {"passed": "1", "error": "MemoryError"}),
    "is_no_python": (
        ["def my_group_advantage(rewards:\n    return", KEY],
        {"error": "SyntaxError", "mistakes": "NameError"},
    ),
    "vandal": ([VANDAL, answer(RIGHT)], {"passed": "1", "error": "ZeroDivisionError"}),
    "exits": (
        [answer(WRONG), "import os\nos._exit(0)"],
        {"mistakes": f"{KEY}: at [0, 0]", "error": ENDED},
    ),
    "knows_it_afterwards": ([HINDSIGHT, answer(RIGHT)], {"passed": "1"}),
    # who attack: neither makes a wrong answer right
    "forges": ([FORGES_A_GRADE, PATCHES_THE_CHECKS, "print(300 * ('x' * 1_000_000))", answer(WRONG)], {"error": ANY}),
    "puts_pipes_for_its_files": (
        ["import os", PIPES, answer(WRONG)],
        {"predictions": "its predictions cannot be read"},
    ),
}


CELL = {"cell_type": "code", "metadata": {}, "source": 7, "outputs": [], "execution_count": None, "id": "a"}
NUMBER = json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [CELL]}).encode()
BROKEN = {  # content, or what is put in its place → what its row says
    "text": (b"no JSON", "no notebook"),
    "source_is_a_number": (NUMBER, "no notebook"),
    "pipe": (lambda file, folder: os.mkfifo(file), "it is a device or a pipe"),
    "link": (lambda file, folder: file.symlink_to(folder / "a_honest" / "tiny.ipynb"), "is a link"),
    "huge": (lambda file, folder: file.touch() or os.truncate(file, LARGEST_HANDED_IN + 1), "is larger than 50 MB"),
    "nothing": (lambda file, folder: None, "no notebook was handed in"),
}


def predict(student):
    guess = {"question": "Which share is dead?", "guess": 0.5, "result": None}
    (student / "predictions").mkdir()
    (student / "predictions" / "tiny.json").write_text(json.dumps({"lesson": "tiny", "predictions": {"dead": guess}}))


def hand_in(root):
    """Write the class; an honest one stands before and after the others."""
    write(root / "lessons" / "tiny.ipynb", IMPORTS, PREDICTS, answer("None"))
    (root / "lessons" / "experiments").mkdir()
    (root / "lessons" / "experiments" / "verdicts.md").write_text("seen")
    folder = root / "handed_in"
    for letter in "az":
        write(folder / f"{letter}_honest" / "tiny.ipynb", IMPORTS, PREDICTS, answer(RIGHT))
        predict(folder / f"{letter}_honest")
    for place, (name, (sources, _)) in enumerate(SUBMISSIONS.items()):
        student = folder / f"{'bcdfghjklnop'[place % 12]}_{name}"
        cells = [source.replace("ROOT", str(root)) for source in sources]
        write(student / "tiny.ipynb", IMPORTS, PREDICTS, *cells)
        predict(student)
    for place, (name, (content, _)) in enumerate(BROKEN.items()):
        file = folder / f"{'bcdfghjklnop'[place % 12]}_{name}" / "tiny.ipynb"
        file.parent.mkdir()
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            content(file, folder)
    write(folder / "q_spies" / "tiny.ipynb", IMPORTS, PREDICTS, answer(RIGHT))
    (folder / "q_spies" / "predictions").symlink_to(folder / "a_honest" / "predictions")
    return folder


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    root = tmp_path_factory.mktemp("class")
    folder = hand_in(root)
    out = root / "out" / "grades.csv"
    out.parent.mkdir()
    out.write_text("of the year before")
    call = ["grade", str(folder), "--out", str(out), "--limit", "4", "--lessons", str(root / "lessons")]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.output
    return list(csv.DictReader(out.open(encoding="utf-8"))), root, result


def row_of(graded, name):
    """Return the row of a submission, whatever letter stands before its name."""
    (row,) = (row for row in graded[0] if row["student"].partition("_")[2] == name)
    return row


def test_honest_grades_are_as_if_they_were_alone(graded):
    """Also behind the vandal, who overwrites all that was handed in, the lesson and the table."""
    rows, root, _ = graded
    honest = [row for row in rows if row["student"].endswith("_honest")]
    assert len(honest) == 2
    for row in honest:
        assert (row["passed"], row["mistakes"], row["error"]) == ("1", "", "")
        assert row["predictions"] == GUESSED
    assert (root / "handed_in" / "z_honest" / "tiny.ipynb").read_text() == "spoilt"
    assert sorted(row["student"] for row in rows) == sorted(one.name for one in (root / "handed_in").iterdir())


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_a_row_says_what_was_right_and_what_went_wrong(graded, name):
    row, cells = row_of(graded, name), SUBMISSIONS[name][1]
    assert (row["passed"], row["of"]) == (cells.get("passed", "0"), "1") and float(row["seconds"]) < 60
    due = {"error": "", "predictions": GUESSED if row["passed"] == "1" else ANY, **cells}
    for column, words in due.items():
        assert words is ANY or (words in row[column] and bool(words) == bool(row[column])), row


@pytest.mark.parametrize(
    "answer", ["check.group_advantage(lambda rewards: None)", "check.bug('grpo', line=0, does='')"]
)
def test_an_exercise_that_was_left_as_it_is_has_no_answer(answer):
    verdict = _judge(answer, {"check": check})
    assert not verdict.passed and verdict.mistake == "no answer"


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read_has_a_row_that_says_why(graded, name):
    row = row_of(graded, name)
    assert BROKEN[name][1] in row["error"] and row["passed"] == "0"


def test_a_link_to_a_neighbour_s_predictions_is_not_followed(graded):
    assert (row_of(graded, "spies")["passed"], row_of(graded, "spies")["predictions"]) == ("1", NO_GUESS)


def test_half_a_character_and_a_formula_make_no_table_unreadable():
    """A folder's name may hold bytes that are no UTF-8, and what a submission says anything."""
    grade = Grade("\udcff", "tiny", 1, {KEY: Verdict(False, "\ud800\x1b[2J\0")}, error="\n=1+1")
    (row,) = csv.DictReader(io.StringIO(table([grade]).encode("utf-8").decode()))
    assert row["error"] == "' =1+1" and row["student"] == " "
    assert page([grade]).encode("utf-8")


def test_the_page_needs_no_other_file_and_it_is_said_where_one_grades_that_it_is_no_wall(graded):
    _, root, result = graded
    html = (root / "out" / "grades.html").read_text(encoding="utf-8")
    assert "over the batch" in html and "http" not in html and "src=" not in html
    above = Path(__file__).parents[2]
    pages = [above / "notebooks" / "teaching" / "README.md", above / "rlviz" / "cli" / "README.md"]
    for text in (result.output, html.replace("&#x27;", "'"), *(file.read_text(encoding="utf-8") for file in pages)):
        assert NO_WALL in " ".join(text.split())
