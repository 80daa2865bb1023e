"""`rlviz grade` stopped in the middle of six notebooks, in every way: the same call goes on, and leaves no process behind."""

import csv
import errno
import json
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
CLASS = ("amy", "bob", "cyd", "dan", "eve", "fay")
BEFORE, HELD, AFTER = CLASS[:2], CLASS[2], CLASS[3:]
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
    """Hand in six notebooks, of which the third holds until it may go on; return the command that grades them."""
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


def alive(process):
    """Return whether a process of this number runs: one that nobody has waited for is dead too."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def marked(mark):
    """Return the processes that a grader started, and itself."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes() and alive(folder.name):
                found.append((folder / "cmdline").read_text())
    return found


def rows(root):
    return {row["student"]: row for row in csv.DictReader((root / "out" / "grades.csv").open(encoding="utf-8"))}


def fill_the_disk(process, root):
    """Let this process write no file beyond a few bytes, and end the notebook that holds."""
    import resource

    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
    (root / "go").touch()


WAYS = {  # → what happens, and the exit code
    "SIGINT": (lambda process, root: os.killpg(process.pid, signal.SIGINT), 130),  # as a terminal does
    "SIGTERM": (lambda process, root: process.send_signal(signal.SIGTERM), 143),
    "SIGKILL": (lambda process, root: process.kill(), -9),
    "the notebook kills it": (lambda process, root: (root / "kill").write_text(str(process.pid)), -9),
    "a full disk": (fill_the_disk, 2),
}


@pytest.fixture
def grader(call, tmp_path, default_signals):
    """Start the command in a process of its own, which leads a group as in a terminal; at the end nothing of it may be left."""
    command = [sys.executable, "-m", "rlviz", *call]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as short:  # a socket's path has at most 107 characters
        own = {MARK: str(tmp_path), "TMPDIR": short, "OMP_NUM_THREADS": "1"}
        yield subprocess.Popen(command, env={**os.environ, **own}, **piped)
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
    if code == 2:
        assert f"Error: the grades cannot be written or read ({os.strerror(errno.EFBIG)})" in " ".join(output.split())
    told = rows(tmp_path)
    assert list(told) == [*CLASS]
    assert [told[name]["error"] for name in CLASS] == ["", "", RUNNING, *[WAITING] * 3]
    assert all(told[name]["mistakes"] for name in BEFORE)
    assert {row["of"] for row in told.values()} == {"1"}

    (tmp_path / "kill").unlink(missing_ok=True)
    (tmp_path / "go").touch()
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.output
    taken = [line.split()[0] for line in result.output.splitlines() if line.endswith("graded by an earlier call")]
    assert taken == [*BEFORE]
    later = rows(tmp_path)
    assert list(later) == [*CLASS] and {name: later[name] for name in BEFORE} == {name: told[name] for name in BEFORE}
    assert all((row["of"], row["error"], bool(row["mistakes"])) == ("1", "", True) for row in later.values())
    assert (tmp_path / "ran").read_text().split() == [*BEFORE, HELD, *AFTER, HELD]  # what was begun comes last


@pytest.fixture
def finished(call, tmp_path):
    """Return the call after it was made, and how many notebooks each later one runs."""
    (tmp_path / "go").touch()

    def again(*options):
        (tmp_path / "ran").unlink(missing_ok=True)
        result = CliRunner().invoke(app, [*call, *options])
        return result, (tmp_path / "ran").read_text().split() if (tmp_path / "ran").exists() else []

    assert again()[1] == [*CLASS]
    return again


def test_a_row_holds_for_the_same_notebook_the_same_exercises_and_the_same_limits(finished, tmp_path):
    assert finished()[1] == []
    file = tmp_path / "handed_in" / "dan" / "tiny.ipynb"
    file.write_text(file.read_text().replace("rewards * 0", "rewards * 1"))
    assert finished()[1] == ["dan"]
    (tmp_path / "handed_in" / "bob" / "mine").mkdir()
    (tmp_path / "handed_in" / "bob" / "mine" / "part.py").write_text("1")
    assert finished()[1] == ["bob"]
    assert finished("--limit", "61")[1] == [*CLASS]
    lesson = tmp_path / "lessons" / "tiny.ipynb"
    lesson.write_text(lesson.read_text().replace("group_advantage(my", "group_advantage(our"))
    assert finished("--limit", "61")[1] == [*CLASS]


def test_what_its_process_did_not_end_is_graded_again_and_what_an_earlier_class_handed_in_has_no_row(
    finished, tmp_path
):
    file = tmp_path / "handed_in" / "eve" / "tiny.ipynb"
    file.write_text(file.read_text().replace("import os,", "import os; os._exit(3)\\nimport"))
    for _ in range(2):
        result, _ = finished()
        assert "eve tiny: 0 of 1 checks passed (the process ended by itself" in result.output
        assert "earlier" not in result.output.partition("eve")[2].partition("\n")[0]
    (tmp_path / "handed_in" / "amy" / "tiny.ipynb").unlink()
    (tmp_path / "handed_in" / "amy").rmdir()
    assert finished()[0].exit_code == 0 and list(rows(tmp_path)) == [*CLASS[1:]]


DEEP = '{"a": {"student": "b", "lesson": "c", "asked": 1, "verdicts": {"k": {"passed": 3}}}}'


@pytest.mark.parametrize("content", ["{", DEEP])
def test_a_file_that_holds_no_grades_is_not_overwritten(content, call, tmp_path):
    state = tmp_path / "out" / "grades.json"
    state.write_text(content)
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 2 and "move it away, and every notebook is graded anew" in " ".join(
        result.output.split()
    )
    assert state.read_text() == content and not (tmp_path / "ran").exists()


def test_a_table_in_the_folder_of_lessons_is_no_part_of_the_course(call, tmp_path):
    (tmp_path / "go").touch()
    call[call.index("--out") + 1] = str(tmp_path / "lessons" / "grades.csv")
    for ran in (6, 6):
        assert CliRunner().invoke(app, call).exit_code == 0
        assert len((tmp_path / "ran").read_text().split()) == ran


def test_the_state_is_json_that_names_no_submission_twice_whatever_its_name(finished, tmp_path):
    state = json.loads((tmp_path / "out" / "grades.json").read_text())
    assert [grade["student"] for grade in state.values()] == [*CLASS]
    assert {grade["stage"] for grade in state.values()} == {"ended"} and RUNNING not in str(state)
    (tmp_path / "handed_in" / "fay").rename(tmp_path / "handed_in" / os.fsdecode(b"f\xff"))  # half a character
    assert finished()[0].exit_code == 0
    assert finished()[1] == [] and len(rows(tmp_path)) == 6
