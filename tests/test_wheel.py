"""A wheel works from any directory: it carries the notebooks and the checkpoints."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the wheel's content and nothing of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "-w", str(folder)], check=True, cwd=folder
    )
    (wheel,) = folder.glob("rlviz-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(folder / "site"), str(wheel)], check=True, cwd=folder)
    return folder / "site"


def run(site, folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_the_course_is_copied_from_the_wheel(site, tmp_path):
    script = (
        "import pathlib, rlviz, rlviz.cli.lab as lab; "
        f"assert rlviz.__file__.startswith({str(site)!r}); assert lab.course_source().name == 'course'; "
        "print(lab.copy_course(pathlib.Path('course')).written)"
    )
    result = run(site, tmp_path, "-c", script)
    assert result.returncode == 0, result.stderr
    names = {
        file.relative_to(ROOT / "notebooks").as_posix()
        for file in (ROOT / "notebooks").rglob("*.ipynb")
        if not any(part.startswith(".") for part in file.parts)
    }
    assert {
        file.relative_to(tmp_path / "course").as_posix() for file in (tmp_path / "course").rglob("*.ipynb")
    } == names


def test_it_trains_from_the_wheel(site, tmp_path):
    result = run(site, tmp_path, "-m", "rlviz", "train", "--task", "sort", "--steps", "2", "--num-prompts", "2")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "runs" / "sort-grpo-001" / "learning_curves.png").exists()


def test_the_console_command_and_the_licence_are_in_it(site):
    (metadata,) = site.glob("rlviz-*.dist-info")
    assert "rlviz = rlviz.cli:main" in (metadata / "entry_points.txt").read_text()
    assert (metadata / "licenses" / "LICENSE").exists()
    assert not (site / "notebooks").exists()
    assert not (site / "tests").exists()
