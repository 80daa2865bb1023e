"""The command line as a whole: its help, and its version."""

import pytest
from click import unstyle

from small_models.tasks import TASKS


def test_version(rlviz):
    assert rlviz("--version").output.startswith("rlviz ")


@pytest.mark.parametrize("command", ["train", "compare", "cost"])
def test_help_names_every_task(rlviz, command):
    said = " ".join(unstyle(rlviz(command, "--help").output).replace("│", " ").split())
    assert f"Task: {', '.join(task.name for task in TASKS)}." in said
