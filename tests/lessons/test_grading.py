"""`rlviz grade` on made submissions, each of which does something else that is wrong."""

import csv
import json
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner

from rlviz.cli import app

IMPORTS = "import torch\nfrom rlviz.lessons import check"
CHECK = "check.group_advantage(my_group_advantage)"
RIGHT = "(rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-6)"


def answer(expression: str) -> str:
    return f"def my_group_advantage(rewards):\n    return {expression}\n\n\n{CHECK}"


def write(path: Path, *sources: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)


VANDAL = """
from pathlib import Path
for path in Path({folder!r}).rglob("*"):
    if path.is_file() and path.parent.name != "k_vandal":
        path.write_text("spoilt")
check.group_advantage = lambda student: 1 / 0
"""
SUBMISSIONS = {
    "a_right": ("%matplotlib inline\n" + IMPORTS, answer(RIGHT)),  # as a lesson begins
    "b_batch": (IMPORTS, answer("(rewards - rewards.mean()) / (rewards.std() + 1e-6)")),
    "c_biased": (IMPORTS, answer(RIGHT.replace("std(1,", "std(1, correction=0,"))),
    "d_position": (IMPORTS, answer("(rewards - rewards.mean(0)) / (rewards.std(0) + 1e-6)")),
    "e_loop": (IMPORTS, answer(RIGHT), "while True:\n    pass"),
    "f_memory": (IMPORTS, "hog = bytearray(20_000_000_000)", answer(RIGHT)),
    "g_solution": (IMPORTS, "text = open('solutions/tiny.ipynb').read()", answer(RIGHT)),
    "h_syntax": (IMPORTS, "def my_group_advantage(rewards:\n    return", CHECK),
    "i_deletes": (IMPORTS, answer(RIGHT), "import os, shutil\nshutil.rmtree(os.getcwd())"),
    "j_empty": (),
    "k_vandal": (IMPORTS, VANDAL, answer(RIGHT)),
    "l_exits": (IMPORTS, answer(RIGHT), "import os\nos._exit(0)"),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    root = tmp_path_factory.mktemp("grade")
    folder = root / "handed_in"
    write(root / "lessons" / "tiny.ipynb", IMPORTS, answer("None"))
    for name, sources in SUBMISSIONS.items():
        write(folder / name / "tiny.ipynb", *(source.replace("{folder!r}", repr(str(root))) for source in sources))
    (folder / "m_text").mkdir()
    (folder / "m_text" / "tiny.ipynb").write_text("no JSON")
    kept = {
        "lesson": "tiny",
        "predictions": {"dead": {"question": "How many?", "guess": 0.5, "result": 0.24, "at": ""}},
    }
    (folder / "a_right" / "predictions").mkdir()
    (folder / "a_right" / "predictions" / "tiny.json").write_text(json.dumps(kept))
    (root / "out").mkdir()
    out = root / "out" / "grades.csv"
    out.write_text("of the year before")
    call = ["grade", str(folder), "--out", str(out), "--limit", "6", "--lessons", str(root / "lessons")]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.output
    return {row["student"]: row for row in csv.DictReader(out.open())}, out


@pytest.mark.parametrize(
    "name", ["a_right", "c_biased", "e_loop", "f_memory", "g_solution", "i_deletes", "k_vandal", "l_exits"]
)
def test_what_is_right_passes_whatever_comes_after_it(graded, name):
    rows, _ = graded
    assert (rows[name]["passed"] == "1") == (name != "c_biased")


@pytest.mark.parametrize(
    ("name", "mistake"),
    [("b_batch", "over the batch"), ("c_biased", "biased std"), ("d_position", "over the position in the group")],
)
def test_mistakes_are_named(graded, name, mistake):
    rows, _ = graded
    assert rows[name]["mistakes"] == f"check.group_advantage(my_group_advantage): {mistake}"
    assert rows[name]["passed"] == "0"


def test_what_went_wrong_is_said(graded):
    rows, _ = graded
    assert rows["e_loop"]["error"] == "stopped after 6 seconds"
    assert "MemoryError" in rows["f_memory"]["error"]
    assert rows["g_solution"]["solutions used"] == "solutions/tiny.ipynb"
    assert "SyntaxError" in rows["h_syntax"]["error"]
    assert "NameError" in rows["j_empty"]["mistakes"]
    assert "ended by itself" in rows["l_exits"]["error"]
    assert "no notebook" in rows["m_text"]["error"]
    assert not rows["a_right"]["error"] and not rows["a_right"]["solutions used"]
    assert rows["a_right"]["predictions"] == "dead: you said 0.5; the run says 0.24"


def test_no_submission_changes_another_s_grade(graded):
    """The vandal overwrites all that was handed in, the lesson and the table; those after it keep their grades."""
    rows, out = graded
    assert (out.parent.parent / "handed_in" / "l_exits" / "tiny.ipynb").read_text() == "spoilt"
    assert rows["l_exits"]["passed"] == rows["k_vandal"]["passed"] == "1"
    assert set(rows) == {*SUBMISSIONS, "m_text"}


def test_the_page_needs_no_other_file(graded):
    page = graded[1].with_suffix(".html").read_text(encoding="utf-8")
    assert "biased std" in page and "http" not in page and "src=" not in page
