"""`rlviz grade` stopped in the middle of three notebooks: the same call goes on, and leaves no process behind."""

import csv
import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner

from rlviz.cli import app
from rlviz.lessons.gradebook import RUNNING, WAITING

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="looks for processes in /proc, and limits files of another one"
)

MARK = "RLVIZ_TEST_GRADER"  # in the environment of the grader, and of all that it starts
CLASS = BEFORE, HELD, AFTER = "amy", "bob", "cyd"
ANSWER = "def my_group_advantage(rewards):\n    return rewards * 0\n\n\ncheck.group_advantage(my_group_advantage)"
HOLDS = """
import os, signal, subprocess, time
from pathlib import Path
root = Path("ROOT")
with open(root / "ran", "a") as ran:
    ran.write("NAME\\n")
if "NAME" == "HELD":
    subprocess.Popen(["sleep", "600"])
    (root / "reached").touch()
    while not (root / "go").exists():
        if (root / "kill").exists():
            os.kill(int((root / "kill").read_text()), signal.SIGKILL)
        sum(range(10_000))
"""


@pytest.fixture
def call(tmp_path):
    """Hand in three notebooks, of which the second holds until it may go on; return the command that grades them."""
    for name, cells in (("lessons/tiny", [ANSWER]), *((f"handed_in/{name}/tiny", None) for name in CLASS)):
        file = tmp_path / f"{name}.ipynb"
        file.parent.mkdir(parents=True)
        held = HOLDS.replace("ROOT", str(tmp_path)).replace("NAME", file.parent.name).replace("HELD", HELD)
        sources = cells or ["from rlviz.lessons import check", held, ANSWER]
        nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in sources]), file)
    (tmp_path / "out").mkdir()
    lessons, out = str(tmp_path / "lessons"), str(tmp_path / "out" / "grades.csv")
    return ["grade", str(tmp_path / "handed_in"), "--out", out, "--limit", "60", "--lessons", lessons]


def until(happens, seconds=120):
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def marked(mark):
    """Return the processes that a grader started, and itself."""
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if (
                f"{MARK}={mark}".encode() in (folder / "environ").read_bytes() and state != "Z"
            ):  # dead, but not waited for
                processes.append((folder / "cmdline").read_text())
    return processes


def rows(root):
    return {row["student"]: row for row in csv.DictReader((root / "out" / "grades.csv").open(encoding="utf-8"))}


def kill_from_the_notebook(process, root):
    """Tell the notebook whom to kill; the file appears with its content, since the notebook reads it as soon as it is there."""
    (root / "pid").write_text(str(process.pid))
    (root / "pid").rename(root / "kill")


WAYS = {  # → what happens, and the exit code
    "SIGINT": (lambda process, root: os.killpg(process.pid, signal.SIGINT), 130),  # as a terminal does
    "the notebook kills it": (kill_from_the_notebook, -9),
}


@pytest.fixture
def grader(call, tmp_path, default_signals):
    """Start the command in a process of its own, which leads a group as in a terminal; at the end nothing of it may be left."""
    command = [sys.executable, "-m", "rlviz", *call]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as short:  # a socket's path has at most 107 characters
        environment = {**os.environ, MARK: str(tmp_path), "TMPDIR": short, "OMP_NUM_THREADS": "1"}
        yield subprocess.Popen(command, env=environment, **piped)
        until(lambda: not marked(tmp_path), 10)
        assert not list(Path(short).glob("rlviz-grade-*"))


@pytest.mark.parametrize("way", WAYS)
def test_no_grade_is_lost_none_comes_twice_and_no_process_is_left(way, grader, call, tmp_path):
    stop, code = WAYS[way]
    until((tmp_path / "reached").exists)
    stop(grader, tmp_path)
    output, _ = grader.communicate(timeout=60)  # ends once nobody holds its streams
    assert grader.returncode == code and "Traceback" not in output, output
    until(lambda: not marked(tmp_path), 10)
    if code > 100:
        assert "grades.csv; the same command goes on." in output
    before = rows(tmp_path)
    assert list(before) == [*CLASS]
    assert [before[name]["error"] for name in CLASS] == ["", RUNNING, WAITING]
    assert before[BEFORE]["mistakes"]
    assert {row["of"] for row in before.values()} == {"1"}

    (tmp_path / "kill").unlink(missing_ok=True)
    (tmp_path / "go").touch()
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.output
    taken = [line.split()[0] for line in result.output.splitlines() if line.endswith("graded by an earlier call")]
    assert taken == [BEFORE]
    later = rows(tmp_path)
    assert list(later) == [*CLASS] and later[BEFORE] == before[BEFORE]
    assert all((row["of"], row["error"], bool(row["mistakes"])) == ("1", "", True) for row in later.values())
    assert (tmp_path / "ran").read_text().split() == [BEFORE, HELD, AFTER, HELD]  # what was begun comes last


def test_a_row_holds_for_the_same_notebook_the_same_exercises_and_the_same_limits(call, tmp_path):
    (tmp_path / "go").touch()
    handed_in = tmp_path / "handed_in"

    def grade(*options):
        """Return what the call prints, and which notebooks it runs."""
        (tmp_path / "ran").unlink(missing_ok=True)
        result = CliRunner().invoke(app, [*call, *options])
        assert result.exit_code == 0, result.output
        return result.output, (tmp_path / "ran").read_text().split() if (tmp_path / "ran").exists() else []

    def edit(file, old, new):
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    assert grade()[1] == [*CLASS] and grade()[1] == []
    (handed_in / "bob" / "mine").mkdir()
    (handed_in / "bob" / "mine" / "part.py").write_text("1")
    (handed_in / "cyd").rename(handed_in / os.fsdecode(b"c\xff"))  # half a character
    assert grade()[1] == ["bob", "cyd"]
    # What its process did not end is graded again; what an earlier class handed in has no row.
    edit(handed_in / "amy" / "tiny.ipynb", "import os,", "import os; os._exit(3)\\nimport")
    for _ in range(2):
        output = grade()[0].partition("amy tiny")[2].partition("\n")[0]
        assert output.startswith(": 0 of 1 checks passed (the process ended by itself") and "earlier" not in output
    (handed_in / "amy" / "tiny.ipynb").unlink()
    (handed_in / "amy").rmdir()
    assert grade()[1] == [] and len(rows(tmp_path)) == 2 and "amy" not in rows(tmp_path)
    assert grade("--limit", "61")[1] == ["bob", "cyd"]
    edit(tmp_path / "lessons" / "tiny.ipynb", "group_advantage(my", "group_advantage(our")
    # A table in the folder of lessons is no part of the course, which would else change as it grows.
    call[call.index("--out") + 1] = str(tmp_path / "lessons" / "grades.csv")
    assert grade()[1] == ["bob", "cyd"] and grade()[1] == []


def test_a_full_disk_is_told(call, tmp_path, monkeypatch):
    def write_nothing(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rlviz.lessons.gradebook.write_text", write_nothing)
    result = CliRunner().invoke(app, call)
    words = f"Error: a file cannot be written or read ({os.strerror(errno.ENOSPC)})"
    assert result.exit_code == 2 and words in " ".join(result.output.split())


@pytest.mark.parametrize(
    "content", ["{", '{"a": {"student": "b", "lesson": "c", "exercises": 1, "verdicts": {"k": {"passed": 3}}}}']
)
def test_a_file_that_holds_no_grades_is_not_overwritten(content, call, tmp_path):
    state = tmp_path / "out" / "grades.json"
    state.write_text(content)
    result = CliRunner().invoke(app, call)
    words = "move it away, and every notebook is graded anew"
    assert result.exit_code == 2 and words in " ".join(result.output.split())
    assert state.read_text() == content and not (tmp_path / "ran").exists()
