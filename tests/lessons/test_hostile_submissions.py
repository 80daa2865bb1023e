"""`rlviz grade` on a class in which ten attack the grader and more hand in what is no notebook: thirteen honest grades stay."""

import csv
import io
import json
import multiprocessing
import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlviz.cli import app
from rlviz.lessons import grading
from rlviz.lessons.grading import LARGEST_HANDED_IN, NO_WALL, START, Grade, _close_pipes, page, table
from rlviz.lessons.judge import Verdict
from tests.lessons.test_grading import IMPORTS, RIGHT, answer, write

KEY = "check.group_advantage(my_group_advantage)"
WRONG = "rewards - rewards.mean(1, keepdim=True) + 1"
BIASED = RIGHT.replace("std(1,", "std(1, correction=0,")
PREDICTS = """
import torch
from pathlib import Path
from rlviz.lessons import Predictions, check
predict = Predictions("tiny", dead="Which share is dead?")
predict.result("dead", 0.24)
assert "seen" in Path("experiments/verdicts.md").read_text()
"""
ALL_OPEN = """
import os
others = [fd for fd in range(3, 64) if os.path.lexists(f"/proc/self/fd/{fd}") or not os.path.isdir("/proc/self/fd")]
def write_all(content):
    for fd in others:
        try:
            os.set_blocking(fd, False)
            os.write(fd, content)
        except OSError:
            pass
"""
FORGED = """
import json, pickle, struct
right = dict(passed=True, says="forged", mistake="")
lines = "".join(
    json.dumps(dict(token=token, kind=kind, name='KEY', student=student, verdict=right)) + "\\n"
    for token in ("", "0" * 32) for kind in ("verdict", "done") for student in ("honest_04", "y_forges")
)
packed = pickle.dumps(("verdict", 'KEY', (True, "forged", "")))
write_all(lines.encode())
write_all(struct.pack("!i", len(packed)) + packed)
""".replace("KEY", KEY)
SHELL = """
import os, gc
from multiprocessing.connection import Connection
class Shell:
    def __reduce__(self):
        return os.system, ("echo owned > ROOT/owned",)
for one in gc.get_objects():
    if isinstance(one, Connection) and not one.closed and one.writable:
        one.send(("verdict", Shell(), (True, "", "")))
"""
HOSTILE = {
    "runs_a_shell": (SHELL,),
    "forges": (ALL_OPEN, FORGED, "os._exit(0)"),
    "announces_a_gigabyte": (ALL_OPEN, "import struct", "write_all(struct.pack('!i', 2**30))", "os._exit(0)"),
    "floods_its_reports": (ALL_OPEN, "for _ in range(30): write_all(b'x\\n' * 50_000)"),
    "closes_the_pipe": ("import os", "os.closerange(3, 256)"),
    "removes_its_folder": ("import shutil", "shutil.rmtree('..')"),
    "puts_a_pipe_for_its_reports": (
        "import os",
        "for name in ('../reports', 'predictions/tiny.json'):\n    os.remove(name)\n    os.mkfifo(name)",
    ),
    "kills_its_parent": ("import os, signal", "if os.getppid() != GRADER: os.kill(os.getppid(), signal.SIGKILL)"),
    "kills_itself": ("import os", "os.kill(os.getpid(), 9)"),
    "prints_gigabytes": ("text = 'x' * 10_000_000", "for _ in range(300): print(text)"),
}
HINDSIGHT = """
file = Path("predictions/tiny.json")
file.write_text(file.read_text().replace("0.5", "0.24"))
"""
EXITS = "import sys\nclass Mute(BaseException):\n    def __str__(self): sys.exit()\n\n\nraise Mute"


def cell(**changed):
    whole = {
        "cell_type": "code",
        "metadata": {},
        "source": answer(RIGHT),
        "outputs": [],
        "execution_count": None,
        "id": "a",
    }
    return {name: value for name, value in {**whole, **changed}.items() if value != "left out"}


def notebook(*cells, **changed):
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells, **changed}).encode()


BROKEN = {  # content → what its row says
    "text": (b"no JSON", "no notebook"),
    "empty": (b"", "no notebook"),
    "binary": (b"\x89PNG\xff\xfe", "no notebook"),
    "list": (b"[]", "no notebook"),
    "deep": (b"[" * 200_000, "no notebook"),
    "no_metadata": (notebook(cell(metadata="left out")), "no notebook"),
    "no_cell_type": (notebook(cell(cell_type="left out")), "no notebook"),
    "source_is_a_number": (notebook(cell(source=7)), "no notebook"),
    "cells_are_a_text": (notebook(cells="cells"), "no notebook"),
    "future": (notebook(nbformat=99), "no notebook"),
    "folder": (None, "it is a folder"),
    "pipe": (None, "it is a device or a pipe"),
    "link": (None, "is a link"),
    "huge": (None, "is larger than 50 MB"),
    "nothing": (None, "no notebook was handed in"),
    "loop": (notebook(cell(source="while True:\n    pass")), "stopped after 8 seconds"),
}


def hand_in(root):
    """Write the class; an honest one stands before, between and after the others."""
    write(root / "lessons" / "tiny.ipynb", PREDICTS, answer("None"))
    (root / "lessons" / "experiments").mkdir()
    (root / "lessons" / "experiments" / "verdicts.md").write_text("seen")
    folder = root / "handed_in"
    for place in range(13):
        student = f"{'abcdefghijklm'[place]}_honest"
        write(folder / student / "tiny.ipynb", PREDICTS, answer((RIGHT, BIASED)[place % 2]))
        if place != 4:
            predict(folder / student)
    for place, (name, sources) in enumerate(HOSTILE.items()):
        student = folder / f"{'abcdefghijklm'[place]}_x_{name}"
        cells = [source.replace("ROOT", str(root)).replace("GRADER", str(os.getpid())) for source in sources]
        write(student / "tiny.ipynb", PREDICTS, *cells, answer(WRONG))
        predict(student)
    for place, (name, (content, _)) in enumerate(BROKEN.items()):
        file = folder / f"{'abcdefghijklm'[place % 13]}_y_{name}" / "tiny.ipynb"
        file.parent.mkdir()
        if content is not None:
            file.write_bytes(content)
        elif name == "folder":
            file.mkdir()
        elif name == "pipe":
            os.mkfifo(file)
        elif name == "link":
            file.symlink_to(folder / "a_honest" / "tiny.ipynb")
        elif name == "huge":
            with open(file, "wb") as made:
                made.truncate(LARGEST_HANDED_IN + 1)
    write(folder / "m_z_exits" / "tiny.ipynb", PREDICTS, EXITS, answer("sys.exit()"))
    third = {"cells": [], "metadata": {}, "nbformat": 3, "nbformat_minor": 0}
    old = {"cell_type": "code", "language": "python", "metadata": {}, "outputs": [], "collapsed": False}
    sheet = [{**old, "input": source, "prompt_number": 1} for source in (IMPORTS, answer(RIGHT))]
    third["worksheets"] = [{"cells": sheet, "metadata": {}}]
    (folder / "m_z_third").mkdir()
    (folder / "m_z_third" / "tiny.ipynb").write_text(json.dumps(third))
    write(folder / "m_z_spies" / "tiny.ipynb", PREDICTS, answer(RIGHT))
    write(folder / "m_z_hindsight" / "tiny.ipynb", PREDICTS, HINDSIGHT, answer(RIGHT))
    predict(folder / "m_z_hindsight")
    (folder / "m_z_spies" / "predictions").symlink_to(folder / "a_honest" / "predictions")
    return folder


def predict(student):
    told = {"question": "Which share is dead?", "guess": 0.5, "result": None, "at": ""}
    (student / "predictions").mkdir()
    (student / "predictions" / "tiny.json").write_text(json.dumps({"lesson": "tiny", "predictions": {"dead": told}}))


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    root = tmp_path_factory.mktemp("class")
    folder = hand_in(root)
    out = root / "grades.csv"
    call = ["grade", str(folder), "--out", str(out), "--limit", "8", "--lessons", str(root / "lessons")]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.output
    return {row["student"]: row for row in csv.DictReader(out.open(encoding="utf-8"))}, root, result


def row_of(rows, name):
    """Return the row of a submission that is not honest, whatever letters stand before its name."""
    (row,) = (row for student, row in rows.items() if student.split("_", 2)[2:] == [name])
    return row


def test_thirteen_honest_grades_are_as_if_they_were_alone(graded):
    rows, _, _ = graded
    honest = [row for name, row in rows.items() if name.endswith("honest")]
    assert len(honest) == 13
    for place, row in enumerate(honest):
        assert row["passed"] == ("1", "0")[place % 2]
        assert row["mistakes"] == ("", f"{KEY}: biased std")[place % 2]
        assert row["error"] == row["solutions used"] == ""
        guess = "predictions not handed in" if place == 4 else "dead: you said 0.5; the run says 0.24"
        assert row["predictions"] == guess


def test_everybody_has_a_row(graded):
    rows, root, _ = graded
    assert set(rows) == {student.name for student in (root / "handed_in").iterdir()}
    assert len(rows) == 13 + len(HOSTILE) + len(BROKEN) + 4


@pytest.mark.parametrize("name", HOSTILE)
def test_no_attack_makes_a_wrong_answer_right(graded, name):
    rows, root, _ = graded
    row = row_of(rows, name)
    assert (row["passed"], row["of"]) == ("0", "1")
    assert not (root / "owned").exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("forges", "it wrote into the file of its reports, which was refused; the process ended by itself"),
        ("floods_its_reports", "it wrote into the file of its reports, which was refused"),
        ("closes_the_pipe", "the process ended by itself"),
        ("removes_its_folder", "Error"),
        ("kills_itself", "the process ended by itself"),
        ("exits", "SystemExit"),
        ("third", ""),
        ("spies", ""),
        *((name, says) for name, (_, says) in BROKEN.items()),
    ],
)
def test_a_row_says_why_not(graded, name, says):
    rows, _, _ = graded
    row = row_of(rows, name)
    assert says in row["error"] and bool(says) == bool(row["error"])


def test_what_an_answer_does_is_no_end_of_the_others(graded):
    rows, _, _ = graded
    assert "cannot be checked (SystemExit" in rows["m_z_exits"]["mistakes"]
    assert rows["m_z_third"]["passed"] == "1"


def test_a_link_to_a_neighbour_s_predictions_is_not_followed(graded):
    rows, _, _ = graded
    assert rows["m_z_spies"]["predictions"] == "predictions not handed in"


def test_what_was_guessed_is_what_was_handed_in(graded):
    rows, _, _ = graded
    assert rows["m_z_hindsight"]["predictions"] == "dead: you said 0.5; the run says 0.24"
    assert rows["m_z_hindsight"]["error"] == ""


def pipes_that_are_left(out):
    """Write how many pipes a submission's process could write into before and after it lets go of its server's."""
    counts = []
    for let_go in (lambda: None, _close_pipes):
        let_go()
        descriptors = [int(one.name) for one in Path("/proc/self/fd").iterdir() if one.exists() and int(one.name) > 2]
        counts.append(
            sum(stat.S_ISFIFO(os.fstat(one).st_mode) for one in descriptors if Path(f"/proc/self/fd/{one}").exists())
        )
    Path(out).write_text(str(counts))


@pytest.mark.skipif(START != "forkserver", reason="elsewhere no server forks the processes")
def test_a_submission_has_no_pipe_of_the_server_that_starts_the_others(tmp_path):
    process = multiprocessing.get_context(START).Process(target=pipes_that_are_left, args=(str(tmp_path / "counts"),))
    process.start()
    process.join(60)
    before, after = json.loads((tmp_path / "counts").read_text())
    assert before > 0 == after


def test_a_server_that_is_just_dying_is_asked_again(monkeypatch):
    monkeypatch.setattr(grading, "START_AGAIN_SECONDS", 0.0)
    answers = iter([ConnectionRefusedError(), EOFError(), None])

    class Dying:
        def start(self):
            if (answer := next(answers)) is not None:
                raise answer

    grading._start(Dying())
    assert next(answers, "none left") == "none left"


def test_half_a_character_and_a_formula_make_no_table_unreadable():
    """A folder's name may hold bytes that are no UTF-8, and what a submission says anything."""
    grade = Grade("\udcff", "tiny", 1, {KEY: Verdict(False, "\ud800\x1b[2J\0")}, error="\n=1+1")
    told = list(csv.DictReader(io.StringIO(table([grade]).encode("utf-8").decode())))
    assert len(told) == 1 and told[0]["error"] == "' =1+1" and told[0]["student"] == " "
    assert page([grade]).encode("utf-8")


def test_that_it_is_no_wall_is_said_where_one_grades(graded):
    _, root, result = graded
    notebooks = Path(__file__).parents[2]
    told = (
        result.output,
        (root / "grades.html").read_text(encoding="utf-8").replace("&#x27;", "'"),
        (notebooks / "notebooks" / "teaching" / "README.md").read_text(encoding="utf-8"),
        (notebooks / "rlviz" / "cli" / "README.md").read_text(encoding="utf-8"),
    )
    for text in told:
        assert NO_WALL in " ".join(text.split())
