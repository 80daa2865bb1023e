"""The student's edition holds no answer and no output; the instructor's holds every solution."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlviz.cli import app
from rlviz.editions import edition_files, exercises, without_answers

COURSE = Path(__file__).parent.parent / "notebooks"
LESSONS = sorted(file.name for file in COURSE.glob("[0-9][0-9]_*.ipynb"))


def cells(edition):
    files = {name: content for name, content in edition_files(COURSE, edition) if name.endswith(".ipynb")}
    return {name: json.loads(content)["cells"] for name, content in files.items()}


@pytest.fixture(scope="module")
def student():
    return cells("student")


@pytest.fixture(scope="module")
def instructor():
    return cells("instructor")


def text(made, kind):
    return "\n\n".join("".join(cell["source"]) for cell in made if cell["cell_type"] == kind)


def test_the_student_s_edition_holds_no_answer_and_no_output(student):
    assert sorted(student) == LESSONS
    for name, made in student.items():
        assert not [cell for cell in made if cell.get("outputs") or cell.get("execution_count")], name
        folds = re.findall(r"<summary>(.*?)</summary>", text(made, "markdown"))
        assert all(summary.startswith(("Why", "中文")) for summary in folds), (name, folds)
        assert not [cell for cell in made if "answer" in cell["metadata"].get("tags", ())]


def test_the_answers_are_there_to_begin_with():
    """Else the test above would be passed by a course that has none."""
    words = [without_answers(text(made, "markdown")) != text(made, "markdown") for made in cells("read").values()]
    assert sum(words) >= len(LESSONS) - 1


def test_every_exercise_has_its_solution_in_the_instructor_s_edition(student, instructor):
    count = 0
    for name in LESSONS:
        left = {one.name for cell in student[name] for one in exercises("".join(cell["source"]))}
        code = text(instructor[name], "code")
        solved = {one for one in left if re.search(rf"^def {one}\(.*?^    return (?!None)", code, re.M | re.S)}
        assert left == solved, name
        count += len(left)
    assert count >= len(LESSONS) - 2


def test_the_instructor_sees_plan_seconds_and_mistakes(instructor):
    words = text(instructor["02_the_ratio.ipynb"], "markdown")
    assert "50 minutes" in words and "Seconds stated by its cells" in words
    assert "*clamp without the minimum*" in words


def test_a_fold_that_derives_stays():
    kept = "<details><summary>Why</summary>\n\nx\n</details>\n"
    assert without_answers(f"a\n{kept}<details><summary>Answer</summary>\nb\n</details>\nc") == f"a\n{kept}c"


def test_an_exercise_is_what_returns_nothing_yet():
    (one,) = exercises(
        "%magic\ndef done(x):\n    return x\n\ndef mine(x):\n    return None\n\nv = check.k3(mine)\ncheck.k1(done)"
    )
    assert (one.name, one.checks) == ("mine", ("check.k3(mine)",))


def test_the_command_writes_an_edition_once_and_leaves_changes_alone(tmp_path):
    told = CliRunner().invoke(app, ["course", "--edition", "student", "--out", str(tmp_path / "mine")])
    assert told.exit_code == 0, told.output
    assert (tmp_path / "mine" / "glossary.md").is_file() and not (tmp_path / "mine" / "solutions").exists()
    (tmp_path / "mine" / LESSONS[0]).write_text("my work")
    again = CliRunner().invoke(app, ["course", "--edition", "student", "--out", str(tmp_path / "mine")])
    assert "0 files copied" in again.output and f"changed them: {LESSONS[0]}" in again.output
