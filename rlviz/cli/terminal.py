"""What the commands share: where they write, how they refuse, and in which form they answer."""

from __future__ import annotations

import io
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from rlviz.markup import MARK

if TYPE_CHECKING:
    from rlviz.study.runner import Running

R = TypeVar("R")

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def escape_unencodable() -> None:
    """Make stdout and stderr escape characters that their encoding lacks, as on Windows in a file: \\u2212 for a minus."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def refuse_in_a_sentence() -> Iterator[None]:
    """Turn a refused value or file into one sentence and exit code 2."""
    try:
        yield
    except typer.Exit:  # a RuntimeError too
        raise
    except (ValueError, OSError, RuntimeError, FloatingPointError) as error:  # RuntimeError: torch is out of memory
        errors.print(f"[bold red]Error:[/] {plain(_sentence(error))}", soft_wrap=True)
        raise typer.Exit(2) from None


def _sentence(error: Exception) -> str:
    from small_models.files import display_path

    if isinstance(error, OSError) and error.strerror:
        return f"{display_path(error.filename) if error.filename else 'a file'} cannot be written or read ({error.strerror})"
    return " ".join(str(error).split())


def plain(text: str) -> str:
    """Return a text with escaped brackets and without control characters, which a folder's name may hold."""
    return escape("".join(character if character.isprintable() else "�" for character in text))


def plain_lines(text: str) -> str:
    """Return a text of several lines, each `plain`."""
    return "\n".join(map(plain, text.split("\n")))


def say(words: str, to: Console = console) -> None:
    """Print a sentence without markup, as one line that the terminal may wrap."""
    to.print(plain(words), soft_wrap=True)


def say_written(page: Path) -> None:
    """Say that a page is written, and how large it is."""
    say(f"Written, {round(page.stat().st_size / 1000)} kB: open {page}")


def print_json(answer: object) -> None:
    """Print an answer for programs as JSON."""
    typer.echo(json.dumps(answer, indent=2))


@contextmanager
def notes() -> Iterator[None]:
    """Print the warnings of the block on stderr when it ends."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in warned:
        errors.print(f"[bold]Note:[/] {plain(str(warning.message))}", soft_wrap=True)


def check_out(out: Path, *endings: str) -> None:
    """Raise ValueError, before minutes of work, for another ending, and for a file that is there and not as rlviz wrote it."""
    if endings and out.suffix.lower() not in endings:
        raise ValueError(f"--out must end in {', '.join(endings)}; got {out.name}")
    if out.is_file() and MARK.encode() not in out.read_bytes():
        raise ValueError(f"{out} is there already, and not as rlviz wrote it; name another --out, or remove it first")


FORMAT = typer.Option("--format", help="For people, or for programs.")
Format = Annotated[Literal["table", "json"], FORMAT]
TextFormat = Annotated[Literal["text", "json"], FORMAT]


def wide_console() -> Console:
    """Return a console for tables: in a file, each row stands on one line."""
    return console if console.is_terminal else Console(highlight=False, width=1000)


def run_with_progress(running: Running[Any, R], what: str, describe: Callable[[R], str], to: Console = console) -> None:
    """Run the remaining steps of a study under a progress bar. Raises typer.Exit where a signal stops it.

    describe: gives what stands beside the bar after each step.
    """
    from contextlib import closing

    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from rlviz.cli.signals import immediate_interrupt

    words, left = TextColumn("{task.description}"), TextColumn("left")
    columns = (words, BarColumn(), TimeElapsedColumn(), left, TimeRemainingColumn())
    progress = Progress(*columns, console=to, speed_estimate_period=600)
    with immediate_interrupt() as stopped, progress, closing(running):
        bar = progress.add_task(what, total=1000, completed=round(1000 * running.share))
        for step in running:
            progress.update(bar, completed=1000 * running.share, description=describe(step))
    if stopped:
        to.print(f"Stopped. The {what} that are done are kept; the same command goes on.")
        raise exit_after(stopped[0])


def exit_after(number: int) -> typer.Exit:
    """Return the exit of a command that this signal stopped, with the code that shells use: 130 for Ctrl-C."""
    return typer.Exit(128 + number)
