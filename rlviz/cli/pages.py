"""`rlviz site`, `playground` and `inspect`: pages that need no kernel and no network, for a web server or from the disk."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from rlviz.cli.lab import course_source
from rlviz.cli.terminal import check_out, console, say, say_written

PAGE = "inspector.html"


def site(
    out: Annotated[Path, typer.Option(help="Folder to write; an earlier site there gives way to the new one.")] = Path(
        "site"
    ),
) -> None:
    """Write a static site: live pictures, recorded runs, algorithms, lessons. All of it local: open **site/index.html**."""
    from rlviz.site.build import build

    with console.status("Drawing every explorer over its grid."):
        names = build(out, course_source())
    size = sum((out / name).stat().st_size for name in names) / 1e6
    say(f"{len(names)} files, {size:.1f} MB: open {out / 'index.html'}")


def playground(
    out: Annotated[Path, typer.Option(help="The page: one file, to open, to send or to put on any server.")] = Path(
        "rlviz-playground.html"
    ),
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in a browser.")] = True,
) -> None:
    """Write a page in which a small language model trains, and open it; it needs no kernel, no server and no network."""
    from rlviz.runs.playground import standalone_page
    from rlviz.training.files import write_text

    check_out(out, ".html")
    write_text(out, standalone_page())
    say(f"written to {out}")
    if browser and not webbrowser.open(out.resolve().as_uri()):
        console.print("No browser could be opened here; open that file in one.")


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

    if out is not None:
        check_out(out)
    say_written(inspect_run(run, other).save(out or run / PAGE, most=most))
