"""Opening the course: which folder its notebooks are in, and JupyterLab on it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FIRST = "00_start_here.ipynb"
_CHECKOUT = Path(__file__).resolve().parent.parent
_SETTINGS = (
    Path(__file__).resolve().parent / "jupyter"
)  # no question about news: it would go unanswered without a network
_RECORD = ".rlviz-course.json"  # checksum of each file as it was copied: what still has it was not changed by its owner


@dataclass(frozen=True)
class CopyReport:
    """What `copy_course` did: files written, and files left alone because their owner changed them."""

    written: list[str]
    kept: list[str]


def course_source() -> Path:
    """Return the folder that the notebooks come from: the checkout's, else the one inside the installed package."""
    if (_CHECKOUT / "pyproject.toml").is_file() and (_CHECKOUT / "notebooks" / FIRST).is_file():
        return _CHECKOUT / "notebooks"
    return Path(__file__).resolve().parent / "course"


def in_checkout() -> bool:
    return course_source().parent == _CHECKOUT


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read_record(file: Path) -> dict[str, str]:
    """Return name → checksum; nothing for a damaged record, so that every file in the folder counts as its owner's."""
    try:
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}
    except (ValueError, TypeError):
        return {}


def copy_course(target: Path) -> CopyReport:
    """Copy the notebooks into `target`, newer versions over older ones, but never over a file that its owner changed."""
    target.mkdir(parents=True, exist_ok=True)
    record_file = target / _RECORD
    copied = _read_record(record_file)
    written, kept = [], []
    source = course_source()
    for file in sorted(source.rglob("*.ipynb")):
        name = file.relative_to(source).as_posix()
        if any(part.startswith(".") for part in file.relative_to(source).parts):
            continue
        new, destination = _checksum(file), target / name
        if destination.exists():
            if _checksum(destination) == new:
                copied[name] = new
                continue
            if _checksum(destination) != copied.get(name):
                kept.append(name)
                continue
        destination.parent.mkdir(parents=True, exist_ok=True)
        temporary = destination.with_name(f".{destination.name}.new")
        temporary.write_bytes(file.read_bytes())
        os.replace(temporary, destination)
        copied[name] = new
        written.append(name)
    temporary = record_file.with_name(f"{_RECORD}.new")
    temporary.write_text(json.dumps(copied, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, record_file)
    return CopyReport(written, kept)


def lab_command(folder: Path, *, port: int, browser: bool) -> list[str]:
    """Return the command that serves `folder`: loopback only, Jupyter's own token on, the first lesson open."""
    command = [sys.executable, "-m", "jupyterlab", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"]
    command += [f"--ServerApp.root_dir={folder}", f"--LabApp.default_url=/lab/tree/{FIRST}"]
    if not browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # containers run as root; loopback and token stay
    return command


def serve(command: list[str]) -> int:
    """Become JupyterLab, so that Ctrl-C and every other signal reach it; where a process cannot, run it to its exit code."""
    paths = [str(_SETTINGS), *os.environ.get("JUPYTER_CONFIG_PATH", "").split(os.pathsep)]
    environment = {**os.environ, "JUPYTER_CONFIG_PATH": os.pathsep.join(path for path in paths if path)}
    sys.stdout.flush()
    if os.name == "posix":
        os.execve(command[0], command, environment)
    return subprocess.run(command, env=environment, check=False).returncode
