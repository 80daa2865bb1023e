"""Opening the course: which folder its notebooks are in, and JupyterLab on it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FIRST = "00_start_here.ipynb"
_CHECKOUT = Path(__file__).resolve().parent.parent
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
    command += ["--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    if not browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # containers run as root; loopback and token stay
    return command


def serve(command: list[str]) -> int:
    """Run JupyterLab until it ends, and return its exit code. Ctrl-C goes to JupyterLab, which asks before it stops."""
    with subprocess.Popen(command) as process:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
            if process.poll() is None:
                process.terminate()
