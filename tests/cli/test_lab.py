import hashlib
import json
import os
import re

import nbformat
import pytest
from typer.testing import CliRunner

from rlviz.cli import app, lab
from rlviz.lessons import check


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


@pytest.mark.parametrize(
    "record", [b"{", b"[[1, 2]]", b'{"00_start_here.ipynb": 5}', b"[" * 100_000, b"\xff"], ids=range(5)
)
def test_with_a_damaged_record_every_file_counts_as_its_owner_s(record, course):
    publish, target = course
    lab.copy_course(target)
    (target / ".rlviz-course.json").write_bytes(record)
    publish("second edition")
    with pytest.warns(UserWarning, match=r"now \.rlviz-course\.damaged\.json, and files that differ count as changed"):
        assert lab.copy_course(target).left_alone == [lab.FIRST]
    assert (target / ".rlviz-course.damaged.json").read_bytes() == record
    (target / lab.FIRST).unlink()
    assert lab.copy_course(target).written == [lab.FIRST]


def test_what_a_record_names_outside_is_not_removed(course):
    _, target = course
    outside = target.parent / "mine.ipynb"
    outside.write_text("mine")
    checksum = hashlib.sha256(b"mine").hexdigest()
    record = {"../mine.ipynb": checksum, "a\0b": "", "": "", "..": "", "/": "", ".": ""}
    (target / ".rlviz-course.json").write_text(json.dumps(record))
    assert lab.copy_course(target).removed == []
    assert outside.read_text() == "mine"


LINKED = ("a_file.md", "solutions/a_folder.md", "a_dead_end.md", "an_inner_one.md", ".a_temporary.md.new")


@pytest.mark.parametrize("outdated", [False, True], ids=["still a file of the course", "outdated"])
def test_nothing_is_written_or_removed_behind_a_link(outdated, tmp_path, monkeypatch):
    """Also where what the link leads to is as it was copied."""
    source, target, outside = (tmp_path / name for name in ("source", "target", "outside"))
    (source / "solutions").mkdir(parents=True)
    outside.mkdir()
    names = [*LINKED[:4], "a_temporary.md"]
    for name in names:
        (source / name).write_text("first edition")
    monkeypatch.setattr(lab, "course_source", lambda: source)
    lab.copy_course(target)
    (target / "a_file.md").rename(outside / "a_file.md")
    (target / "solutions").rename(outside / "solutions")
    (target / "a_dead_end.md").unlink()
    (target / "an_inner_one.md").rename(target / "mine.md")
    (outside / "new").write_text("mine")
    links = {"a_file.md": "a_file.md", "solutions": "solutions", "a_dead_end.md": "none", LINKED[4]: "new"}
    (target / "an_inner_one.md").symlink_to("mine.md")
    for name, leads_to in links.items():
        (target / name).symlink_to(outside / leads_to)
    for name in names:
        (source / name).unlink() if outdated else (source / name).write_text("second edition")
    report = lab.copy_course(target)
    assert sorted(report.left_alone) == ([] if outdated else sorted(names[:4]))
    assert report.removed == (["a_temporary.md"] if outdated else [])
    assert report.written == ([] if outdated else ["a_temporary.md"])
    assert all((target / name).is_symlink() for name in ("a_file.md", "solutions", "a_dead_end.md", "an_inner_one.md"))
    assert (target / "mine.md").read_text() == "first edition"
    texts = {file.relative_to(outside).as_posix(): file.read_text() for file in outside.rglob("*") if file.is_file()}
    assert texts == {"a_file.md": "first edition", "solutions/a_folder.md": "first edition", "new": "mine"}


def test_jupyterlab_listens_on_loopback_with_its_token(tmp_path):
    command = lab.lab_command(tmp_path, port=9999, browser=False)
    assert {"--ServerApp.ip=127.0.0.1", "--ServerApp.port=9999", "--no-browser"} <= set(command)
    assert not [word for word in command if "token" in word or "password" in word]
    assert ("--allow-root" in command) == (os.name == "posix" and os.geteuid() == 0)
    assert "--no-browser" not in lab.lab_command(tmp_path, port=8888, browser=True)


# the lessons of the edition before: the numbers from 03 on stood for other lessons
BEFORE = (
    "00_start_here", "01_policy_gradients", "02_the_ratio", "03_ppo", "04_grpo", "05_kl", "06_which_mean", "07_dapo",
    "08_dupo_and_agents", "09_gspo", "10_dcpo", "11_entropy_collapse", "12_preferences_and_dpo", "13_reward_hacking",
    "14_two_engines", "15_the_family", "16_invent_your_own", "17_take_it_home", "18_write_the_judge", "19_what_did_it_learn",
)  # fmt: skip


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
    assert {"03_grpo", "04_ppo"} <= now and len(now & set(BEFORE)) < 5  # else this is no course with other numbers
    for name in edited:
        assert (target / f"{name}.ipynb").read_text() == lesson(f"{name}, with my lines")
        assert (target / "predictions" / f"{name}.json").read_text() == f"what I said in {name}"
    assert sorted(report.removed) == sorted(f"{name}.ipynb" for name in untouched if name not in now)
    assert {file.stem for file in target.glob("[0-9]*.ipynb")} == now | set(edited)
    assert set(report.left_alone) == {f"{name}.ipynb" for name in edited if name in now}


@pytest.mark.parametrize("file", sorted(lab.course_source().glob("[0-9]*.ipynb")), ids=lambda file: file.stem)
def test_a_lesson_keeps_its_predictions_under_its_own_name(file):
    """So a name that a lesson had before the numbers changed is not read by the lesson that has the number now."""
    names = re.findall(r'Predictions\(\s*"(\w+)"', "\n".join(cell.source for cell in nbformat.read(file, 4).cells))
    assert names == [file.stem]


@pytest.mark.parametrize("puzzle", [lambda: check.bug("03", line=3, does="x"), lambda: check.unlabelled("03", "x")])
def test_an_older_notebook_is_not_judged_by_the_puzzle_of_the_lesson_that_has_its_number_now(puzzle):
    with pytest.raises(ValueError, match=r"lesson must be one of .*grpo.*; got '03'"):
        puzzle()
