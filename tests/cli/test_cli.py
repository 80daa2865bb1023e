"""The command line as a whole: its help, and its version."""

import errno
import os

import pytest
from click import unstyle

from small_models.tasks import TASKS


def test_version(rlviz):
    assert rlviz("--version").output.startswith("rlviz ")


@pytest.mark.parametrize("command", ["train", "compare", "cost"])
def test_help_names_every_task(rlviz, command):
    said = " ".join(unstyle(rlviz(command, "--help").output).replace("│", " ").split())
    assert f"Task: {', '.join(task.name for task in TASKS)}." in said


@pytest.mark.parametrize(
    ("arguments", "writer", "named"),
    [
        (["plot", "clip", "--out", "a.png"], "matplotlib.figure.Figure.savefig", "the picture"),
        (["plot", "clip", "--out", "a.html"], "os.fsync", "the picture"),
        (["map", "--replicas", 3, "--steps", 2, "--cells", "1x1", "--jobs", 1], "os.fsync", "the map"),
        (["site", "--out", "site"], "rlviz.site.build.build", "the site"),
        (["course", "--edition", "student", "--out", "mine"], "rlviz.lessons.editions.files", "the course"),
        (["predictions", ".", "--lesson", "03_grpo"], "rlviz.lessons.predictions.room", "the page of predictions"),
        (["grade", "."], "rlviz.lessons.grading.grades", "the grades"),
        (["export", "grpo", "--to", "trl", "--out", "a.py"], "os.fsync", "the export"),
        (["train", "--steps", 1], "rlviz.training.train", "a file of the run"),
    ],
)
def test_a_full_disk_is_told_with_what_was_being_written(rlviz, arguments, writer, named, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(writer, full)
    result = rlviz(*arguments)
    assert result.exit_code == 2, result.output
    assert f"Error: {named} cannot be written or read (No space left on device)" in " ".join(result.output.split())
