"""Submissions are run apart from each other, and the table says which checks passed and which mistakes were made."""

import csv

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from typer.testing import CliRunner

from rlviz.cli import app, course as commands
from rlviz.grading import submissions

LESSON = """\
def my_objective(ratio, A, lower, upper):
    return None  # your lines


check.pessimistic(my_objective)"""
IMPORTS = "%matplotlib inline\nimport torch\nfrom rlviz.exercises import check"
MINIMUM = "    return torch.minimum(ratio * A, ratio.clamp(lower, upper) * A)"
STUDENTS = {
    "anna": [  # right, and tries to change what others get
        IMPORTS,
        LESSON.replace("    return None  # your lines", MINIMUM),
        'check.bug("02", line=3, does="a bad token whose ratio is 1.5 loses its gradient")',
        "import pathlib, shutil\n"
        "for place in [NEIGHBOURS]:\n"
        "    for file in pathlib.Path(place).rglob('*.ipynb'):\n        file.write_text('{}')\n"
        "shutil.rmtree(pathlib.Path.cwd())",
    ],
    "ben": [
        IMPORTS,
        "def broken(:",
        "import solutions",
        LESSON.replace("None  # your lines", "ratio.clamp(lower, upper) * A"),
    ],
    "cleo": [IMPORTS, LESSON.replace("None  # your lines", "ratio * A"), "import time\nwhile True:\n    time.sleep(1)"],
    "dora": [IMPORTS, LESSON, "x = bytearray(400_000_000_000)"],
}


def notebook(path, cells):
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=[new_code_cell(cell) for cell in cells]), path)


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    root = tmp_path_factory.mktemp("room")
    notebook(root / "course" / "02_small.ipynb", [IMPORTS, LESSON])
    for student, cells in STUDENTS.items():
        told = [cell.replace("NEIGHBOURS", repr(str(root / "all"))) for cell in cells]
        notebook(root / "all" / student / "02_small.ipynb", told)
    (root / "all" / "eve").mkdir()
    (root / "all" / "eve" / "02_small.ipynb").write_text("no notebook")
    kept = root / "all" / "ben" / "predictions" / "02_small.json"
    kept.parent.mkdir()
    kept.write_text(
        '{"lesson": "02_small", "predictions": {"a": {"question": "How many?", "guess": 3.0, "result": 4.0, "at": ""}}}'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "course_source", lambda: root / "course")
        said = CliRunner().invoke(app, ["grade", str(root / "all"), "--out", str(root / "grades.csv"), "--limit", "40"])
    assert said.exit_code == 0, said.output
    return root


@pytest.fixture(scope="module")
def rows(graded):
    with (graded / "grades.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def of(rows, student, kind):
    return [
        (row["item"], row["result"], row["mistake"]) for row in rows if (row["student"], row["kind"]) == (student, kind)
    ]


def test_right_and_wrong_answers_have_their_names(rows):
    call = "check.pessimistic(my_objective)"
    assert of(rows, "anna", "check") == [(call, "passed", "")]
    assert of(rows, "ben", "check") == [(call, "not yet", "clamp without the minimum")]
    assert of(rows, "cleo", "check") == [(call, "not yet", "never clipped")]
    assert of(rows, "dora", "check") == [(call, "not yet", "")]  # left empty
    assert [result for _, result, _ in of(rows, "anna", "bug")] == ["passed"]
    assert [row["says"] for row in rows if row["kind"] == "prediction"] == ["How many? you said 3; the run says 4."]


def test_how_each_run_ended_is_told(rows):
    runs = {student: of(rows, student, "run") for student in (*STUDENTS, "eve")}
    assert runs["anna"][-1][1] == "ran"
    assert ("cell 2", "error", "") in runs["ben"]
    assert ("solutions", "looked into", "") in runs["ben"]
    assert runs["cleo"] == [("the notebook", "stopped after 40 seconds", "")]
    assert [row["says"] for row in rows if row["student"] == "dora" and row["result"] == "error"] == ["MemoryError:"]
    assert runs["eve"] == [("the notebook", "cannot be read", "")]


def test_nobody_changed_another_s_grade(graded, rows):
    """Anna's notebook wrote over all others; they were read before it ran."""
    assert (graded / "all" / "ben" / "02_small.ipynb").read_text() == "{}"
    assert len(of(rows, "ben", "check")) == 1


def test_the_page_counts_and_escapes(graded):
    page = (graded / "grades.html").read_text(encoding="utf-8")
    assert "1 of 1" in page or "2 of 2" in page
    assert "clamp without the minimum" in page and "<script" not in page


def test_a_folder_without_submissions_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ValueError, match="folder must hold a folder for each student"):
            submissions(folder)
