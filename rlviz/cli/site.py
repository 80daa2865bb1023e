"""`rlviz site`: the pictures, recorded runs, algorithms and lessons as static pages, for a web server or from the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from rlviz.cli.lab import course_source
from rlviz.cli.terminal import console, refusals


def site(
    out: Annotated[Path, typer.Option(help="Folder to write; an earlier site there gives way to the new one.")] = Path(
        "site"
    ),
) -> None:
    """Write a static site: live pictures, recorded runs, algorithms, lessons. All of it local: open **site/index.html**."""
    with refusals("the site"):
        from rlviz.site.build import build, refuse_foreign

        refuse_foreign(out)
        with console.status("Drawing every explorer over its grid."):
            names = build(out, course_source())
        size = sum((out / name).stat().st_size for name in names) / 1e6
        console.print(f"{len(names)} files, {size:.1f} MB: open {escape(str(out / 'index.html'))}", soft_wrap=True)
