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
OPEN_FOLDS = ("Why", "More", "中文")  # how the summary of a fold begins that gives no answer away
LESSONS = sorted(file.name for file in NOTEBOOKS.glob("*.ipynb"))


@pytest.fixture(scope="module")
def editions():
    contents = {name: dict(files(name, NOTEBOOKS)) for name in ("read", "student", "lab", "instructor")}
    notebook = {name: nbformat.read(NOTEBOOKS / name, as_version=4) for name in LESSONS}
    read = {e: {n: nbformat.reads(contents[e][n].decode(), as_version=4) for n in LESSONS} for e in contents}
    assert read["read"] == notebook  # the edition to read is the committed one
    return contents, read


@pytest.mark.parametrize("name", LESSONS)
def test_the_student_s_edition_holds_no_output_and_no_answer_and_the_instructor_s_every_solution(name, editions):
    lesson, committed = editions[1]["student"][name], editions[1]["read"][name]
    code = [cell for cell in lesson.cells if cell.cell_type == "code"]
    assert code and not any(cell.outputs or cell.execution_count for cell in code)
    text, open_folds = "\n".join(cell.source for cell in lesson.cells), 0
    assert all(summary.startswith(OPEN_FOLDS) for summary in re.findall(r"<summary[^>]*>(.*?)</summary>", text))
    for cell in committed.cells:  # by another way than the edition's own: split at the tags
        for fold in cell.source.split("<details")[1:]:
            is_open = fold.split("<summary>")[1].startswith(OPEN_FOLDS)
            open_folds += is_open
            assert is_open or fold.split("</details>")[0].strip().splitlines()[-1] not in text
    assert text.count("<details") == text.count("</details>") == open_folds  # derivations stay

    text, solved = (
        "\n".join(cell.source for cell in editions[1]["instructor"][name].cells),
        NOTEBOOKS / "solutions" / name,
    )
    if solved.is_file():
        cells = nbformat.read(solved, as_version=4).cells
        assert all(cell.source in text for cell in cells if cell.cell_type == "code")
        assert (NOTEBOOKS / "teaching" / f"{Path(name).stem}.md").read_text(encoding="utf-8") in text


def test_an_exercise_is_followed_by_its_solution_and_the_mistakes_of_its_check(editions):
    cells = editions[1]["instructor"]["03_grpo.ipynb"].cells
    place = next(i for i, cell in enumerate(cells) if "def my_group_advantage" in cell.source)
    assert "rewards.std(1, keepdim=True)" in cells[place + 1].source
    slips = cells[place + 2].source
    assert (
        "- **std above zero as the test** (`return torch.where(std > 0, (rewards - mean) / std, 0.0)`): asking" in slips
    )
    assert "- **over the batch** (`mean(1, keepdim=True)` → `mean()`, `std(1, keepdim=True)` → `std()`): you" in slips
    assert "- **mean forgotten** (no `- mean`): the group's mean" in slips


def test_the_wrong_answers_to_a_puzzle_are_those_that_its_check_refuses(editions):
    listed = re.compile(r"\*\*Likely wrong answers\*\* to `check\.(bug|unlabelled)\('(\w+)'\)`\n\n(.+)", re.S)
    cells = [cell for lesson in editions[1]["instructor"].values() for cell in lesson.cells]
    puzzles = [match.groups() for cell in cells if (match := listed.fullmatch(cell.source))]
    assert len(puzzles) == 19 + 14
    for kind, lesson, answers in puzzles:
        rows = re.findall(r"^- \*\*(.+?)\*\*(?:: (.+))?$", answers, re.M)
        assert len(rows) == 2
        for answer, why in rows:
            if kind == "unlabelled":
                assert check.unlabelled(lesson, answer) == Verdict(False, why)
            else:
                says = check.bug(lesson, line=1, does=answer).says
                assert not says.startswith(("that is what it does", "does is a letter"))


@pytest.mark.parametrize("edition", ["lab", "student", "read", "instructor"])
def test_no_link_leads_out_of_the_copied_folder_or_to_a_file_that_it_lacks(edition, editions):
    """Also from the answers, which stand in a folder of their own."""
    contents = editions[0][edition]
    paths = {"."} | {part.as_posix() for name in contents for part in (Path(name), *Path(name).parents)}
    for name, content in contents.items():
        text = content.decode() if name.endswith((".md", ".ipynb")) else ""
        if name.endswith(".ipynb"):
            cells = nbformat.reads(text, as_version=4).cells
            text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        for link in re.findall(r"\]\((?!\w+:|#)([^)\s#]+)", text):
            assert posixpath.normpath(f"{Path(name).parent.as_posix()}/{link}") in paths, (name, link)


def test_students_have_a_page_of_their_own_which_lists_every_lesson(editions):
    page = editions[0]["lab"]["README.md"].decode()
    rows = re.findall(r"^\| \[(\d\d · .+?)\]\((.+?)\) \| (.+) \|$", page, re.M)
    heads = {name: lesson.cells[0].source for name, lesson in editions[1]["read"].items()}
    questions = {n: (re.match("# (.+)", h)[1], re.search(r"Question\.\*\* (.+)", h)[1]) for n, h in heads.items()}
    assert {name: (title, question) for title, name, question in rows} == questions
    assert "Add a lesson" not in page


def test_only_the_student_s_edition_is_without_solutions_and_what_somebody_left_goes_to_nobody(editions, tmp_path):
    student, lab = editions[0]["student"], editions[0]["lab"]
    assert "glossary.md" in student and not [name for name in student if name.startswith(("solutions/", "teaching/"))]
    assert "solutions/03_grpo.ipynb" in lab and not [name for name in lab if name.startswith("teaching/")]
    ends = "It says what to do; a wrong one rules out"  # a folded answer
    assert ends in lab["solutions/03_grpo_answers.md"].decode() and ends not in lab["03_grpo.ipynb"].decode()
    for name in ("predictions/00.json", "mine/pessimistic.py", "glossary.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert [name for name, _ in files("lab", tmp_path)] == ["glossary.md"]
