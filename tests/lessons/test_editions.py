"""The editions of every lesson: the student's holds no answer and no output, the instructor's holds every solution."""

import posixpath
import re
from pathlib import Path

import nbformat
import pytest

from rlviz.lessons import check
from rlviz.lessons.editions import files
from rlviz.lessons.verdict import Verdict

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
KEPT = ("Why", "More", "中文")  # how the summary of a fold begins that gives no answer away
LESSONS = sorted(file.name for file in NOTEBOOKS.glob("*.ipynb"))


@pytest.fixture(scope="module")
def editions():
    made = {name: dict(files(name, NOTEBOOKS)) for name in ("read", "student", "lab", "instructor")}
    return lambda edition, name: nbformat.reads(made[edition][name].decode(), as_version=4) if name else made[edition]


@pytest.mark.parametrize("name", LESSONS)
def test_the_student_s_edition_holds_no_output_and_no_answer(name, editions):
    lesson, whole = editions("student", name), nbformat.read(NOTEBOOKS / name, as_version=4)
    code = [cell for cell in lesson.cells if cell.cell_type == "code"]
    assert code and not any(cell.outputs or cell.execution_count for cell in code)
    text = "\n".join(cell.source for cell in lesson.cells)
    assert not [said for said in re.findall(r"<summary[^>]*>(.*?)</summary>", text) if not said.startswith(KEPT)]
    assert text.count("<details") == text.count("</details>")
    for cell in whole.cells:  # by another way than the edition's own: split at the tags
        for fold in cell.source.split("<details")[1:]:
            if not fold.split("<summary>")[1].startswith(KEPT):
                last = fold.split("</details>")[0].strip().splitlines()[-1]
                assert last not in text
        if "answer" in cell.metadata.get("tags", ()):
            assert cell.source not in text
    folds = sum(
        fold.split("<summary>")[1].startswith(KEPT) for c in whole.cells for fold in c.source.split("<details")[1:]
    )
    assert text.count("<details") == folds  # derivations stay


@pytest.mark.parametrize("name", [name for name in LESSONS if (NOTEBOOKS / "solutions" / name).is_file()])
def test_the_instructor_s_edition_holds_every_solution(name, editions):
    text = "\n".join(cell.source for cell in editions("instructor", name).cells)
    solved = nbformat.read(NOTEBOOKS / "solutions" / name, as_version=4)
    assert all(cell.source in text for cell in solved.cells if cell.cell_type == "code")
    assert (NOTEBOOKS / "teaching" / f"{Path(name).stem}.md").read_text(encoding="utf-8") in text


def test_an_exercise_is_followed_by_its_solution_and_the_mistakes_of_its_check(editions):
    cells = editions("instructor", "03_grpo.ipynb").cells
    place = next(
        i for i, cell in enumerate(cells) if cell.cell_type == "code" and "def my_group_advantage" in cell.source
    )
    assert "rewards.std(1, keepdim=True)" in cells[place + 1].source
    told = cells[place + 2].source
    assert (
        "- **std above zero as the test** (`return torch.where(std > 0, (rewards - mean) / std, 0.0)`): asking" in told
    )
    assert "- **over the batch** (`mean(1, keepdim=True)` → `mean()`, `std(1, keepdim=True)` → `std()`): you" in told
    assert "- **mean forgotten** (no `- mean`): the group's mean" in told


@pytest.mark.parametrize("edition", ["lab", "student", "read", "instructor"])
def test_no_link_leads_out_of_the_copied_folder_or_to_a_file_that_it_lacks(edition):
    """Also from the answers, which stand in a folder of their own."""
    contents = dict(files(edition, NOTEBOOKS))
    there = {"."} | {part.as_posix() for name in contents for part in (Path(name), *Path(name).parents)}
    dead = []
    for name, content in contents.items():
        text = content.decode() if name.endswith((".md", ".ipynb")) else ""
        if name.endswith(".ipynb"):
            cells = nbformat.reads(text, as_version=4).cells
            text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        links = re.findall(r"\]\((?!\w+:|#)([^)\s#]+)", text)
        dead += [
            (name, link) for link in links if posixpath.normpath(f"{Path(name).parent.as_posix()}/{link}") not in there
        ]
    assert dead == []


def test_students_have_a_page_of_their_own_which_lists_every_lesson():
    page = dict(files("lab", NOTEBOOKS))["README.md"].decode()
    rows = re.findall(r"^\| \[(\d\d · .+?)\]\((.+?)\) \| (.+) \|$", page, re.M)
    heads = {name: nbformat.read(NOTEBOOKS / name, as_version=4).cells[0].source for name in LESSONS}
    asked = {
        name: (re.match("# (.+)", head)[1], re.search(r"Question\.\*\* (.+)", head)[1]) for name, head in heads.items()
    }
    assert {name: (title, question) for title, name, question in rows} == asked
    assert "Add a lesson" not in page


def test_the_wrong_answers_to_a_puzzle_are_those_that_its_check_refuses(editions):
    found = re.compile(r"\*\*Likely wrong answers\*\* to `check\.(bug|unlabelled)\('(\w+)'\)`\n\n(.+)", re.S)
    cells = [cell for name in LESSONS for cell in editions("instructor", name).cells]
    puzzles = [told.groups() for cell in cells if (told := found.fullmatch(cell.source))]
    assert len(puzzles) == 18 + 14
    for kind, lesson, answers in puzzles:
        rows = re.findall(r"^- \*\*(.+?)\*\*(?:: (.+))?$", answers, re.M)
        assert len(rows) == 2
        for answer, why in rows:
            if kind == "unlabelled":
                assert check.unlabelled(lesson, answer) == Verdict(False, why)
            else:
                says = check.bug(lesson, line=1, does=answer).says
                assert not says.startswith(("that is what it does", "does is the letter of one of: "))


def test_only_the_student_s_edition_is_without_solutions(editions):
    assert not [name for name in editions("student", "") if name.startswith(("solutions/", "teaching/"))]
    lab = editions("lab", "")
    assert "solutions/03_grpo.ipynb" in lab and not [name for name in lab if name.startswith("teaching/")]
    ends = "It says what to do; a wrong one rules out"  # a folded answer
    assert ends in lab["solutions/03_grpo_answers.md"].decode()
    assert ends not in lab["03_grpo.ipynb"].decode()
    assert "glossary.md" in editions("student", "")


def test_what_somebody_predicted_or_kept_goes_to_nobody_else(tmp_path):
    for name in ("predictions/00.json", "mine/pessimistic.py", "glossary.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert [name for name, _ in files("lab", tmp_path)] == ["glossary.md"]


def test_the_edition_to_read_is_the_committed_one(editions):
    for name in LESSONS:
        assert editions("read", name) == nbformat.read(NOTEBOOKS / name, as_version=4)
