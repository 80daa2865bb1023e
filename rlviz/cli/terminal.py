"""What the commands share: where they write, how they refuse, and in which form they answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from small_models.files import said

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn a refused value or file into one sentence and exit code 2."""
    try:
        yield
    except typer.Exit:  # a RuntimeError too
        raise
    except (ValueError, OSError, RuntimeError, FloatingPointError) as error:  # RuntimeError: torch is out of memory
        errors.print(f"[bold red]Error:[/] {escape(_sentence(error))}", soft_wrap=True)
        raise typer.Exit(2) from None


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{said(error.filename) if error.filename else 'a file of the run'} cannot be written or read ({error.strerror})"
    return " ".join(str(error).split())


class OutputFormat(str, Enum):
    table = "table"
    json = "json"


Format = Annotated[OutputFormat, typer.Option("--format", help="For people, or for programs.")]


def typed(context: typer.Context, name: str) -> bool:
    """Return whether the parameter of this name was given on the command line, rather than left at its default."""
    return "COMMANDLINE" in str(context.get_parameter_source(name))
