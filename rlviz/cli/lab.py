"""`rlviz lab`: the course, copied into a folder of one's own and opened in JupyterLab."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import typer

from rlviz.cli.terminal import console, notes, say

FIRST = "00_start_here.ipynb"
_PACKAGE = Path(__file__).resolve().parent.parent
_CHECKOUT = _PACKAGE.parent
_SETTINGS = _PACKAGE / "jupyter"  # no question about news: it would go unanswered without a network
_WORKSPACES = ".rlviz-lab"  # what was open, and that the file browser is folded
_RECORD = ".rlviz-course.json"  # checksum of each file as it was copied: what still has it was not changed by its owner
_NAME = re.compile(r"(?!/)[\w./-]+")  # of a file of the course; a record may hold any


def lab(
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser window.")] = True,
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port on loopback; the next free one if it is taken.")
    ] = 8888,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            help="Folder to work in; the notebooks are copied there, never over files you changed. "
            "[default: ./rlviz-course]",
            show_default=False,
        ),
    ] = None,
    edition: Annotated[
        Literal["student", "read"],
        typer.Option(help="student: without outputs, answers in solutions/; read: all outputs, answers folded."),
    ] = "student",
) -> None:
    """Open the course in JupyterLab, on this machine only (loopback, token on)."""
    folder = (directory or Path("rlviz-course")).resolve()
    with notes():
        report = copy_course(folder, edition)
    say(f"{len(report.written)} files copied to {folder}")
    console.print("Answers and solutions are in its folder solutions/.")
    if report.removed:
        console.print(f"{len(report.removed)} files of an older course removed; nobody had changed them")
    print_left_alone(report)
    fold_sidebar(folder / _WORKSPACES)
    raise typer.Exit(serve(lab_command(folder, port=port, browser=browser)))


@dataclass(frozen=True)
class CopyReport:
    """What `copy_course` did: files written, left alone because their owner changed or linked them, and removed as outdated."""

    written: list[str]
    left_alone: list[str]
    removed: list[str] = field(default_factory=list)


def print_left_alone(report: CopyReport) -> None:
    """Name the files that a copy left alone."""
    if report.left_alone:
        say(f"Left alone, because you changed them or they lie behind a link: {', '.join(report.left_alone)}")


def course_source() -> Path:
    """Return the folder that the notebooks come from: the checkout's, else the one inside the installed package."""
    if (_CHECKOUT / "pyproject.toml").is_file() and (_CHECKOUT / "notebooks" / FIRST).is_file():
        return _CHECKOUT / "notebooks"
    return _PACKAGE / "course"


def _checksum(file: Path) -> str | None:
    """Return the checksum of a file's content; None where there is none."""
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None


def _read_record(file: Path) -> dict[str, str]:
    """Return name → checksum as copied; nothing for a record that is missing or damaged: every file is then its owner's."""
    from small_models.files import read_json

    try:
        return read_json(file, dict[str, str])
    except (FileNotFoundError, ValueError):
        return {}


def copy_course(target: Path, edition: str = "student") -> CopyReport:
    """Copy an edition into `target`, newer versions over older ones, but never over a file that its owner changed.

    The student's comes with the solutions, in a folder of their own: who learns alone has no teacher to ask.
    """
    from rlviz.lessons.editions import files

    return copy(files({"student": "lab"}.get(edition, edition), course_source()), target)


def copy(contents: Iterable[tuple[str, bytes]], target: Path) -> CopyReport:
    """Write files, by their path below `target`; one that its owner changed or linked since it was written is left alone.

    What was written there earlier and is no longer among the files goes, unless its owner changed it: a lesson whose number
    changed would else stand there twice.
    """
    if target.exists() and not target.is_dir():
        raise ValueError(f"the folder to write must be a folder; {target} is a file")
    target.mkdir(parents=True, exist_ok=True)
    copied = _read_record(target / _RECORD)
    now: dict[str, str] = {}
    written, left_alone, removed = [], [], []
    for name, content in contents:
        file, new = target / name, hashlib.sha256(content).hexdigest()
        old = _checksum(file)
        is_ours = old in (new, copied.get(name)) if old else not file.exists()
        if not is_ours or file.resolve() != target.resolve() / name:
            left_alone.append(name)
            now |= {name: copied[name]} if name in copied else {}
            continue
        if old != new:
            _replace(file, content)
            written.append(name)
        now[name] = new
    for name in [name for name in copied if name not in now]:
        file = target / name
        if _NAME.fullmatch(name) and file.resolve() == target.resolve() / name and _checksum(file) == copied[name]:
            file.unlink()
            removed.append(name)
    _replace(target / _RECORD, (json.dumps(now, indent=2) + "\n").encode())
    return CopyReport(written, left_alone, removed)


def _replace(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.new")
    temporary.unlink(missing_ok=True)  # it could be a link
    temporary.write_bytes(content)
    os.replace(temporary, file)


def fold_sidebar(workspaces: Path) -> None:
    """Let JupyterLab's first visit begin with its file browser folded; later ones begin as the last ended."""
    from jupyterlab_server.workspaces_handler import WorkspacesManager

    if not workspaces.exists():
        workspaces.mkdir(parents=True)
        layout = {"left": {"collapsed": True, "visible": True}, "right": {"collapsed": True, "visible": True}}
        workspace = {"data": {"layout-restorer:data": layout}, "metadata": {"id": "default"}}
        WorkspacesManager(str(workspaces)).save("default", json.dumps(workspace))


def lab_command(folder: Path, *, port: int, browser: bool) -> list[str]:
    """Return the command that serves `folder`: loopback only, Jupyter's own token on, the first lesson open."""
    command = [sys.executable, "-m", "jupyterlab", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"]
    command += [f"--ServerApp.root_dir={folder}", f"--LabApp.default_url=/lab/tree/{FIRST}"]
    command.append(f"--LabApp.workspaces_dir={folder / _WORKSPACES}")
    if not browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # containers run as root; loopback and token stay
    return command


def serve(command: list[str]) -> int:
    """Become this server, so that Ctrl-C and every other signal reach it; where a process cannot, run it to its exit code."""
    paths = [str(_SETTINGS), *os.environ.get("JUPYTER_CONFIG_PATH", "").split(os.pathsep)]
    environment = {
        "RLVIZ_FROZEN": "1",
        **os.environ,
        "JUPYTER_CONFIG_PATH": os.pathsep.join(path for path in paths if path),
    }
    sys.stdout.flush()
    if os.name == "posix":
        os.execve(command[0], command, environment)
    return subprocess.run(command, env=environment, check=False).returncode
