"""`rlviz inspect`: a run, its steps and its tokens as a page that needs no kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from rlviz.cli.terminal import console, refusals

PAGE = "inspector.html"


@refusals("the page")
def inspect(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder; it may still be growing.")],
    other: Annotated[Path | None, typer.Argument(metavar="OTHER", help="A second run, shown beside it.")] = None,
    out: Annotated[
        Path | None, typer.Option(help=f"Page to write, FILE.html. [default: RUN/{PAGE}]", show_default=False)
    ] = None,
    most: Annotated[int, typer.Option(min=2, help="Steps that have their tokens in the page, evenly chosen.")] = 120,
) -> None:
    """Write a run as a page: **rlviz inspect runs/mine --out run.html**, opened by a double click.

    The whole run, one of its steps, one token: its objective with its numbers, and what the other algorithms would have made
    of the same token.
    """
    from rlviz.runs.inspector import inspect_run

    file = inspect_run(run, other).save(out or run / PAGE, most=most)
    console.print(f"Written, {round(file.stat().st_size / 1000)} kB: open {escape(str(file))}", soft_wrap=True)
