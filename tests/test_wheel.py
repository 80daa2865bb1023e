"""A wheel works from any directory: it carries the notebooks and the checkpoints."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def call(*arguments, cwd, **environment):
    """Run this Python; return what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        **{"cwd": cwd, "env": os.environ | environment, "capture_output": True, "text": True, "timeout": 300},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the wheel's content and nothing of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = "-m", "pip", "-q", "--disable-pip-version-check"
    call(*pip, "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "-w", str(folder), cwd=folder)
    (wheel,) = folder.glob("rlviz-*.whl")
    call(*pip, "install", "--no-deps", "--target", str(folder / "site"), str(wheel), cwd=folder)
    return folder / "site"


def notebooks_in(folder):
    files = (file.relative_to(folder) for file in folder.rglob("*.ipynb"))
    return {file.as_posix() for file in files if not any(part.startswith(".") for part in file.parts)}


def test_it_copies_the_course_and_trains(site, tmp_path):
    script = (
        "import pathlib, rlviz, rlviz.cli.lab as lab; lab.copy_course(pathlib.Path('course')); print(rlviz.__file__)"
    )
    assert call("-c", script, cwd=tmp_path, PYTHONPATH=str(site)).startswith(str(site))
    assert notebooks_in(tmp_path / "course") == notebooks_in(ROOT / "notebooks")
    arguments = "-m", "rlviz", "train", "--task", "sort", "--steps", "2", "--num-prompts", "2"
    call(*arguments, cwd=tmp_path, PYTHONPATH=str(site))
    assert (tmp_path / "runs" / "sort-grpo-001" / "learning_curves.png").exists()


def test_the_console_command_and_the_licence_are_in_it_and_nothing_beside(site):
    (metadata,) = site.glob("rlviz-*.dist-info")
    assert "rlviz = rlviz.cli:main" in (metadata / "entry_points.txt").read_text()
    assert (metadata / "licenses" / "LICENSE").exists()
    assert not (site / "notebooks").exists() and not (site / "tests").exists()
