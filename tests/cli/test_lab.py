import os

import nbformat
from typer.testing import CliRunner

from rlviz.cli import app, lab


def lesson(words: str) -> str:
    """Return a notebook of one cell, as a file holds it."""
    cell = {"cell_type": "markdown", "id": "words", "metadata": {}, "source": words}
    return nbformat.writes(nbformat.from_dict({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}))


def test_the_course_is_copied_and_changed_files_stay(tmp_path, monkeypatch):
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "solutions").mkdir(parents=True)
    for name in ("00_start_here.ipynb", "01_next.ipynb", "solutions/01_next.ipynb"):
        (source / name).write_text(lesson(f"{name}, first edition"))
    monkeypatch.setattr(lab, "course_source", lambda: source)
    report = lab.copy_course(target)
    assert report.written == ["00_start_here.ipynb", "01_next.ipynb", "solutions/01_next.ipynb"]
    assert not report.kept

    (target / "00_start_here.ipynb").write_text("my notes")
    for name in ("00_start_here.ipynb", "01_next.ipynb"):
        (source / name).write_text(lesson(f"{name}, second edition"))
    report = lab.copy_course(target)
    assert report.written == ["01_next.ipynb"]
    assert report.kept == ["00_start_here.ipynb"]
    assert (target / "00_start_here.ipynb").read_text() == "my notes"
    assert (target / "01_next.ipynb").read_text() == lesson("01_next.ipynb, second edition")


def test_a_file_that_was_there_before_is_never_written_over(tmp_path, monkeypatch):
    source, target = tmp_path / "source", tmp_path / "target"
    for folder, text in ((source, "ours"), (target, "somebody's")):
        folder.mkdir()
        (folder / "00_start_here.ipynb").write_text(lesson(text))
    monkeypatch.setattr(lab, "course_source", lambda: source)
    assert lab.copy_course(target).kept == ["00_start_here.ipynb"]
    assert (target / "00_start_here.ipynb").read_text() == lesson("somebody's")


def test_a_file_that_is_ours_by_its_words_is_renewed(tmp_path, monkeypatch):
    """Whoever put it there: nobody changed it."""
    source, target = tmp_path / "source", tmp_path / "target"
    for folder in (source, target):
        folder.mkdir()
        (folder / "00_start_here.ipynb").write_text(lesson("first edition"))
    monkeypatch.setattr(lab, "course_source", lambda: source)
    assert lab.copy_course(target) == lab.CopyReport(written=[], kept=[])
    (source / "00_start_here.ipynb").write_text(lesson("second edition"))
    assert lab.copy_course(target).written == ["00_start_here.ipynb"]


def test_a_folder_that_is_named_is_the_one_that_is_served(tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr(lab, "serve", lambda command: served.append(command) or 0)
    result = CliRunner().invoke(app, ["lab", "--dir", str(tmp_path / "mine"), "--no-browser"])
    assert result.exit_code == 0, result.output
    assert f"--ServerApp.root_dir={tmp_path / 'mine'}" in served[0]
    assert (tmp_path / "mine" / lab.FIRST).is_file()


def test_with_a_damaged_record_every_file_counts_as_its_owner_s(tmp_path, monkeypatch):
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "00_start_here.ipynb").write_text(lesson("first edition"))
    monkeypatch.setattr(lab, "course_source", lambda: source)
    lab.copy_course(target)
    (target / ".rlviz-course.json").write_text("{")
    (source / "00_start_here.ipynb").write_text(lesson("second edition"))
    assert lab.copy_course(target).kept == ["00_start_here.ipynb"]
    (target / "00_start_here.ipynb").unlink()
    assert lab.copy_course(target).written == ["00_start_here.ipynb"]


def test_jupyterlab_listens_on_loopback_with_its_token(tmp_path):
    command = lab.lab_command(tmp_path, port=9999, browser=False)
    assert "--ServerApp.ip=127.0.0.1" in command
    assert "--ServerApp.port=9999" in command
    assert "--no-browser" in command
    assert not [word for word in command if "token" in word or "password" in word]
    assert ("--allow-root" in command) == (os.name == "posix" and os.geteuid() == 0)
    assert "--no-browser" not in lab.lab_command(tmp_path, port=8888, browser=True)
