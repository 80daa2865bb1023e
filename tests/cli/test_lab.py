import hashlib
import json
import os
import re

import nbformat
import pytest
from typer.testing import CliRunner

from rlviz.cli import app, lab


def lesson(words: str) -> str:
    """Return a notebook of one cell, as a file holds it."""
    cell = {"cell_type": "markdown", "id": "words", "metadata": {}, "source": words}
    return nbformat.writes(nbformat.from_dict({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}))


@pytest.fixture
def course(tmp_path, monkeypatch):
    """Return a function that writes the next edition of a course of these files, and the folder where it is copied."""
    source, target = tmp_path / "source", tmp_path / "target"
    monkeypatch.setattr(lab, "course_source", lambda: source)

    def publish(words, *names):
        for name in names or (lab.FIRST,):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_text(lesson(f"{name}, {words}"))

    publish("first edition")
    target.mkdir()
    return publish, target


def test_the_course_is_copied_and_files_that_their_owner_changed_stay(course):
    publish, target = course
    names = (lab.FIRST, "01_next.ipynb", "02_theirs.ipynb", "solutions/01_next.ipynb")
    publish("first edition", *names)
    (target / names[1]).write_text(lesson("01_next.ipynb, first edition"))  # ours by its words, whoever put it there
    (target / names[2]).write_text("somebody's")
    report = lab.copy_course(target)
    assert (report.written, report.left_alone) == ([names[0], names[3]], [names[2]])
    (target / lab.FIRST).write_text("my notes")
    publish("second edition", *names[:3])
    report = lab.copy_course(target)
    assert (report.written, report.left_alone) == ([names[1]], [lab.FIRST, names[2]])
    assert [(target / name).read_text() for name in (lab.FIRST, names[2])] == ["my notes", "somebody's"]
    assert (target / "01_next.ipynb").read_text() == lesson("01_next.ipynb, second edition")


def test_a_folder_that_is_named_is_the_one_that_is_served(tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr(lab, "serve", lambda command: served.append(command) or 0)
    result = CliRunner().invoke(app, ["lab", "--dir", str(tmp_path / "mine"), "--no-browser"])
    assert result.exit_code == 0, result.output
    assert f"--ServerApp.root_dir={tmp_path / 'mine'}" in served[0]
    assert (tmp_path / "mine" / lab.FIRST).is_file()


@pytest.mark.parametrize("record", [b"{", b'{"00_start_here.ipynb": 5}', b"\xff"], ids=range(3))
def test_with_a_damaged_record_every_file_counts_as_its_owner_s(record, course):
    publish, target = course
    lab.copy_course(target)
    (target / ".rlviz-course.json").write_bytes(record)
    publish("second edition")
    assert lab.copy_course(target).left_alone == [lab.FIRST]
    (target / lab.FIRST).unlink()
    assert lab.copy_course(target).written == [lab.FIRST]


def test_what_a_record_names_outside_is_not_removed(course):
    _, target = course
    outside = target.parent / "mine.ipynb"
    outside.write_text("mine")
    checksum = hashlib.sha256(b"mine").hexdigest()
    record = {"../mine.ipynb": checksum, str(outside): checksum, "a\0b": "", "": "", "..": "", "/": "", ".": ""}
    (target / ".rlviz-course.json").write_text(json.dumps(record))
    assert lab.copy_course(target).removed == []
    assert outside.read_text() == "mine"


@pytest.mark.parametrize("outdated", [False, True], ids=["still a file of the course", "outdated"])
def test_nothing_is_written_or_removed_behind_a_link(outdated, course):
    """Also where what the link leads to is as it was copied."""
    publish, target = course
    source, outside = target.parent / "source", target.parent / "outside"
    names = [lab.FIRST, "solutions/01_next.ipynb", "02_new.ipynb"]
    publish("first edition", *names)
    lab.copy_course(target)
    outside.mkdir()
    (target / names[0]).rename(outside / names[0])
    (target / names[0]).symlink_to(outside / names[0])
    (target / "solutions").rename(outside / "solutions")
    (target / "solutions").symlink_to(outside / "solutions")
    (outside / "new").write_text("mine")
    (target / f".{names[2]}.new").symlink_to(outside / "new")  # where a copy is written first
    publish("second edition", *names)
    if outdated:
        for name in names[:2]:
            (source / name).unlink()
    report = lab.copy_course(target)
    assert (report.left_alone, report.removed) == ([] if outdated else names[:2], [])
    assert report.written == [names[2]]
    texts = {file.relative_to(outside).as_posix(): file.read_text() for file in outside.rglob("*") if file.is_file()}
    assert texts == {name: lesson(f"{name}, first edition") for name in names[:2]} | {"new": "mine"}


def test_jupyterlab_listens_on_loopback_with_its_token(tmp_path):
    command = lab.lab_command(tmp_path, port=9999, browser=False)
    assert {"--ServerApp.ip=127.0.0.1", "--ServerApp.port=9999", "--no-browser"} <= set(command)
    assert not [word for word in command if "token" in word or "password" in word]
    assert ("--allow-root" in command) == (os.name == "posix" and os.geteuid() == 0)
    assert "--no-browser" not in lab.lab_command(tmp_path, port=8888, browser=True)


# of the edition before, when the numbers from 03 on stood for other lessons
BEFORE = ("00_start_here", "01_policy_gradients", "02_the_ratio", "03_ppo", "04_grpo", "05_kl")


def test_where_lessons_change_numbers_no_edit_is_lost_and_no_prediction_mixed(tmp_path, monkeypatch):
    """Over the course of before, with lessons edited and lessons untouched: today's, by its own names."""
    source, target, today = tmp_path / "source", tmp_path / "target", lab.course_source()
    source.mkdir()
    for name in BEFORE:
        (source / f"{name}.ipynb").write_text(lesson(f"{name}, as it came"))
    with monkeypatch.context() as earlier:
        earlier.setattr(lab, "course_source", lambda: source)
        lab.copy_course(target)
    edited, untouched = BEFORE[::2], BEFORE[1::2]
    (target / "predictions").mkdir()
    for name in edited:
        (target / f"{name}.ipynb").write_text(lesson(f"{name}, with my lines"))
        (target / "predictions" / f"{name}.json").write_text(f"what I said in {name}")
    report = lab.copy_course(target)
    now = {file.stem for file in today.glob("[0-9]*.ipynb")}
    assert {"03_grpo", "04_ppo"} <= now and not now & set(BEFORE[3:])  # else this is no course with other numbers
    for name in edited:
        assert (target / f"{name}.ipynb").read_text() == lesson(f"{name}, with my lines")
        assert (target / "predictions" / f"{name}.json").read_text() == f"what I said in {name}"
    assert sorted(report.removed) == sorted(f"{name}.ipynb" for name in untouched if name not in now)
    assert {file.stem for file in target.glob("[0-9]*.ipynb")} == now | set(edited)
    assert set(report.left_alone) == {f"{name}.ipynb" for name in edited if name in now}


def test_a_lesson_keeps_its_predictions_under_its_own_name():
    """So a name that a lesson had before the numbers changed is not read by the lesson that has the number now."""
    for file in lab.course_source().glob("[0-9]*.ipynb"):
        sources = "\n".join(cell.source for cell in nbformat.read(file, 4).cells)
        assert re.findall(r'Predictions\(\s*"(\w+)"', sources) == [file.stem]
