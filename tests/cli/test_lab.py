import os

from typer.testing import CliRunner

from rlviz.cli import app, lab

NAMES = ("00_start_here.ipynb", "01_next.ipynb", "experiments/verdicts.md")


def edition(number, names=NAMES):
    return [(name, f"{name}, edition {number}".encode()) for name in names]


def test_the_course_is_copied_and_changed_files_stay(tmp_path):
    target = tmp_path / "target"
    report = lab.copy_course(target, edition(1))
    assert report.written == [*NAMES]
    assert not report.kept

    (target / "00_start_here.ipynb").write_text("my notes")
    report = lab.copy_course(target, edition(2, NAMES[:2]))
    assert report.written == ["01_next.ipynb"]
    assert report.kept == ["00_start_here.ipynb"]
    assert (target / "00_start_here.ipynb").read_text() == "my notes"
    assert (target / "01_next.ipynb").read_text() == "01_next.ipynb, edition 2"


def test_a_file_that_was_there_before_is_never_written_over(tmp_path):
    (tmp_path / "00_start_here.ipynb").write_text("somebody's")
    assert lab.copy_course(tmp_path, edition(1, NAMES[:1])).kept == ["00_start_here.ipynb"]
    assert (tmp_path / "00_start_here.ipynb").read_text() == "somebody's"


def test_a_file_that_is_ours_by_its_words_is_renewed(tmp_path):
    """Whoever put it there: nobody changed it."""
    ((name, content),) = edition(1, NAMES[:1])
    (tmp_path / name).write_bytes(content)
    assert lab.copy_course(tmp_path, edition(1, NAMES[:1])) == lab.CopyReport(written=[], kept=[])
    assert lab.copy_course(tmp_path, edition(2, NAMES[:1])).written == [name]


def test_a_folder_that_is_named_is_the_one_that_is_served(tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr(lab, "serve", lambda command: served.append(command) or 0)
    result = CliRunner().invoke(app, ["lab", "--dir", str(tmp_path / "mine"), "--no-browser"])
    assert result.exit_code == 0, result.output
    assert f"--ServerApp.root_dir={tmp_path / 'mine'}" in served[0]
    assert (tmp_path / "mine" / lab.FIRST).is_file()


def test_with_a_damaged_record_every_file_counts_as_its_owner_s(tmp_path):
    lab.copy_course(tmp_path, edition(1, NAMES[:1]))
    (tmp_path / ".rlviz-course.json").write_text("{")
    assert lab.copy_course(tmp_path, edition(2, NAMES[:1])).kept == [NAMES[0]]
    (tmp_path / NAMES[0]).unlink()
    assert lab.copy_course(tmp_path, edition(2, NAMES[:1])).written == [NAMES[0]]


def test_jupyterlab_listens_on_loopback_with_its_token(tmp_path):
    command = lab.lab_command(tmp_path, port=9999, browser=False)
    assert "--ServerApp.ip=127.0.0.1" in command
    assert "--ServerApp.port=9999" in command
    assert "--no-browser" in command
    assert not [word for word in command if "token" in word or "password" in word]
    assert ("--allow-root" in command) == (os.name == "posix" and os.geteuid() == 0)
    assert "--no-browser" not in lab.lab_command(tmp_path, port=8888, browser=True)
